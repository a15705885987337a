"""First in, first out: who came first holds its GPUs to the end, nobody overtakes.

The queue is walked in order of arrival and stops at the first job that fits on no type. A job that has no
throughput on the type that it would get is left out until the next call and blocks nobody.
"""

from __future__ import annotations

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem, F, I

GAIN = 1.5
"""Two jobs share GPUs where their rates, each over its rate alone, sum to more than this (Gavel's own)."""


def fifo(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Gavel (OSDI 2020), agnostic: a uniformly random type among those with ``s_i`` free workers.

    Jobs that were placed stay where they are, as long as their workers are there; the head of the queue
    inherits the slot of a job that has ended. The published code draws the type and then uses another (the
    last free one by name, whether free or not); this is the rule it meant. ``memory``: {job id: name of its
    type}.

    Returns 0/1 shares, shape (n, m).
    """
    placed: I = np.full(len(problem), -1)
    free = problem.workers.copy()
    held = problem.memory if isinstance(problem.memory, dict) else {}
    at = {int(job): i for i, job in enumerate(problem.ids)}
    column = {name: j for j, name in enumerate(problem.worker_types)}
    for job, name in held.items():
        i, j = at.get(job, -1), column.get(name, -1)
        if i >= 0 and j >= 0 and problem.gpus[i] <= free[j]:
            placed[i] = j
            free[j] -= problem.gpus[i]
    queue = [i for i in range(len(problem)) if placed[i] < 0]
    for name in (name for job, name in held.items() if job not in at and name in column):
        j = column[name]
        if queue and problem.gpus[queue[0]] <= free[j] and problem.throughput[queue[0], j] > 0:
            i = queue.pop(0)
            placed[i] = j
            free[j] -= problem.gpus[i]
    by_name = np.argsort(problem.worker_types)
    for i in queue:
        fits = [j for j in by_name if free[j] >= problem.gpus[i]]
        if not fits:
            break
        j = fits[int(rng.integers(len(fits)))]
        if problem.throughput[i, j] > 0:
            placed[i] = j
            free[j] -= problem.gpus[i]
    memory = {int(problem.ids[i]): problem.worker_types[placed[i]] for i in np.flatnonzero(placed >= 0)}
    return Allocation(shares=_whole(placed, len(problem.workers)), memory=memory)


def fifo_perf(problem: ClusterProblem, _rng: np.random.Generator) -> Allocation:
    """Gavel (OSDI 2020), aware: the type with the highest ``T_ij`` among those with ``s_i`` free
    workers (equal ones: the first by name). From scratch at each call: jobs may move to a faster type.

    Returns 0/1 shares, shape (n, m).
    """
    placed, _ = _fastest(problem)
    return Allocation(shares=_whole(placed, len(problem.workers)))


def fifo_packed(problem: ClusterProblem, _rng: np.random.Generator) -> Allocation:
    """``fifo_perf``, then the queue's heads join jobs that run: Gavel (OSDI 2020).

    A head ``b`` joins the placed, unpaired job ``a`` (on its type j, ``s_a = s_b``) with the largest
    ``T_ab,j/T_aj + T_ba,j/T_bj``, which must exceed :data:`GAIN`; the first head that finds no such job
    ends it. Returns 0/1 shares of single jobs (n, m) and of pairs (q, m).
    """
    placed, queue = _fastest(problem)
    hosts = {int(i): int(placed[i]) for i in np.flatnonzero(placed >= 0)}
    pairs: list[tuple[int, int]] = []
    columns: list[int] = []
    for b in queue if problem.sharing is not None else ():
        a = _best_host(problem, b, hosts)
        if a is None:
            break
        pairs.append((min(a, b), max(a, b)))
        columns.append(hosts.pop(a))
        placed[a] = -1
    if not pairs:
        return Allocation(shares=_whole(placed, len(problem.workers)))
    return Allocation(
        shares=_whole(placed, len(problem.workers)),
        pairs=np.array(pairs, dtype=np.int64),
        pair_shares=_whole(np.array(columns), len(problem.workers)),
    )


def _fastest(problem: ClusterProblem) -> tuple[I, list[int]]:
    """Each job's type (n,), -1 = none; and the jobs from the first that fits nowhere on."""
    placed: I = np.full(len(problem), -1)
    by_name = np.argsort(problem.worker_types)
    rates = problem.throughput[:, by_name].tolist()
    free = problem.workers[by_name].tolist()
    for i, gpus in enumerate(problem.gpus.tolist()):
        best, rate = -1, -1.0
        for j, left in enumerate(free):
            if left >= gpus and rates[i][j] > rate:
                best, rate = j, rates[i][j]
        if best < 0:
            return placed, list(range(i, len(problem)))
        if rate > 0:
            placed[i] = by_name[best]
            free[best] -= gpus
    return placed, []


def _best_host(problem: ClusterProblem, b: int, hosts: dict[int, int]) -> int | None:
    sharing = problem.sharing
    assert sharing is not None
    a = np.array([i for i in hosts if problem.gpus[i] == problem.gpus[b]], dtype=np.int64)
    if not len(a):
        return None
    j = np.array([hosts[int(i)] for i in a])
    alone_a, alone_b = problem.throughput[a, j], problem.throughput[b, j]
    class_a, class_b = sharing.job_class[a], sharing.job_class[b]
    gain = np.zeros(len(a))
    runs = (alone_a > 0) & (alone_b > 0)
    together = sharing.rate[class_a, class_b, j][runs] / alone_a[runs]
    gain[runs] = together + sharing.rate[class_b, class_a, j][runs] / alone_b[runs]
    best = int(gain.argmax())
    return int(a[best]) if gain[best] > GAIN else None


def _whole(column: I, types: int) -> F:
    """0/1 rows with the 1 in ``column``; -1 = a row of zeros."""
    shares = np.zeros((len(column), types))
    rows = np.flatnonzero(column >= 0)
    shares[rows, column[rows]] = 1.0
    return shares
