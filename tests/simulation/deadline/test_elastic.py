"""Elastic gangs: by hand, as the plain replay where there is one size, never late, never below the bound."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arylcloud.core.errors import UsageError
from arylcloud.planner.deadline.registry import POLICIES, deadline_policy
from arylcloud.planner.deadline.view import Market
from arylcloud.simulation.deadline.elastic import Gang, Sizes, elastic_grid, elastic_replay, power_law
from arylcloud.simulation.deadline.elastic_optimum import elastic_optimum_usd
from arylcloud.simulation.deadline.optimum import optimum_usd
from arylcloud.simulation.deadline.replay import Job, Replays, replay
from arylcloud.simulation.deadline.sweep import flat_egress, market_of
from arylcloud.simulation.spottraces import Grid, SpotTrace, ZoneSteps

TICK_S = 600.0


def trace(machines: list[list[int]], usd: list[float], od: float = 3.0) -> SpotTrace:
    """``machines[z]``: that can be had in zone z, by tick; every second zone in another region."""
    zones = tuple(
        ZoneSteps(
            offset_s=np.arange(len(row)) * TICK_S,
            available=np.array(row, dtype=np.int64),
            spot_usd_per_hour=np.full(len(row), price),
            on_demand_usd_per_hour=np.full(len(row), od),
            end_s=len(row) * TICK_S,
        )
        for row, price in zip(machines, usd, strict=True)
    )
    places = tuple(f"c/r{i % 2}/z{i}" for i in range(len(machines)))
    return SpotTrace(name="t", places=places, instance_type="m", gpu=None, gpu_count=None, zones=zones)


def worlds(of: SpotTrace, gang: Gang, egress: float = 0.0) -> tuple[Grid, Sizes, Market]:
    world, sizes = elastic_grid(of, gang)
    return world, sizes, market_of(world, startup_h=0.2, egress_usd=flat_egress(len(world.regions), egress))


def one(of: SpotTrace, gang: Gang, name: str, work_h: float, deadline_h: float) -> Replays:
    world, sizes, market = worlds(of, gang)
    job = Job(work_h=work_h, deadline_h=deadline_h)
    return elastic_replay(world, sizes, market, deadline_policy(name), job, np.array([0]))


def test_a_loss_of_some_leaves_the_rest_working() -> None:
    """Four machines for an hour (12 min of boot), then two: 1 min lost, then at half the speed."""
    run = one(trace([[4] * 6 + [2] * 60], [1.0]), power_law(2, 4, 1.0), "greedy", 1.0, 6.0)
    assert run.interruptions[0] == 0
    slow_h = 0.2 / 0.5
    assert run.finish_h[0] == pytest.approx(1.0 + 1 / 60 + slow_h)
    assert run.usd[0] == pytest.approx(4.0 * 1.0 + 2.0 * (1 / 60 + slow_h))


def test_machines_that_come_are_billed_join_after_a_start_up_and_stop_all_for_a_minute() -> None:
    """Two machines from the start, four from tick 3 on: they are up at tick 5 (12 min later, at a look)."""
    run = one(trace([[2] * 3 + [4] * 80], [1.0]), power_law(2, 4, 1.0), "greedy", 2.0, 9.0)
    alone_h = 5 / 6 - 0.2
    left_h = 2.0 - alone_h / 2
    assert run.finish_h[0] == pytest.approx(5 / 6 + 1 / 60 + left_h)
    assert run.usd[0] == pytest.approx(2.0 * 0.5 + 4.0 * (1 / 3 + 1 / 60 + left_h))


def test_fewer_than_the_least_are_none() -> None:
    run = one(trace([[4] * 6 + [1] * 60], [1.0]), power_law(2, 4, 1.0), "greedy", 1.0, 1.9)
    assert run.interruptions[0] == 1
    assert run.on_demand_h[0] > 0
    assert not run.missed[0]


def test_too_slow_for_the_deadline_is_given_up_for_on_demand() -> None:
    of = trace([[4] * 6 + [2] * 60], [1.0])
    slow = one(of, power_law(2, 4, 1.0), "greedy", 3.0, 6.0)
    tight = one(of, power_law(2, 4, 1.0), "greedy", 3.0, 3.7)
    assert (slow.missed[0], tight.missed[0]) == (False, False)
    assert tight.on_demand_h[0] > 1
    assert slow.on_demand_h[0] < tight.on_demand_h[0]


@st.composite
def small(draw: st.DrawFn, least: int, most: int) -> SpotTrace:
    zones = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    calm = draw(st.sampled_from([0.05, 0.3, 0.9]))
    rows = []
    for _ in range(zones):
        row = [int(rng.integers(0, most + 2))]
        for _ in range(159):
            row.append(int(rng.integers(0, most + 2)) if rng.random() < calm else row[-1])
        rows.append(row)
    return trace(rows, rng.uniform(0.5, 1.5, zones).round(2).tolist())


JOBS = st.tuples(st.sampled_from([2.0, 4.0]), st.sampled_from([0.3, 0.45, 1.0, 4.0]))
SOME = settings(max_examples=10, deadline=None)


@SOME
@given(small(4, 4), JOBS, st.sampled_from(sorted(POLICIES)), st.sampled_from([0.0, 0.3]))
def test_of_one_size_it_is_the_plain_replay(
    of: SpotTrace, hours: tuple[float, float], name: str, egress: float
) -> None:
    world, sizes, market = worlds(of, power_law(4, 4, 0.9), egress)
    job = Job(work_h=hours[0], deadline_h=sum(hours))
    starts = np.array([0, 7, 30])
    plain = replay(world, market, deadline_policy(name), job, starts)
    elastic = elastic_replay(world, sizes, market, deadline_policy(name), job, starts)
    for column in Replays.__slots__:
        assert getattr(elastic, column) == pytest.approx(getattr(plain, column), abs=1e-9), column


@SOME
@given(small(2, 4), JOBS, st.sampled_from([0.5, 0.9, 1.0]), st.sampled_from([0.0, 0.3]))
def test_no_deadline_is_missed_and_nobody_is_cheaper_than_the_bound(
    of: SpotTrace, hours: tuple[float, float], exponent: float, egress: float
) -> None:
    world, sizes, market = worlds(of, power_law(2, 4, exponent), egress)
    job = Job(work_h=hours[0], deadline_h=sum(hours))
    starts = np.array([0, 11, 40])
    bound = np.array([elastic_optimum_usd(world, sizes, market, job, int(at)) for at in starts])
    for name in ("greedy", "uniform_progress_any_zone", "skynomad_without_probes", "default"):
        runs = elastic_replay(world, sizes, market, deadline_policy(name), job, starts)
        assert not runs.missed.any(), name
        if not runs.moves.any():  # two gangs that overlap are a way that the bound does not know
            assert np.all(runs.usd >= bound - 1e-9), name


@SOME
@given(small(2, 4), JOBS, st.sampled_from([0.5, 0.9, 1.0]), st.sampled_from([0.0, 0.3]))
def test_under_the_optimum_elastic_never_costs_more_than_all_or_nothing(
    of: SpotTrace, hours: tuple[float, float], exponent: float, egress: float
) -> None:
    job = Job(work_h=hours[0], deadline_h=sum(hours))
    alone, one_size, market = worlds(of, power_law(4, 4, exponent), egress)
    rigid = optimum_usd(alone, market, job, 5)
    assert elastic_optimum_usd(alone, one_size, market, job, 5) == pytest.approx(rigid)
    found = [rigid]
    for least in (3, 2, 1):
        world, sizes, market = worlds(of, power_law(least, 4, exponent), egress)
        found.append(elastic_optimum_usd(world, sizes, market, job, 5))
    assert all(wide <= narrow + 1e-9 for narrow, wide in itertools.pairwise(found))


def test_gangs_that_are_none_are_refused() -> None:
    with pytest.raises(UsageError):
        power_law(3, 2, 1.0)
    with pytest.raises(UsageError):
        power_law(0, 2, 1.0)
    with pytest.raises(UsageError, match="slower"):
        Gang(least=1, most=2, speed=np.array([0.0, 1.2, 1.0]))
    world, sizes = elastic_grid(trace([[2] * 20], [1.0]), power_law(1, 2, 1.0))
    short = market_of(world, startup_h=0.1, egress_usd=flat_egress(1, 0.0))
    with pytest.raises(UsageError, match="ticks"):
        elastic_replay(
            world, sizes, short, deadline_policy("greedy"), Job(work_h=1, deadline_h=2), np.array([0])
        )
