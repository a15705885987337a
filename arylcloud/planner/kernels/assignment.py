"""Jobs to typed machines so that the sum of their completion times is least: exact, without a matrix.

AlloX states it as an n × (n·machines) assignment. The machines of a type are alike, so it is a transport
problem over *positions*: (type j, k-th from the end) has room for one job of each of the ``M_j`` machines
and costs a job ``k·d_ij``. For a given split of the jobs over the types the best order is known (shortest
first), so the state is the split alone. Two steps:

1. *Descent*: move many jobs at once, by what each gains alone, fewer where they get in one another's way.
2. *Negative cycles* in the residual graph of the positions (Klein 1967; Bellman–Ford from all nodes). A
   job enters another type only at its place in the order; from there one job per position is pushed on,
   which is a chain of the smallest (or back: largest) members. So each round is a few passes over n.

When no cycle is left the distances are the dual prices that prove the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arylcloud.planner.cluster import F, I

_EXACT = 1e-12
"""Improvements below this part of the total are rounding."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Assignment:
    """Who waits where; prices prove it: ``total = Σ_i min_jk (k·d_ij + p_jk) − Σ_jk M_j·p_jk``."""

    kind: I
    """(n,) type of the machine."""
    position: I
    """(n,) from the end: 1 = runs last."""
    first: I
    """Jobs that run now: on each type the shortest of its jobs, one for each machine."""
    total: float
    """``Σ_i position_i·d_i``: the sum of completion times, in the unit of ``seconds``."""
    prices: tuple[F, ...]
    """For each type the dual prices of its positions 1, 2, …; those beyond are 0."""


def least_total_completion(seconds: F, machines: I) -> Assignment:
    """``min Σ_i k_i·d_i,j(i)`` over types j(i) and positions k_i, at most ``M_j`` jobs at each (j, k).

    ``seconds`` d, shape (n, m): duration of job i on a machine of type j, inf = cannot run there; each
    job has a finite one. ``machines`` M, shape (m,), ≥ 1. Cost grows about as n^1.2 for three types
    (n = 400: 10–40 ms).

    >>> a = least_total_completion(np.array([[3.0, 9.0], [2.0, 8.0], [4.0, 5.0]]), np.array([1, 1]))
    >>> a.kind.tolist(), a.position.tolist(), a.first.tolist(), a.total
    ([0, 0, 1], [1, 2, 1], [1, 2], 12.0)
    """
    if not len(seconds):
        none = np.zeros(0, dtype=np.int64)
        empty = tuple(np.zeros(0) for _ in machines)
        return Assignment(kind=none, position=none, first=none, total=0.0, prices=empty)
    split = _descend(_Split(seconds, machines, seconds.argmin(axis=1)))
    while True:
        graph = _Graph(split)
        better = graph.cancelled()
        if better is None:
            break
        split = better
    runs = [
        split.order[max(low, high - m) : high] for low, high, m in zip(*split.bounds, machines, strict=True)
    ]
    return Assignment(
        kind=split.kind,
        position=split.position,
        first=np.sort(np.concatenate(runs)),
        total=split.total,
        prices=graph.prices(),
    )


class _Split:
    """The jobs of each type in their best order: longest first, ``M_j`` to a position."""

    def __init__(self, seconds: F, machines: I, kind: I) -> None:
        n, m = seconds.shape
        self.seconds, self.machines, self.kind = seconds, machines, kind
        self.own: F = seconds[np.arange(n), kind]
        self.order: I = np.lexsort((-self.own, kind))
        self.count: I = np.bincount(kind, minlength=m)
        self.start: I = np.concatenate(([0], np.cumsum(self.count)))
        sorted_kind = kind[self.order]
        self.position: I = np.empty(n, dtype=np.int64)
        self.position[self.order] = (np.arange(n) - self.start[sorted_kind]) // machines[sorted_kind] + 1
        self.total = float((self.position * self.own).sum())

    @property
    def bounds(self) -> tuple[list[int], list[int]]:
        return self.start[:-1].tolist(), self.start[1:].tolist()

    def moved(self, jobs: I, kinds: I) -> _Split:
        kind = self.kind.copy()
        kind[jobs] = kinds
        return _Split(self.seconds, self.machines, kind)


