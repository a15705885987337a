"""Short cuts: from the last prices and from a sample's, the answer is the one from scratch, or none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.job_lp import clusters, miss

from arylcloud.planner.kernels import bottleneck, interior, jobs, needs, prices
from arylcloud.planner.kernels.jobform import TOLERANCE, JobLP
from arylcloud.planner.kernels.jobs import Warm
from arylcloud.planner.kernels.needs import meet


def program(kind: str, n: int, seed: int = 0, crowd: float = 4.0) -> JobLP:
    """n jobs on ``n/crowd`` workers of three types; no two alike."""
    rng = np.random.default_rng(seed)
    rate = rng.uniform(0.5, 20.0, n) * np.sort(rng.uniform(0.2, 3.0, (3, n)), axis=0)
    slope = rate.mean(axis=0) * rng.uniform(1.0, 2.0, n)
    rows = {
        "gain": {"gain": rate},
        "slope": {"slope": slope},
        "fade": {"slope": slope, "fade": rng.uniform(0.0, 0.8, n)},
        "need": {"gain": rate, "need": np.where(rng.random(n) < 0.3, 0.3 * rate.min(axis=0), 0.0)},
        "cost": {"gain": -rate * rng.uniform(0.5, 2.0, (3, n)), "need": 0.3 * rate.min(axis=0)},
    }[kind]
    gpus = rng.choice([1.0, 1.0, 1.0, 2.0, 4.0], n)
    return JobLP(rate=rate, gpus=gpus, capacity=np.full(3, float(n // crowd)), **rows)


def close(lp: JobLP, one, two) -> None:
    for found in (one, two):
        assert miss(lp, found.x, found.t) <= 1.01 * TOLERANCE
        assert 0 <= found.gap <= 1e-7
    assert one.objective == pytest.approx(two.objective, rel=2e-7)


@pytest.mark.parametrize("kind", ["need", "cost"])
@pytest.mark.parametrize("warmly", [False, True])
def test_hard_rows_have_the_same_short_cuts(kind, warmly, monkeypatch) -> None:
    lp = program(kind, 6000 if not warmly else 1500)
    met = meet(lp)
    assert met.solution is not None
    monkeypatch.setattr(needs, "_short_cut", lambda *_: None)
    long = meet(lp).solution
    assert long is not None
    close(lp, met.solution, long)
    if warmly:
        found = prices.solve(lp, long.type_value * [1.005, 1.0, 0.995], 0.0, gap=1e-7, width=jobs.STEADY)
        assert found is not None
        close(lp, found, long)


@pytest.mark.parametrize("kind", ["gain", "slope", "fade"])
@pytest.mark.parametrize("seed", range(3))
def test_a_few_jobs_come_and_go(kind, seed) -> None:
    whole = program(kind, 1503, seed)
    before = jobs.taken(whole, np.arange(1500), 1.0)
    after = jobs.taken(whole, np.arange(3, 1503), 1.0)
    last = interior.solve(before)
    found = prices.solve(after, last.type_value, last.t, gap=1e-7, width=jobs.STEADY)
    assert found is not None
    close(after, found, interior.solve(after))
    close(after, jobs.solve(after, warm=Warm.of(last)), found)


@pytest.mark.parametrize("kind", ["gain", "slope", "fade"])
def test_many_jobs_start_from_a_sample(kind, monkeypatch) -> None:
    lp = program(kind, 6000)
    sizes = []
    settle = prices.solve

    def seen(lp, *args, **kwargs):
        found = settle(lp, *args, **kwargs)
        sizes.append((len(lp.gpus), found is not None))
        return found

    monkeypatch.setattr(prices, "solve", seen)
    close(lp, jobs.solve(lp), interior.solve(lp))
    assert sizes == [(6000, True)]


@given(clusters(most_jobs=30, zeros=False), st.integers(0, 1000), st.floats(0.0, 2.0), st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_guess_however_wrong_leads_to_a_wrong_answer(cluster, seed, wrong, sums) -> None:
    rate, gpus, capacity = cluster
    rng = np.random.default_rng(seed)
    rows = {"gain": rate} if sums else {"slope": rng.uniform(0.5, 2.0, len(gpus))}
    lp = JobLP(rate=rate, gpus=gpus, capacity=capacity, **rows)
    true = interior.solve(lp)
    value = true.type_value * 10 ** rng.uniform(-wrong, wrong, len(capacity))
    found = prices.solve(lp, value, true.t * 10 ** rng.uniform(-wrong, 0), gap=1e-7, width=0.05)
    if found is not None:
        close(lp, found, true)


def test_one_job_as_the_bottleneck_is_left_to_the_whole_search() -> None:
    lp = program("slope", 1000)
    heavy = replace(lp, slope=np.where(np.arange(1000) == 7, 1e3 * lp.slope, lp.slope))
    last = interior.solve(heavy)
    assert prices.solve(heavy, last.type_value, last.t, gap=1e-7, width=0.01) is None
    assert jobs.solve(heavy, warm=Warm.of(last)).gap <= 1e-7


def test_many_jobs_behind_one_bottleneck() -> None:
    lp = program("slope", 6000)
    heavy = replace(lp, slope=np.where(np.arange(6000) == 7, 5.0 * lp.slope, lp.slope))
    whole = interior.solve(heavy)
    assert whole.type_value.sum() < 1e-6 * whole.objective
    guess = interior.solve(lp)
    found = bottleneck.at_bottleneck(heavy, guess.type_value, guess.t, np.arange(900), gap=1e-7)
    assert found is not None
    close(heavy, found, whole)
    assert bottleneck.at_bottleneck(lp, guess.type_value, guess.t, np.arange(900), gap=1e-7) is None
    close(heavy, jobs.solve(heavy), whole)


def test_memory_of_another_cluster_is_no_guess() -> None:
    lp = program("slope", 600)
    stale = Warm(type_value=np.ones(5), t=1.0)
    assert jobs.solve(lp, warm=stale).objective == pytest.approx(interior.solve(lp).objective, rel=2e-7)
