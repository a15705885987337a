"""Lives of spot machines: closed forms against quadrature, and what is learned from sightings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arylcloud.planner.deadline.lives import Lives
from arylcloud.planner.deadline.sightings import Sightings
from arylcloud.planner.deadline.skynomad import remaining_life
from arylcloud.planner.deadline.survival import BOUNDS_H, RATES, cumulated, expected_life, frailties


@given(st.floats(0, 30), st.floats(0.05, 6), st.floats(0.01, 40))
def test_expected_life_is_the_integral(age: float, frailty: float, horizon: float) -> None:
    u = np.linspace(0, horizon, 40_001)
    survival = np.exp(-frailty * (cumulated(age + u) - cumulated(np.array([age]))))
    life, at_end = expected_life(np.array([age]), np.array([frailty]), np.array([horizon]))
    assert life[0] == pytest.approx(np.trapezoid(survival, u), rel=1e-4)
    assert at_end[0] == pytest.approx(survival[-1], rel=1e-9)


def test_cumulated_hazard_is_the_sum_of_the_bands() -> None:
    at = np.linspace(0, 20, 2001)
    rate = np.array(RATES)[np.searchsorted(BOUNDS_H, (at[1:] + at[:-1]) / 2)]
    assert cumulated(at)[1:] == pytest.approx(np.cumsum(rate * np.diff(at)))


def test_frailties_shrink_to_the_prior_and_to_each_other() -> None:
    none = np.zeros((1, 3))
    assert frailties(none, none)[0] == pytest.approx([0.7] * 3)
    deaths, exposure = np.array([[30.0, 0.0]]), np.array([[10.0, 0.0]])
    bad, other = frailties(deaths, exposure)[0]
    common = (4 * 0.7 + 30) / 14
    assert other == pytest.approx(common)
    assert bad == pytest.approx((4 * common + 30) / 14)


def sight(seen: Sightings, zone: int, now_h: float, up: bool) -> None:
    seen.note(np.array([0]), np.array([zone]), np.array([now_h]), np.array([up]))


def test_sightings_tell_streaks_deaths_and_exposure() -> None:
    seen = Sightings.none(1, 2)
    sight(seen, 0, 1.0, True)
    assert seen.since_h[0, 0] == pytest.approx(-2.0)  # never looked at before: taken for three hours old
    sight(seen, 0, 2.0, True)
    sight(seen, 0, 3.0, False)
    gained = cumulated(np.array([4.0])) - cumulated(np.array([3.0]))
    gained += cumulated(np.array([4.5])) - cumulated(np.array([4.0]))
    assert seen.exposure[0, 0] == pytest.approx(gained[0])
    assert (seen.deaths[0, 0], seen.since_h[0, 0], seen.up[0, 0]) == (1.0, 2.5, False)
    sight(seen, 0, 4.0, False)
    assert seen.since_h[0, 0] == 2.5
    sight(seen, 0, 5.0, True)
    assert (seen.since_h[0, 0], seen.deaths[0, 0]) == (4.5, 1.0)
    sight(seen, 0, 9.0, True)  # four hours unseen: it may have died and come back
    assert seen.since_h[0, 0] == pytest.approx(9.0 - 4.0 / 3)
    assert seen.exposure[0, 0] == pytest.approx(gained[0])
    assert seen.exposure[0, 1] == 0


def test_nelson_aalen_lives() -> None:
    lives = Lives.none(1, 1)
    most = np.array([[10.0]])
    assert remaining_life(lives, np.array([[2.0]]), most)[0, 0] == pytest.approx(10.0)
    lives.watched_h[0, 0, :] = 5.0
    lives.losses[0, 0, :] = 1.0  # 0.2 an hour at every age
    assert remaining_life(lives, np.array([[2.0]]), most)[0, 0] == pytest.approx((1 - np.exp(-2.0)) / 0.2)
    lives.note(np.array([0]), np.array([0]), np.array([1.5]), np.array([0.5]), np.array([True]))
    assert (lives.watched_h[0, 0, 1], lives.losses[0, 0, 1]) == (5.25, 2.0)