class _Queue:
    """One type's positions 1 … K: their longest and shortest jobs, and where every job would go in."""

    def __init__(self, split: _Split, j: int) -> None:
        start, count, room = int(split.start[j]), int(split.count[j]), int(split.machines[j])
        jobs = split.order[start : start + count]
        durations = split.own[jobs]
        last = np.minimum(np.arange(room, count + room, room), count) - 1
        self.size = len(last)
        self.spare = count % room != 0
        self.longest_job: I = jobs[::room]
        self.shortest_job: I = jobs[last]
        self.longest: F = durations[::room]
        self.shortest: F = durations[last]
        longer = np.searchsorted(-durations, -split.seconds[:, j], side="left")
        self.after: I = np.where(longer < count, longer // room, self.size)
        """(n,) positions of which all jobs are longer: going in behind them pushes shorter ones on."""
        self.among: I = -(-longer // room)
        """(n,) positions of which any job is longer."""


def _descend(split: _Split) -> _Split:
    """Moves of single jobs until none helps."""
    n, m = split.seconds.shape
    rows = np.arange(n)
    at_once = max(1, n // 4)
    while True:
        gain = np.empty((n, m))
        leave = np.empty(n)
        for j in range(m):
            queue = _Queue(split, j)
            pushes = queue.size - queue.spare
            tail = np.zeros(pushes + 1)
            tail[:pushes] = np.cumsum(queue.shortest[:pushes][::-1])[::-1]
            enter = np.minimum(queue.after, pushes)
            gain[:, j] = (enter + 1) * split.seconds[:, j] + tail[enter]
            pulls = np.concatenate((np.cumsum(queue.longest[::-1])[::-1], [0.0]))
            mine = split.kind == j
            leave[mine] = split.position[mine] * split.own[mine] + pulls[split.position[mine]]
        gain[rows, split.kind] = np.inf
        to = gain.argmin(axis=1)
        change = gain[rows, to] - leave
        movers = np.flatnonzero(change < -_EXACT * split.total)
        movers = movers[np.argsort(change[movers], kind="stable")]
        while len(movers):
            chosen = movers[:at_once]
            tried = split.moved(chosen, to[chosen])
            if tried.total < split.total:
                split, at_once = tried, 2 * at_once
                break
            if at_once == 1:
                return split
            at_once = max(1, min(at_once, len(movers)) // 4)
        else:
            return split


class _Graph:
    """Residual graph of a split. Nodes: the positions of each type and one empty one after them; the last
    node is the sink, where a position with room lets go."""

    def __init__(self, split: _Split) -> None:
        self.split = split
        types = range(len(split.machines))
        self.queues = [_Queue(split, j) for j in types]
        self.offset = np.concatenate(([0], np.cumsum([queue.size + 1 for queue in self.queues])))
        self.sink = int(self.offset[-1])
        self.distance: F = np.zeros(self.sink + 1)
        self.parent: I = np.full(self.sink + 1, -1)
        self.job: I = np.full(self.sink + 1, -1)
        """The job that moves along the way from the parent; -1 = none does."""
        self.used = np.delete(np.arange(self.sink), self.offset[1:] - 1)
        spare = [self.offset[j] + self.queues[j].size - 1 for j in types if self.queues[j].spare]
        self.room = np.concatenate((self.offset[1:] - 1, np.array(spare, dtype=np.int64)))
        self.rounding = _EXACT * split.total
        self._landings()

    def _landings(self) -> None:
        """Every way of a job into another type, sorted by where it leads."""
        split = self.split
        stays = split.position * split.own
        leaves = self.offset[split.kind] + split.position - 1
        jobs, heads, costs = [], [], []
        for j, queue in enumerate(self.queues):
            others = np.flatnonzero((split.kind != j) & np.isfinite(split.seconds[:, j]))
            for k, who in ((queue.after + 1, others), (queue.among, others[queue.among[others] > 0])):
                jobs.append(who)
                heads.append(self.offset[j] + k[who] - 1)
                costs.append(k[who] * split.seconds[who, j] - stays[who])
        head = np.concatenate(heads)
        order = np.argsort(head, kind="stable")
        self.mover: I = np.concatenate(jobs)[order]
        self.tail: I = leaves[self.mover]
        self.cost: F = np.concatenate(costs)[order]
        head = head[order]
        self.first: I = np.flatnonzero(np.diff(head, prepend=-1))
        self.heads: I = head[self.first]
        self.widths = np.diff(np.append(self.first, len(head)))

    def cancelled(self) -> _Split | None:
        """A better split, or None where this one is optimal."""
        while True:
            before = self.distance.copy()
            self._land()
            self._sink()
            for j in range(len(self.queues)):
                self._push(j)
            nearer = np.flatnonzero(self.distance < before)
            if not len(nearer):
                return None
            cycles = _cycles(self.parent.tolist(), nearer.tolist())
            for some in (cycles, cycles[:1]) if cycles else ():
                nodes = np.array([node for cycle in some for node in cycle])
                nodes = nodes[self.job[nodes] >= 0]
                kinds = np.searchsorted(self.offset, nodes, side="right") - 1
                better = self.split.moved(self.job[nodes], kinds)
                if better.total < self.split.total:
                    return better
            if cycles:
                return None  # a cycle of rounding errors

    def _reach(self, nodes: I, distance: F, parent: I, job: I) -> None:
        nearer = distance < self.distance[nodes] - self.rounding
        nodes = nodes[nearer]
        self.distance[nodes] = distance[nearer]
        self.parent[nodes] = parent[nearer]
        self.job[nodes] = job[nearer]

    def _land(self) -> None:
        if not len(self.first):
            return
        reached = self.distance[self.tail] + self.cost
        best = np.minimum.reduceat(reached, self.first)
        ties = np.flatnonzero(reached == np.repeat(best, self.widths))
        at = ties[np.searchsorted(ties, self.first)]
        self._reach(self.heads, best, self.tail[at], self.mover[at])

    def _sink(self) -> None:
        sink = np.array([self.sink])
        nearest = self.room[[self.distance[self.room].argmin()]]
        self._reach(sink, self.distance[nearest], nearest, np.array([-1]))
        nobody = np.full(len(self.used), -1)
        self._reach(
            self.used, self.distance[np.full(len(self.used), self.sink)], nobody + self.sink + 1, nobody
        )

    def _push(self, j: int) -> None:
        """Within a type: the shortest of a position goes one earlier in time, or the longest one later."""
        queue, low = self.queues[j], int(self.offset[j])
        nodes = np.arange(low, low + queue.size + 1)
        climbed = np.concatenate(([0.0], np.cumsum(queue.shortest)))
        reached = np.minimum.accumulate(self.distance[nodes] - climbed) + climbed
        self._reach(nodes[1:], reached[1:], nodes[:-1], queue.shortest_job)
        if queue.size > 1:
            nodes = nodes[:-1]
            fallen = np.concatenate(([0.0], np.cumsum(queue.longest[1:])))
            reached = np.minimum.accumulate((self.distance[nodes] - fallen)[::-1])[::-1] + fallen
            self._reach(nodes[:-1], reached[:-1], nodes[1:], queue.longest_job[1:])

    def prices(self) -> tuple[F, ...]:
        above = np.maximum(self.distance[self.sink] - self.distance, 0.0)
        return tuple(
            above[low : low + queue.size] for low, queue in zip(self.offset, self.queues, strict=False)
        )


def _cycles(parent: list[int], starts: list[int]) -> list[list[int]]:
    """Cycles that the parents' pointers make; each is one of negative cost."""
    seen: dict[int, int] = {}
    found = []
    for start in starts:
        node = start
        while node >= 0 and node not in seen:
            seen[node] = start
            node = parent[node]
        if node >= 0 and seen[node] == start:
            cycle = [node]
            while parent[cycle[-1]] != node:
                cycle.append(parent[cycle[-1]])
            found.append(cycle)
    return found
