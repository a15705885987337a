"""Who gives way to a waiting job that is nearly done: preemptive shortest-remaining-time, sparingly.

A job may take the place of one running job of at least as many GPUs whose remaining GPU-time is more than
``TIMES`` its own, and that would hold them ``MARGIN_S`` longer than its own GPU-time takes on them: then the
exchange shortens the sum of completion times although the other has to save, wait and start again (and of
long jobs the wide ones wait, so that few do). The smallest sufficient size is looked at first, of one size
the job that ends last.

Ends and remaining times are of one kind, both estimated or both true: a job whose end is true and whose
remaining time, once it waits, is estimated too low takes its place back in the same instant, and so on for
ever. That cannot happen whatever the ends are: who gives way has, as it would wait, more GPU-time to do than
who comes. GPU-times stand still within an instant, so that each exchange lowers the sum of those that run,
and n jobs make fewer than n² exchanges.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

TIMES = 2.0
MARGIN_S = 1800.0


class Running:
    """The running jobs of one pool by GPUs, the latest to finish first. Entries grow stale; who asks says
    which are still true.

    >>> jobs = Running()
    >>> jobs.add(1, 8, 9000.0, 1); jobs.add(2, 8, 50.0, 1)
    >>> jobs.victim(4, 600.0, 0.0, lambda job, version: True, lambda job: 9000.0)
    1
    """

    def __init__(self) -> None:
        self._by_gpus: dict[int, list[tuple[float, int, int]]] = {}

    def add(self, job: int, gpus: int, ends_s: float, version: int) -> None:
        heapq.heappush(self._by_gpus.setdefault(gpus, []), (-ends_s, job, version))

    def victim(
        self,
        gpus: int,
        left_s: float,
        now_s: float,
        true: Callable[[int, int], bool],
        waits_s: Callable[[int], float],
    ) -> int | None:
        """The job that gives way to one of ``gpus`` GPUs with ``left_s`` to go; None = nobody. ``waits_s``:
        what a running job would have to go if it waited from now on."""
        for size in sorted(self._by_gpus):
            same_s = left_s * gpus / size
            least = now_s + max(TIMES * same_s, same_s + MARGIN_S)
            heap = self._by_gpus[size]
            while heap and not true(heap[0][1], heap[0][2]):
                heapq.heappop(heap)
            if size < gpus or not heap or -heap[0][0] <= least:
                continue
            other = heap[0][1]
            if waits_s(other) * size > left_s * gpus:
                return other
        return None
