"""Random parts: what holds of every part holds of the whole, and nothing that a job says is lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.clusters import cluster_problem, for_policy
from support.elastic import elastic_problem

from arylcloud.planner.cluster import ClusterProblem, job_rates, unplaceable, violation
from arylcloud.planner.policies.pop import partitioned, partitioned_choice
from arylcloud.planner.policies.registry import policy

SHARES = ("max_min_fairness_perf", "finish_time_fairness_perf", "min_cost", "min_total_duration_packed")


@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize("parts", [1, 3, 50])
def test_parts_are_feasible_and_no_worker_is_lost(name: str, parts: int) -> None:
    for seed in range(6):
        problem = for_policy(policy(name), seed)
        found = partitioned(policy(name).solve(), problem, parts, np.random.default_rng(seed))
        assert found.shares.shape == problem.throughput.shape
        assert violation(problem, found) <= 1e-6


def test_more_parts_than_jobs_leave_no_workers_over() -> None:
    problem = cluster_problem(0)
    problem = replace(problem, workers=np.full(len(problem.workers), 4.0 * len(problem)))
    problem = replace(problem, gpus=np.ones(len(problem)))
    solve = policy("max_sum_throughput_perf").solve()
    whole = job_rates(problem, solve(problem, np.random.default_rng(0)))
    split = partitioned(solve, problem, 1000, np.random.default_rng(0))
    np.testing.assert_allclose(job_rates(problem, split), whole)


def test_each_part_has_its_own_jobs_time_alone() -> None:
    problem = for_policy(policy("finish_time_fairness_perf"), 1)
    told = replace(problem, isolated_s=np.linspace(0.0, 1e5, len(problem)))
    solve = policy("finish_time_fairness_perf").solve()
    for parts in (1, 2):
        found = partitioned(solve, told, parts, np.random.default_rng(0))
        assert violation(told, found) <= 1e-6
    whole = solve(told, np.random.default_rng(0))
    one = partitioned(solve, told, 1, np.random.default_rng(0))
    np.testing.assert_allclose(job_rates(told, one), job_rates(told, whole), rtol=1e-6)


def test_who_is_late_and_who_has_no_place_is_said_in_the_wholes_numbers() -> None:
    deadline, gpus = np.full(6, np.inf), np.ones(6)
    deadline[4], gpus[2] = 1e-3, 8.0
    late = ClusterProblem(
        worker_types=("v100",),
        workers=np.array([6.0]),
        throughput=np.ones((6, 1)),
        gpus=gpus,
        weight=np.ones(6),
        usd_per_hour=np.ones(1),
        steps_left=np.full(6, 100.0),
        age_s=np.zeros(6),
        deadline_s=deadline,
    )
    found = partitioned(policy("min_cost").solve(), late, 2, np.random.default_rng(0))
    assert found.fallback
    assert found.unmet is not None
    assert found.unmet.tolist() == [4]
    assert unplaceable(late).tolist() == [2]


def test_what_a_policy_does_not_say_is_unknown_not_zero() -> None:
    problem = cluster_problem(5)
    for name, known in (("srtf", False), ("max_sum_throughput_perf", True)):
        found = partitioned(policy(name).solve(), problem, 2, np.random.default_rng(0))
        assert (found.worker_value is not None) is known
    for name, known in (("optimus", False), ("sia", True)):
        chosen = partitioned_choice(
            policy(name).choose(), elastic_problem(1, jobs=6), 2, np.random.default_rng(0)
        )
        assert (chosen.objective is not None) is known


def test_no_job_is_too_large_for_every_part() -> None:
    """Of 8 GPUs a job of 4 fits two parts, not four; for rigid jobs and for those that choose sizes."""
    problem = ClusterProblem(
        worker_types=("v100", "k80"),
        workers=np.array([8.0, 2.0]),
        throughput=np.tile([4.0, 1.0], (8, 1)),
        gpus=np.array([4.0, *np.ones(7)]),
        weight=np.ones(8),
        usd_per_hour=np.ones(2),
        steps_left=np.full(8, 100.0),
        age_s=np.zeros(8),
        deadline_s=np.full(8, 1e5),
    )
    found = partitioned(policy("min_cost").solve(), problem, 4, np.random.default_rng(0))
    assert not found.fallback
    assert (found.shares.sum(axis=1) > 0).all()
    for seed in range(5):
        elastic = elastic_problem(seed, jobs=6)
        wide = elastic.configs.gpus == elastic.configs.gpus.max()
        rate = elastic.rate.copy()
        rate[0] = np.where(wide, 1.0, 0.0)
        workers = np.full(len(elastic.workers), 2.0 * elastic.configs.gpus.max())
        only = replace(elastic, rate=rate, workers=workers, current=np.full(6, -1))
        chosen = partitioned_choice(policy("sia").choose(), only, 6, np.random.default_rng(0))
        assert chosen.config[0] >= 0
