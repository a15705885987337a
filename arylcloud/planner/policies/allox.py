"""AlloX: which job on which worker type in which order, by an assignment of least total completion time."""

from __future__ import annotations

import numpy as np

from arylcloud.core.errors import UsageError
from arylcloud.planner.cluster import Allocation, ClusterProblem, I
from arylcloud.planner.kernels.assignment import least_total_completion


def allox(problem: ClusterProblem, _rng: np.random.Generator) -> Allocation:
    """AlloX (EuroSys 2020) as in Gavel (OSDI 2020), α = 1; jobs of one GPU.

    ``min Σ_i k_i·N_i/T_i,j(i) + t_i`` over the types j(i) and the places k_i from the end of a worker's
    queue (:mod:`arylcloud.planner.kernels.assignment`); the objective is that minimum, in seconds, over
    the jobs that wait. Each worker runs the first of its queue; the others are decided anew at the next
    call. Not preemptive: who was placed stays. A job that can run on no type with a free worker is left out.

    ``memory``: {job id: name of its type}. Returns 0/1 shares, shape (n, m). UsageError: a job of several
    GPUs.
    """
    if (problem.gpus != 1).any():
        job = int(np.flatnonzero(problem.gpus != 1)[0])
        raise UsageError(
            f"allox places jobs of one GPU only; job {job} has {problem.gpus[job]:g}",
            hint="use another policy, such as max_min_fairness_perf, for jobs of several GPUs",
        )
    n, m = len(problem), len(problem.workers)
    free: I = np.floor(problem.workers).astype(np.int64)
    placed: I = np.full(n, -1)
    held = problem.memory if isinstance(problem.memory, dict) else {}
    column = {name: j for j, name in enumerate(problem.worker_types)}
    for i, job in enumerate(problem.ids.tolist()):
        j = column.get(held.get(job, ""), -1)
        if j >= 0 and free[j] > 0:
            placed[i] = j
            free[j] -= 1
    types = np.flatnonzero(free > 0)
    rate = problem.throughput[:, types]
    waiting = np.flatnonzero((placed < 0) & (rate > 0).any(axis=1))
    steps = problem.steps_left[waiting, None]
    rate = rate[waiting]
    seconds = np.divide(steps, rate, out=np.full(rate.shape, np.inf), where=rate > 0)
    found = least_total_completion(seconds, free[types])
    placed[waiting[found.first]] = types[found.kind[found.first]]
    shares = np.zeros((n, m))
    runs = np.flatnonzero(placed >= 0)
    shares[runs, placed[runs]] = 1.0
    return Allocation(
        shares=shares,
        objective=found.total + float(problem.age_s[waiting].sum()),
        memory={int(problem.ids[i]): problem.worker_types[placed[i]] for i in runs},
    )
