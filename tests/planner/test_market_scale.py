"""Compressed time: training takes wall seconds, bills and limits are in market seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from arylcloud.core.errors import InfeasibleError
from arylcloud.core.job import CheckpointSpec, Constraints, InlineRate, JobSpec, ProfileRef, Resources, Work
from arylcloud.core.offer import Market, Offer
from arylcloud.planner.single import plan_job
from arylcloud.planner.upkeep import Assumptions
from arylcloud.pricing.table import from_offers

TABLE = from_offers(
    [
        Offer(
            cloud="local", region="r", zone=None, instance_type="t", gpu="T4", gpu_count=1, gpu_mem_gib=16,
            vcpus=4, mem_gib=16, market=Market.ON_DEMAND, usd_per_hour=1.0, as_of="2026-01-01", source="test",
        )
    ]
)  # fmt: skip
SPEC = JobSpec(
    name="j",
    run="true",
    resources=Resources(clouds=("local",)),
    profile=ProfileRef(rates=(InlineRate(gpu="T4", count=1, rate=10.0),), unit="steps/s"),
    work=Work(amount=36_000, unit="steps"),
    checkpoint=CheckpointSpec(size_gb=0.001, interval_s=60.0),
)
STILL = Assumptions(boot_s={"local": 0.0}, save_s=0.0, save_fixed_s=0.0, save_gb_per_s=1e9)


@pytest.mark.parametrize("scale", [1.0, 60.0, 600.0])
def test_hours_and_dollars_are_the_markets(scale: float) -> None:
    best = plan_job(SPEC, TABLE, assumptions=replace(STILL, market_scale={"local": scale})).chosen
    assert best.hours is not None
    assert best.usd is not None
    assert best.hours.p50 == pytest.approx(scale, rel=1e-3)
    assert best.usd.mean == pytest.approx(scale, rel=1e-3)
    assert best.throughput == 10.0  # what the machine does is what it does


def test_a_users_interval_is_wall_seconds_too() -> None:
    """60 s at 600× is 10 market hours: a save of one wall second costs 1/60 of the time, as without."""
    slow = replace(STILL, save_fixed_s=600.0, market_scale={"local": 600.0})
    best = plan_job(SPEC, TABLE, assumptions=slow).chosen
    assert best.hours is not None
    assert best.hours.p50 == pytest.approx(600 * 61 / 60, rel=1e-2)


def test_limits_are_market_time() -> None:
    tight = replace(SPEC, constraints=Constraints(deadline_s=59 * 3600.0))
    with pytest.raises(InfeasibleError, match="deadline"):
        plan_job(tight, TABLE, assumptions=replace(STILL, market_scale={"local": 60.0}))
