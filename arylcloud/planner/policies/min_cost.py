"""The fewest dollars that finish every job by its deadline.

    min  Σ_ij c_j·s_i·y_ij              y_ij hours of job i on type j, c_j USD per GPU-hour, s_i GPUs
    s.t. Σ_j 3600·T_ij·y_ij ≥ N_i       all steps are done
         Σ_j y_ij ≤ D_i                 by the deadline (the horizon H, if that is sooner)
         Σ_i s_i·y_ij ≤ W_j·H           on the workers that there are until the horizon

H is ``horizon_s``, else the last deadline. A job without a deadline, where no horizon is given, can wait
until the workers are free: it takes its cheapest type and stands in nobody's way. For one job this is a
fractional knapsack, and at most two types are used.

The program pools a type's hours up to H; it does not say when they fall. ``shares`` does: the hours spread
evenly over the job's time, the earliest deadline first, as far as workers go. A set whose early deadlines
crowd can need more than the program sees, so the policy is to be asked again as time passes, as the round
mechanism does. Compare :func:`max_sum_throughput.per_dollar_slo`, which keeps one pace from now on.

Deadlines that cannot be met are all dropped, and the allocation says ``fallback``; :func:`min_cost_strict`,
for a user's own plan, refuses. A plan above ``budget_usd`` is always refused: no cheaper one exists.
Reference: Narayanan et al., DISPA 2020, whose throughput per dollar this program replaces.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arylcloud.core.errors import InfeasibleError
from arylcloud.planner.cluster import Allocation, ClusterProblem, F, I
from arylcloud.planner.kernels.hull import cheapest
from arylcloud.planner.kernels.jobform import JobLP
from arylcloud.planner.kernels.jobs import Warm
from arylcloud.planner.kernels.needs import meet, most_alone
from arylcloud.planner.policies.perjob import Memory, too_tight

HOUR_S = 3600.0


def min_cost(problem: ClusterProblem, _rng: np.random.Generator) -> Allocation:
    """Objective and bound in USD, smaller is better; ``worker_value`` in USD saved per worker, held until H.
    ``unmet``: the jobs that would miss their deadline with the cluster to themselves."""
    found = _within_deadlines(problem)
    if isinstance(found, Allocation):
        return _affordable(problem, found)
    late = _hopeless(problem)
    cheapest = _within_deadlines(replace(problem, deadline_s=None, horizon_s=None))
    assert isinstance(cheapest, Allocation)
    return _affordable(problem, replace(cheapest, fallback=True, unmet=late))


def min_cost_strict(problem: ClusterProblem, _rng: np.random.Generator) -> Allocation:
    """As :func:`min_cost`; :class:`InfeasibleError` says which deadlines cannot be met, or by how much."""
    found = _within_deadlines(problem, how_far=True)
    if isinstance(found, Allocation):
        return _affordable(problem, found)
    raise too_tight(problem, _hopeless(problem), found)


def _times(problem: ClusterProblem) -> tuple[F, float]:
    """((n,) seconds by which each job must end, inf = it can wait; H in seconds)."""
    end = np.full(len(problem), np.inf) if problem.deadline_s is None else problem.deadline_s.copy()
    if problem.horizon_s is not None:
        return np.minimum(end, problem.horizon_s), problem.horizon_s
    finite = end[np.isfinite(end)]
    return end, float(finite.max(initial=0.0))


def _rates(problem: ClusterProblem) -> F:
    """(n, m) steps/s where a job fits: hours that no round could place are not bought."""
    rates: F = np.where(problem.workers[None, :] >= problem.gpus[:, None], problem.throughput, 0.0)
    return rates


def _within_deadlines(problem: ClusterProblem, *, how_far: bool = False) -> Allocation | float:
    """The cheapest plan, or the part of all work that fits at most before its deadline."""
    n, m = problem.throughput.shape
    end_s, horizon_s = _times(problem)
    rates = _rates(problem)
    usd_per_s = problem.gpus[:, None] * problem.prices / HOUR_S
    seconds = np.zeros((n, m))
    runs = rates.max(axis=1, initial=0.0) > 0
    can_wait = np.isinf(end_s) & runs
    due = np.flatnonzero(np.isfinite(end_s))
    if can_wait.any():
        with np.errstate(divide="ignore", invalid="ignore"):
            per_step = np.where(rates > 0, usd_per_s / rates, np.inf)
        best = _first_least(per_step, rates)
        seconds[can_wait, best[can_wait]] = problem.steps_left[can_wait] / rates[can_wait, best[can_wait]]
    waiting = float((usd_per_s * seconds).sum())
    dollars = bound = waiting
    value = np.zeros(m)
    memory = Memory()
    if len(due):
        if (end_s[due] <= 0).any() or not runs[due].all():
            return 0.0
        rate = np.ascontiguousarray(rates[due].T)
        price = np.ascontiguousarray(usd_per_s[due].T)
        room = problem.workers * horizon_s
        # at prices of 0 for the workers: each job for itself. Where that fits, it is the optimum
        mix = cheapest(rate, price, problem.steps_left[due] / end_s[due])
        x = mix.shares(m) * end_s[due]
        if np.isfinite(mix.cost).all() and (x @ problem.gpus[due] <= room).all():
            dollars = bound = waiting + float(np.vdot(price, x))
        else:
            met = meet(
                JobLP(
                    rate=rate,
                    gpus=problem.gpus[due],
                    capacity=room,
                    time=end_s[due],
                    gain=-price,
                    need=problem.steps_left[due],
                ),
                warm=problem.memory.warm if isinstance(problem.memory, Memory) else None,
                how_far=how_far,
            )
            if met.solution is None:
                return met.part
            x = met.solution.x
            dollars, bound = waiting - met.solution.objective, waiting - met.solution.bound
            value = met.solution.type_value * horizon_s
            memory = Memory(warm=Warm.of(met.solution))
        seconds[due] = x.T
    return Allocation(
        shares=_now(problem, seconds, end_s),
        objective=dollars,
        bound=bound,
        worker_value=value,
        seconds=seconds,
        memory=memory,
    )


def _first_least(per_step: F, rates: F) -> I:
    """(n,) the cheapest type; among equals the fastest."""
    least = per_step.min(axis=1, keepdims=True)
    best: I = np.where(per_step <= least * (1 + 1e-12), rates, -1.0).argmax(axis=1)
    return best


def _now(problem: ClusterProblem, seconds: F, end_s: F) -> F:
    """(n, m) what each job holds from now on: its hours spread over its time, earliest deadline first as far
    as workers go; then the jobs that can wait, in order of arrival, all the time on their type."""
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.where(np.isfinite(end_s)[:, None], seconds / end_s[:, None], seconds > 0)
    spread = np.nan_to_num(spread)
    order = np.argsort(end_s, kind="stable")
    taken = np.cumsum(problem.gpus[order, None] * spread[order], axis=0)
    held = np.diff(np.minimum(taken, problem.workers), axis=0, prepend=0.0)
    shares = np.zeros_like(seconds)
    shares[order] = held / problem.gpus[order, None]
    return shares


def _hopeless(problem: ClusterProblem) -> I:
    """Jobs that would miss their deadline with the cluster to themselves."""
    end_s, horizon_s = _times(problem)
    due = np.flatnonzero(np.isfinite(end_s) & (end_s > 0))
    most = most_alone(
        JobLP(
            rate=_rates(problem)[due].T,
            gpus=problem.gpus[due],
            capacity=problem.workers * horizon_s,
            time=end_s[due],
        )
    )
    past = np.flatnonzero(end_s <= 0)
    return np.sort(np.concatenate([past, due[most < problem.steps_left[due] * (1 - 1e-9)]]))


def _affordable(problem: ClusterProblem, found: Allocation) -> Allocation:
    assert isinstance(found.bound, float)
    if problem.budget_usd is not None and found.bound > problem.budget_usd:
        raise InfeasibleError(
            f"no plan fits the budget of ${problem.budget_usd:,.2f}: the cheapest costs ${found.bound:,.2f}",
            hint="a larger budget, later deadlines (slower types are cheaper), or fewer jobs",
        )
    return found
