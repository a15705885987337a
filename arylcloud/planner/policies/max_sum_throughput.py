"""The sum of throughputs: of steps, of steps per dollar, of steps per dollar with deadlines kept.

    max_x Σ_ij T_ij·x_ij        perf: steps/s. Favours models with many steps per second.
    max_x Σ_ij (T_ij/c_j)·x_ij  per_dollar: c_j USD per GPU-hour of type j; the job's GPUs do not enter
    ... s.t. Σ_j T_ij·x_ij ≥ N_i/D_i  per_dollar_slo: N_i steps left, D_i seconds to the deadline

Published throughput per dollar does not minimise dollars: every term is positive, so that time which no
deadline needs is handed out all the same, on dear types too. :mod:`arylcloud.planner.policies.min_cost` does.

Deadlines that cannot all be kept are all dropped, and the allocation says ``fallback`` (Gavel's rule);
:func:`per_dollar_slo_strict` refuses instead. Reference: Narayanan et al., Gavel, OSDI 2020.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem, F, I
from arylcloud.planner.kernels.jobform import JobLP
from arylcloud.planner.kernels.jobs import solve
from arylcloud.planner.kernels.needs import meet, most_alone
from arylcloud.planner.policies.perjob import (
    Memory,
    answer,
    at_best,
    nobody,
    own_ease,
    price_ease,
    reduced_costs,
    too_tight,
)


def perf(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Objective and bound in steps/s; ``worker_value`` in steps/s per worker."""
    del rng
    return _largest_sum(problem, problem.throughput)


def per_dollar(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Objective and bound in (steps/s)/(USD/h), as Gavel's; × 3600 = steps per USD.

    A type that costs nothing counts as a millionth of the cheapest one that costs something.
    """
    del rng
    return _largest_sum(problem, problem.throughput / paid_prices(problem))


def per_dollar_slo(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """``per_dollar`` with every deadline kept; all dropped, ``fallback``, where they cannot be.
    ``unmet``: the jobs that would miss theirs with the cluster to themselves.

    GPUs that are left over go to whom they cost least of its own rate: the prices of deadlines say nothing of
    what a job without one, or ahead of its own, loses there.
    """
    found = _with_deadlines(problem, rng)
    if not isinstance(found, Allocation):
        late = hopeless(problem, pace_of(problem))
        found = replace(per_dollar(problem, rng), fallback=True, unmet=late)
    return replace(found, spare=own_ease(problem.throughput))


def per_dollar_slo_strict(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """As :func:`per_dollar_slo`, for a user's own plan: no deadline is ever dropped. :class:`InfeasibleError`
    says which jobs cannot meet theirs even alone, or by how much all are too tight together."""
    found = _with_deadlines(problem, rng, how_far=True)
    if isinstance(found, Allocation):
        return found
    raise too_tight(problem, hopeless(problem, pace_of(problem)), found)


def paid_prices(problem: ClusterProblem) -> F:
    """(n, m) or (1, m) USD per GPU-hour, above 0."""
    paid = problem.prices[problem.prices > 0]
    return np.maximum(problem.prices, 1e-6 * paid.min() if len(paid) else 1.0)


def _largest_sum(problem: ClusterProblem, worth: F) -> Allocation:
    """max Σ worth·x; ``worth`` (n, m)."""
    n, m = worth.shape
    if not problem.workers.any():
        return replace(nobody(problem), objective=0.0, bound=0.0)
    everyone = at_best(problem, worth)
    if everyone is not None:
        total = float((worth * everyone).sum())
        return Allocation(
            shares=everyone,
            objective=total,
            bound=total,
            worker_value=np.zeros(m),
            spare=price_ease((worth * everyone).sum(axis=1)[:, None] - worth, total),
            memory=Memory(),
        )
    lp = JobLP(rate=worth.T, gpus=problem.gpus, capacity=problem.workers, gain=np.ascontiguousarray(worth.T))
    found = solve(lp, warm=problem.memory.warm if isinstance(problem.memory, Memory) else None)
    ease = price_ease(reduced_costs(lp, found), found.objective)
    return answer(found, np.ones(n, dtype=bool), spare=ease)


def pace_of(problem: ClusterProblem) -> F:
    """(n,) steps/s that a job must keep to end by its deadline; 0 = it has none; inf = it is past."""
    if problem.deadline_s is None:
        return np.zeros(len(problem))
    with np.errstate(divide="ignore"):
        pace: F = np.where(problem.deadline_s > 0, problem.steps_left / problem.deadline_s, np.inf)
    return pace


def _with_deadlines(
    problem: ClusterProblem, rng: np.random.Generator, *, how_far: bool = False
) -> Allocation | float:
    """The allocation that keeps all deadlines, or the part of every pace that can be kept at most."""
    pace = pace_of(problem)
    if not (pace > 0).any():
        return per_dollar(problem, rng)
    if np.isinf(pace).any():
        return 0.0
    lp = _program(problem, pace)
    met = meet(lp, warm=problem.memory.warm if isinstance(problem.memory, Memory) else None, how_far=how_far)
    if met.solution is None:
        return met.part
    return answer(met.solution, np.ones(len(problem), dtype=bool))


def _program(problem: ClusterProblem, pace: F) -> JobLP:
    return JobLP(
        rate=np.ascontiguousarray(problem.throughput.T),
        gpus=problem.gpus,
        capacity=problem.workers,
        gain=np.ascontiguousarray((problem.throughput / paid_prices(problem)).T),
        need=pace,
    )


def hopeless(problem: ClusterProblem, pace: F) -> I:
    """Jobs that would miss their deadline with the cluster to themselves."""
    return np.flatnonzero(most_alone(_program(problem, pace)) < pace * (1 - 1e-9))
