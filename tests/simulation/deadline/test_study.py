"""Recorded zones (study data): the figures of the specification, on few starts."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from arylcloud.planner.deadline.registry import deadline_policy
from arylcloud.simulation.deadline.replay import Job
from arylcloud.simulation.deadline.sweep import backtest, drawn_starts, flat_egress, market_of
from arylcloud.simulation.spottraces import grid, read_spot_trace

STUDY = os.environ.get("ARYLCLOUD_STUDY_DATA")
needs_study = pytest.mark.skipif(STUDY is None, reason="ARYLCLOUD_STUDY_DATA does not name the study data")
NAMES = ("on_demand", "greedy", "uniform_progress_any_zone", "default")


@needs_study
@pytest.mark.parametrize(
    ("ratio", "on_demand", "most"),
    [(0.67, (3.2, 3.4), 1.03), (0.9, (3.1, 3.4), 1.05), (0.95, (3.0, 3.4), 1.13)],
)
def test_v100_over_nine_zones(ratio: float, on_demand: tuple[float, float], most: float) -> None:
    world = grid(read_spot_trace(Path(str(STUDY)) / "traces" / "spot_v100_9zones_2023.csv.gz"))
    market = market_of(world, startup_h=0.2, egress_usd=flat_egress(len(world.regions), 0.1))
    job = Job(work_h=48.0, deadline_h=48.0 / ratio)
    starts = drawn_starts(world, job, 16, np.random.default_rng(0))
    made = backtest(world, market, job, [deadline_policy(name) for name in NAMES], starts).figures
    assert all(figures.misses == 0 for figures in made.values())
    assert on_demand[0] < (made["on_demand"].cost_over_optimum or 0) < on_demand[1]
    assert (made["default"].cost_over_optimum or 9) <= most
    assert made["default"].cost_mean <= 1.005 * made["uniform_progress_any_zone"].cost_mean
