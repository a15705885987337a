"""Classes against the whole program, a column per job, pair and type; their certificate; and large ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.clusters import cluster_problem
from support.lps import at_least, columns, common, largest

from arylcloud.core.errors import InfeasibleError
from arylcloud.planner.cluster import Allocation, ClusterProblem, F, Sharing, job_rates, violation
from arylcloud.planner.kernels.classes import Shared, classes, solve

SEEDS = st.integers(0, 2**32 - 1)


def shared(problem: ClusterProblem, found: Shared) -> Allocation:
    return Allocation(shares=found.shares, pairs=found.pairs, pair_shares=found.pair_shares)


def earned(problem: ClusterProblem, found: Shared, worth: F) -> float:
    total = float((problem.throughput * found.shares * worth).sum())
    if problem.sharing is not None and len(found.pairs):
        a, b = problem.sharing.job_class[found.pairs.T]
        both = problem.sharing.rate[a, b] + problem.sharing.rate[b, a]
        total += float((both * found.pair_shares * worth).sum())
    return total


def runnable(problem: ClusterProblem) -> F:
    return problem.throughput @ (problem.workers > 0) > 0


@settings(max_examples=120)
@example(seed=0, pairs=False, spread=4.0)
@given(seed=SEEDS, pairs=st.booleans(), spread=st.floats(0, 4))
def test_largest_common_t(seed: int, pairs: bool, spread: float) -> None:
    problem = cluster_problem(seed, sharing=pairs)
    rng = np.random.default_rng(seed)
    slope = np.where(runnable(problem), 10 ** rng.uniform(-spread, spread, len(problem)), 0.0)
    found = solve(classes(problem, pairs=pairs), slope=slope)
    allocation = shared(problem, found)
    assert violation(problem, allocation) <= 1e-9
    rates, on = job_rates(problem, allocation), slope > 0
    # each has what t asks for, to 1e-9 of its time: with slopes far apart that may be all that one asks for
    best = problem.throughput[on].max(axis=1)
    short = (found.bound * slope[on] - rates[on]) / best
    assert (short <= 1e-8 * found.bound * slope[on] / best + 1e-9).all()
    assert (rates[on] / slope[on]).min() <= found.bound * (1 + 1e-8)
    lp = columns(problem)
    kept = lp.rate[on].max(axis=1) > 0
    assert kept.all()
    if on.all():
        assert found.bound == pytest.approx(common(lp, slope), rel=1e-6)


@settings(max_examples=80)
@given(seed=SEEDS, hard=st.floats(0.2, 1.3))
def test_largest_sum_with_needs(seed: int, hard: float) -> None:
    """Also where no need can be met without pairs, and where not all can be met."""
    problem = cluster_problem(seed, sharing=True)
    rng = np.random.default_rng(seed)
    lp, worth = columns(problem), 1 / problem.usd_per_hour
    alone = np.where(runnable(problem), problem.throughput.max(axis=1), 0.0) * (
        rng.random(len(problem)) < 0.7
    )
    none = np.zeros(len(problem))
    scale = common(lp, np.where(alone > 0, alone, 1e-9)) if alone.any() and runnable(problem).all() else 0.1
    need = alone * min(scale, 1.0) * hard
    gain = lp.rate.sum(axis=0) * np.tile(worth, lp.rate.shape[1] // len(worth))
    best = largest(lp, gain, rows=at_least(lp, need, none))
    jobs = classes(problem, pairs=True, worth=worth[None, :])
    if best is None:
        with pytest.raises(InfeasibleError):
            solve(jobs, need=need)
        return
    found = solve(jobs, need=need)
    allocation = shared(problem, found)
    assert violation(problem, allocation) <= 1e-9
    assert (job_rates(problem, allocation) >= need * (1 - 1e-7)).all()
    assert earned(problem, found, worth) == pytest.approx(best, rel=1e-6)
    assert found.bound == pytest.approx(best, rel=1e-6)


def many(n: int, seed: int, kinds: int = 12) -> ClusterProblem:
    """n jobs of few kinds on a contended cluster, no two of one weight."""
    rng = np.random.default_rng(seed)
    rate = rng.uniform(0.2, 10, (kinds, 3)) * rng.choice([0.1, 1, 50], (kinds, 1))
    beside = rate[:, None, :] * rng.uniform(0.3, 0.95, (kinds, kinds, 3))
    of = rng.integers(0, kinds, n)
    return ClusterProblem(
        worker_types=("k80", "p100", "v100"),
        workers=np.full(3, n / 4.0),
        throughput=rate[of],
        gpus=np.ones(n),
        weight=rng.uniform(0.5, 5, n),
        usd_per_hour=np.array([0.135, 0.43, 0.74]),
        steps_left=10 ** rng.uniform(2, 6, n),
        age_s=np.zeros(n),
        sharing=Sharing(job_class=of, rate=beside),
    )


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("of", ["weight", "steps_left"])
def test_many_jobs_are_certified(pairs: bool, of: str) -> None:
    problem = many(600, 3)
    slope = getattr(problem, of) * problem.throughput.mean(axis=1)
    found = solve(classes(problem, pairs=pairs), slope=slope)
    allocation = shared(problem, found)
    assert violation(problem, allocation) <= 1e-9
    assert found.bound == pytest.approx((job_rates(problem, allocation) / slope).min(), rel=1e-8)
    assert found.parts < 300  # cut where it matters only
    assert found.rounds <= 25


def test_a_search_starts_where_the_last_ended() -> None:
    problem = many(200, 5)
    jobs = classes(problem, pairs=True)
    first = solve(jobs, slope=problem.weight)
    moved = problem.weight * np.random.default_rng(1).uniform(0.9, 1.1, 200)
    fresh, again = solve(jobs, slope=moved), solve(jobs, slope=moved, start=first.state)
    assert again.t == pytest.approx(fresh.t, rel=1e-9)
    assert again.bound == pytest.approx(fresh.bound, rel=1e-8)


def test_prices_are_what_a_worker_more_is_worth() -> None:
    problem = many(60, 7)
    slope = problem.weight
    found = solve(classes(problem, pairs=True), slope=slope)
    for j in range(3):
        more = replace(problem, workers=problem.workers + 1e-4 * (np.arange(3) == j))
        rise = (solve(classes(more, pairs=True), slope=slope).t - found.t) / 1e-4
        assert rise == pytest.approx(found.type_value[j], rel=1e-3, abs=1e-9)


def test_jobs_of_one_code_and_two_rows_are_two_classes() -> None:
    """Classes are found by a code per row; rows that differ are told apart whatever their codes."""
    problem = many(50, 9, kinds=3)
    nearly = problem.throughput.copy()
    nearly[0] *= 1 + 1e-15
    jobs = classes(replace(problem, throughput=nearly, sharing=None), pairs=False)
    np.testing.assert_array_equal(jobs.kinds.rate[jobs.job_class], nearly)
