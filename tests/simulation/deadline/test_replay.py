"""The replay: every dollar and minute of small worlds by hand, and what holds in all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arylcloud.planner.deadline.registry import POLICIES, deadline_policy
from arylcloud.planner.deadline.view import Market
from arylcloud.simulation.deadline.invent import invented
from arylcloud.simulation.deadline.replay import Job, Replays, replay
from arylcloud.simulation.deadline.sweep import backtest, drawn_starts, flat_egress, market_of, one_zone
from arylcloud.simulation.spottraces import Grid, grid


def zones(
    up: list[list[int]], usd: list[float], *, od: float = 3.0, regions: list[int] | None = None
) -> Grid:
    """``up[z]``: ticks of zone z."""
    region = regions or [0] * len(up)
    ticks, n = len(up[0]), len(up)
    return Grid(
        tick_s=600.0,
        places=tuple(f"c/r{region[i]}/z{i}" for i in range(n)),
        regions=tuple(f"c/r{r}" for r in range(max(region) + 1)),
        region=np.array(region, dtype=np.intp),
        up=np.array(up, dtype=bool).T,
        spot_usd=np.tile(usd, (ticks, 1)),
        on_demand_usd=np.full((ticks, max(region) + 1), od),
    )


def market(of: Grid, egress: float = 0.0) -> Market:
    return market_of(of, startup_h=0.2, egress_usd=flat_egress(len(of.regions), egress))


def one(of: Grid, name: str, work_h: float, deadline_h: float, egress: float = 0.0) -> Replays:
    job = Job(work_h=work_h, deadline_h=deadline_h)
    return replay(of, market(of, egress), deadline_policy(name), job, np.array([0]))


def test_on_demand_costs_work_and_start_up() -> None:
    run = one(zones([[1] * 20], [1.0]), "on_demand", 1.0, 2.0)
    assert run.usd[0] == pytest.approx(3.0 * 1.2)
    assert run.finish_h[0] == pytest.approx(1.2)
    assert not run.missed[0]


def test_spot_without_a_loss() -> None:
    run = one(zones([[1] * 20], [1.0]), "greedy", 1.0, 2.5)
    assert (run.usd[0], run.finish_h[0]) == (pytest.approx(1.2), pytest.approx(1.2))


def test_a_loss_pays_a_second_start_and_moves() -> None:
    """Zone 0 for two ticks (12 of 20 min boot), then zone 1 in another region: 12 min boot, 52 of work."""
    run = one(
        zones([[1, 1] + [0] * 18, [1] * 20], [1.0, 1.5], regions=[0, 1]), "greedy", 1.0, 2.5, egress=0.4
    )
    assert run.usd[0] == pytest.approx(20 / 60 + 1.5 * 64 / 60 + 0.4)
    assert run.finish_h[0] == pytest.approx(84 / 60)
    assert (run.interruptions[0], run.moves[0], run.egress_usd[0]) == (1, 1, pytest.approx(0.4))


def test_refused_attempts_take_time_from_idle() -> None:
    """The cheap zone is down: 1.5 min later the dear one is started."""
    run = one(zones([[0] * 30, [1] * 30], [1.0, 1.5]), "greedy", 1.0, 3.0)
    assert run.finish_h[0] == pytest.approx((1.5 + 72) / 60)
    assert run.usd[0] == pytest.approx(1.5 * 1.2)
    assert run.refused[0] == 1


def test_make_before_break_pays_both_and_loses_the_hand_over() -> None:
    """On demand until tick 3, where cheap spot comes up; booted at 12 min, 2 min lost before that."""
    world = zones([[0, 0, 0] + [1] * 200], [0.5], od=20.0)
    run = one(world, "default", 20.0, 20.75)  # 0.75 h of slack: after a refusal the price of slack is high
    assert not run.missed[0]
    start = 1.5 / 60  # refused once, then on demand at once
    assert run.on_demand_h[0] == pytest.approx(40 / 60 - start)
    lost = start + 0.2 + 2 / 60
    assert run.finish_h[0] == pytest.approx(20.0 + lost)


def test_probes_are_billed() -> None:
    world = grid(invented(3, zones=3))
    run = replay(
        world, market(world), deadline_policy("skynomad"), Job(work_h=10.0, deadline_h=14.0), np.array([5])
    )
    assert run.probes[0] >= 3
    assert 0 < run.probe_usd[0] <= run.probes[0] * world.spot_usd.max() / 60


PAID = [name for name, policy in POLICIES.items() if not policy.free_sight]


@pytest.mark.parametrize("name", list(POLICIES))
@settings(max_examples=12)
@given(
    st.integers(0, 2**32 - 1),
    st.floats(1.02, 2.5),
    st.floats(0.02, 0.9),
    st.integers(1, 4),
    st.floats(0.0, 1.0),
)
def test_no_deadline_is_ever_missed(
    name: str, seed: int, room: float, startup_h: float, n: int, share: float
) -> None:
    """Also in worlds where capacity is drawn anew at every tick, whatever the start-up."""
    rng = np.random.default_rng(seed)
    work_h = 5.0
    deadline_h = work_h * room + startup_h
    ticks = int(deadline_h * 6) + 3
    world = Grid(
        tick_s=600.0,
        places=tuple(f"c/r{i % 2}/z{i}" for i in range(n)),
        regions=("c/r0", "c/r1")[: min(n, 2)],
        region=(np.arange(n) % 2).astype(np.intp),
        up=rng.random((ticks, n)) < share,
        spot_usd=rng.uniform(0.3, 3.5, (ticks, n)),
        on_demand_usd=np.full((ticks, min(n, 2)), 3.0),
    )
    place = market_of(world, startup_h=startup_h, egress_usd=flat_egress(min(n, 2), 0.1))
    run = replay(
        world,
        place,
        deadline_policy(name),
        Job(work_h=work_h, deadline_h=deadline_h),
        np.zeros(1, dtype=np.intp),
    )
    assert not run.missed[0]
    assert run.finish_h[0] <= deadline_h + 1e-6
    assert run.on_demand_h[0] + run.spot_h[0] >= work_h - 1e-9


@pytest.mark.parametrize("name", list(POLICIES))
def test_each_start_is_alone(name: str) -> None:
    """A run does not depend on the runs beside it."""
    world = grid(invented(1, zones=4, days=8))
    job = Job(work_h=20.0, deadline_h=24.0)
    starts = drawn_starts(world, job, 6, np.random.default_rng(0))
    together = replay(world, market(world, 0.1), deadline_policy(name), job, starts)
    for i, start in enumerate(starts):
        alone = replay(world, market(world, 0.1), deadline_policy(name), job, np.array([start]))
        assert alone.usd[0] == pytest.approx(together.usd[i], rel=1e-12)
        assert alone.finish_h[0] == pytest.approx(together.finish_h[i], rel=1e-12)


def test_prices_scale_costs() -> None:
    """Without egress every dollar figure is proportional to the prices."""
    from dataclasses import replace

    world = grid(invented(2, zones=4, days=8))
    dear = replace(world, spot_usd=8 * world.spot_usd, on_demand_usd=8 * world.on_demand_usd)
    job = Job(work_h=20.0, deadline_h=23.0)
    starts = np.arange(0, 600, 100)
    for name in PAID:
        runs = [replay(w, market(w), deadline_policy(name), job, starts).usd for w in (world, dear)]
        assert runs[1] == pytest.approx(8 * runs[0])


def test_one_zone_policies_are_run_in_each() -> None:
    world = grid(invented(4, zones=3, days=6))
    job = Job(work_h=10.0, deadline_h=14.0)
    starts = np.array([0, 50, 100])
    made = backtest(world, market(world), job, [deadline_policy("uniform_progress")], starts)
    alone = [
        replay(*one_zone(world, market(world), z), deadline_policy("uniform_progress"), job, starts).usd
        for z in range(3)
    ]
    assert made.usd["uniform_progress"] == pytest.approx(np.concatenate(alone))
    least = made.usd["optimum"]
    assert made.figures["uniform_progress"].cost_over_optimum == pytest.approx(
        np.sum(alone) / (3 * least.sum())
    )
