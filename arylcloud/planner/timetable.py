"""When jobs that share pools run and end: replays without rounds, and a timetable that keeps deadlines.

``replay`` hands a policy the jobs that are left whenever one of them ends, and lets the shares run until the
next ends (Gavel's "ideal" execution: no rounds, no restarts). With more than ``most`` jobs it decides again
only after every ``n/most``-th end, and the GPUs of those that ended in between stay idle: never too early.

``served`` runs hours that are bought already (``y_ij`` seconds of job i in pool j) by whole gangs, the
earliest deadline (or the least laxity) first: what it says can be done. It may fail where a timetable exists;
then ``timed`` plans by the intervals between deadlines, and ``realised`` runs that by whole gangs:

    min  Σ c_ij·s_i·z_ijk     z_ijk seconds of job i in pool j in interval k of length L_k
    s.t. Σ_jk T_ij·z_ijk ≥ N_i,   Σ_j z_ijk ≤ L_k,   Σ_i s_i·z_ijk ≤ W_j·L_k,   z_ijk = 0 after D_i
         Σ_{s_i ≥ s} z_ijk ≤ ⌊W_j/s⌋·L_k   for every size s: so many gangs of it stand side by side

An interval in which a job's deadline falls (there are ``EDGES`` at most) is open to it until then. The
program is a relaxation: what it cannot place in time, nobody can; what it places, ``realised`` must show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.cluster import ClusterProblem, F, I

EDGES = 12
FEW = 50
"""Jobs up to which every one that waits may move another; beyond, only the urgent."""
TIGHT = 1.03
"""Times what a job takes alone: a deadline is not moved forward beyond that."""
LATE = 1e-9
"""Relative: a deadline that is missed by less is kept."""
CRUMB = 1e-7
"""Of a job's time: less is a solver's rounding, and waits for nothing."""
SAME = 1e-6
"""Relative: ends that are closer than this are one."""


Piece = tuple[float, float, dict[int, int]]
"""Start, seconds, and the pool of every job that runs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Run:
    """Shapes (n,), (n, m)."""

    ends_s: F
    """inf = never."""
    held_s: F
    """Seconds of its time that a job holds its GPUs, in each pool."""
    now: F
    """Shares at the beginning."""
    pieces: tuple[Piece, ...] = ()
    """Of a timetable, in order."""


Decide = Callable[[ClusterProblem], tuple[F, object]]
"""Shares (n, m) of the jobs that are left, and what the next call gets as ``memory``."""


def some(problem: ClusterProblem, index: I, done: F, now_s: float, memory: object) -> ClusterProblem:
    """The jobs ``index`` of a problem, ``now_s`` seconds later, ``done`` steps of theirs behind them."""
    own, deadline = problem.own_usd_per_hour, problem.deadline_s
    return replace(
        problem,
        throughput=problem.throughput[index],
        gpus=problem.gpus[index],
        weight=problem.weight[index],
        steps_left=problem.steps_left[index] - done[index],
        age_s=problem.age_s[index] + now_s,
        deadline_s=None if deadline is None else np.maximum(deadline[index] - now_s, 1e-3),
        own_usd_per_hour=None if own is None else own[index],
        job_id=problem.ids[index],
        memory=memory,
    )


