"""Cadence, clocks, names, bars: the small laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arylcloud.core import tokens
from arylcloud.core.cadence import daly_interval_s
from arylcloud.core.clock import ManualClock, MarketClock, SlewedClock, SystemClock
from arylcloud.core.phases import LEASE_TRANSITIONS, JobPhase, LeasePhase

seconds = st.floats(0.01, 1e7)


@given(save=seconds, mtbf=seconds)
def test_daly_is_positive_and_never_below_the_save(save: float, mtbf: float) -> None:
    interval = daly_interval_s(save, mtbf)
    assert interval > 0
    assert interval >= save * (1 - 1e-9) or interval >= mtbf * (1 - 1e-9)


@given(save=seconds, mtbf=seconds, factor=st.floats(1.0, 100.0))
def test_daly_rises_with_both(save: float, mtbf: float, factor: float) -> None:
    if save * factor < 2 * mtbf:
        assert daly_interval_s(save * factor, mtbf) >= daly_interval_s(save, mtbf) * (1 - 1e-9)
    assert daly_interval_s(save, mtbf * factor) >= daly_interval_s(save, mtbf) * (1 - 1e-9)


def test_daly_at_the_edges() -> None:
    assert math.isinf(daly_interval_s(1.0, math.inf))
    for save, mtbf in ((0.0, 1.0), (1.0, 0.0), (math.nan, 1.0)):
        with pytest.raises(ValueError, match="positive"):
            daly_interval_s(save, mtbf)


@given(origin=st.floats(-1e9, 1e9), scale=st.floats(0.1, 1e4), wall=st.floats(-1e9, 1e9))
def test_market_time_there_and_back(origin: float, scale: float, wall: float) -> None:
    clock = MarketClock(origin_s=origin, scale=scale)
    assert clock.wall_s(clock.market_s(wall)) == pytest.approx(wall, abs=1e-3)
    assert clock.market_s(origin) == origin


def test_a_manual_clock_never_goes_back() -> None:
    clock = ManualClock(5.0)
    clock.sleep(-2.0)
    assert clock.now_s() == 5.0
    clock.sleep(3.0)
    assert clock.now_s() == 8.0


def test_a_clock_that_is_set_lets_no_time_pass() -> None:
    clock = ManualClock(5.0)
    clock.step(-3.0)
    assert (clock.now_s(), clock.monotonic_s()) == (2.0, 5.0)


@given(
    moves=st.lists(
        st.tuples(st.floats(0.0, 100.0), st.sampled_from([0.0, 0.0, 3600.0, -3600.0, 7.5, -0.01])),
        max_size=30,
    )
)
def test_a_slewed_clock_tells_intervals_within_a_fiftieth(moves: list[tuple[float, float]]) -> None:
    clock = ManualClock(1e9)
    slewed = SlewedClock(clock)
    for passed_s, step_s in moves:
        before_s = slewed.now_s()
        clock.at_s += passed_s
        clock.step(step_s)
        assert slewed.now_s() - before_s == pytest.approx(passed_s, rel=0.0201, abs=1.1e-3)
    for _ in range(200):  # and it comes back to the wall
        clock.at_s += 12 * 3600.0
        slewed.now_s()
    assert slewed.now_s() == clock.now_s()


def test_the_system_clock_counts_on() -> None:
    clock = SystemClock()
    before_s = clock.monotonic_s()
    clock.sleep(0.01)
    clock.sleep(-1.0)
    assert clock.monotonic_s() - before_s >= 0.009


def test_every_phase_has_its_ways_and_closed_means_closed() -> None:
    assert set(LEASE_TRANSITIONS) == set(LeasePhase)
    for phase in LeasePhase:
        ways = LEASE_TRANSITIONS[phase]
        if phase is LeasePhase.REFUSED:  # of one that had come all the same: to be ended, and no other way
            ways = ways - {LeasePhase.ENDING}
        assert phase.closed == (not ways)
    reached = {LeasePhase.INTENDED}.union(*LEASE_TRANSITIONS.values())
    assert reached == set(LeasePhase)
    assert {p for p in JobPhase if p.ended} == {JobPhase.STOPPED, JobPhase.SUCCEEDED, JobPhase.FAILED}


@given(name=st.text(max_size=80))
def test_a_job_id_is_a_safe_tag(name: str) -> None:
    job_id = tokens.new_job_id(name)
    assert len(job_id) <= 49
    assert all(c.isascii() and (c.isalnum() or c == "-") for c in job_id)
    assert job_id[0] != "-"


def test_a_token_follows_from_what_is_wanted() -> None:
    lease = tokens.lease_id("job-1", 0, 3)
    assert tokens.client_token("j", lease) == tokens.client_token("j", lease)
    others = {
        tokens.client_token("k", lease),
        tokens.client_token("j", tokens.lease_id("job-1", 0, 4)),
        tokens.client_token("j", tokens.lease_id("job-1", 1, 3)),
    }
    assert tokens.client_token("j", lease) not in others
    assert len(others) == 3
    assert len(tokens.client_token("j", lease)) <= 64
