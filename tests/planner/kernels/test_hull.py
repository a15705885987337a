"""One job at given prices: the hull's answer against the program of one job."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.job_lp import highs

from arylcloud.planner.kernels.hull import cheapest
from arylcloud.planner.kernels.jobform import JobLP


@given(st.integers(1, 5), st.integers(0, 10**6), st.floats(0.0, 1.2))
@settings(max_examples=100, deadline=None)
def test_mix_is_the_cheapest(m, seed, part) -> None:
    rng = np.random.default_rng(seed)
    rate, price = rng.integers(0, 5, (m, 1)).astype(float), rng.integers(0, 5, (m, 1)).astype(float)
    rate[0] = 3.0
    level = np.array([part * rate.max()])
    mix = cheapest(rate, price, level)
    x = mix.shares(m)
    if part > 1:
        assert np.isinf(mix.cost[0])
        return
    reference = highs(JobLP(rate=rate, gpus=np.ones(1), capacity=np.full(m, 2.0), gain=-price, need=level))
    assert mix.cost[0] == pytest.approx(-reference, abs=1e-8)
    assert (price * x).sum() == pytest.approx(mix.cost[0], abs=1e-12)
    assert (rate * x).sum() >= level[0] - 1e-12
    assert x.sum() <= 1 + 1e-12
    assert (x > 0).sum() <= 2
