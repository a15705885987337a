"""A policy asked, and its answer run to the end: by shares, by hours that are bought, by configurations.

Replays ask again whenever a job ends. Hours until deadlines are bought once (:func:`buy`), at the
pessimistic speed, and stand only where a timetable of them exists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from arylcloud.core.errors import InfeasibleError
from arylcloud.planner.cluster import Allocation, Choice, ClusterProblem, ElasticProblem, F
from arylcloud.planner.policies.registry import Policy
from arylcloud.planner.policies.registry import policy as named
from arylcloud.planner.timetable import (
    SAME,
    Run,
    earliest_deadline,
    late,
    replay,
    run_of,
    timed,
)
from arylcloud.planner.together import HOUR_S, Columns

CHOICES_MOST = 12
"""Decisions of a replay with configurations, at most; with shares :func:`replay`'s own."""
SETTLES = 8
"""Rounds in which a first choice grows, at most: a job may double its GPUs in each."""
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
    told = first[0]
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
    worker_usd: F
    timed: bool


def buy(
    policy: Policy,
    problem: ClusterProblem,
    rng: np.random.Generator,
    parts: int | None = None,
) -> Bought | F:
    """The cheapest hours with a timetable; else (n,) how much of each job's work no timetable places in time
    (a set that does not fit; who is short among equals is the solver's choice)."""
    found = solve(policy, problem, rng, parts)
    deadline = problem.deadline_s
    if found.fallback:
        return timed(problem).short
    assert found.seconds is not None
    ends = np.full(len(problem), np.inf) if deadline is None else deadline
    run = earliest_deadline(found.seconds, problem.gpus, problem.workers, ends)
    if not late(run, ends).any():
        value = np.zeros(len(problem.workers)) if found.worker_value is None else found.worker_value
        objective = found.objective
        usd = objective if isinstance(objective, float) else _usd(problem, found.seconds)
        bound = found.bound if isinstance(found.bound, float) else None
        return Bought(run=run, usd=usd, bound=bound, worker_usd=value, timed=False)
    table = timed(problem)
    if table.short.max() > SHORT:
        return table.short
    waits = np.where(np.isinf(ends)[:, None], found.seconds, 0.0)
    run = run_of(table, waits, problem.gpus, problem.workers)
    usd = _usd(problem, run.held_s)
    return Bought(run=run, usd=usd, bound=usd, worker_usd=table.worker_usd, timed=True)


def keeps(problem: ClusterProblem, rng: np.random.Generator) -> bool:
    """Whether :func:`buy` would find hours that keep every deadline."""
    found = solve(named("min_cost"), problem, rng, None)
    if found.fallback or found.seconds is None or problem.deadline_s is None:
        return not found.fallback
    if timed(problem).short.max() <= SHORT:
        return True
    ends = problem.deadline_s
    return not late(earliest_deadline(found.seconds, problem.gpus, problem.workers, ends), ends).any()


def _usd(problem: ClusterProblem, seconds: F) -> float:
    return float((seconds * problem.gpus[:, None] * problem.prices).sum() / HOUR_S)


def run_hours(bought: Bought, columns: Columns, problem: ClusterProblem) -> Answer:
    """Bought at the pessimistic speed; at the expected one every job needs less of its hours."""
    held = bought.run.held_s * np.nan_to_num(columns.hours_p50 / columns.hours_p90)
    ends = np.full(len(problem), np.inf) if problem.deadline_s is None else problem.deadline_s
    quick = earliest_deadline(held, problem.gpus, problem.workers, ends)
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
    told = first[0]
    return Answer(
        expected=quick,
        pessimistic=slow,
        objective=told.objective,
        bound=told.bound,
        worker_value=told.worker_value,
    )


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
