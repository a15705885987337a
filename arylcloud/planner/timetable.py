"""When jobs that share pools run and end: replays without rounds, and a timetable that keeps deadlines.

``replay`` hands a policy the jobs that are left whenever one of them ends, and lets the shares run until the
next ends (Gavel's "ideal" execution: no rounds, no restarts). With more than ``most`` jobs it decides again
only after every ``n/most``-th end, and the GPUs of those that ended in between stay idle: never too early.

``earliest_deadline`` serves hours that are bought already (``y_ij`` seconds of job i in pool j): at every
moment the earliest deadlines take their mix, as far as GPUs go. It may fail where a timetable exists;
``timed`` decides that, by one program over the intervals between deadlines:

    min  Σ c_ij·s_i·z_ijk     z_ijk seconds of job i in pool j in interval k of length L_k
    s.t. Σ_jk T_ij·z_ijk ≥ N_i,   Σ_j z_ijk ≤ L_k,   Σ_i s_i·z_ijk ≤ W_j·L_k,   z_ijk = 0 after D_i

Within an interval any such z can be run: a fluid timetable (Gonzalez & Sahni's open shop, 1976, a gang's
GPUs taken together). Deadlines beyond ``EDGES`` different ones are rounded down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.cluster import ClusterProblem, F, I

EDGES = 12
LATE = 1e-9
"""Relative: a deadline that is missed by less is kept."""
CRUMB = 1e-7
"""Of a job's time: less is a solver's rounding, and waits for nothing."""
SAME = 1e-6
"""Relative: ends that are closer than this are one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Run:
    """Shapes (n,), (n, m)."""

    ends_s: F
    """inf = never."""
    held_s: F
    """Seconds of its time that a job holds its GPUs, in each pool."""
    now: F
    """Shares at the beginning."""


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


def earliest_deadline(seconds: F, gpus: F, workers: F, deadline_s: F) -> Run:
    """Seconds (n, m) served in order of deadline, then of arrival; jobs of equal deadline by their place.
    Ends as soon as one is late: whoever is left then ends never."""
    n, m = seconds.shape
    order = np.argsort(deadline_s, kind="stable")
    left = seconds[order].copy()
    size = gpus[order]
    ends, now, first = np.zeros(n), 0.0, np.zeros((n, m))
    tiny = CRUMB * np.maximum(left.sum(axis=1), 1e-12)
    started = False
    while True:
        left[left <= tiny[:, None]] = 0.0
        alive = np.flatnonzero(left.any(axis=1))
        if not len(alive):
            break
        if now > deadline_s[order[alive[0]]] * (1 + LATE):
            ends[alive] = np.inf
            break
        shares = _served(left[alive], size[alive], workers)
        if not started:
            first[alive], started = shares, True
        with np.errstate(divide="ignore", invalid="ignore"):
            takes = np.where(shares > 1e-12, left[alive] / shares, np.inf)
        span = float(takes.min())
        if not np.isfinite(span):
            ends[alive] = np.inf
            break
        left[alive] -= shares * span
        now += span
        ends[alive[left[alive].max(axis=1) <= tiny[alive]]] = now
    back = np.empty(n, dtype=np.int64)
    back[order] = np.arange(n)
    return Run(ends_s=ends[back], held_s=seconds, now=first[back])


def _served(left: F, gpus: F, workers: F) -> F:
    """Shares of jobs in their order: each its mix, then the rest of its time wherever it still has seconds
    to take, as far as GPUs go."""
    mix = left / left.sum(axis=1, keepdims=True)
    taken = np.cumsum(gpus[:, None] * mix, axis=0)
    shares: F = np.diff(np.minimum(taken, workers), axis=0, prepend=0.0) / gpus[:, None]
    idle = 1.0 - shares.sum(axis=1)
    for j in range(len(workers)):
        free = workers[j] - float(gpus @ shares[:, j])
        wants = np.where(left[:, j] > 0, np.maximum(idle, 0.0), 0.0)
        more = np.diff(np.minimum(np.cumsum(gpus * wants), max(free, 0.0)), prepend=0.0) / gpus
        shares[:, j] += more
        idle = idle - more
    return shares


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


