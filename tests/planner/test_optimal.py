"""The policies that optimise, against linear programmes for HiGHS on problems at random, without study data.

As in test_goldens.py the objective is computed from the allocation by the paper's formula.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clusters import NAMES, for_policy
from support.goldens import FORMULAS, on_v100, sorted_rates
from support.lps import Columns, at_least, columns, common, filled, largest

from arylcloud.planner.cluster import Allocation, ClusterProblem, isolated_rates, violation
from arylcloud.planner.policies.min_total_duration import SLACK
from arylcloud.planner.policies.registry import POLICIES

WITHIN = 1e-6
SEEDS = st.integers(0, 2**32 - 1)
SLOS = [name for name in FORMULAS if name.endswith("SLOs")]
FAIR = [name for name in FORMULAS if name.startswith("finish_time")]
LAS = ["max_min_fairness", "max_min_fairness_perf", "max_min_fairness_packed"]
SPAN = ["min_total_duration", "min_total_duration_perf", "min_total_duration_packed"]
SUMS = ["max_sum_throughput_perf", "max_sum_throughput_normalized_by_cost_perf"]
some = settings(max_examples=25)


def posed(name: str, seed: int) -> tuple[ClusterProblem, Columns, Allocation, float]:
    """(the problem, its columns as the policy sees them, the answer, its value by formula)."""
    policy = POLICIES[name]
    problem = for_policy(policy, seed, everywhere=not policy.aware)
    problem = replace(problem, worker_types=NAMES[: len(problem.workers)])
    believed = None
    if not policy.aware:
        believed = np.ones_like(problem.throughput) if name in LAS else on_v100(problem)
    found = policy.solve()(problem, np.random.default_rng(0))
    assert violation(problem, found) <= WITHIN
    value = FORMULAS[name](problem, found)
    assert found.objective == pytest.approx(value, rel=WITHIN)
    if found.bound is not None:
        sign = 1 if policy.sense == "max" else -1
        assert sign * found.bound >= sign * value - 2 * WITHIN * abs(value)
    return problem, columns(problem, believed), found, value


def slope(problem: ClusterProblem, aware: bool = True) -> np.ndarray:
    mix = problem.throughput @ problem.workers / problem.workers.sum()
    return problem.weight * (mix if aware else 1.0) / problem.gpus


@pytest.mark.parametrize("name", LAS)
@some
@given(seed=SEEDS)
def test_max_min(name: str, seed: int) -> None:
    problem, lp, _, value = posed(name, seed)
    assert value == pytest.approx(common(lp, slope(problem, POLICIES[name].aware)), rel=WITHIN)


@pytest.mark.parametrize("name", SPAN)
@some
@given(seed=SEEDS)
def test_makespan(name: str, seed: int) -> None:
    problem, lp, _, value = posed(name, seed)
    assert value == pytest.approx(1 / common(lp, problem.steps_left), rel=WITHIN)


@settings(max_examples=60)
@given(seed=SEEDS)
def test_the_shortest_takes_no_more_than_it_needs(seed: int) -> None:
    """Of the answers with the least makespan, the least GPU-time, each type's by how fast it is on the mean;
    or everybody all the time on the fastest type, where that fits."""
    problem, lp, found, value = posed("min_total_duration_perf", seed)
    usable = np.where(problem.workers > 0, problem.throughput, 0.0)
    if (found.shares.sum(axis=1) == 1).all() and (found.shares[found.shares > 0] == 1).all():
        assert (found.shares.argmax(axis=1) == usable.argmax(axis=1)).all()
        return
    got = (problem.throughput * found.shares).sum(axis=1)
    if (got <= problem.steps_left / value * (1 + SLACK)).all():
        return  # everybody is on the pace that the makespan asks for
    speed = (problem.throughput / problem.throughput.max(axis=1, keepdims=True)).mean(axis=0)
    price = problem.gpus[:, None] * speed
    least = largest(
        lp, -price.ravel(), rows=at_least(lp, problem.steps_left / value * (1 - 1e-9), np.zeros(len(problem)))
    )
    assert least is not None
    assert float((price * found.shares).sum()) == pytest.approx(-least, rel=2e-3)


@pytest.mark.parametrize("name", FAIR)
@some
@given(seed=SEEDS)
def test_finish_time_fairness(name: str, seed: int) -> None:
    """At ρ a little above the answer everybody's need fits, a little below it does not."""
    problem, lp, _, value = posed(name, seed)
    seen = problem if POLICIES[name].aware else replace(problem, throughput=on_v100(problem))
    alone = problem.steps_left / isolated_rates(seen)
    for rho, fits in ((value * (1 + 2 * WITHIN), True), (value * (1 - 2 * WITHIN), False)):
        left = rho * alone - problem.age_s
        possible = bool((left > 0).all()) and common(lp, problem.steps_left / left) >= 1
        assert possible is fits


