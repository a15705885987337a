"""Pollux's allocation as a baseline: the largest sum of goodput speed-ups, ``max Σ_ij x_ij·SPEEDUP_ij``.

``SPEEDUP_ij = goodput_ij / goodput of the job's smallest configuration on that type`` × 0.9 where the job
would have to change its configuration (AdaptDL's ``restart_penalty`` of 0.1). Pollux (OSDI 2021) knows
one type of GPU, so its speed-up is blind to what type it is measured on; so is ours.

Departures: the paper searches by a genetic algorithm (100 generations of 100); the sum is separable, so we
solve it exactly as an integer programme: no allocation of the same utilities has a larger sum. Goodput is
what the problem's ``rate`` says (where the batch may change: throughput × statistical efficiency).
"""

from __future__ import annotations

import numpy as np

from arylcloud.planner.cluster import Choice, ElasticProblem, F
from arylcloud.planner.kernels.configurations import best_configurations

RESTART_PENALTY = 0.1


def pollux(problem: ElasticProblem, rng: np.random.Generator) -> Choice:
    """``objective`` = the sum of speed-ups times weights (the paper has none), restart penalties included."""
    del rng
    utility = problem.weight[:, None] * speedup(problem)
    runs = np.flatnonzero(problem.current >= 0)
    kept = utility[runs, problem.current[runs]]
    utility[runs] *= 1 - RESTART_PENALTY
    utility[runs, problem.current[runs]] = kept
    found = best_configurations(
        utility, problem.configs.gpus.astype(np.float64), problem.configs.worker_type, problem.workers
    )
    return Choice(
        config=found.config, objective=found.objective, bound=found.bound, worker_value=found.worker_value
    )


def speedup(problem: ElasticProblem) -> F:
    """(n, k) rate over that of the job's smallest configuration of the same type; 0 where it cannot run."""
    out: F = np.zeros_like(problem.rate)
    order = np.argsort(problem.configs.gpus, kind="stable")
    for j in range(len(problem.workers)):
        here = order[problem.configs.worker_type[order] == j]
        rate = problem.rate[:, here]
        first = rate[np.arange(len(rate)), (rate > 0).argmax(axis=1)] if len(here) else np.zeros(len(rate))
        with np.errstate(invalid="ignore", divide="ignore"):
            out[:, here] = np.where(rate > 0, rate / first[:, None], 0.0)
    return out
