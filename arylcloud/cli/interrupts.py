"""Ctrl-C at a moment of our choosing: never between two halves of one thing.

From a job's submission on, a signal only leaves a wish, which the watcher looks for several times a
second. What is being written is written to its end, and the terminal is left as it was. A second Ctrl-C
does not wait.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """A context in which SIGINT, SIGTERM and SIGHUP are noted. Only the main thread gets signals: in
    any other this does nothing."""

    def __init__(self) -> None:
        self.wish: signal.Signals | None = None
        """The signal that came and has not been answered."""
        self.impatient = False
        """Ctrl-C is an exception at once: for the time of a question."""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` wants it
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)

    def take(self) -> signal.Signals | None:
        """The wish, which is then answered."""
        found, self.wish = self.wish, None
        return found

    def _note(self, number: int, _frame: FrameType | None) -> None:
        again = self.wish is signal.SIGINT
        self.wish = signal.Signals(number)
        if self.wish is signal.SIGINT and (again or self.impatient):
            raise KeyboardInterrupt
