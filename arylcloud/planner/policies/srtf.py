"""Shortest remaining service first: time left × GPUs held, so that a large job must be short to go first."""

from __future__ import annotations

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem


def srtf(problem: ClusterProblem, _rng: np.random.Generator) -> Allocation:
    """Tiresias (NSDI 2019) §3.1, the two-dimensional SRTF that knows durations (its upper bound).

    Jobs by ``s_i · min_j N_i / T_ij`` (GPU-seconds on the fastest type), each on the type with the highest
    ``T_ij`` among those with ``s_i`` free workers; who fits nowhere is passed over. Preemptive: decided
    anew at each call. Equal ones: the job that came first; the type first by name.

    Returns 0/1 shares, shape (n, m).
    """
    by_name = np.argsort(problem.worker_types)
    rates = problem.throughput[:, by_name]
    best = rates.max(axis=1, initial=0.0)
    service = np.divide(
        problem.gpus * problem.steps_left, best, out=np.full(len(problem), np.inf), where=best > 0
    )
    shares = np.zeros(rates.shape)
    free = problem.workers[by_name].tolist()
    gpus, rows = problem.gpus.tolist(), rates.tolist()
    for i in np.argsort(service, kind="stable").tolist():
        fits = [j for j, left in enumerate(free) if left >= gpus[i] and rows[i][j] > 0]
        if fits:
            j = max(fits, key=rows[i].__getitem__)
            free[j] -= gpus[i]
            shares[i, by_name[j]] = 1.0
    return Allocation(shares=shares)
