"""Hard rows: met where HiGHS finds a point, refused with a proof where it finds none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.job_lp import clusters, highs, miss

from arylcloud.planner.kernels.jobform import TOLERANCE, JobLP
from arylcloud.planner.kernels.needs import meet, most_alone


def program(cluster, seed: int, part: float) -> JobLP:
    """Some of the jobs need ``part`` of what a common rate would give them."""
    rate, gpus, capacity = cluster
    rng = np.random.default_rng(seed)
    asks = rng.random(len(gpus)) < 0.6
    weight = np.where(asks, rng.uniform(0.2, 1.0, len(gpus)) * rate[capacity > 0].max(axis=0), 0.0)
    if asks.any():
        reach = highs(JobLP(rate=rate[:, asks], gpus=gpus[asks], capacity=capacity, slope=weight[asks]))
        weight = weight * reach * part
    gain = rate * rng.uniform(0.1, 3.0, rate.shape) * rng.choice([-1.0, 1.0])
    return JobLP(rate=rate, gpus=gpus, capacity=capacity, gain=gain, need=weight)


@given(clusters(), st.integers(0, 1000), st.floats(0.01, 0.999))
@settings(max_examples=80, deadline=None)
def test_needs_that_can_be_met_are(cluster, seed, part) -> None:
    lp = program(cluster, seed, part)
    assume((lp.need > 0).any())
    found = meet(lp).solution
    assert found is not None
    assert miss(lp, found.x, 0.0) <= 1.01 * TOLERANCE
    optimum = highs(lp)
    slack = 1e-6 * abs(optimum) + 1e-9
    assert found.objective <= optimum + slack
    assert found.bound >= optimum - slack


@given(clusters(), st.integers(0, 1000), st.floats(1.0001, 50.0))
@settings(max_examples=50, deadline=None)
def test_needs_that_cannot_be_met_are_refused_with_their_part(cluster, seed, part) -> None:
    lp = program(cluster, seed, part)
    assume((lp.need > 0).any())
    found = meet(lp)
    assert found.solution is None
    assert found.part >= 1 / part * (1 - 1e-6)
    assert found.part < 1


def test_a_set_that_is_only_just_met() -> None:
    lp = program((np.array([[1.0, 2.0, 4.0], [2.0, 2.0, 2.0]]), np.ones(3), np.array([1.0, 1.0])), 3, 1.0)
    found = meet(lp)
    assert found.solution is not None
    assert miss(lp, found.solution.x, 0.0) <= 1e-6
    assert found.solution.objective == pytest.approx(highs(lp), rel=1e-5)


def test_no_needs_is_the_plain_program() -> None:
    rate = np.array([[1.0, 2.0], [2.0, 1.0]])
    lp = JobLP(rate=rate, gpus=np.ones(2), capacity=np.ones(2), gain=rate, need=np.zeros(2))
    assert meet(lp).solution.objective == pytest.approx(4.0, rel=1e-6)


@given(clusters(most_jobs=1))
@settings(max_examples=60, deadline=None)
def test_most_alone_is_the_program_of_one_job(cluster) -> None:
    rate, gpus, capacity = cluster
    lp = JobLP(rate=rate, gpus=gpus, capacity=capacity, gain=rate)
    assert most_alone(lp)[0] == pytest.approx(highs(lp), rel=1e-9)
