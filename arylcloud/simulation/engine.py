"""The event engine: values on a heap, in the order of time, priority and insertion.

Events are data, handlers are given when it runs: a run can be logged, replayed and compared. Time only
moves forward; ``run(a)`` then ``run(b)`` is ``run(b)``; equal times keep the order of insertion, so that the
same inputs give the same run (after simpy's ``core.py``, whose generator processes are left out).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

E = TypeVar("E")


@dataclass(frozen=True, slots=True, order=True)
class Due(Generic[E]):
    """One event that is to come. Compared by when it is due, never by what it is."""

    at_s: float
    priority: int
    """Smaller first among events of one moment."""
    sequence: int
    event: E = field(compare=False)


@dataclass(slots=True)
class Engine(Generic[E]):
    """A clock and what is to come.

    >>> engine, seen = Engine(), []
    >>> for text, at_s in (("b", 2.0), ("a", 1.0), ("c", 2.0)):
    ...     _ = engine.schedule(at_s, text)
    >>> engine.run(5.0, lambda due: seen.append(due.event)); seen
    3
    ['a', 'b', 'c']
    """

    now_s: float = 0.0
    _heap: list[Due[E]] = field(default_factory=list)
    _count: int = 0

    def schedule(self, at_s: float, event: E, *, priority: int = 0) -> Due[E]:
        """Put ``event`` at ``at_s`` (seconds, not before now). ValueError for the past and for NaN."""
        if not at_s >= self.now_s or math.isinf(at_s):
            raise ValueError(f"cannot schedule at {at_s}: it is {self.now_s}")
        due = Due(at_s, priority, self._count, event)
        self._count += 1
        heapq.heappush(self._heap, due)
        return due

    def peek_s(self) -> float:
        """When the next event is due; infinity if none is."""
        return self._heap[0].at_s if self._heap else math.inf

    def step(self) -> Due[E]:
        """Take the next event; the clock is then at its time. IndexError if there is none."""
        due = heapq.heappop(self._heap)
        self.now_s = due.at_s
        return due

    def run(self, until_s: float, handle: Callable[[Due[E]], object]) -> int:
        """Handle everything due at or before ``until_s``, what handlers schedule included; the clock is
        then at ``until_s``. Returns how many were handled."""
        handled = 0
        while self.peek_s() <= until_s:
            handle(self.step())
            handled += 1
        self.now_s = max(self.now_s, until_s)
        return handled
