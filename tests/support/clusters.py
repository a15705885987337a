"""Cluster problems at random, small and hostile: empty types, jobs that run on few of them, equal jobs. The
numbers are continuous, so that nothing is decided by a tie; the arrays cannot be written to."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem, I, Sharing, isolated_rates
from arylcloud.planner.policies.registry import Policy

NAMES = ("v100", "k80", "p100", "a100")
OWN_PRICES = frozenset(
    {
        "min_cost",
        "max_sum_throughput_normalized_by_cost_perf",
        "max_sum_throughput_normalized_by_cost_perf_SLOs",
        "max_sum_throughput_normalized_by_cost_packed_SLOs",
    }
)
"""Policies that read :attr:`ClusterProblem.own_usd_per_hour`."""


def cluster_problem(
    seed: int,
    *,
    one_gpu: bool = False,
    sharing: bool = False,
    deadlines: bool = False,
    equal_weights: bool = False,
    everywhere: bool = False,
    own_prices: bool = False,
) -> ClusterProblem:
    """1–7 jobs on 1–4 types of 0–4 workers (a few of one type at least).

    ``sharing``: three classes of jobs that may share GPUs; ``everywhere``: every job runs on every type;
    ``own_prices``: at half the seeds each job pays prices of its own.
    """
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 8)), int(rng.integers(1, 5))
    workers = rng.integers(0, 5, m).astype(float)
    workers[int(rng.integers(m))] = rng.integers(2, 5)
    kinds = rng.integers(0, 3, n) if sharing else np.arange(n)
    rows = max(n, 3)
    base = rng.uniform(0.5, 10, (rows, m)) * rng.choice([0.1, 1.0, 20.0], (rows, 1))
    if not everywhere:
        base[rng.random((rows, m)) < 0.1] = 0.0
        at = int(workers.argmax())
        base[:, at] = np.where(base[:, at] > 0, base[:, at], 0.5 * base.max(axis=1) + 0.1)
    gpus = np.ones(rows) if one_gpu else rng.choice([1.0, 1.0, 2.0], rows)
    throughput, gpus = base[kinds], gpus[kinds]
    steps = rng.uniform(1e3, 1e5, n) * throughput.max(axis=1)
    problem = ClusterProblem(
        worker_types=tuple(rng.permutation(NAMES)[:m].tolist()),
        workers=workers,
        throughput=throughput,
        gpus=gpus,
        weight=np.ones(n) if equal_weights else rng.choice([0.5, 1.0, 3.0], n),
        usd_per_hour=rng.uniform(0.1, 5, m),
        steps_left=steps,
        age_s=rng.uniform(0, 1e4, n),
        sharing=_sharing(rng, kinds, throughput, gpus) if sharing else None,
    )
    if own_prices and rng.random() < 0.5:
        problem = replace(problem, own_usd_per_hour=problem.usd_per_hour * rng.uniform(0.3, 3, (n, m)))
    if deadlines:
        share = isolated_rates(problem)
        slack = np.where(rng.random(n) < 0.3, np.inf, rng.uniform(0.5, 4, n))
        finite = np.where(share > 0, steps / np.maximum(share, 1e-12), np.inf)
        problem = replace(problem, deadline_s=np.where(np.isfinite(slack), finite, np.inf) * slack)
    return frozen(problem)


def for_policy(policy: Policy, seed: int, **more: Any) -> ClusterProblem:
    """A problem of the kind that the policy is for."""
    wanted = {"one_gpu": policy.one_gpu, "sharing": policy.packs, "deadlines": policy.deadlines}
    wanted["own_prices"] = policy.name in OWN_PRICES
    return cluster_problem(seed, **{**wanted, **more})


def frozen(problem: ClusterProblem) -> ClusterProblem:
    for part in (problem, problem.sharing):
        for field in fields(part) if part is not None else ():
            value = getattr(part, field.name)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
    return problem


def reordered(problem: ClusterProblem, jobs: I, types: I) -> ClusterProblem:
    """The same problem with its jobs and types in that order."""
    changed: dict[str, Any] = {"job_id": problem.ids[jobs]}
    if problem.own_usd_per_hour is not None:
        changed["own_usd_per_hour"] = problem.own_usd_per_hour[np.ix_(jobs, types)]
    for name in ("gpus", "weight", "steps_left", "age_s", "deadline_s", "isolated_s", "entity"):
        value = getattr(problem, name)
        changed[name] = None if value is None else value[jobs]
    if problem.sharing is not None:
        changed["sharing"] = Sharing(
            job_class=problem.sharing.job_class[jobs], rate=problem.sharing.rate[:, :, types]
        )
    return frozen(
        replace(
            problem,
            worker_types=tuple(problem.worker_types[j] for j in types),
            workers=problem.workers[types],
            usd_per_hour=problem.usd_per_hour[types],
            throughput=problem.throughput[np.ix_(jobs, types)],
            **changed,
        )
    )


def with_twins(problem: ClusterProblem) -> ClusterProblem:
    """Every job twice: the second half equals the first."""
    n = len(problem)
    twice = np.tile(np.arange(n), 2)
    found = reordered(problem, twice, np.arange(len(problem.workers)))
    return frozen(replace(found, job_id=np.arange(2 * n)))


def able(problem: ClusterProblem) -> np.ndarray:
    """(n,) who runs on a type that has as many workers as it needs."""
    return ((problem.throughput > 0) & (problem.workers >= problem.gpus[:, None])).any(axis=1)


def whole(found: Allocation) -> bool:
    return bool(np.isin(found.shares, (0.0, 1.0)).all())


def _sharing(rng: np.random.Generator, kinds: I, throughput: np.ndarray, gpus: np.ndarray) -> Sharing:
    m = throughput.shape[1]
    alone, size = np.zeros((3, m)), np.zeros(3)
    alone[kinds], size[kinds] = throughput, gpus
    rate = np.zeros((3, 3, m))
    for a in range(3):
        for b in range(a, 3):
            if size[a] == size[b] > 0:
                runs = (rng.random(m) < 0.8) & (alone[a] > 0) & (alone[b] > 0)
                keep = rng.uniform(0.3, 1.0, (2, m))
                rate[a, b] = np.where(runs, alone[a] * keep[0], 0.0)
                rate[b, a] = np.where(runs, alone[b] * (keep[0] if a == b else keep[1]), 0.0)
    return Sharing(job_class=kinds, rate=rate)