@pytest.mark.parametrize("name", [*SUMS, *SLOS])
@some
@given(seed=SEEDS)
def test_sums_and_deadlines(name: str, seed: int) -> None:
    problem, lp, found, value = posed(name, seed)
    gain = lp.rate.sum(axis=0)
    if name != SUMS[0]:
        n, m = problem.throughput.shape
        own = np.broadcast_to(problem.prices, (n, m))
        gain = (lp.rate / np.tile(own, lp.rate.shape[1] // m)).sum(axis=0)
    need = np.zeros(len(problem))
    if problem.deadline_s is not None:
        need = problem.steps_left / problem.deadline_s
    best = largest(lp, gain, rows=at_least(lp, need, np.zeros(len(problem))))
    assert found.fallback is (best is None)
    if best is None:
        best = largest(lp, gain)
    assert value == pytest.approx(best, rel=WITHIN)


@settings(max_examples=60)
@given(seed=SEEDS)
def test_fewest_dollars(seed: int) -> None:
    """Hours bought are counted: all steps, by the deadline, at that price; no other purchase is cheaper."""
    problem = for_policy(POLICIES["min_cost"], seed)
    found = POLICIES["min_cost"].solve()(problem, np.random.default_rng(0))
    usd_per_s = problem.gpus[:, None] * problem.prices / 3600
    assert found.seconds is not None
    assert found.objective == pytest.approx((usd_per_s * found.seconds).sum(), rel=WITHIN)
    fits = (problem.workers >= problem.gpus[:, None]) & (problem.throughput > 0)
    runs = fits.any(axis=1)
    done = (problem.throughput * found.seconds).sum(axis=1)
    assert (done >= problem.steps_left * runs * (1 - WITHIN)).all()
    assert problem.deadline_s is not None
    due = np.isfinite(problem.deadline_s)
    per_step = np.where(fits, usd_per_s / np.where(fits, problem.throughput, 1), np.inf).min(axis=1)
    alone = np.where(runs, per_step * problem.steps_left, 0.0)
    best = _cheapest(problem, due, np.where(fits, problem.throughput, 0.0), usd_per_s)
    assert found.fallback is (best is None)
    if best is None:
        assert found.objective == pytest.approx(alone.sum(), rel=WITHIN)
    else:
        assert found.objective == pytest.approx(best + alone[~due].sum(), rel=WITHIN)
        assert (found.seconds.sum(axis=1)[due] <= problem.deadline_s[due] * (1 + WITHIN)).all()


def _cheapest(
    problem: ClusterProblem, due: np.ndarray, rate: np.ndarray, usd_per_s: np.ndarray
) -> float | None:
    """Dollars of the jobs that have a deadline; x = the fraction of its time that a job is on a type."""
    if not due.any():
        return 0.0
    assert problem.deadline_s is not None
    end, m = problem.deadline_s[due], len(problem.workers)
    n = len(end)
    block = np.kron(np.eye(n), np.ones(m))
    lp = Columns(
        rate=block * (rate[due] * end[:, None]).ravel(),
        time=block,
        used=np.tile(np.eye(m), n) * np.repeat(problem.gpus[due] * end, m),
        workers=problem.workers * end.max(),
    )
    spent = largest(
        lp, -(usd_per_s[due] * end[:, None]).ravel(), rows=at_least(lp, problem.steps_left[due], np.zeros(n))
    )
    return None if spent is None else -spent


FILLINGS = [name for name in POLICIES if "water_filling" in name]


@pytest.mark.parametrize("name", FILLINGS)
@settings(max_examples=15)
@given(seed=SEEDS)
def test_water_filling(name: str, seed: int) -> None:
    policy = POLICIES[name]
    problem = for_policy(policy, seed, everywhere=not policy.aware)
    found = policy.solve()(problem, np.random.default_rng(0))
    assert violation(problem, found) <= WITHIN
    if policy.aware:
        vector, lp = sorted_rates(problem, found), columns(problem)
    else:
        vector = np.sort(problem.gpus / problem.weight * found.shares.sum(axis=1))
        lp = columns(problem, np.ones_like(problem.throughput))
    np.testing.assert_allclose(vector, filled(lp, slope(problem, policy.aware)), rtol=5e-6, atol=1e-9)
    assert isinstance(found.objective, tuple)
    np.testing.assert_allclose(found.objective, vector, rtol=WITHIN)