def timed(problem: ClusterProblem) -> Timed:
    """The cheapest timetable of the jobs that have a deadline; ``short`` is 0 where all are kept. Others get
    nothing here. Solved by HiGHS; work that fits nowhere costs a thousand times the dearest."""
    from arylcloud.planner.kernels import highs

    n, m = problem.throughput.shape
    assert problem.deadline_s is not None
    due = np.flatnonzero(np.isfinite(problem.deadline_s))
    edges = _edges(problem.deadline_s[due])
    until = np.searchsorted(edges, problem.deadline_s[due] * (1 + 1e-12), side="right")
    length = np.diff(edges, prepend=0.0)
    fits = problem.workers[None, :] >= problem.gpus[due][:, None]
    rate = np.where(fits, problem.throughput[due], 0.0) / problem.steps_left[due][:, None]
    price = (problem.gpus[:, None] * problem.prices / 3600.0)[due]
    # columns: (job, pool, interval) where the job runs and is not over, then one of missing work per job
    job, pool, step = np.nonzero((rate[:, :, None] > 0) & (np.arange(len(edges)) < until[:, None, None]))
    scale = float(edges[-1])  # seconds in units of the whole time, work in units of the whole job
    with np.errstate(divide="ignore"):
        dear = np.where(rate > 0, price / rate, 0.0).max(initial=0.0)
    cost = np.concatenate([price[job, pool] * scale, np.full(len(due), 1e3 * max(dear, 1e-6))])
    d, k = len(due), len(edges)
    first_time, first_room = d, d + d * k
    rows = np.concatenate([
        np.stack([job, first_time + job * k + step, first_room + pool * k + step], axis=1).ravel(),
        np.arange(d),
    ])  # fmt: skip
    values = np.concatenate([
        np.stack([rate[job, pool] * scale, np.ones(len(job)), problem.gpus[due][job]], axis=1).ravel(),
        np.ones(d),
    ])  # fmt: skip
    starts = np.concatenate([3 * np.arange(len(job) + 1), 3 * len(job) + 1 + np.arange(d)])
    time = np.tile(length / scale, d)
    room = (problem.workers[:, None] * length / scale).ravel()
    solver = highs.solved(
        highs.model(
            cost,
            starts=starts,
            rows=rows,
            values=values,
            upper=np.concatenate([np.full(len(job), np.inf), np.ones(d)]),
            row_lower=np.concatenate([np.ones(d), np.full(d * k + m * k, -np.inf)]),
            row_upper=np.concatenate([np.full(d, np.inf), time, room]),
            maximise=False,
        ),
        "the timetable of deadlines",
    )
    solution = solver.getSolution()
    x, dual = np.asarray(solution.col_value), np.asarray(solution.row_dual)
    seconds, short = np.zeros((n, m, k)), np.zeros(n)
    seconds[due[job], pool, step] = np.maximum(x[: len(job)], 0.0) * scale
    short[due] = x[len(job) :]
    value = -(dual[first_room:].reshape(m, k) * (length / scale)).sum(axis=1)
    return Timed(seconds=seconds, edges=edges, short=short, worker_usd=np.maximum(value, 0.0))


def _edges(deadlines: F) -> F:
    """Where intervals end: the deadlines, or some of them, the first always."""
    every = np.unique(deadlines)
    if len(every) <= EDGES:
        return every
    return every[np.round(np.linspace(0, len(every) - 1, EDGES)).astype(np.int64)]


def run_of(found: Timed, waits: F, gpus: F, workers: F) -> Run:
    """A timetable as a run: a job ends where its last interval does. Jobs that wait, ``waits`` (n, m) seconds
    each, follow after the last deadline in order of arrival."""
    time = found.seconds.sum(axis=1)
    last = np.where(time > 1e-9 * found.edges[-1], np.arange(1, time.shape[1] + 1), 0).max(axis=1)
    ends = np.concatenate([[0.0], found.edges])[last]
    waiting = np.flatnonzero(waits.any(axis=1))
    if len(waiting):
        after = earliest_deadline(waits[waiting], gpus[waiting], workers, np.full(len(waiting), np.inf))
        ends[waiting] = found.edges[-1] + after.ends_s
    now: F = found.seconds[:, :, 0] / found.edges[0]
    return Run(ends_s=ends, held_s=found.seconds.sum(axis=2) + waits, now=now)
