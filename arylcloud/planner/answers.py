"""A policy asked, and its answer run to the end: by shares, by hours that are bought, by configurations.

Replays ask again whenever a job ends. Hours until deadlines are bought once (:func:`buy`), at the
pessimistic speed, and stand only where a timetable of them exists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from arylcloud.core.errors import InfeasibleError
from arylcloud.planner import gangs
from arylcloud.planner.cluster import Allocation, Choice, ClusterProblem, ElasticProblem, F
from arylcloud.planner.policies.registry import Policy
from arylcloud.planner.policies.registry import policy as named
from arylcloud.planner.timetable import (
    SAME,
    Run,
    Timed,
    late,
    realised,
    replay,
    served,
    timed,
)
from arylcloud.planner.together import HOUR_S, Columns

CHOICES_MOST = 12
"""Decisions of a replay with configurations, at most; with shares :func:`replay`'s own."""
SETTLES = 8
"""Rounds in which a first choice grows, at most: a job may double its GPUs in each."""
ATTEMPTS: tuple[tuple[float | None, bool], ...] = (
    *((margin, False) for margin in (None, 0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15)),
    (None, True),
    (0.05, True),
)
"""Where whole gangs do not fit as a program thinks: what it keeps free, of pools and until deadlines; at last
for the shortest runs, whatever they cost."""
SHORT = 1e-6
"""Of a job's work: less than this is rounding."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Answer:
    """What a policy says, run to the end at both speeds."""

    expected: Run
    pessimistic: Run
    objective: float | tuple[float, ...] | None
    bound: float | tuple[float, ...] | None
    worker_value: F | None
    """(m,) shadow prices, objective per GPU."""
    timed: bool = False
    """The timetable is the program's own: earliest deadline first would miss one."""


def run_shares(
    policy: Policy,
    expected: ClusterProblem,
    pessimistic: ClusterProblem,
    rng: np.random.Generator,
    parts: int | None,
) -> Answer:
    """A policy that divides time, asked again whenever a job ends. :class:`InfeasibleError` where it says
    that its deadlines cannot be kept."""
    first: list[Allocation] = []

    def decide(problem: ClusterProblem) -> tuple[F, object]:
        found = solve(policy, problem, rng, parts)
        if found.fallback:
            raise InfeasibleError("the deadlines cannot all be kept")
        first.append(found)
        return found.shares, found.memory

    # who keeps deadlines keeps them at the pessimistic speed: its shares are decided there
    slow = replay(pessimistic, decide)
    if not policy.deadlines:
        first.clear()
    quick = replay(expected, decide)
    return _answer(quick, slow, first[0])


def _answer(quick: Run, slow: Run, told: Allocation | Choice) -> Answer:
    """``told``: what the policy said at the beginning; its objective is a number here, or None."""
    return Answer(
        expected=quick,
        pessimistic=slow,
        objective=told.objective,
        bound=told.bound,
        worker_value=told.worker_value,
    )


def solve(policy: Policy, problem: ClusterProblem, rng: np.random.Generator, parts: int | None) -> Allocation:
    function = policy.solve()
    if parts is None:
        return function(problem, rng)
    from arylcloud.planner.policies.pop import partitioned

    return partitioned(function, problem, min(parts, len(problem)), rng)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Bought:
    """Hours that keep every deadline, and when they fall."""

    run: Run
    usd: float
    bound: float | None
    """No hours that keep every deadline cost less."""
    worker_usd: F
    """(m,) > 0 where more GPUs may save something."""
    timed: bool
    """By the program over intervals: the policy's own hours fit no timetable that was found."""
    waits: F
    """(n, m) seconds of the jobs without a deadline, where ``timed``."""


