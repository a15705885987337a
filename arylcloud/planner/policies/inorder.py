"""Jobs one after another, whole, each on its fastest free type: what the preemptive greedy policies share."""

from __future__ import annotations

import numpy as np

from arylcloud.planner.cluster import ClusterProblem, F, I


def fastest_free(problem: ClusterProblem, order: I) -> F:
    """0/1 shares (n, m): jobs in ``order`` (n,), each on the type with the highest ``T_ij`` > 0 among those
    with ``s_i`` free workers (equal ones: the first by name). Who fits nowhere is passed over."""
    by_name = np.argsort(problem.worker_types)
    rows = problem.throughput[:, by_name].tolist()
    free, gpus = problem.workers[by_name].tolist(), problem.gpus.tolist()
    shares = np.zeros(problem.throughput.shape)
    for i in order.tolist():
        fits = [j for j, left in enumerate(free) if left >= gpus[i] and rows[i][j] > 0]
        if fits:
            j = max(fits, key=rows[i].__getitem__)
            free[j] -= gpus[i]
            shares[i, by_name[j]] = 1.0
    return shares


def full_speed(problem: ClusterProblem) -> F:
    """(n,) ``max_j T_ij``, steps/s, over the types that have ``s_i`` workers at all; 0 = there is none."""
    fits = problem.workers[None, :] >= problem.gpus[:, None]
    fastest: F = np.where(fits, problem.throughput, 0.0).max(axis=1, initial=0.0)
    return fastest
