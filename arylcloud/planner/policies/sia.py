"""Sia: every round, for every job one configuration (type × GPUs × nodes) or none, by an integer programme.

``max Σ_ij x_ij·(λ − (r_ij·G_ij)^p)``, p = −0.5, λ = 1.1 (SOSP 2023; for p < 0 the paper's objective
``Σ x_ij·(r_ij·G_ij)^p + λ(1 − Σ_j x_ij)`` is minimised: the same programme).

* ``G_ij``: goodput of job i in configuration j, each row divided by its smallest value and multiplied by the
  GPUs of the smallest configuration, so that jobs of different units compare.
* ``r_i = (T_i − N_i·S_i)/(T_i + S_i)`` for every configuration but the one held: age T_i, restarts N_i,
  seconds of a restart S_i. A job that has been moved much is moved less.
* A job that runs may at most double its GPUs; one that waits starts with its smallest configuration of a
  type ("starts at one GPU").

References: Jayaram Subramanya et al., SOSP 2023. Departures: the weight of a job multiplies its utility (the
paper has none); the programme is solved to proven optimality (the paper stops at the solver's default gap).
"""

from __future__ import annotations

import numpy as np

from arylcloud.planner.cluster import Choice, ElasticProblem, F
from arylcloud.planner.kernels.configurations import best_configurations

POWER = -0.5
WAITING = 1.1
"""λ: what a job without GPUs costs; above 1, so that the smallest configuration always pays."""
LEAST_RESTART_FACTOR = 1e-3
"""A young job with many restarts: the formula goes below 0."""


def sia(problem: ElasticProblem, rng: np.random.Generator) -> Choice:
    """Choose for all jobs at once; ``objective`` is ``Σ w_i·x_ij·(λ − (r·G)^p)``, proven to 1e-7."""
    del rng
    utility = problem.weight[:, None] * (WAITING - (restart_factor(problem) * normalised(problem)) ** POWER)
    utility[~reachable(problem)] = -np.inf
    found = best_configurations(
        utility, problem.configs.gpus.astype(np.float64), problem.configs.worker_type, problem.workers
    )
    return Choice(
        config=found.config, objective=found.objective, bound=found.bound, worker_value=found.worker_value
    )


def normalised(problem: ElasticProblem) -> F:
    """(n, k) goodput of each configuration over the job's smallest, times the GPUs of its smallest
    configuration; tiny where it cannot run."""
    can = problem.rate > 0
    least = np.where(can, problem.rate, np.inf).min(axis=1, initial=np.inf)
    gpus = np.where(can, problem.configs.gpus[None, :], np.iinfo(np.int64).max).min(
        axis=1, initial=np.iinfo(np.int64).max
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled: F = np.where(can, problem.rate / least[:, None] * gpus[:, None], 1e-12)
    return scaled


def restart_factor(problem: ElasticProblem) -> F:
    """(n, k) r_i, and 1 where the job stays as it is."""
    lost = problem.age_s - problem.restarts * problem.restart_s
    total = problem.age_s + problem.restart_s
    factor = np.clip(
        np.divide(lost, total, out=np.ones_like(total), where=total > 0), LEAST_RESTART_FACTOR, 1.0
    )
    every: F = np.repeat(factor[:, None], len(problem.configs), axis=1)
    runs = np.flatnonzero(problem.current >= 0)
    every[runs, problem.current[runs]] = 1.0
    every[problem.current < 0] = 1.0  # who waits pays the same start whatever it gets
    return every


def reachable(problem: ElasticProblem) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """(n, k) at most twice the GPUs held; for a job that waits, its smallest number of GPUs on each type."""
    gpus, kind = problem.configs.gpus, problem.configs.worker_type
    can = problem.rate > 0
    smallest = np.full((len(problem), len(problem.workers)), np.iinfo(np.int64).max)
    for j in range(len(problem.workers)):
        here = kind == j
        smallest[:, j] = np.where(can[:, here], gpus[here], np.iinfo(np.int64).max).min(
            axis=1, initial=np.iinfo(np.int64).max
        )
    start = gpus[None, :] <= smallest[:, kind]
    held = np.zeros(len(problem), dtype=np.int64)
    runs = problem.current >= 0
    held[runs] = gpus[problem.current[runs]]
    found: np.ndarray[tuple[int, int], np.dtype[np.bool_]] = can & (
        start | (gpus[None, :] <= 2 * held[:, None])
    )
    return found
