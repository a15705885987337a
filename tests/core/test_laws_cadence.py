"""Daly's interval, to the last digit: a wrong coefficient changes too little for a makespan to show it."""

from __future__ import annotations

import math

import pytest

from arylcloud.core.cadence import daly_interval_s


@pytest.mark.parametrize(
    ("save_s", "mtbf_s"), [(10.0, 3600.0), (120.0, 2520.0), (2.0, 172800.0), (100.0, 60.0), (199.9, 100.0)]
)
def test_it_is_dalys_equation_37(save_s: float, mtbf_s: float) -> None:
    """Written out as in the paper, with δ and M."""
    half = save_s / (2 * mtbf_s)
    series = 1 + (1 / 3) * half**0.5 + (1 / 9) * half
    daly_s = (2 * save_s * mtbf_s) ** 0.5 * series - save_s
    assert daly_interval_s(save_s, mtbf_s) == pytest.approx(max(daly_s, save_s), rel=1e-12)


def test_figures() -> None:
    assert daly_interval_s(10.0, 3600.0) == pytest.approx(261.7, abs=0.05)
    assert daly_interval_s(1.0, 1.0) == 1.0, "Daly's own interval would be 0.83 s: a save is never shorter"


def test_where_a_save_takes_longer_than_a_life() -> None:
    assert daly_interval_s(20.0, 10.0) == 20.0
    assert daly_interval_s(20.0, 10.0 + 1e-9) == pytest.approx(20.0, abs=1e-6), "no jump at the border"
    assert daly_interval_s(500.0, 10.0) == 500.0


def test_without_losses_it_is_never() -> None:
    assert daly_interval_s(10.0, math.inf) == math.inf


@pytest.mark.parametrize(
    ("save_s", "mtbf_s"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (math.nan, 1.0), (1.0, math.nan)]
)
def test_what_is_no_time_is_refused(save_s: float, mtbf_s: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        daly_interval_s(save_s, mtbf_s)
