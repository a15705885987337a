"""What the policies with space sharing have in common: from a problem to classes, and the answer's shape.

A pair of jobs on the same GPUs holds them once; each member runs at its rate beside the other
(:class:`~arylcloud.planner.cluster.Sharing`). Pairs of one type and of equally many GPUs only, never three.
A problem without ``sharing`` is solved without pairs. Reference: Narayanan et al., Gavel, OSDI 2020.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arylcloud.core.errors import ArylError
from arylcloud.planner.cluster import Allocation, ClusterProblem, F, job_rates
from arylcloud.planner.kernels.classes import Shared, classes, solve
from arylcloud.planner.policies.perjob import at_best, can_run, own_ease

CERTIFIED = 1e-5
"""Relative: an answer further from its bound than this is no answer."""


def at_best_alone(problem: ClusterProblem) -> F | None:
    """(n, m) every job all the time alone where it is fastest, if they fit and no company is better yet."""
    sharing = problem.sharing
    if sharing is not None:
        usable = problem.workers > 0
        alone = (problem.throughput * usable).max(axis=1)
        beside = (sharing.rate * usable).max(axis=(1, 2))[sharing.job_class]
        if (beside > alone).any():
            return None
    return at_best(problem, problem.throughput)


def max_common_packed(
    problem: ClusterProblem, slope: F, *, fade: F | None = None, what: str
) -> tuple[Allocation, F, float]:
    """max t subject to ``rate_i ≥ slope_i·t / (1 − fade_i·t)`` for every job that can run.

    (The allocation, its objective still open; (n,) the t of every job, inf where it cannot run; a bound.)
    """
    n, m = problem.throughput.shape
    runs = can_run(problem, problem.throughput)
    bound = np.inf
    if not runs.any():
        return Allocation(shares=np.zeros((n, m))), np.full(n, np.inf), bound
    everyone, spare = at_best_alone(problem), own_ease(problem.throughput)
    if everyone is not None:
        found = Allocation(shares=everyone, worker_value=np.zeros(m), spare=spare)
    else:
        shared = solve(classes(problem, pairs=True), slope=np.where(runs, slope, 0.0), fade=fade, what=what)
        bound = shared.bound
        found = replace(allocation(shared), spare=spare)
    rates = job_rates(problem, found)
    ask = slope if fade is None else slope + fade * rates
    with np.errstate(divide="ignore", invalid="ignore"):
        reached = np.where(runs & (slope > 0), rates / ask, np.inf)
    worst = float(reached.min())
    if everyone is None and not bound - worst <= CERTIFIED * abs(bound):
        raise ArylError(
            f"{what}: the answer reaches {worst:.3g}, and up to {bound:.3g} is not ruled out",
            hint="throughputs, weights or steps may differ by too many powers of ten; without pairs it works",
        )
    return found, reached, float(min(bound, reached.min())) if everyone is not None else bound


def allocation(shared: Shared) -> Allocation:
    """Shares and prices; the objective is the policy's to say."""
    return Allocation(
        shares=shared.shares,
        pairs=shared.pairs,
        pair_shares=shared.pair_shares,
        worker_value=shared.type_value,
    )
