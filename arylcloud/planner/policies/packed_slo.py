"""Throughput per dollar with deadlines kept and pairs of jobs sharing GPUs.

    max_x Σ (steps/s on type j)/c_j    s.t.  rate_i(x) ≥ N_i/D_i

c_j USD per GPU-hour, N_i steps left, D_i seconds to the deadline; of a pair each member's steps/s count, and
the GPUs are held once. Deadlines that cannot all be kept are all dropped, and the allocation says
``fallback``. Exact by classes of jobs: :mod:`arylcloud.planner.kernels.classes`.
Reference: Narayanan et al., Gavel, OSDI 2020, §4.2 and §3.1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arylcloud.core.errors import InfeasibleError
from arylcloud.planner.cluster import Allocation, ClusterProblem, F, I
from arylcloud.planner.kernels.classes import Shared, classes, solve
from arylcloud.planner.policies.packed import allocation


def packed(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Objective and bound in (steps/s)/(USD/h), as Gavel's; ``unmet``, where deadlines were dropped:
    the jobs that would miss theirs with the cluster to themselves."""
    del rng
    paid = problem.usd_per_hour[problem.usd_per_hour > 0]
    prices = np.maximum(problem.usd_per_hour, 1e-6 * paid.min() if len(paid) else 1.0)
    jobs = classes(problem, pairs=True, worth=1.0 / prices)
    pace = _pace(problem)
    what = "throughput per dollar with pairs"
    if np.isfinite(pace).all():
        try:
            return _told(problem, solve(jobs, need=pace, what=what), prices)
        except InfeasibleError:
            pass  # Gavel's rule: without deadlines then, and the answer says so
    found = _told(problem, solve(jobs, what=what), prices)
    return replace(found, fallback=True, unmet=_hopeless(problem, pace))


def _told(problem: ClusterProblem, shared: Shared, prices: F) -> Allocation:
    worth = float(((problem.throughput * shared.shares) / prices).sum())
    if problem.sharing is not None and len(shared.pairs):
        a, b = problem.sharing.job_class[shared.pairs.T]
        together = problem.sharing.rate[a, b] + problem.sharing.rate[b, a]
        worth += float(((together * shared.pair_shares) / prices).sum())
    return replace(allocation(problem, shared), objective=worth, bound=shared.bound)


def _pace(problem: ClusterProblem) -> F:
    """(n,) steps/s that a job must keep to end by its deadline; 0 = it has none; inf = it is past."""
    if problem.deadline_s is None:
        return np.zeros(len(problem))
    with np.errstate(divide="ignore"):
        pace: F = np.where(problem.deadline_s > 0, problem.steps_left / problem.deadline_s, np.inf)
    return pace


def _hopeless(problem: ClusterProblem, pace: F) -> I:
    """Jobs that even alone, on as many workers as they can use, would be too slow."""
    most = np.minimum(1.0, problem.workers / problem.gpus[:, None])
    alone = _best_mix(problem.throughput, most)
    return np.flatnonzero(alone < pace * (1 - 1e-9))


def _best_mix(rate: F, most: F) -> F:
    """(n,) the rate of one unit of time spent on the fastest types first, at most ``most`` (n, m) on each."""
    order = np.argsort(-rate, axis=1)
    sorted_rate = np.take_along_axis(rate, order, axis=1)
    upto = np.minimum(np.cumsum(np.take_along_axis(most, order, axis=1), axis=1), 1.0)
    taken = np.diff(upto, axis=1, prepend=0.0)
    best: F = (taken * sorted_rate).sum(axis=1)
    return best
