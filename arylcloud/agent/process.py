"""A running command: started under a supervisor, its output pumped to whoever wants it.

The shell's conventions hold: exit code 128 + n for signal n, 127 for what cannot be found. Signals
go to every process of the command's group; SIGKILL to every descendant.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from arylcloud.agent.mask import Masker
from arylcloud.training import supervise

SUPERVISOR = Path(supervise.__file__)
_MAX_INLINE = 100_000
"""One argument of a command line may have 128 KiB on Linux; longer scripts go through a file."""


def shell_argv(script: str, scratch: Path) -> list[str]:
    """bash where there is one (SkyPilot task files are bash), else sh."""
    shell = shutil.which("bash") or "/bin/sh"
    if len(script.encode()) <= _MAX_INLINE:
        return [shell, "-c", script]
    path = scratch / "script.sh"
    path.write_text(script)
    return [shell, str(path)]


def signal_number(name: str) -> int:
    """``SIGTERM``, ``TERM`` or ``15``; what is no signal's name counts as SIGTERM."""
    text = name.strip().upper()
    if text.isdigit():
        return int(text)
    text = text if text.startswith("SIG") else f"SIG{text}"
    found = getattr(signal, text, signal.SIGTERM)
    return int(found) if isinstance(found, signal.Signals) else int(signal.SIGTERM)


class Command:
    """Starts at once; ``output`` gets all that it prints, without the values of ``secrets``.

    Raises OSError if not even the supervisor can be started."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        output: Callable[[bytes], None],
        secrets: Collection[str] = (),
    ) -> None:
        self._output = output
        self._masker = Masker(secrets)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SUPERVISOR), *argv],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._pump, name="output", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Of the supervisor."""
        return self._process.pid

    def signal(self, number: int) -> None:
        """To every process of the command; what is over already is left alone."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(f"{number}\n".encode())

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """The exit code once the command is over and all its output has been pumped."""
        if self._process.poll() is None:
            return None
        self._reader.join(timeout=2.0)  # a process that escaped may hold the pipe open
        return self._code()

    def wait(self, timeout_s: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        self._process.wait(timeout_s)
        self._reader.join(timeout=2.0)
        return self._code()

    def close(self) -> None:
        """Let go of the pipe: whatever still runs is killed by the supervisor."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def _code(self) -> int:
        code = self._process.returncode
        self.close()
        return 128 - code if code < 0 else code

    def _pump(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            while data := os.read(pipe.fileno(), 65536):
                self._give(self._masker.feed(data))
        self._give(self._masker.close())

    def _give(self, data: bytes) -> None:
        if data:
            self._output(data)