def buy(
    policy: Policy,
    problem: ClusterProblem,
    rng: np.random.Generator,
    parts: int | None = None,
) -> Bought | F:
    """The cheapest hours for which a timetable of whole gangs is found; else (n,) how much of each job's work
    is not done in time (who is short among equals is the solver's choice)."""
    found = solve(policy, problem, rng, parts)
    if not found.fallback:
        assert found.seconds is not None
        run = in_time(found.seconds, problem)
        if run is not None:
            value = np.zeros(len(problem.workers)) if found.worker_value is None else found.worker_value
            objective = found.objective
            usd = objective if isinstance(objective, float) else _usd(problem, found.seconds)
            bound = found.bound if isinstance(found.bound, float) else None
            no_waits = np.zeros_like(found.seconds)
            return Bought(run=run, usd=usd, bound=bound, worker_usd=value, timed=False, waits=no_waits)
    assert found.seconds is not None
    waits = _waits(problem, found.seconds)
    if gangs.few(problem):
        exact = gangs.timetable(problem)
        if exact.short.max() > SHORT:
            return exact.short
        run = gangs.run_of(exact, waits, problem)
        waiting = _usd(problem, waits)
        return Bought(
            run=run,
            usd=exact.usd + waiting,
            bound=exact.bound + waiting,
            worker_usd=np.ones(len(problem.workers)),
            timed=True,
            waits=waits,
        )
    first: Timed | None = None
    short = np.zeros(len(problem))
    for margin, haste in ATTEMPTS:
        table, run, missed = _attempt(problem, waits, margin, haste=haste)
        first = first or table
        if run is not None and not missed.any():
            usd, bound = _usd(problem, run.held_s), _usd(problem, first.seconds.sum(axis=2) + waits)
            value = first.worker_usd
            return Bought(run=run, usd=usd, bound=bound, worker_usd=value, timed=True, waits=waits)
        if table is first and run is None:
            return missed
        short = short if short.any() else missed
    return short


def _waits(problem: ClusterProblem, seconds: F) -> F:
    assert problem.deadline_s is not None
    return np.where(np.isinf(problem.deadline_s)[:, None], seconds, 0.0)


def _attempt(
    problem: ClusterProblem, waits: F, margin: float | None, *, haste: bool
) -> tuple[Timed, Run | None, F]:
    """A program's timetable; as whole gangs run it, None where it has none; and who is late in it (n,)."""
    assert problem.deadline_s is not None
    price = np.ones_like(problem.throughput) / problem.gpus[:, None]
    table = timed(replace(problem, own_usd_per_hour=price) if haste else problem, margin=margin)
    if table.short.max() > SHORT:
        return table, None, table.short
    run = realised(table, waits, problem)
    return table, run, late(run, problem.deadline_s).astype(np.float64)


def in_time(seconds: F, problem: ClusterProblem) -> Run | None:
    """The hours run by whole gangs, where that keeps every deadline."""
    ends = np.full(len(problem), np.inf) if problem.deadline_s is None else problem.deadline_s
    for by_laxity in (False, True):
        run = served(seconds, problem.gpus, problem.workers, ends, by_laxity=by_laxity)
        if not late(run, ends).any():
            return run
    return None


def least_usd(problem: ClusterProblem, waits: F) -> float:
    """No timetable costs less: exact for few jobs, else by the program that knows gangs by their number."""
    if gangs.few(problem, gangs.OFTEN):
        return gangs.timetable(problem).bound + _usd(problem, waits)
    return _usd(problem, timed(problem).seconds.sum(axis=2) + waits)


def keeps(problem: ClusterProblem, rng: np.random.Generator) -> bool:
    """Whether a timetable is found that keeps every deadline; quicker than :func:`buy`, and no more sure."""
    found = solve(named("min_cost"), problem, rng, None)
    if found.fallback or found.seconds is None or problem.deadline_s is None:
        return not found.fallback
    if gangs.few(problem, gangs.OFTEN):
        quick = in_time(found.seconds, problem)
        return quick is not None or gangs.timetable(problem).short.max() <= SHORT
    waits = _waits(problem, found.seconds)
    for margin in (None, 0.05):
        _table, run, missed = _attempt(problem, waits, margin, haste=True)
        if run is None and margin is None:
            return False
        if run is not None and not missed.any():
            return True
    run = served(found.seconds, problem.gpus, problem.workers, problem.deadline_s)
    return not late(run, problem.deadline_s).any()


def _usd(problem: ClusterProblem, seconds: F) -> float:
    return float((seconds * problem.gpus[:, None] * problem.prices).sum() / HOUR_S)


