"""The largest product: proven by a linear program that knows nothing of it, alone and in batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clusters import cluster_problem
from support.lps import columns, largest

from arylcloud.planner.kernels.product import solve

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=80)
@given(seed=SEEDS, twins=st.booleans())
def test_no_direction_leads_higher(seed: int, twins: bool) -> None:
    """log is concave: x is best if and only if no feasible y has a larger Σ (rate·y)/(rate·x)."""
    problem = cluster_problem(seed)
    n = len(problem)
    on = problem.workers > 0
    rate = problem.throughput[:, on]
    if twins:
        rate = np.ones_like(rate)  # types worth the same: time flows freely between them
    if not (rate > 0).any(axis=1).all():
        return
    found = solve(np.ascontiguousarray(rate.T), problem.gpus, problem.workers[on], np.ones((1, n)))
    x = found.share[:, 0].T
    assert (x.sum(axis=1) <= 1 + 1e-9).all()
    assert (problem.gpus @ x <= problem.workers[on] * (1 + 1e-9)).all()
    got = (rate * x).sum(axis=1)
    assert found.value[0] == pytest.approx(np.log(got).sum(), abs=1e-9)
    shown = np.zeros_like(problem.throughput)
    shown[:, on] = rate
    lp = columns(problem, shown)
    best = largest(lp, (lp.rate / got[:, None]).sum(axis=0))
    assert best == pytest.approx(n, rel=1e-6)
    assert found.gap[0] <= 1e-9


@settings(max_examples=30)
@given(seed=SEEDS)
def test_a_class_is_its_members(seed: int) -> None:
    rng = np.random.default_rng(seed)
    c, m = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    rate, gpus = rng.uniform(0.1, 5, (m, c)), rng.choice([1.0, 2.0], c)
    counts = rng.integers(1, 5, c)
    workers = rng.uniform(0.3, 4, m)
    grouped = solve(rate, gpus, workers, counts[None].astype(float))
    each = np.repeat(np.arange(c), counts)
    single = solve(rate[:, each], gpus[each], workers, np.ones((1, len(each))))
    assert grouped.value[0] == pytest.approx(single.value[0], abs=1e-7)
    np.testing.assert_allclose(grouped.rate[0][each], single.rate[0], rtol=1e-3)


def test_a_batch_is_its_programs() -> None:
    rng = np.random.default_rng(3)
    rate, gpus, workers = rng.uniform(0.1, 5, (3, 8)), np.ones(8), np.array([1.0, 2.0, 3.0])
    whole = solve(rate, gpus, workers, np.full((1, 8), 2.0))
    left = np.full((8, 8), 2.0) - np.eye(8) * rng.integers(1, 3, 8)
    batch = solve(rate, gpus, workers, left, start=whole.inside)
    for row in range(8):
        alone = solve(rate, gpus, workers, left[row : row + 1])
        assert batch.value[row] == pytest.approx(alone.value[0], abs=1e-8)
    assert (batch.gap <= 1e-9).all()


def test_two_jobs_one_machine() -> None:
    """Half each, whatever their speeds."""
    found = solve(np.array([[1.0, 7.0]]), np.ones(2), np.array([1.0]), np.ones((1, 2)))
    np.testing.assert_allclose(found.share[0, 0], [0.5, 0.5], atol=1e-8)
    assert found.value[0] == pytest.approx(np.log(0.5 * 3.5))
