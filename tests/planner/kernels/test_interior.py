"""The structured interior point against HiGHS, its certificate, and what it says when it cannot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.job_lp import clusters, highs, miss, proven

from arylcloud.core.errors import ArylError
from arylcloud.planner.kernels import linear
from arylcloud.planner.kernels.interior import solve
from arylcloud.planner.kernels.jobform import JobLP, Solution, bound_of, repaired, scaled

PRICE = st.just(0.0) | st.floats(1e-6, 1e3)


def honest(lp: JobLP, found: Solution, optimum: float) -> None:
    """The point is feasible, the optimum lies between objective and bound, and the two are close."""
    assert miss(lp, found.x, found.t) <= 1e-9
    slack = 2e-7 * abs(optimum) + 1e-12
    assert found.objective <= optimum + slack
    assert found.bound >= optimum - slack
    assert found.gap <= 1e-7
    assert (found.type_value >= 0).all()


@given(clusters(), st.floats(0.0, 3.0))
@settings(max_examples=50, deadline=None)
def test_common_rate_agrees_with_highs(cluster, decades) -> None:
    rate, gpus, capacity = cluster
    slope = 10 ** np.random.default_rng(7).uniform(-decades, decades, len(gpus))
    lp = JobLP(rate=rate, gpus=gpus, capacity=capacity, slope=slope)
    honest(lp, solve(lp), highs(lp))


@given(clusters(), st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_gain_agrees_with_highs(cluster, seed) -> None:
    rate, gpus, capacity = cluster
    gain = rate * np.random.default_rng(seed).uniform(0.1, 3.0, rate.shape)
    lp = JobLP(rate=rate, gpus=gpus, capacity=capacity, gain=gain)
    honest(lp, solve(lp), highs(lp))


@given(clusters(most_jobs=6, decades=6.0, zeros=False), st.floats(0.0, 3.0))
@settings(max_examples=50, deadline=None)
def test_twelve_powers_of_ten_proven_in_exact_arithmetic(cluster, decades) -> None:
    """Beyond what HiGHS can be asked, so the certificate is checked as fractions."""
    rate, gpus, capacity = cluster
    slope = rate[capacity > 0].max(axis=0) * np.logspace(-decades, decades, len(gpus))
    lp = JobLP(rate=rate, gpus=gpus, capacity=capacity, slope=slope)
    found = solve(lp)
    objective, bound = proven(lp, found)
    assert 0 <= bound - objective <= 1.01e-7 * bound
    assert found.objective == pytest.approx(float(objective), rel=1e-12)
    assert found.bound == pytest.approx(float(bound), rel=1e-12)


@given(clusters(zeros=False), st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_curved_rows_bisected(cluster, seed) -> None:
    """Feasible at t means feasible below it, so that HiGHS can be asked on both sides of the answer."""
    rate, gpus, capacity = cluster
    rng = np.random.default_rng(seed)
    slope, fade = rng.uniform(0.1, 2.0, len(gpus)), rng.uniform(0.0, 2.0, len(gpus))
    lp = JobLP(rate=rate, gpus=gpus, capacity=capacity, slope=slope, fade=fade)
    found = solve(lp)
    assert miss(lp, found.x, found.t) <= 1e-9
    assert 0 <= found.gap <= 1e-7

    def possible(t: float) -> bool:
        if (fade * t >= 1).any():
            return False
        level = slope * t / (1 - fade * t)
        part = highs(JobLP(rate=rate, gpus=gpus, capacity=capacity, slope=level))
        return part is not None and part >= 1

    assert possible(found.objective * (1 - 1e-6))
    assert not possible(found.bound * (1 + 1e-6))


@given(clusters(most_jobs=6), st.lists(PRICE, min_size=6, max_size=6), st.data())
@settings(max_examples=50, deadline=None)
def test_any_prices_bound_the_optimum(cluster, betas, data) -> None:
    """Weak duality needs no solver: whatever β, λ ≥ 0 are, no point is better."""
    rate, gpus, capacity = cluster
    lp = JobLP(rate=rate, gpus=gpus, capacity=capacity, slope=np.ones(len(gpus)))
    view = scaled(lp)
    beta = np.array(betas[: len(gpus)])
    kept = int(view.kept.sum())
    lam = np.array(data.draw(st.lists(PRICE, min_size=kept, max_size=kept)))
    *_, bound = bound_of(view, beta, lam, 0.0)
    *_, objective = repaired(view, np.random.default_rng(0).random(view.rate.shape), 1.0)
    assert objective <= bound
    assert highs(lp) <= bound * (1 + 1e-9)


def test_time_need_and_drift() -> None:
    rng = np.random.default_rng(3)
    n = 40
    rate, gpus = rng.uniform(0.5, 4.0, (3, n)), 2.0 ** rng.integers(0, 3, n)
    capacity = np.array([20.0, 15.0, 10.0])
    timed = JobLP(rate=rate, gpus=gpus, capacity=capacity, time=rng.uniform(0.2, 3.0, n), slope=np.ones(n))
    honest(timed, solve(timed), highs(timed))
    lifted = JobLP(
        rate=rate, gpus=gpus, capacity=capacity, slope=np.ones(n), need=rng.uniform(-0.2, 0.1, n),
        drift=np.array([3.0, 0.0, 1.0]),
    )  # fmt: skip
    honest(lifted, solve(lifted), highs(lifted))


def test_types_without_workers_are_never_used() -> None:
    lp = JobLP(
        rate=np.array([[1.0, 2.0], [9.0, 9.0]]), gpus=np.ones(2),
        capacity=np.array([1.0, 0.0]), slope=np.ones(2),
    )  # fmt: skip
    found = solve(lp)
    assert (found.x[1] == 0).all()
    assert found.type_value[1] == 0
    assert found.objective == pytest.approx(2 / 3, rel=1e-6)


def test_worker_value_is_the_slope_of_the_optimum() -> None:
    rng = np.random.default_rng(5)
    n = 30
    rate, capacity = rng.uniform(1.0, 5.0, (2, n)), np.array([6.0, 4.0])

    def optimum(more: float) -> float:
        lp = JobLP(rate=rate, gpus=np.ones(n), capacity=capacity + np.array([more, 0.0]), slope=np.ones(n))
        return solve(lp, gap=1e-9).objective

    found = solve(JobLP(rate=rate, gpus=np.ones(n), capacity=capacity, slope=np.ones(n)), gap=1e-9)
    assert found.type_value[0] == pytest.approx((optimum(0.01) - optimum(-0.01)) / 0.02, rel=1e-3)


def test_running_out_of_iterations_says_how_far_it_came() -> None:
    rng = np.random.default_rng(1)
    lp = JobLP(rate=rng.random((3, 50)), gpus=np.ones(50), capacity=np.full(3, 9.0), slope=rng.random(50))
    with pytest.raises(ArylError, match=r"relative gap of .* after 3 iterations; 1e-07"):
        solve(lp, most=3)


def test_a_program_of_both_kinds_is_refused() -> None:
    with pytest.raises(ValueError, match="either"):
        solve(
            JobLP(
                rate=np.ones((1, 1)),
                gpus=np.ones(1),
                capacity=np.ones(1),
                gain=np.ones((1, 1)),
                slope=np.ones(1),
            )
        )


@pytest.mark.parametrize("n", [1, 5000, 9001])
def test_blocks_join_without_a_seam(n) -> None:
    """The same jobs in another order fall into other blocks."""
    rng = np.random.default_rng(n)
    rate, slope = rng.uniform(1.0, 5.0, (3, n)), rng.uniform(1.0, 2.0, n)
    capacity = np.full(3, max(1.0, n / 8))
    order = rng.permutation(n)
    one = solve(JobLP(rate=rate, gpus=np.ones(n), capacity=capacity, slope=slope))
    two = solve(JobLP(rate=rate[:, order], gpus=np.ones(n), capacity=capacity, slope=slope[order]))
    assert one.objective == pytest.approx(two.objective, rel=2e-7)


@given(clusters(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_highs_behind_the_same_certificate_agrees(cluster, sums) -> None:
    rate, gpus, capacity = cluster
    rows = {"gain": rate} if sums else {"slope": np.linspace(0.5, 2.0, len(gpus))}
    lp = JobLP(rate=rate, gpus=gpus, capacity=capacity, **rows)
    one, two = solve(lp), linear.solve(lp)
    assert miss(lp, two.x, two.t) <= 1e-7
    assert two.objective == pytest.approx(one.objective, rel=3e-6, abs=1e-12)
    assert one.objective <= two.bound * (1 + 1e-9)
