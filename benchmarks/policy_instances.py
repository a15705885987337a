"""The instances of the policy benchmarks: Gavel's 26 single-GPU jobs on K80, P100 and V100, drawn at random.

Plain ones repeat rows and weights, as Gavel's own sweep does; *hard* ones have 5 % noise on every rate and a
weight of its own for every job, so that no two jobs are equal, and more is asked than there is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arylcloud.planner.cluster import ClusterProblem
from arylcloud.planner.profiles import library

TYPES = ("k80", "p100", "v100")
USD_PER_HOUR = np.array([0.135, 0.43, 0.74])
"""GCP's of Gavel's artifact."""


def base_rates() -> np.ndarray:
    """(26, 3) steps/s of Gavel's jobs on one GPU, from the bundled library."""
    rows = []
    bundled = library()
    names = [entry.name for entry in bundled.entries if entry.name.startswith("gavel-")]
    for name in names:
        if "-bs" not in name and name not in ("gavel-a3c", "gavel-cyclegan"):
            continue
        alone = {m.gpu.lower(): m.rate for m in bundled.get(name).measurements if m.gpus == 1}
        rows.append([alone.get(kind, 0.0) for kind in TYPES])
    return np.array(rows)


def cluster(n: int, *, seed: int = 0, hard: bool = True) -> ClusterProblem:
    """n jobs of 1 to 3 V100-hours that are up to half an hour old, on n/4 GPUs of each type."""
    rng = np.random.default_rng(seed)
    base = base_rates()
    rate = base[rng.integers(len(base), size=n)]
    weight = np.ones(n)
    if hard:
        rate = rate * (1.0 + 0.05 * rng.standard_normal(rate.shape).clip(-3, 3))
        weight = rng.uniform(1.0, 2.0, n)
    return ClusterProblem(
        worker_types=TYPES,
        workers=np.full(3, float(max(1, n // 4))),
        throughput=rate,
        gpus=np.ones(n),
        weight=weight,
        usd_per_hour=USD_PER_HOUR,
        steps_left=rng.uniform(1.0, 3.0, n) * 3600.0 * rate[:, 2],
        age_s=rng.uniform(0.0, 0.5, n) * 3600.0,
        job_id=np.arange(n),
    )


def with_slos(problem: ClusterProblem, *, seed: int = 1) -> ClusterProblem:
    """A third of the jobs must end within 1.2, 2 or 10 times their time on a V100 (Gavel's factors)."""
    rng = np.random.default_rng(seed)
    n = len(problem)
    alone_s = problem.steps_left / problem.throughput[:, 2]
    due = alone_s * rng.choice([1.2, 2.0, 10.0], n, p=[0.33, 0.33, 0.34])
    return replace(problem, deadline_s=np.where(rng.random(n) < 1 / 3, due, np.inf))


def with_deadlines(problem: ClusterProblem, *, seed: int = 1) -> ClusterProblem:
    """All jobs must end within 1.5 to 4 times their time on a V100, on GPUs that are just enough."""
    rng = np.random.default_rng(seed)
    n = len(problem)
    alone_s = problem.steps_left / problem.throughput[:, 2]
    few = np.full(3, float(max(1, round(0.08 * n))))
    return replace(problem, deadline_s=alone_s * rng.uniform(1.5, 4.0, n), workers=few)


def without(problem: ClusterProblem, jobs: np.ndarray) -> ClusterProblem:
    """The same cluster for the rest of the jobs."""
    keep = np.setdiff1d(np.arange(len(problem)), jobs)
    return replace(
        problem,
        throughput=problem.throughput[keep],
        gpus=problem.gpus[keep],
        weight=problem.weight[keep],
        steps_left=problem.steps_left[keep],
        age_s=problem.age_s[keep],
        deadline_s=None if problem.deadline_s is None else problem.deadline_s[keep],
        job_id=problem.ids[keep],
    )