def replay(problem: ClusterProblem, decide: Decide, *, most: int = 64) -> Run:
    """Ends and held seconds of every job; who gets nothing for ever ends never."""
    n, m = problem.throughput.shape
    ends, held, done = np.full(n, np.inf), np.zeros((n, m)), np.zeros(n)
    first, now, memory = np.zeros((n, m)), 0.0, problem.memory
    left, batch = np.arange(n), -(-n // most)
    while len(left):
        shares, memory = decide(some(problem, left, done, now, memory))
        shares = np.where(problem.throughput[left] > 0, shares, 0.0)  # nobody pays for what does nothing
        if len(left) == n:
            first = shares
        rate = (problem.throughput[left] * shares).sum(axis=1)
        rest = problem.steps_left[left] - done[left]
        with np.errstate(divide="ignore"):
            takes = np.where(rate > 0, rest / rate, np.inf)
        can = np.sort(takes[np.isfinite(takes)])
        if not len(can):
            break
        span = float(can[min(batch, len(can)) - 1])
        over = takes <= span + SAME * (now + span)
        lasts = np.minimum(takes, span)
        ends[left[over]] = now + takes[over]
        held[left] += shares * lasts[:, None]
        done[left] += rate * lasts
        now += span
        left = left[~over]
    return Run(ends_s=ends, held_s=held, now=first)


def served(seconds: F, gpus: F, workers: F, deadline_s: F, *, by_laxity: bool = False) -> Run:
    """Seconds (n, m) served by whole gangs: at every moment jobs in order of deadline (or of laxity: the time
    until it, less what is left to run), then of arrival, each in one pool that has room for all its GPUs.
    Ends as soon as one is late: whoever is left then ends never."""
    table = _Table(seconds, gpus, workers, deadline_s)
    table.run(by_laxity=by_laxity, stop_late=True)
    return Run(ends_s=table.ends, held_s=seconds, now=table.first, pieces=tuple(table.pieces))


class _Table:
    """Jobs that have seconds left, and the clock. Lists: most of it is walking through few jobs in order."""

    def __init__(self, seconds: F, gpus: F, workers: F, deadline_s: F) -> None:
        self.left: list[list[float]] = seconds.tolist()
        self.gpus, self.workers, self.due = gpus.tolist(), workers.tolist(), deadline_s.tolist()
        self.crumb = [CRUMB * max(sum(row), 1e-12) for row in self.left]
        self.held = [-1] * len(self.left)
        self.ends = np.zeros(len(self.left))
        self.first = np.zeros_like(seconds)
        self.now = 0.0
        self.pieces: list[Piece] = []
        everything = sum(map(sum, self.left))
        self.quantum = everything / (200.0 * max(len(self.left), 1)) or 1.0

    def add(self, seconds: F) -> None:
        for own, more in zip(self.left, seconds.tolist(), strict=True):
            own[:] = [a + b for a, b in zip(own, more, strict=True)]

    def run(self, *, until: float = np.inf, by_laxity: bool = False, stop_late: bool = False) -> None:
        alive = [i for i, row in enumerate(self.left) if max(row) > self.crumb[i]]
        while alive and self.now < until * (1 - 1e-12):
            if stop_late and any(self.now > self.due[i] * (1 + LATE) for i in alive):
                break
            lax = {i: self.due[i] - self.now - sum(self.left[i]) for i in alive} if by_laxity else {}
            if by_laxity:  # the urgent first, then large gangs: small ones fit beside them
                order = sorted(alive, key=lambda i: (lax[i] > self.quantum, -self.gpus[i], lax[i], i))
            else:
                order = sorted(alive, key=lambda i: (self.due[i], i))
            runs = self._placed(order, lax)
            if not runs:
                break
            if self.now == 0.0:
                self.first[:] = 0.0
                self.first[list(runs), list(runs.values())] = 1.0
            span = min(min(self.left[i][j] for i, j in runs.items()), until - self.now)
            if by_laxity:  # who waits may not wait for ever
                waits = [lax[i] for i in alive if i not in runs and 0 < lax[i] < np.inf]
                span = min([span, *(max(x, self.quantum) for x in waits)])
            self.pieces.append((self.now, span, runs))
            self.now += span
            for i, j in runs.items():
                self.left[i][j] -= span
                if max(self.left[i]) <= self.crumb[i]:
                    self.ends[i] = self.now
            alive = [i for i in alive if max(self.left[i]) > self.crumb[i]]
        self.ends[alive] = np.inf

    def _placed(self, order: list[int], lax: dict[int, float]) -> dict[int, int]:
        """Pool of every job that runs, in order: where it was, else where it has most to do."""
        free, smallest = list(self.workers), min(self.gpus[i] for i in order)
        few = len(order) <= FEW
        runs: dict[int, int] = {}
        for i in order:
            if max(free) < smallest:
                break
            left, size, j = self.left[i], self.gpus[i], self.held[i]
            if j < 0 or left[j] <= self.crumb[i] or free[j] < size:
                can = [k for k, x in enumerate(left) if x > self.crumb[i] and free[k] >= size]
                j = max(can, key=lambda k: left[k], default=-1)
            if j < 0 and self.due[i] < np.inf and (few or lax.get(i, np.inf) <= self.quantum):
                j = self._moved(i, free, runs)
            self.held[i] = j
            if j >= 0:
                free[j] -= size
                runs[i] = j
        return runs

    def _moved(self, i: int, free: list[float], runs: dict[int, int]) -> int:
        """A pool for job ``i`` from which a job that runs there can go to another of its own; −1 = none."""
        for h, j in runs.items():
            if self.left[i][j] <= self.crumb[i] or free[j] + self.gpus[h] < self.gpus[i]:
                continue
            for k, x in enumerate(self.left[h]):
                if k != j and x > self.crumb[h] and free[k] >= self.gpus[h]:
                    free[j] += self.gpus[h]
                    free[k] -= self.gpus[h]
                    runs[h] = self.held[h] = k
                    return j
        return -1


def late(run: Run, deadline_s: F) -> NDArray[np.bool_]:
    """(n,) jobs that end after their deadline."""
    found: NDArray[np.bool_] = run.ends_s > deadline_s * (1 + LATE)
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Timed:
    """Seconds per job, pool and interval (n, m, k); ``edges`` (k,) where intervals end."""

    seconds: F
    edges: F
    short: F
    """(n,) of each job's work, the part that no timetable places before its deadline."""
    worker_usd: F
    """(m,) dollars saved by one more GPU, from now to the last deadline."""


def timed(problem: ClusterProblem, *, margin: float | None = None) -> Timed:
    """The cheapest timetable of the jobs that have a deadline; ``short`` is 0 where all are kept. Others get
    nothing here. ``margin``: that part of every pool's time stays free, and deadlines are moved forward by
    it and to the beginning of the interval that they fall in, where the job can stand it. Solved by HiGHS;
    work that fits nowhere costs a thousand times the dearest."""
    from arylcloud.planner.kernels import highs

    n, m = problem.throughput.shape
    assert problem.deadline_s is not None
    due = np.flatnonzero(np.isfinite(problem.deadline_s))
    deadline = problem.deadline_s[due]
    size = problem.gpus[due]
    fits = problem.workers[None, :] >= size[:, None]
    rate = np.where(fits, problem.throughput[due], 0.0) / problem.steps_left[due][:, None]
    price = (problem.gpus[:, None] * problem.prices / 3600.0)[due]
    if margin is not None:
        with np.errstate(divide="ignore"):
            alone = TIGHT / rate.max(axis=1)
        deadline = np.minimum(deadline, np.maximum(deadline * (1 - margin), alone))
    edges = _edges(deadline)
    until = np.searchsorted(edges, deadline * (1 - 1e-12)) + 1
    if margin is not None:
        before = np.concatenate([[0.0, 0.0], edges])[until]
        until = np.where((edges[until - 1] > deadline) & (before >= alone), until - 1, until)
    # columns: (job, pool, interval) where the job runs and is not over, then one of missing work per job
    job, pool, step = np.nonzero((rate[:, :, None] > 0) & (np.arange(len(edges)) < until[:, None, None]))
    scale = float(edges[-1])  # seconds in units of the whole time, work in units of the whole job
    length = np.diff(edges, prepend=0.0) / scale
    begin = (edges - np.diff(edges, prepend=0.0)) / scale
    roomy = length * (1 - (margin or 0.0))
    own = np.minimum(length, np.maximum(deadline[:, None] / scale - begin, 0.0))
    with np.errstate(divide="ignore"):
        dear = np.where(rate > 0, price / rate, 0.0).max(initial=0.0)
    cost = np.concatenate([price[job, pool] * scale, np.full(len(due), 1e3 * max(dear, 1e-6))])
    d, k, sizes = len(due), len(edges), np.unique(size)
    base = np.array([d, d + d * k, d + d * k + m * k])  # where rows of time, room and counts begin
    at = np.arange(len(job))
    larger = [(at[size[job] >= s], q) for q, s in enumerate(sizes) if s > 1]
    entries = [
        (at, job, rate[job, pool] * scale),
        (at, base[0] + job * k + step, np.ones(len(job))),
        (at, base[1] + pool * k + step, size[job]),
        *((of, base[2] + (q * m + pool[of]) * k + step[of], np.ones(len(of))) for of, q in larger),
        (len(job) + np.arange(d), np.arange(d), np.ones(d)),
    ]
    column = np.concatenate([e[0] for e in entries])
    order = np.argsort(column, kind="stable")
    counted = np.floor(problem.workers[None, :] / sizes[:, None])
    upper = [
        np.full(d, np.inf),
        own.ravel(),
        (problem.workers[:, None] * roomy).ravel(),
        (counted[:, :, None] * roomy).ravel(),
    ]
    above = np.concatenate(upper)
    solver = highs.solved(
        highs.model(
            cost,
            starts=np.concatenate([[0], np.cumsum(np.bincount(column, minlength=len(cost)))]),
            rows=np.concatenate([e[1] for e in entries])[order],
            values=np.concatenate([e[2] for e in entries])[order],
            upper=np.concatenate([np.full(len(job), np.inf), np.ones(d)]),
            row_lower=np.concatenate([np.ones(d), np.full(len(above) - d, -np.inf)]),
            row_upper=above,
            maximise=False,
        ),
        "the timetable of deadlines",
    )
    solution = solver.getSolution()
    x, dual = np.asarray(solution.col_value), -np.asarray(solution.row_dual)
    seconds, short = np.zeros((n, m, k)), np.zeros(n)
    seconds[due[job], pool, step] = np.maximum(x[: len(job)], 0.0) * scale
    short[due] = x[len(job) :]
    value = dual[base[1] : base[2]].reshape(m, k) @ length
    value += ((dual[base[2] :].reshape(len(sizes), m, k) @ length) / sizes[:, None]).sum(axis=0)
    return Timed(seconds=seconds, edges=edges, short=short, worker_usd=np.maximum(value, 0.0))


def _edges(deadlines: F) -> F:
    """Where intervals end: the deadlines, or some of them; the first and the last always."""
    every = np.unique(deadlines)
    if len(every) <= EDGES:
        return every
    return every[np.round(np.linspace(0, len(every) - 1, EDGES)).astype(np.int64)]


def realised(found: Timed, waits: F, problem: ClusterProblem) -> Run:
    """A timetable run by whole gangs: interval by interval the least laxity first, what is left over goes on
    in the next. Jobs that wait, ``waits`` (n, m) seconds each, take what is free."""
    assert problem.deadline_s is not None
    waiting = waits.any(axis=1)
    whole = found.seconds.sum(axis=2) + waits
    table = _Table(whole, problem.gpus, problem.workers, problem.deadline_s)
    table.left = waits.tolist()
    for k, edge in enumerate(found.edges.tolist()):
        table.add(found.seconds[:, :, k])
        table.due = np.where(waiting, np.inf, np.minimum(problem.deadline_s, edge)).tolist()
        table.run(until=edge, by_laxity=True)
        # what has ended in an interval goes on in later ones
        if table.now < edge and k + 1 < len(found.edges):
            table.now = edge
    table.run()
    return Run(ends_s=table.ends, held_s=whole, now=table.first, pieces=tuple(table.pieces))
