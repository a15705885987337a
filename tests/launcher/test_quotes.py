"""Prices of the offers that decide, asked beside the launcher's rounds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from providers.contract import wait_for

from arylcloud.core.clock import ManualClock, SystemClock
from arylcloud.core.errors import AccessError, ArylError, CapacityError, OtherCloudError
from arylcloud.core.job import JobSpec, ProfileRef, Resources, Work
from arylcloud.core.offer import Market, Offer
from arylcloud.core.plan import Plan
from arylcloud.core.ports import Provider
from arylcloud.launcher.quotes import FIRST, KEEP_S, OF_EACH_CLOUD, Quotes, deciding
from arylcloud.planner.single import plan_job
from arylcloud.pricing.catalogue import load
from arylcloud.pricing.table import from_offers, overlay

EVERY_S = 60.0


def offer(zone: str = "z1", usd: float | None = 1.0, cloud: str = "aws") -> Offer:
    return Offer(
        cloud=cloud,
        region="r",
        zone=zone,
        instance_type="p3.2xlarge",
        gpu="V100",
        gpu_count=1,
        gpu_mem_gib=16.0,
        vcpus=8.0,
        mem_gib=61.0,
        market=Market.SPOT,
        usd_per_hour=usd,
        as_of=None,
        source="test",
    )


@dataclass
class Cloud:
    prices: dict[str, float | ArylError | Exception]
    asked: list[str] = field(default_factory=list)

    def quote(self, wanted: Offer) -> Offer:
        self.asked.append(wanted.zone or "")
        found = self.prices[wanted.zone or ""]
        if isinstance(found, Exception):
            raise found
        return replace(wanted, usd_per_hour=found, source="live")


def quotes(
    cloud: Cloud, clock: Any, run: Callable[[Callable[[], None]], None] = lambda work: work()
) -> Quotes:
    return Quotes(cast("dict[str, Provider]", {"aws": cloud}), clock, every_s=EVERY_S, run=run)


def test_what_is_new_is_told_once() -> None:
    cloud, clock = Cloud({"z1": 1.0, "z2": 0.5}), ManualClock()
    asking = quotes(cloud, clock)
    asking.ask([offer("z1"), offer("z2"), offer("z1", cloud="gcp")])
    assert {o.zone: o.usd_per_hour for o in asking.newest()} == {"z1": 1.0, "z2": 0.5}
    assert asking.version == 1
    asking.ask([offer("z1"), offer("z2")])
    assert cloud.asked == ["z1", "z2"], "asked a moment ago"
    clock.sleep(EVERY_S)
    asking.ask([offer("z1"), offer("z2")])
    assert asking.version == 1, "no price is another"
    cloud.prices["z1"] = 3.0
    clock.sleep(EVERY_S)
    asking.ask([offer("z1")])
    assert (asking.version, next(o.usd_per_hour for o in asking.newest() if o.zone == "z1")) == (2, 3.0)
    assert asking.seen(offer("z1"))
    assert not asking.seen(offer("z3"))
    assert asking.seen(offer("z1", cloud="local")), "of a cloud that is not asked, the catalogue counts"
    clock.sleep(KEEP_S + 1)
    assert asking.newest() == ()
    assert not asking.seen(offer("z1"))


@pytest.mark.parametrize("error", [AccessError("no"), OtherCloudError("what", code="X"), ZeroDivisionError()])
def test_a_cloud_that_does_not_answer_leaves_what_is_known(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    cloud, clock = Cloud({"z1": 2.0, "z2": 2.0}), ManualClock()
    asking = quotes(cloud, clock)
    asking.ask([offer("z1")])
    cloud.prices = {"z1": error, "z2": error}
    for _ in range(3):
        clock.sleep(EVERY_S)
        asking.ask([offer("z1"), offer("z2")])
    assert [o.usd_per_hour for o in asking.newest()] == [2.0]
    assert caplog.records
    if isinstance(error, ArylError):
        assert len(caplog.records) == 1, "said once"


def test_what_is_not_to_be_had_has_no_price() -> None:
    cloud = Cloud({"z1": CapacityError("not offered")})
    asking = quotes(cloud, ManualClock())
    asking.ask([offer("z1")])
    assert [o.usd_per_hour for o in asking.newest()] == [None]
    assert asking.version == 1


def test_nobody_waits_for_a_slow_cloud() -> None:
    gate = threading.Event()

    class Slow(Cloud):
        def quote(self, wanted: Offer) -> Offer:
            gate.wait(30)
            return super().quote(wanted)

    cloud = Slow({"z1": 2.0})
    asking = Quotes(cast("dict[str, Provider]", {"aws": cloud}), SystemClock(), every_s=0.0)
    asking.ask([offer("z1")])
    asking.ask([offer("z1")])  # a round at a time
    assert asking.newest() == ()
    gate.set()
    wait_for(asking.newest, "the answer")
    assert cloud.asked == ["z1"]


def plan(*, limit: int, also: tuple[Offer, ...] = (), quoted: tuple[Offer, ...] = ()) -> Plan:
    job = JobSpec(
        name="n",
        run="true",
        profile=ProfileRef(name="resnet-50"),
        work=Work(amount=1e6, unit="samples"),
        resources=Resources(clouds=("aws", "gcp", "azure")),
    )
    table = load()
    return plan_job(job, overlay(table, from_offers(quoted)) if quoted else table, limit=limit, also=also)


def test_the_best_of_every_cloud_are_asked() -> None:
    found = plan(limit=500)
    asked = deciding(found)
    clouds = [o.cloud for o in asked]
    assert {o.key for o in asked} >= {c.offer.key for c in found.candidates[:FIRST]}
    assert all(clouds.count(cloud) >= OF_EACH_CLOUD for cloud in ("aws", "gcp", "azure"))
    assert len(asked) <= FIRST + 3 * OF_EACH_CLOUD


def test_where_it_runs_is_among_the_candidates_however_dear() -> None:
    """Else nobody could say what staying costs, and a job would never leave a place that became dear."""
    ranking = plan(limit=500).candidates
    here = replace(ranking[3].offer, usd_per_hour=400.0)
    without = plan(limit=5, quoted=(here,))
    found = plan(limit=5, also=(here,), quoted=(here,))
    assert here.key not in {c.offer.key for c in without.candidates}
    assert [c for c in found.candidates if c.offer.key != here.key] == [
        *(c for c in without.candidates if c.offer.key != here.key)
    ]
    (mine, *_) = [c for c in found.candidates if c.offer.key == here.key]
    assert mine.rank > 5
    assert mine.usd is not None
    assert mine.offer.usd_per_hour == 400.0
