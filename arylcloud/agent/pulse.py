"""How long a command has shown nothing: its steps and its output, by a clock that nobody sets. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEAST_GROWTHS: Final = 4
"""Fewer say nothing about what is usual: the first steps compile, warm caches, read data."""


@dataclass(slots=True)
class Pulse:
    """Of one command. Moments are monotonic seconds.

    >>> pulse = Pulse(0.0, 0)
    >>> for at_s, step in enumerate((None, 1, 3, 5, 7, 9)):
    ...     pulse.stepped(step, 10.0 * at_s)
    >>> pulse.step_age_s(65.0), pulse.step_gap_s(), pulse.quiet_s(65.0)
    (15.0, 10.0, 65.0)
    """

    started_s: float
    step: int
    """The newest; at first the one that the command goes on from."""
    _grew_s: float | None = None
    _first_s: float | None = None
    _growths: int = 0
    _said_s: float | None = None

    def stepped(self, step: int | None, now_s: float) -> None:
        """What it says of itself now."""
        if step is None or step <= self.step:
            return
        self.step = step
        self._growths += 1
        self._grew_s = now_s
        if self._first_s is None:
            self._first_s = now_s

    def said(self, now_s: float) -> None:
        self._said_s = now_s

    def step_age_s(self, now_s: float) -> float | None:
        return None if self._grew_s is None else max(0.0, now_s - self._grew_s)

    def step_gap_s(self) -> float | None:
        """Mean time from one growth that was seen to the next."""
        if self._grew_s is None or self._first_s is None or self._growths < LEAST_GROWTHS:
            return None
        return (self._grew_s - self._first_s) / (self._growths - 1)

    def quiet_s(self, now_s: float) -> float:
        return max(0.0, now_s - (self.started_s if self._said_s is None else self._said_s))
