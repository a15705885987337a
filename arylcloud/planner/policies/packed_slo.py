"""Throughput per dollar with deadlines kept and pairs of jobs sharing GPUs.

    max_x Σ (steps/s on type j)/c_j    s.t.  rate_i(x) ≥ N_i/D_i

c_j USD per GPU-hour (each job's own, where they differ), N_i steps left, D_i seconds to the deadline; of a
pair each member's steps/s count, at its own price, and the GPUs are held once. Deadlines that cannot all be
kept are all dropped, and the allocation says ``fallback``. Exact by classes of jobs:
:mod:`arylcloud.planner.kernels.classes`.
Reference: Narayanan et al., Gavel, OSDI 2020.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arylcloud.core.errors import InfeasibleError
from arylcloud.planner.cluster import Allocation, ClusterProblem, F
from arylcloud.planner.kernels.classes import Shared, classes, solve
from arylcloud.planner.policies.max_sum_throughput import hopeless, pace_of, paid_prices
from arylcloud.planner.policies.packed import allocation


def packed(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Objective and bound in (steps/s)/(USD/h), as Gavel's; ``unmet``, where deadlines were dropped:
    the jobs that would miss theirs with the cluster to themselves."""
    del rng
    prices = paid_prices(problem)
    jobs = classes(problem, pairs=True, worth=1.0 / prices)
    pace = pace_of(problem)
    what = "throughput per dollar with pairs"
    if np.isfinite(pace).all():
        try:
            return _told(problem, solve(jobs, need=pace, what=what), prices)
        except InfeasibleError:
            pass  # Gavel's rule: without deadlines then, and the answer says so
    found = _told(problem, solve(jobs, what=what), prices)
    return replace(found, fallback=True, unmet=hopeless(problem, pace))


def _told(problem: ClusterProblem, shared: Shared, prices: F) -> Allocation:
    worth = float(((problem.throughput * shared.shares) / prices).sum())
    if problem.sharing is not None and len(shared.pairs):
        a, b = problem.sharing.job_class[shared.pairs.T]
        one, two = shared.pairs.T
        own = np.broadcast_to(prices, problem.throughput.shape)
        together = problem.sharing.rate[a, b] / own[one] + problem.sharing.rate[b, a] / own[two]
        worth += float((together * shared.pair_shares).sum())
    return replace(allocation(shared), objective=worth, bound=shared.bound)
