"""The yardstick of the hazards' benchmark, Nelson–Aalen: by hand, on known rates, and what it refuses."""

from __future__ import annotations

import doctest
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.offers import QUICK

PATH = Path(__file__).parents[2] / "benchmarks" / "nelson_aalen.py"
SPEC = importlib.util.spec_from_file_location("nelson_aalen", PATH)
assert SPEC is not None
assert SPEC.loader is not None
module = importlib.util.module_from_spec(SPEC)
sys.modules["nelson_aalen"] = module  # dataclasses look themselves up
SPEC.loader.exec_module(module)
nelson_aalen = module.nelson_aalen


def test_its_example() -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_nelson_aalen_by_hand() -> None:
    estimate = nelson_aalen(np.array([1.0, 2.0, 2.0, 3.0, 5.0]), np.array([True, True, False, False, True]))
    assert estimate.times_h.tolist() == [1.0, 2.0, 5.0]
    assert estimate.at_risk.tolist() == [5, 4, 1]
    assert estimate.cumulative.tolist() == pytest.approx([1 / 5, 1 / 5 + 1 / 4, 1 / 5 + 1 / 4 + 1])
    assert estimate.variance.tolist() == pytest.approx([1 / 25, 1 / 25 + 1 / 16, 1 / 25 + 1 / 16 + 1])
    assert estimate.losses == 3


def test_nelson_aalen_finds_a_constant_rate_under_censoring() -> None:
    generator = np.random.default_rng(7)
    lives, watched = generator.exponential(8.0, 4000), generator.uniform(0, 24, 4000)
    estimate = nelson_aalen(np.minimum(lives, watched), lives <= watched)
    assert estimate.per_hour() == pytest.approx(1 / 8, rel=0.06)
    assert estimate.per_hour("p90") > estimate.per_hour()


@QUICK
@given(
    st.lists(st.tuples(st.floats(0.01, 100), st.booleans()), min_size=1, max_size=40).filter(
        lambda rows: any(lost for _, lost in rows)
    )
)
def test_cumulative_hazard_rises_and_order_does_not_matter(rows: list[tuple[float, bool]]) -> None:
    lives, lost = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    estimate = nelson_aalen(lives, lost)
    assert (np.diff(estimate.cumulative) > 0).all()
    assert estimate.cumulative.tolist() == nelson_aalen(lives[::-1], lost[::-1]).cumulative.tolist()
    assert 0 < estimate.per_hour() <= estimate.per_hour("p90")


@pytest.mark.parametrize(
    ("lives", "lost"), [([1.0], [False]), ([0.0], [True]), ([np.inf], [True]), ([1.0, 2.0], [True])]
)
def test_what_cannot_be_estimated_is_refused(lives: list[float], lost: list[bool]) -> None:
    with pytest.raises(ValueError):
        nelson_aalen(np.array(lives), np.array(lost))
