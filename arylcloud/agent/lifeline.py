"""The agent's side of the dead-man's timer (``watchdog.py``): a process that needs no agent, fed
through a pipe, so that a full disk cannot make it end a machine that has been renewed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

MARGIN_S = 60.0
SCRIPT = Path(__file__).with_name("watchdog.py")


class Lifeline:
    def __init__(self, *, log: Callable[[str], None]) -> None:
        self._log = log
        self._told_s: float | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def keep(self, off_s: float | None) -> None:
        """The machine must be off at ``off_s`` (wall seconds), come what may. None = no limit known."""
        if off_s is None or (self._told_s is not None and abs(off_s - self._told_s) <= 1.0):
            return
        try:
            if self._process is None or self._process.poll() is not None:
                argv = [sys.executable, "-I", "-S", str(SCRIPT), str(os.getpid())]
                self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, bufsize=0)
            assert self._process.stdin is not None
            self._process.stdin.write(f"{off_s}\n".encode())
            self._told_s = off_s
        except OSError as error:  # tried again at the next turn
            self._log(f"the timer of this machine's end cannot be set: {error}")

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.kill()
            self._process.wait()
