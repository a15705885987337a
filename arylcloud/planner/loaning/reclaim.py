"""Which borrowed servers go back, when some must, and which jobs that ends.

Order: idle servers, then servers that hold flexible workers only (their jobs shrink, none ends), then, one at
a time, the server of least *server preemption cost* among the rest. A job that loses one base worker is ended
everywhere, so its loss is one however many of its servers return: it is spread over the servers it occupies,
``cost(s) = Σ_{j on s} loss_j / |servers of j|``, and a server whose jobs have all been ended costs nothing
and goes next. The exact problem is a minimum k-union (NP-hard).

What a job's loss is, is the caller's: 1 counts jobs (Aryl, arXiv 2202.07896); work since the last checkpoint
plus the restart, times its GPUs, in dollars, is what it really costs (ours). With several servers to return
the greedy choice is improved by swaps: a server given back is exchanged for another while the total falls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

Hosts = Mapping[int, Collection[int]]
"""Server → jobs with a base worker on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """The servers to return, in the order chosen, and the jobs that end by it."""

    servers: tuple[int, ...]
    ended: tuple[int, ...]
    loss: float
    """Sum of the ended jobs' losses."""


def cheapest(hosts: Hosts, count: int, loss: Mapping[int, float], *, swaps: bool = True) -> Return:
    """``count`` servers of ``hosts`` by least preemption cost; ties: fewest jobs, then the lowest number.

    Aryl's greedy choice; ``swaps`` improves it (never dearer).

    >>> hosts = {0: {1, 2}, 1: {3}, 2: {3}, 3: {4}}
    >>> cheapest(hosts, 2, {1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0}).servers
    (1, 2)
    """
    _check(hosts, count)
    spread = {job: loss[job] / k for job, k in _spans(hosts).items()}
    ended: set[int] = set()
    chosen: list[int] = []
    left = set(hosts)
    for _ in range(count):
        cost = {s: sum(spread[j] for j in hosts[s] if j not in ended) for s in left}
        s = min(left, key=lambda s: (cost[s], len(hosts[s]), s))
        left.discard(s)
        chosen.append(s)
        ended.update(hosts[s])
    if swaps and ended:
        _swap(chosen, left, hosts, loss)
    return _answer(chosen, hosts, loss)


def in_order(hosts: Hosts, count: int, order: Iterable[int], loss: Mapping[int, float]) -> Return:
    """The first ``count`` servers in a given order; but a server that no longer holds a job goes first."""
    _check(hosts, count)
    ended: set[int] = set()
    chosen: list[int] = []
    queue = list(order)
    while len(chosen) < count:
        s = next((s for s in queue if ended.issuperset(hosts[s])), queue[0])
        queue.remove(s)
        chosen.append(s)
        ended.update(hosts[s])
    return _answer(chosen, hosts, loss)


def fewest_jobs(hosts: Hosts, count: int, loss: Mapping[int, float]) -> Return:
    """Servers with the fewest jobs first: a baseline."""
    return in_order(hosts, count, sorted(hosts, key=lambda s: (len(hosts[s]), s)), loss)


def least(hosts: Hosts, count: int, loss: Mapping[int, float]) -> Return:
    """The exact answer by trying every choice: C(n, count) of them."""
    _check(hosts, count)
    best: Return | None = None
    for chosen in combinations(sorted(hosts), count):
        found = _answer(chosen, hosts, loss)
        if best is None or found.loss < best.loss:
            best = found
    assert best is not None
    return best


def _swap(chosen: list[int], left: set[int], hosts: Hosts, loss: Mapping[int, float]) -> None:
    """Exchange one server at a time for one that stays, while that makes the total smaller."""
    holds: dict[int, int] = {}
    for s in chosen:
        for j in hosts[s]:
            holds[j] = holds.get(j, 0) + 1
    for _ in range(4 * len(chosen)):
        best, at = -1e-12, None
        for i, out in enumerate(chosen):
            saved = sum(loss[j] for j in hosts[out] if holds[j] == 1)
            if saved <= 0:
                continue
            mine = hosts[out]
            for s in left:
                added = sum(loss[j] for j in hosts[s] if holds.get(j, 0) - (j in mine) == 0)
                if added - saved < best:
                    best, at = added - saved, (i, s)
        if at is None:
            return
        i, s = at
        for j in hosts[chosen[i]]:
            holds[j] -= 1
        for j in hosts[s]:
            holds[j] = holds.get(j, 0) + 1
        left.discard(s)
        left.add(chosen[i])
        chosen[i] = s


def _spans(hosts: Hosts) -> dict[int, int]:
    spans: dict[int, int] = {}
    for jobs in hosts.values():
        for j in jobs:
            spans[j] = spans.get(j, 0) + 1
    return spans


def _answer(chosen: Iterable[int], hosts: Hosts, loss: Mapping[int, float]) -> Return:
    servers = tuple(chosen)
    ended = tuple(sorted({j for s in servers for j in hosts[s]}))
    return Return(servers=servers, ended=ended, loss=sum(loss[j] for j in ended))


def _check(hosts: Hosts, count: int) -> None:
    if count > len(hosts):
        raise ValueError(f"{count} servers to return, {len(hosts)} there")
