"""Shortest job first, with typed GPUs: the job and the type that end soonest, then the next."""

from __future__ import annotations

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem


def sjf(problem: ClusterProblem, _rng: np.random.Generator) -> Allocation:
    """Gavel (OSDI 2020): ``min_X min_i N_i / rate_i(X)``, the shortest job as short as it can be.

    The paper stops at that one job, and the published code has no such policy. Ours goes on: all (job,
    type) by remaining time ``N_i / T_ij`` in seconds, and each is taken whole if the job has no place yet
    and the type has ``s_i`` free workers. Preemptive: decided anew from the steps left at each call.
    Equal times: the job that came first, then the type first by name.

    Returns 0/1 shares, shape (n, m).
    """
    by_name = np.argsort(problem.worker_types)
    rate = problem.throughput[:, by_name]
    seconds = np.divide(
        problem.steps_left[:, None], rate, out=np.full(rate.shape, np.inf), where=rate > 0
    ).ravel()
    order = np.argsort(seconds, kind="stable")
    shares = np.zeros(rate.shape)
    free = problem.workers[by_name].tolist()
    gpus = problem.gpus.tolist()
    waits = [True] * len(gpus)
    for at in order[: int(np.isfinite(seconds).sum())].tolist():
        i, j = divmod(at, len(free))
        if waits[i] and gpus[i] <= free[j]:
            waits[i] = False
            free[j] -= gpus[i]
            shares[i, by_name[j]] = 1.0
    return Allocation(shares=shares)
