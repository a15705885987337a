"""Which jobs are there, as far as they have to be known, and which are waited for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from arylcloud.core.errors import UsageError
from arylcloud.planner.cluster import F, I
from arylcloud.simulation.cluster.book import Book
from arylcloud.simulation.cluster.workload import Workload, fits

Source = Callable[[int], Workload]
"""The first so many jobs of a stream without end; a longer answer begins with the shorter one."""


class Feed:
    """Jobs in order of arrival, made as far as they are needed; and which of them are waited for."""

    def __init__(
        self, source: Source | Workload, workers: I, round_s: float, window: tuple[int, int] | None
    ) -> None:
        self.more = source if callable(source) else None
        self.workers, self.round_s, self.next = workers, round_s, 0
        if callable(source):
            if window is None:
                raise UsageError("a stream of jobs without end needs a window", hint="--window 4000:5000")
            self.workload = source(window[1] + 1)
        else:
            self.workload = source
        n = len(self.workload)
        self.first, self.last = window or (0, n)
        if not 0 <= self.first < self.last <= n:
            raise UsageError(f"window {self.first}:{self.last} of {n} jobs", hint=f"--window 0:{n} at most")
        self.target = self.last - self.first
        self._check(0)

    def _check(self, first: int) -> None:
        possible = fits(self.workload, self.workers, self.round_s)[first:].any(axis=1)
        if not possible.all():
            i = first + int(np.flatnonzero(~possible)[0])
            raise UsageError(
                f"job {self.workload.names[i]} on {self.workload.gpus[i]} GPUs runs on none of "
                f"{', '.join(self.workload.worker_types)}",
                hint="more --capacity of a type that can; a longer --round-s if a step outlasts the round",
            )

    def due(self, now_s: float) -> I:
        while self.more is not None and self.workload.arrival_s[-1] <= now_s:
            before = len(self.workload)
            self.workload = self.more(2 * before)
            self._check(before)
        until = int(np.searchsorted(self.workload.arrival_s, now_s, side="right"))
        first, self.next = self.next, until
        return np.arange(first, until, dtype=np.int64)

    def next_s(self) -> float:
        return float(self.workload.arrival_s[self.next]) if self.next < len(self.workload) else np.inf

    def finished(self, book: Book, job: I, finish_s: F) -> None:
        book.finish_s[job] = finish_s
        book.ended += int(((job >= self.first) & (job < self.last)).sum())

    def done(self, book: Book) -> bool:
        return book.ended >= self.target
