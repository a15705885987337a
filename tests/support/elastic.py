"""Elastic problems at random: a few types, powers of two, concave scaling, some configurations impossible."""

from __future__ import annotations

import numpy as np

from arylcloud.planner.cluster import Choice, Configs, ElasticProblem

SIZES = np.array([1, 2, 4, 8])


def elastic_problem(seed: int, *, jobs: int, types: int = 3, workers: int = 12) -> ElasticProblem:
    rng = np.random.default_rng(seed)
    kind, gpus = np.repeat(np.arange(types), len(SIZES)), np.tile(SIZES, types)
    speed, exponent = rng.uniform(1, 5, (jobs, types)), rng.uniform(0.6, 0.95, (jobs, 1))
    rate = speed[:, kind] * gpus[None, :] ** exponent
    rate[rng.random(rate.shape) < 0.05] = 0.0
    current = rng.integers(-1, len(gpus), jobs)
    current[rate[np.arange(jobs), np.maximum(current, 0)] == 0] = -1
    return ElasticProblem(
        worker_types=tuple("abcdefgh"[:types]),
        workers=np.full(types, float(workers)),
        usd_per_hour=rng.uniform(0.2, 4, types),
        configs=Configs(worker_type=kind, gpus=gpus, nodes=np.ones_like(gpus)),
        rate=rate,
        work_left=rng.uniform(1e3, 1e6, jobs),
        age_s=rng.uniform(0, 1e5, jobs),
        run_s=rng.uniform(0, 1e5, jobs),
        attained_gpu_s=rng.uniform(0, 1.2e5, jobs),
        weight=np.ones(jobs),
        current=current,
        restarts=rng.integers(0, 5, jobs),
        restart_s=np.full(jobs, 60.0),
        deadline_s=np.where(rng.random(jobs) < 0.5, np.inf, rng.uniform(1e4, 1e6, jobs)),
    )


def gpus_used(problem: ElasticProblem, choice: Choice) -> np.ndarray:
    """(m,)."""
    held = choice.config[choice.config >= 0]
    gpus = problem.configs.gpus[held].astype(float)
    return np.bincount(problem.configs.worker_type[held], weights=gpus, minlength=len(problem.workers))


def rates(problem: ElasticProblem, choice: Choice) -> np.ndarray:
    """(n,) 0 where the job waits."""
    rows = np.arange(len(problem))
    return np.where(choice.config >= 0, problem.rate[rows, np.maximum(choice.config, 0)], 0.0)
