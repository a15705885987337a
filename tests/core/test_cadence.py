"""Daly's interval against the best of all intervals, by the exact long-run makespan under renewals.

A machine lives L; what was saved whole before its end counts: τ·⌊L/(τ + δ)⌋. Time per unit of work is then
(E[L] + R) / (τ · Σ_{k ≥ 1} S(k(τ + δ))) with S the survival function and R the restart.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from arylcloud.core.cadence import daly_interval_s

RESTART_S = 600.0


def slowdown(interval_s: float, save_s: float, mean_s: float, shape: float) -> float:
    """Wall seconds per second of work; lives are Weibull (shape 1: exponential) of that mean."""
    scale = mean_s / math.gamma(1 + 1 / shape)
    ends = np.arange(1, int(60 * scale / (interval_s + save_s)) + 2) * (interval_s + save_s)
    saved = interval_s * float(np.exp(-((ends / scale) ** shape)).sum())
    return (mean_s + RESTART_S) / saved


@pytest.mark.parametrize("shape", [1.0, 0.6])
@pytest.mark.parametrize("mean_h", [0.7, 3.0, 10.5, 48.0])
@pytest.mark.parametrize("save_s", [2.0, 20.0, 120.0])
def test_within_five_percent_of_the_best_makespan(shape: float, mean_h: float, save_s: float) -> None:
    mean_s = mean_h * 3600
    tau = daly_interval_s(save_s, mean_s)
    best = min(slowdown(float(t), save_s, mean_s, shape) for t in np.geomspace(tau / 12, 12 * tau, 97))
    assert slowdown(tau, save_s, mean_s, shape) <= 1.05 * best


def test_a_fixed_half_hour_is_not() -> None:
    """The test above can fail: thirty minutes on machines that live 0.7 h."""
    best = slowdown(daly_interval_s(2.0, 2520.0), 2.0, 2520.0, 1.0)
    assert slowdown(1800.0, 2.0, 2520.0, 1.0) > 1.3 * best