def run_hours(bought: Bought, columns: Columns, problem: ClusterProblem) -> Answer:
    """Bought at the pessimistic speed; at the expected one every job needs less of its hours."""
    held = bought.run.held_s * np.nan_to_num(columns.hours_p50 / columns.hours_p90)
    ends = np.full(len(problem), np.inf) if problem.deadline_s is None else problem.deadline_s
    quick = served(held, problem.gpus, problem.workers, np.where(np.isinf(ends), ends, bought.run.ends_s))
    # a timetable that was made for the pessimistic hours serves fewer hours no later
    quick = replace(quick, ends_s=np.minimum(quick.ends_s, bought.run.ends_s))
    return Answer(
        expected=quick,
        pessimistic=bought.run,
        objective=bought.usd,
        bound=bought.bound,
        worker_value=bought.worker_usd,
        timed=bought.timed,
    )


def run_choices(
    policy: Policy,
    expected: ElasticProblem,
    pessimistic: ElasticProblem,
    rng: np.random.Generator,
    parts: int | None,
) -> Answer:
    """A policy that chooses configurations, asked again whenever jobs end; at the beginning until its choice
    stays (a job may double its GPUs from one round to the next)."""
    first: list[Choice] = []

    def decide(problem: ElasticProblem) -> Choice:
        begins = bool((problem.current < 0).all())
        found = settled(policy, problem, rng, parts, rounds=SETTLES if begins else 2)
        if found.refused is not None and len(found.refused) and policy.deadlines:
            raise InfeasibleError("the deadlines cannot all be kept")
        first.append(found)
        return found

    slow = _replay_choices(pessimistic, decide)
    if not policy.deadlines:
        first.clear()
    quick = _replay_choices(expected, decide)
    return _answer(quick, slow, first[0])


def settled(
    policy: Policy, problem: ElasticProblem, rng: np.random.Generator, parts: int | None, rounds: int
) -> Choice:
    function = policy.choose()
    for _ in range(rounds):
        if parts is None:
            found = function(problem, rng)
        else:
            from arylcloud.planner.policies.pop import partitioned_choice

            found = partitioned_choice(function, problem, min(parts, len(problem)), rng)
        if (found.config == problem.current).all():
            break
        problem = replace(problem, current=found.config, memory=found.memory)
    return found


def _replay_choices(problem: ElasticProblem, decide: Callable[[ElasticProblem], Choice]) -> Run:
    n, k = problem.rate.shape
    ends, held, done = np.full(n, np.inf), np.zeros((n, k)), np.zeros(n)
    first, now = np.zeros((n, k)), 0.0
    left, batch = np.arange(n), -(-n // CHOICES_MOST)
    config, memory = np.full(n, -1, dtype=np.int64), problem.memory
    attained, ran = np.zeros(n), np.zeros(n)
    while len(left):
        own = problem.deadline_s
        choice = decide(
            replace(
                problem,
                rate=problem.rate[left],
                work_left=problem.work_left[left] - done[left],
                age_s=problem.age_s[left] + now,
                run_s=ran[left],
                attained_gpu_s=attained[left],
                weight=problem.weight[left],
                current=config[left],
                restarts=problem.restarts[left],
                restart_s=problem.restart_s[left],
                deadline_s=None if own is None else np.maximum(own[left] - now, 1e-3),
                job_id=left,
                memory=memory,
            )
        )
        config[left], memory = choice.config, choice.memory
        runs = choice.config >= 0
        if len(left) == n:
            first[left[runs], choice.config[runs]] = 1.0
        rate = np.where(runs, problem.rate[left, np.maximum(choice.config, 0)], 0.0)
        with np.errstate(divide="ignore"):
            takes = np.where(rate > 0, (problem.work_left[left] - done[left]) / rate, np.inf)
        can = np.sort(takes[np.isfinite(takes)])
        if not len(can):
            break
        span = float(can[min(batch, len(can)) - 1])
        lasts = np.minimum(takes, span)
        over = takes <= span + SAME * (now + span)
        ends[left[over]] = now + takes[over]
        held[left[runs], choice.config[runs]] += lasts[runs]
        ran[left[runs]] += lasts[runs]
        attained[left[runs]] += lasts[runs] * problem.configs.gpus[choice.config[runs]]
        done[left] += rate * lasts
        now += span
        left = left[~over]
    return Run(ends_s=ends, held_s=held, now=first)
