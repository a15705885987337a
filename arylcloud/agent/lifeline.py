"""The agent's side of the dead-man's timer (``watchdog.py``): a process that ends the machine although
the agent hangs (without an agent, the boot stub does), fed through a pipe, so that a full disk cannot
make it end a machine that has been renewed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from arylcloud.core.clock import Clock

MARGIN_S = 60.0
PAUSE_S = 5.0
"""At most one timer is started in this time: where none can live, trying does not fill the log."""
TELL_AGAIN_S = 60.0
"""The timer counts seconds; ``clock`` may run a little off them while it follows a wall that was set."""
SCRIPT = Path(__file__).with_name("watchdog.py")


class Lifeline:
    def __init__(self, *, clock: Clock, log: Callable[[str], None]) -> None:
        self._clock = clock
        self._log = log
        self._started_s = float("-inf")
        self._told_s: float | None = None
        self._told_at_s = float("-inf")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def keep(self, off_s: float | None) -> None:
        """The machine must be off at ``off_s`` (by ``clock``), come what may. None = no limit known.
        Cheap: called at every turn, so that a timer that has died is replaced by the next one."""
        if self._process is not None and (code := self._process.poll()) is not None:
            self._log(f"the timer of this machine's end has ended ({code}): starting another")
            self._forget()
        if off_s is None:
            return
        known = self._told_s is not None and abs(off_s - self._told_s) <= 1.0
        if known and self._clock.monotonic_s() - self._told_at_s < TELL_AGAIN_S:
            return
        try:
            if self._process is None:
                if self._clock.monotonic_s() - self._started_s < PAUSE_S:
                    return
                self._started_s = self._clock.monotonic_s()
                argv = [sys.executable, "-I", "-S", str(SCRIPT), str(os.getpid())]
                self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, bufsize=0)
            assert self._process.stdin is not None
            self._process.stdin.write(f"{off_s - self._clock.now_s()}\n".encode())
            self._told_s, self._told_at_s = off_s, self._clock.monotonic_s()
        except OSError as error:  # tried again at the next turn
            self._log(f"the timer of this machine's end cannot be set: {error}")

    def _forget(self) -> None:
        """It knows nothing any more, so the next one is told afresh."""
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process = self._told_s = None

    def close(self) -> None:
        if self._process is not None:
            process = self._process
            self._forget()
            process.kill()
            process.wait()
