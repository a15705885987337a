"""The cheapest timetable of whole gangs until deadlines, exact, for few jobs: column generation.

A *set* c is jobs that run side by side, each in one pool: Σ GPUs ≤ workers in every pool. What a gang can do
in an interval without interruption costs is any mix of sets, so that the cheapest timetable is

    min  Σ_ck cost_c·λ_ck + M·Σ_i short_i        λ_ck seconds of set c in interval k of length L_k
    s.t. Σ_ck rate_ic·λ_ck + short_i ≥ 1          the work of every job i
         Σ_c λ_ck ≤ L_k                           sets of an interval hold no job whose deadline is past

Sets are found where they are needed: with the prices π of work and μ of time, the best set of an interval is
``max Σ (π_i·rate_ij − cost_ij)`` over assignments that fit, an integer programme of its own
(:mod:`arylcloud.planner.kernels.configurations`). No set gains more than μ_k: done; and at any time
``objective − Σ_k L_k·max(0, gain_k − μ_k)`` is a bound (Farley 1990).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arylcloud.planner.cluster import ClusterProblem, F, I
from arylcloud.planner.kernels import highs
from arylcloud.planner.kernels.configurations import best_configurations
from arylcloud.planner.timetable import CRUMB, Piece, Run, served

MOST_JOBS = 16
"""With a deadline: beyond, the integer programmes take too long."""
OFTEN = 8
"""The same where it is solved again and again."""
ROUNDS = 300
GAP = 1e-6
MISSING = 1e3
"""Times the dearest job: what work costs that is not done in time."""

Set = tuple[int, tuple[tuple[int, int], ...]]
"""Interval, and (job, pool) of those that run."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Gangs:
    pieces: tuple[Piece, ...]
    held_s: F
    """(n, m)."""
    usd: float
    bound: float
    """No timetable costs less."""
    short: F
    """(n,) of each job's work, what no timetable places in time."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class _Small:
    """Of the jobs with a deadline: time in parts of the last deadline, work in jobs, dollars of the whole."""

    due: I
    rate: F
    cost: F
    gpus: F
    workers: F
    length: F
    until: I
    """(d,) intervals that each may use."""
    missing: float


def timetable(problem: ClusterProblem) -> Gangs:
    """The cheapest; ``short`` is 0 where every deadline is kept. Jobs without a deadline get nothing here."""
    small, scale = _small(problem)
    sets: list[Set] = [
        (k, ((i, j),))
        for i in range(len(small.due))
        for j in np.flatnonzero(small.rate[i]).tolist()
        for k in range(int(small.until[i]))
    ]
    bound = -np.inf
    for _ in range(ROUNDS):
        x, short, objective, work_price, time_price = _master(small, sets)
        new, excess = _priced(small, work_price, time_price)
        bound = max(bound, objective - excess)
        if objective - bound <= GAP * max(abs(objective), 1e-9) or not (set(new) - set(sets)):
            break
        sets += [found for found in new if found not in sets]
    n, m = problem.throughput.shape
    held, every = np.zeros((n, m)), np.zeros(n)
    every[small.due] = short
    pieces, begin = [], np.concatenate([[0.0], np.cumsum(small.length)]) * scale
    for k in range(len(small.length)):
        start = float(begin[k])
        # sets that hold more come first: what is left free, is free late
        own = sorted((c for c in range(len(sets)) if sets[c][0] == k and x[c] > CRUMB * small.length[k]),
                     key=lambda c: (-len(sets[c][1]), -x[c], c))  # fmt: skip
        for c in own:
            runs = {int(small.due[i]): int(j) for i, j in sets[c][1]}
            pieces.append((start, float(x[c] * scale), runs))
            for i, j in runs.items():
                held[i, j] += x[c] * scale
            start += float(x[c] * scale)
    price = problem.gpus[:, None] * problem.prices / 3600.0
    done = float((held * price).sum())
    lost = float(short.sum()) * small.missing
    return Gangs(pieces=tuple(pieces), held_s=held, usd=done, bound=min(bound - lost, done), short=every)


def few(problem: ClusterProblem, most: int = MOST_JOBS) -> bool:
    """Whether it is a problem for :func:`timetable`."""
    return problem.deadline_s is not None and int(np.isfinite(problem.deadline_s).sum()) <= most


def _small(problem: ClusterProblem) -> tuple[_Small, float]:
    assert problem.deadline_s is not None
    due = np.flatnonzero(np.isfinite(problem.deadline_s))
    edges = np.unique(problem.deadline_s[due])
    scale = float(edges[-1])
    fits = problem.workers[None, :] >= problem.gpus[due][:, None]
    rate = np.where(fits, problem.throughput[due], 0.0) / problem.steps_left[due][:, None] * scale
    cost = (problem.gpus[:, None] * problem.prices)[due] * scale / 3600.0
    with np.errstate(divide="ignore", invalid="ignore"):
        dear = np.where(rate > 0, cost / rate, 0.0).max(initial=0.0)
    return _Small(
        due=due,
        rate=rate,
        cost=np.broadcast_to(cost, rate.shape),
        gpus=problem.gpus[due],
        workers=problem.workers,
        length=np.diff(edges, prepend=0.0) / scale,
        until=np.searchsorted(edges, problem.deadline_s[due]) + 1,
        missing=MISSING * max(float(dear), 1e-9),
    ), scale


def _master(small: _Small, sets: list[Set]) -> tuple[F, F, float, F, F]:
    """(seconds of every set, missing work, objective, prices of work, prices of time)."""
    d, k = len(small.due), len(small.length)
    rows, values, count, cost = [], [], [], []
    for step, members in sets:
        rows += [*(i for i, _ in members), d + step]
        values += [*(float(small.rate[i, j]) for i, j in members), 1.0]
        count.append(len(members) + 1)
        cost.append(sum(float(small.cost[i, j]) for i, j in members))
    rows += range(d)
    values += [1.0] * d
    solver = highs.solved(
        highs.model(
            np.array([*cost, *[small.missing] * d]),
            starts=np.concatenate([[0], np.cumsum([*count, *[1] * d])]),
            rows=np.array(rows),
            values=np.array(values),
            upper=np.concatenate([np.full(len(sets), np.inf), np.ones(d)]),
            row_lower=np.concatenate([np.ones(d), np.full(k, -np.inf)]),
            row_upper=np.concatenate([np.full(d, np.inf), small.length]),
            maximise=False,
        ),
        "the timetable of gangs",
    )
    solution = solver.getSolution()
    x, dual = np.asarray(solution.col_value), np.asarray(solution.row_dual)
    objective = float(solver.getInfo().objective_function_value)
    return x[: len(sets)], x[len(sets) :], objective, np.maximum(dual[:d], 0.0), np.maximum(-dual[d:], 0.0)


def _priced(small: _Small, work_price: F, time_price: F) -> tuple[list[Set], float]:
    """The best set of every interval that is worth its time, and what all intervals gain beyond it."""
    gain = np.where(small.rate > 0, work_price[:, None] * small.rate - small.cost, -np.inf)
    columns = sorted({(j, float(s)) for j in range(len(small.workers)) for s in small.gpus})
    pool = np.array([j for j, _ in columns])
    size = np.array([s for _, s in columns])
    utility = np.where(size[None, :] == small.gpus[:, None], gain[:, pool], -np.inf)
    found: list[Set] = []
    excess = 0.0
    known: dict[bytes, tuple[tuple[tuple[int, int], ...], float]] = {}
    for k, length in enumerate(small.length):
        alive = small.until > k
        key = alive.tobytes()
        if key not in known:
            own = np.where(alive[:, None], utility, -np.inf)
            best = best_configurations(own, size, pool, small.workers)
            members = tuple((int(i), int(pool[best.config[i]])) for i in np.flatnonzero(best.config >= 0))
            known[key] = (members, max(best.bound, best.objective))
        members, worth = known[key]
        if members and worth > time_price[k] + 1e-12:
            excess += float(length) * (worth - float(time_price[k]))
            # a set that is good now may be good whenever its jobs run
            last = min(int(small.until[i]) for i, _ in members)
            found += [(step, members) for step in range(last) if (step, members) not in found]
    return found, excess


def run_of(found: Gangs, waits: F, problem: ClusterProblem) -> Run:
    """The pieces as a run. Jobs that wait, ``waits`` (n, m) seconds each, take what a piece leaves free, in
    order of arrival, and go on after the last deadline."""
    assert problem.deadline_s is not None
    n, m = waits.shape
    left, ends, first = waits.copy(), np.zeros(n), np.zeros((n, m))
    pieces: list[Piece] = []
    for begin, whole, runs in found.pieces:
        start, end = begin, begin + whole
        for i in runs:
            ends[i] = end
        while start < end:
            placed = {**runs, **_beside(runs, left, problem)}
            more = [float(left[i, j]) for i, j in placed.items() if i not in runs]
            span = min([end - start, *more])
            for i, j in placed.items():
                if i not in runs:
                    left[i, j] -= span
                    ends[i] = start + span
                    left[i, left[i] <= CRUMB * waits[i].sum()] = 0.0
            pieces.append((start, span, placed))
            start = end if span == end - start else start + span
    if pieces and pieces[0][0] == 0.0:
        first[list(pieces[0][2]), list(pieces[0][2].values())] = 1.0
    waiting = np.flatnonzero(left.any(axis=1))
    if len(waiting):
        last = float(problem.deadline_s[np.isfinite(problem.deadline_s)].max())
        none = np.full(len(waiting), np.inf)
        after = served(left[waiting], problem.gpus[waiting], problem.workers, none)
        ends[waiting] = last + after.ends_s
        for start, span, runs in after.pieces:
            pieces.append((last + start, span, {int(waiting[i]): j for i, j in runs.items()}))
    return Run(ends_s=ends, held_s=found.held_s + waits, now=first, pieces=tuple(pieces))


def _beside(runs: dict[int, int], left: F, problem: ClusterProblem) -> dict[int, int]:
    """Waiting jobs, with their pools, that fit beside those that run."""
    free = problem.workers.copy()
    for i, j in runs.items():
        free[j] -= problem.gpus[i]
    found = {}
    for i in np.flatnonzero(left.any(axis=1)).tolist():
        j = int(np.where(free >= problem.gpus[i], left[i], 0.0).argmax())
        if left[i, j] > 0 and free[j] >= problem.gpus[i]:
            free[j] -= problem.gpus[i]
            found[i] = j
    return found
