"""The offline optimum against every way that there is, on worlds small enough to try them all."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from arylcloud.planner.deadline.registry import deadline_policy
from arylcloud.planner.deadline.view import Market
from arylcloud.simulation.deadline.optimum import optimum_usd, units
from arylcloud.simulation.deadline.replay import Job, replay
from arylcloud.simulation.spottraces import Grid

TICK_H = 1 / 6


def world(
    rng: np.random.Generator, zones: int, regions: int, ticks: int, startup_min: float, egress: float
) -> tuple[Grid, Market]:
    region = np.arange(zones) % regions
    grid = Grid(
        tick_s=600.0,
        places=tuple(f"c/r{r}/z{i}" for i, r in enumerate(region)),
        regions=tuple(f"c/r{r}" for r in range(regions)),
        region=region.astype(np.intp),
        up=rng.random((ticks, zones)) < 0.6,
        spot_usd=rng.uniform(0.5, 1.5, (ticks, zones)).round(2),
        on_demand_usd=rng.uniform(2.5, 3.5, (ticks, regions)).round(2),
    )
    fee = rng.uniform(0.5, 1.5, (regions, regions)) * egress
    np.fill_diagonal(fee, 0.0)
    return grid, Market(region=grid.region, egress_usd=fee, startup_h=startup_min / 60, tick_h=TICK_H)


def cheapest(grid: Grid, market: Market, job: Job) -> float:
    """Every sequence of decisions, in minutes: a machine is (number, minutes of boot left)."""
    ticks = math.ceil(job.deadline_h * 6 - 1e-9)
    region = market.region_of
    startup = round(market.startup_h * 60)

    @cache
    def best(t: int, at: int, machine: int, boot: int, work: int) -> float:
        if work == 0:
            return 0.0
        if t == ticks:
            return math.inf
        prices = [*grid.spot_usd[t], *grid.on_demand_usd[t]]
        up = [*grid.up[t], *(True for _ in range(market.regions))]
        ways = [best(t + 1, at, -1, 0, work)]
        for m in range(len(prices)):
            if not up[m]:
                continue
            starts = [(startup, float(market.egress_usd[at, region[m]]))]
            starts += [(boot, 0.0)] * (m == machine)
            for left, fee in starts:
                done = min(work, max(0, 10 - left))
                lived = left + done if done == work else 10
                usd = fee + float(prices[m]) * lived / 60
                ways.append(usd + best(t + 1, int(region[m]), m, max(0, left - 10), work - done))
        return min(ways)

    return best(0, job.home, -1, 0, round(job.work_h * 60))


@pytest.mark.parametrize("startup_min", [4.0, 10.0, 12.0, 24.0])
@pytest.mark.parametrize("egress", [0.0, 0.2])
def test_equals_every_way_tried(startup_min: float, egress: float) -> None:
    rng = np.random.default_rng(int(startup_min) * 7 + int(10 * egress))
    for _ in range(4):
        grid, market = world(rng, 2, 2, 9, startup_min, egress)
        for work_min, deadline_min in ((20, 70), (30, 90), (16, 90), (50, 80)):
            job = Job(work_h=work_min / 60, deadline_h=deadline_min / 60, home=1)
            expected = cheapest(grid, market, job)
            assert optimum_usd(grid, market, job, 0) == pytest.approx(expected, abs=1e-9)


def test_one_egress_for_all_pairs_is_the_general_case() -> None:
    rng = np.random.default_rng(5)
    grid, market = world(rng, 3, 3, 12, 12.0, 0.0)
    flat = np.full((3, 3), 0.11) - 0.11 * np.eye(3)
    job = Job(work_h=0.7, deadline_h=1.9)
    for fee in (flat, flat + np.array([[0, 0, 0], [0, 0, 1e-12], [0, 0, 0]])):
        found = optimum_usd(grid, replace(market, egress_usd=fee), job, 0)
        assert found == pytest.approx(cheapest(grid, replace(market, egress_usd=fee), job), abs=1e-9)


def test_infinite_where_nothing_ends_in_time() -> None:
    grid, market = world(np.random.default_rng(0), 1, 1, 6, 12.0, 0.0)
    assert math.isinf(optimum_usd(grid, market, Job(work_h=0.9, deadline_h=1.0), 0))


def test_policies_that_hold_one_machine_never_beat_it() -> None:
    rng = np.random.default_rng(11)
    for _ in range(6):
        grid, market = world(rng, 3, 2, 60, 12.0, 0.05)
        job = Job(work_h=4.0, deadline_h=float(rng.choice([4.5, 6.0, 9.0])))
        least = optimum_usd(grid, market, job, 0)
        for name in ("on_demand", "greedy", "uniform_progress_any_zone"):
            assert replay(grid, market, deadline_policy(name), job, np.array([0])).usd[0] >= least - 1e-9


def test_a_grid_too_fine_is_rounded_down() -> None:
    market = Market(
        region=np.zeros(1, dtype=np.intp), egress_usd=np.zeros((1, 1)), startup_h=701 / 3600, tick_h=TICK_H
    )
    u = units(market, Job(work_h=1.0, deadline_h=2.0))
    assert (u.tick, u.startup, u.work) == (10, 11, 60)
