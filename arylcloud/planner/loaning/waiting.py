"""Phase 1: who waits, in order, and who of them starts now.

Jobs wait in classes of equal need, each a heap by key (submission for FIFO, remaining time for SJF). A pass
walks the classes' heads in order of key and starts each job that fits; one that does not is passed over
(backfill). A class that fails stays out until the pass ends, and with it every class that needs at least as
much: what fits n GPUs fits fewer, and starting a job only takes room.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

Need = tuple[int, bool]
"""(GPUs, may run on loaned servers)."""


class Waiting:
    """The queue. A job stands in it once.

    >>> queue = Waiting()
    >>> for job, gpus in ((0, 8), (1, 2), (2, 4)):
    ...     queue.push(float(job), job, (gpus, False))
    >>> room = [7]
    >>> def start(job: int, need: Need) -> bool:
    ...     room[0] -= need[0] if need[0] <= room[0] else 0
    ...     return need[0] <= room[0] + need[0] and job != 0
    >>> queue.admit(start), len(queue)
    ([1, 2], 1)
    """

    def __init__(self) -> None:
        self._classes: dict[Need, list[tuple[float, int]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, key: float, job: int, need: Need) -> None:
        """Add a job; smaller keys first, then smaller job numbers."""
        heapq.heappush(self._classes.setdefault(need, []), (key, job))
        self._count += 1

    def admit(self, start: Callable[[int, Need], bool], *, strict: bool = False) -> list[int]:
        """Start what fits, in order: ``start(job, need)`` says whether it did. ``strict``: nobody overtakes
        (head of line). Returns the jobs started."""
        heads = [(heap[0], need) for need, heap in self._classes.items() if heap]
        heapq.heapify(heads)
        started: list[int] = []
        failed = [1 << 30, 1 << 30]  # least GPUs that do not fit: own servers only, loaned ones too
        while heads:
            (_, job), need = heads[0]
            gpus, fungible = need
            if gpus >= failed[fungible]:
                heapq.heappop(heads)
            elif start(job, need):
                heap = self._classes[need]
                heapq.heappop(heap)
                self._count -= 1
                started.append(job)
                if heap:
                    heapq.heapreplace(heads, (heap[0], need))
                else:
                    heapq.heappop(heads)
            elif strict:
                break
            else:
                failed[fungible] = gpus
                if fungible:
                    failed[0] = min(failed[0], gpus)
                heapq.heappop(heads)
        return started

    def heads(self) -> list[tuple[float, int, Need]]:
        """The first of each class, by key."""
        return sorted((*heap[0], need) for need, heap in self._classes.items() if heap)

    def pop(self, need: Need) -> int:
        """Take the first of a class out."""
        self._count -= 1
        return heapq.heappop(self._classes[need])[1]
