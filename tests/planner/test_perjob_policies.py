"""Policies with a row per job, against HiGHS on their own formula, and where inputs are degenerate."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.job_lp import clusters, highs

from arylcloud.core.errors import InfeasibleError
from arylcloud.planner.cluster import (
    ClusterProblem,
    isolated_rates,
    job_rates,
    proportional_rates,
    unplaceable,
    violation,
)
from arylcloud.planner.kernels.jobform import JobLP
from arylcloud.planner.policies.max_sum_throughput import per_dollar_slo_strict
from arylcloud.planner.policies.min_cost import min_cost, min_cost_strict
from arylcloud.planner.policies.registry import policy

MAX_COMMON = ("max_min_fairness", "max_min_fairness_perf", "min_total_duration_perf")
SUMS = ("max_sum_throughput_perf", "max_sum_throughput_normalized_by_cost_perf")
ALL = (
    *MAX_COMMON, *SUMS, "finish_time_fairness", "finish_time_fairness_perf", "min_total_duration",
    "max_sum_throughput_normalized_by_cost_perf_SLOs", "min_cost", "themis",
)  # fmt: skip


def problem(rate, gpus, workers, seed: int = 0, **fields) -> ClusterProblem:
    n, m = np.shape(rate)
    rng = np.random.default_rng(seed)
    given_ = {
        "worker_types": tuple(f"t{j}" for j in range(m)),
        "workers": np.asarray(workers, float),
        "throughput": np.asarray(rate, float),
        "gpus": np.asarray(gpus, float),
        "weight": rng.uniform(0.5, 5.0, n),
        "usd_per_hour": rng.uniform(0.1, 3.0, m),
        "steps_left": 10 ** rng.uniform(2, 5, n),
        "age_s": rng.uniform(0, 1e5, n),
    }
    return ClusterProblem(**(given_ | fields))


def solved(name: str, of: ClusterProblem):
    return policy(name).solve()(of, np.random.default_rng(0))


@given(clusters(), st.integers(0, 10**6), st.sampled_from(MAX_COMMON + SUMS))
@settings(max_examples=60, deadline=None)
def test_linear_policies_reach_the_optimum_of_their_formula(cluster, seed, name) -> None:
    rate, gpus, capacity = cluster
    of = problem(rate.T, gpus, capacity, seed)
    slope = gain = None
    if name in SUMS:
        gain = rate if name == "max_sum_throughput_perf" else rate / of.usd_per_hour[:, None]
    elif name == "min_total_duration_perf":
        slope = of.steps_left
    elif name == "max_min_fairness":
        rate, slope = np.where(rate > 0, 1.0, 0.0), of.weight / gpus
    else:
        slope = of.weight * proportional_rates(of) / gpus
    optimum = highs(JobLP(rate=rate, gpus=gpus, capacity=capacity, slope=slope, gain=gain))
    found = solved(name, of)
    assert violation(of, found) <= 1e-9
    attained = 1 / found.objective if policy(name).sense == "min" else found.objective
    bound = 1 / found.bound if policy(name).sense == "min" else found.bound
    assert attained <= optimum * (1 + 1e-6)
    assert bound >= optimum * (1 - 1e-6)
    assert bound == pytest.approx(attained, rel=2.2e-7 if name == "min_total_duration_perf" else 1.1e-7)


def worst_ratio(of: ClusterProblem, found, alone) -> float:
    rates = job_rates(of, found)
    return float(((of.age_s + of.steps_left / rates) / (alone + of.steps_left / isolated_rates(of))).max())


def test_finish_time_fairness_remembers_the_time_alone() -> None:
    rng = np.random.default_rng(4)
    first = problem(rng.uniform(1, 5, (6, 3)), np.ones(6), [1, 2, 1], job_id=np.arange(6))
    one = solved("finish_time_fairness_perf", first)
    assert one.objective == pytest.approx(worst_ratio(first, one, 0.0), rel=1e-12)
    # job 2 has ended, job 6 has come; half of the steps are done
    order = np.array([5, 0, 6, 1, 3, 4])
    old = order < 6
    at = np.where(old, order, 0)
    second = replace(
        first,
        throughput=first.throughput[at],
        steps_left=first.steps_left[at] * np.where(old, 0.5, 1.0),
        age_s=first.age_s[at] + 3600.0,
        job_id=order,
        memory=one.memory,
    )
    alone = np.where(old, 0.5 * first.steps_left[at] / isolated_rates(first)[at], 0.0)
    two = solved("finish_time_fairness_perf", second)
    assert two.objective == pytest.approx(worst_ratio(second, two, alone), rel=1e-12)
    assert two.bound == pytest.approx(two.objective, rel=1.1e-7)


@pytest.mark.parametrize("name", ALL)
class TestDegenerate:
    def test_no_jobs(self, name) -> None:
        found = solved(name, problem(np.zeros((0, 2)), [], [1, 1]))
        assert found.shares.shape == (0, 2)

    def test_one_job_one_type(self, name) -> None:
        of = problem([[2.0]], [1], [1], steps_left=np.array([10.0]), age_s=np.zeros(1))
        found = solved(name, of)
        assert violation(of, found) <= 1e-9
        assert found.shares[0, 0] > 0

    def test_no_workers_at_all(self, name) -> None:
        of = problem(np.ones((3, 2)), np.ones(3), [0, 0])
        found = solved(name, of)
        assert (found.shares == 0).all()

    def test_a_job_that_runs_nowhere_holds_nothing_and_spoils_nothing(self, name) -> None:
        rate = np.array([[1.0, 2.0], [0.0, 0.0], [3.0, 1.0], [0.0, 4.0], [2.0, 2.0]])
        of = problem(rate, np.ones(5), [1, 1])
        found = solved(name, of)
        assert violation(of, found) <= 1e-9
        assert policy(name).aware is False or found.shares[1].sum() == pytest.approx(0.0, abs=1e-6)
        rates = job_rates(of, found)[[0, 2, 3, 4]]
        if name in MAX_COMMON or "finish" in name:
            assert (rates > 0).all()

    def test_a_type_without_workers(self, name) -> None:
        rng = np.random.default_rng(2)
        of = problem(rng.uniform(1, 9, (6, 3)), np.ones(6), [2, 0, 1])
        found = solved(name, of)
        assert violation(of, found) <= 1e-9
        assert (found.shares[:, 1] == 0).all()

    def test_rates_and_weights_over_many_powers_of_ten(self, name) -> None:
        rng = np.random.default_rng(3)
        n = 20
        rate = 10 ** rng.uniform(-6, 6, (n, 1)) * 10 ** rng.uniform(-1, 1, (n, 3))
        of = problem(
            rate, np.ones(n), [3, 2, 4], weight=10 ** rng.uniform(-3, 3, n),
            steps_left=rate.max(axis=1) * 10 ** rng.uniform(1, 5, n),
        )  # fmt: skip
        found = solved(name, of)
        assert violation(of, found) <= 1e-9
        if isinstance(found.objective, float):
            assert found.bound == pytest.approx(found.objective, rel=1.1e-7)

    def test_jobs_that_run_nowhere_are_quiet(self, name) -> None:
        of = problem(np.zeros((4, 3)), np.ones(4), [1, 1, 1])
        with warnings.catch_warnings(action="error"):
            found = solved(name, of)
        assert violation(of, found) == 0.0
        assert not job_rates(of, found).any()

    def test_more_gpus_than_any_type_has_is_named(self, name) -> None:
        of = problem([[1.0, 2.0], [2.0, 1.0], [1.0, 1.0]], [1, 8, 2], [4, 4])
        found = solved(name, of)
        assert violation(of, found) <= 1e-9
        assert unplaceable(of).tolist() == [1]


def test_a_job_that_waited_takes_from_the_others_under_finish_time_fairness() -> None:
    """Why the law of sharing incentive speaks of jobs that begin together."""
    of = problem(np.ones((2, 1)), np.ones(2), [1], steps_left=np.ones(2), age_s=np.array([100.0, 0.0]))
    rate = job_rates(of, solved("finish_time_fairness_perf", of))
    # (100 + 1/x)/2 = (1/y)/2 with x + y = 1
    assert 1 / rate[1] == pytest.approx(100 + 1 / rate[0], rel=1e-4)
    assert rate[1] < 0.02 * isolated_rates(of)[1]


class TestDeadlines:
    def test_impossible_alone_names_the_job(self) -> None:
        of = problem(
            np.ones((3, 1)), np.ones(3), [3],
            steps_left=np.full(3, 100.0), deadline_s=np.array([np.inf, 99.0, 101.0]),
        )  # fmt: skip
        found = solved("max_sum_throughput_normalized_by_cost_perf_SLOs", of)
        assert found.fallback
        assert list(found.unmet) == [1]
        with pytest.raises(InfeasibleError, match="deadline of job 1:"):
            per_dollar_slo_strict(of, np.random.default_rng(0))
        assert list(solved("min_cost", of).unmet) == [1]
        with pytest.raises(InfeasibleError, match="deadline of job 1:"):
            min_cost_strict(of, np.random.default_rng(0))

    def test_impossible_together_says_by_how_much(self) -> None:
        of = problem(
            np.ones((4, 1)), np.ones(4), [1], steps_left=np.full(4, 50.0), deadline_s=np.full(4, 100.0)
        )
        found = solved("max_sum_throughput_normalized_by_cost_perf_SLOs", of)
        assert found.fallback
        assert len(found.unmet) == 0
        with pytest.raises(InfeasibleError, match=r"at most 50 % of each job's work") as error:
            per_dollar_slo_strict(of, np.random.default_rng(0))
        assert "2 times" in error.value.hint
        with pytest.raises(InfeasibleError, match=r"at most 50 %"):
            min_cost_strict(of, np.random.default_rng(0))

    def test_deadlines_are_kept_where_they_can_be(self) -> None:
        rng = np.random.default_rng(1)
        rate = rng.uniform(1, 5, (8, 2))
        of = problem(rate, np.ones(8), [3, 3], steps_left=rate.max(axis=1) * 100.0)
        due = np.where(np.arange(8) % 2, np.inf, 180.0)
        of = replace(of, deadline_s=due)
        found = per_dollar_slo_strict(of, np.random.default_rng(0))
        assert not found.fallback
        assert (job_rates(of, found) >= of.steps_left / due * (1 - 1e-6)).all()
        free = solved("max_sum_throughput_normalized_by_cost_perf", of)
        assert found.objective <= free.objective * (1 + 1e-7)


def dollars(of: ClusterProblem, horizon: float) -> float | None:
    """The published program, by HiGHS."""
    usd = of.gpus * of.usd_per_hour[:, None] / 3600.0
    end = np.minimum(of.deadline_s, horizon)
    best = highs(
        JobLP(
            rate=of.throughput.T, gpus=of.gpus, capacity=of.workers * horizon, time=end,
            gain=-usd, need=of.steps_left,
        )
    )  # fmt: skip
    return None if best is None else -best


class TestMinCost:
    @given(clusters(most_jobs=8, zeros=False), st.integers(0, 10**6), st.floats(0.8, 4.0))
    @settings(max_examples=60, deadline=None)
    def test_the_fewest_dollars(self, cluster, seed, slack) -> None:
        rate, gpus, capacity = cluster
        # whole jobs only: a type with fewer workers than a job's GPUs is not bought
        capacity = np.where(capacity > 0, capacity + gpus.max(), 0.0)
        of = problem(rate.T, gpus, capacity, seed)
        alone = of.steps_left / rate[capacity > 0].max(axis=0)
        rng = np.random.default_rng(seed)
        of = replace(of, deadline_s=alone * slack * rng.uniform(1.0, 2.0, len(gpus)))
        optimum = dollars(of, float(of.deadline_s.max()))
        found = min_cost(of, rng)
        assert violation(of, found) <= 1e-9
        if found.fallback:
            assert optimum is None
            return
        assert optimum is not None
        assert found.objective == pytest.approx(optimum, rel=2e-6)
        assert found.bound <= optimum * (1 + 1e-6)

    def test_one_job_mixes_two_types_at_most(self) -> None:
        of = problem(
            [[1.0, 2.0, 4.0]], [1], [1, 1, 1], steps_left=np.array([3600.0 * 3]),
            deadline_s=np.array([3600.0]), usd_per_hour=np.array([1.0, 2.5, 6.0]),
        )  # fmt: skip
        found = min_cost_strict(of, np.random.default_rng(0))
        assert (found.shares[0] > 1e-9).sum() == 2
        assert found.objective == pytest.approx(0.5 * 2.5 + 0.5 * 6.0)

    def test_published_throughput_per_dollar_spends_more(self) -> None:
        rng = np.random.default_rng(8)
        of = problem(rng.uniform(1, 6, (6, 2)), np.ones(6), [4, 4], usd_per_hour=np.array([1.0, 2.0]))
        of = replace(of, steps_left=np.full(6, 7200.0), deadline_s=np.full(6, 7200.0))
        cheap = min_cost_strict(of, rng)
        paced = per_dollar_slo_strict(of, rng)
        spent = float((paced.shares * of.usd_per_hour).sum() * 2.0)
        assert cheap.objective < 0.9 * spent

    def test_no_deadline_waits_for_its_cheapest_type(self) -> None:
        of = problem([[1.0, 3.0]] * 4, np.ones(4), [1, 1], usd_per_hour=np.array([1.0, 2.0]),
                     steps_left=np.full(4, 3600.0))  # fmt: skip
        found = min_cost_strict(of, np.random.default_rng(0))
        assert found.objective == pytest.approx(4 * 2.0 / 3.0)
        assert violation(of, found) <= 1e-12
        tighter = min_cost_strict(replace(of, horizon_s=3600.0), np.random.default_rng(0))
        assert tighter.objective > found.objective

    def test_a_budget_below_the_optimum_is_refused_with_it(self) -> None:
        of = problem([[1.0]], [1], [1], usd_per_hour=np.array([2.0]), steps_left=np.array([3600.0]))
        assert min_cost_strict(replace(of, budget_usd=2.0), np.random.default_rng(0)).objective == 2.0
        with pytest.raises(InfeasibleError, match=r"budget of \$1\.50: the cheapest costs \$2\.00"):
            min_cost(replace(of, budget_usd=1.5), np.random.default_rng(0))

    def test_shares_put_the_earliest_deadline_first(self) -> None:
        of = problem(
            [[1.0]] * 3, np.ones(3), [1], steps_left=np.array([50.0, 50.0, 100.0]),
            deadline_s=np.array([200.0, 50.0, 400.0]),
        )  # fmt: skip
        found = min_cost_strict(of, np.random.default_rng(0))
        assert found.shares[:, 0] == pytest.approx([0.0, 1.0, 0.0])


def test_themis_serves_the_worst_ratio_first() -> None:
    of = problem(
        np.ones((3, 1)), np.ones(3), [1], steps_left=np.full(3, 100.0), age_s=np.array([10.0, 500.0, 100.0])
    )
    assert list(solved("themis", of).shares[:, 0]) == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    "name", ["max_min_fairness", "max_min_fairness_water_filling", "max_min_fairness_strategy_proof"]
)
def test_blind_to_speed_is_not_blind_to_where_a_job_runs(name: str) -> None:
    of = problem([[1.0, 0.0], [2.0, 3.0], [4.0, 0.0], [0.0, 0.0]], np.ones(4), [1.0, 1.0], weight=np.ones(4))
    found = solved(name, of)
    assert (found.shares[of.throughput == 0] < 1e-6).all()
    assert (job_rates(of, found)[:3] > 0).all()


def test_a_free_type_where_a_job_cannot_run_is_no_offer() -> None:
    of = problem([[1.0, 0.0]], [1.0], [1.0, 1.0], usd_per_hour=np.array([1.0, 0.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = min_cost(of, np.random.default_rng(0))
    assert found.seconds is not None
    assert found.seconds[0, 1] == 0.0
    assert found.objective == pytest.approx(of.steps_left[0] / 3600)
