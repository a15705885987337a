"""A rate from a counter's readings: batch means against known processes."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from arylcloud.core.errors import UsageError
from arylcloud.planner import steprate
from arylcloud.planner.steprate import step_rate


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(steprate).failed == 0


def readings(step_s: np.ndarray, begun: float = 100.0) -> list[tuple[float, float]]:
    return [(begun + float(t), i) for i, t in enumerate(np.concatenate([[0], np.cumsum(step_s)]))]


def test_a_steady_counter() -> None:
    found = step_rate(readings(np.full(400, 0.05)))
    assert found.per_s == pytest.approx(20)
    assert found.low == pytest.approx(found.high)
    assert (found.blocks, found.steps, found.seconds) == (20, 400, pytest.approx(20))


def test_warm_up_is_left_out() -> None:
    step_s = np.concatenate([np.full(20, 1.0), np.full(400, 0.1)])
    assert step_rate(readings(step_s)).per_s < 8
    assert step_rate(readings(step_s), warmup_s=20.0).per_s == pytest.approx(10)


def test_the_interval_holds_where_steps_are_correlated() -> None:
    """An autoregressive step time: 95 % intervals hold nine times of ten and more. Independent steps would
    make it a third too narrow."""
    rng = np.random.default_rng(5)
    held = 0
    weights = 0.9 ** np.arange(80)
    for _ in range(200):
        noise = np.convolve(rng.normal(scale=0.01, size=4079), weights, mode="valid")
        found = step_rate(readings(0.1 * np.exp(noise)))
        truth = 1 / (0.1 * np.exp(0.01**2 / (1 - 0.81) / 2))
        held += found.low <= truth <= found.high
    assert held >= 180


def test_a_counter_that_stands_still_between_reports() -> None:
    """Read twenty times a second, told five times a second: each value counts once."""
    told = [(round(t * 0.05, 2), float(int(t * 0.05 / 0.2) * 4)) for t in range(400)]
    assert step_rate(told).per_s == pytest.approx(20, rel=0.02)


def test_a_resumed_job_counts_from_there() -> None:
    first, second = readings(np.full(50, 0.1)), readings(np.full(100, 0.2), begun=200.0)
    assert step_rate(first + second).per_s == pytest.approx(5)


@pytest.mark.parametrize("count", [0, 1, 8])
def test_too_few_steps_say_so(count: int) -> None:
    with pytest.raises(UsageError, match=rf"moved {max(0, count - 1)} times") as error:
        step_rate([(float(i), float(i)) for i in range(count)])
    assert "--for" in str(error.value.hint)
