"""Shortest remaining service first: time left × GPUs held, so that a large job must be short to go first."""

from __future__ import annotations

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem
from arylcloud.planner.policies.inorder import fastest_free, full_speed


def srtf(problem: ClusterProblem, _rng: np.random.Generator) -> Allocation:
    """Tiresias (NSDI 2019), the two-dimensional SRTF that knows durations (its upper bound).

    Jobs by ``s_i · min_j N_i / T_ij`` (GPU-seconds on the fastest type that has room for the job at all),
    each on the type with the highest ``T_ij`` among those with ``s_i`` free workers; who fits nowhere is
    passed over. Preemptive: decided anew at each call. Equal ones: the job that came first; the type first
    by name.

    Returns 0/1 shares, shape (n, m).
    """
    best = full_speed(problem)
    service = np.divide(
        problem.gpus * problem.steps_left, best, out=np.full(len(problem), np.inf), where=best > 0
    )
    return Allocation(shares=fastest_free(problem, np.argsort(service, kind="stable")))
