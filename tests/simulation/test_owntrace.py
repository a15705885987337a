"""A home's own history as a trace: what was asked, and what was answered."""

from __future__ import annotations

import dataclasses

import pytest

from arylcloud.core import events as ev
from arylcloud.core.errors import UsageError
from arylcloud.core.job import JobSpec
from arylcloud.core.offer import Market, Offer
from arylcloud.simulation.owntrace import looks, own_trace

HERE = Offer(
    cloud="aws", region="us-east-1", zone="use1-az1", instance_type="p3.2xlarge", gpu="V100", gpu_count=1,
    gpu_mem_gib=16.0, vcpus=8.0, mem_gib=61.0, market=Market.SPOT, usd_per_hour=1.0, as_of=None, source="x",
)  # fmt: skip
THERE = dataclasses.replace(HERE, zone="use1-az2", usd_per_hour=1.2)


def intended(lease_id: str, offer: Offer) -> ev.LeaseIntended:
    return ev.LeaseIntended(
        lease_id=lease_id, token="t", offer=offer, index=0, attempt=1, purpose="start", until_s=1e9, why="",
    )  # fmt: skip


def created(lease_id: str, launched_s: float, usd: float) -> ev.LeaseCreated:
    return ev.LeaseCreated(
        lease_id=lease_id, instance_id=f"i-{lease_id}", launched_s=launched_s, usd_per_hour=usd, address=None
    )


def history() -> list[tuple[str, float, ev.Event]]:
    """Ten times as fast as the wall, from 1,000 s on."""
    spec = JobSpec(name="j", run="true")
    refused = ev.LeaseRefused(lease_id="c", kind="capacity", code="InsufficientInstanceCapacity", message="")
    submitted = ev.JobSubmitted(
        spec=spec, prefix_uri="", journal_id="", market_origin_s=1000.0, market_scale=10.0
    )
    return [
        ("j", 1000.0, submitted),
        ("j", 1000.0, intended("a", HERE)),
        ("j", 1001.0, created("a", 1010.0, 1.1)),
        ("j", 1100.0, ev.LeasePriced(lease_id="a", from_s=1600.0, usd_per_hour=1.3)),
        ("j", 1200.0, ev.LeaseReleased(lease_id="a", ended_s=3000.0, cause="interrupted")),
        ("j", 1201.0, intended("c", HERE)),
        ("j", 1201.0, refused),
        ("j", 1202.0, intended("b", THERE)),
        ("j", 1203.0, created("b", 3030.0, 1.2)),
        ("j", 1300.0, ev.LeaseReleased(lease_id="b", ended_s=4000.0, cause="terminated")),
    ]  # fmt: skip


def test_each_zone_as_it_was_seen() -> None:
    trace = own_trace(looks(history()), until_s=5000.0, listed=lambda _: 3.06)
    assert trace.places == ("aws/us-east-1/use1-az1", "aws/us-east-1/use1-az2")
    assert (trace.instance_type, trace.gpu, trace.gpu_count) == ("p3.2xlarge", "V100", 1)
    one, two = trace.zones
    assert one.offset_s.tolist() == [0.0, 10.0, 600.0, 2000.0, 2010.0]
    assert one.available.tolist() == [1, 1, 1, 0, 0]
    assert one.spot_usd_per_hour.tolist() == [1.0, 1.1, 1.3, 1.3, 1.0]
    assert two.available.tolist()[-1] == 1, "our own end of a machine says nothing against the zone"
    assert set(two.on_demand_usd_per_hour.tolist()) == {3.06}
    assert trace.span_s == 4000.0


def test_what_is_not_known_is_not_made_up() -> None:
    with pytest.raises(UsageError, match="no spot capacity yet"):
        own_trace((), until_s=1.0, listed=lambda _: 1.0)
    with pytest.raises(UsageError, match=r"no spot capacity of g5\.xlarge") as caught:
        own_trace(looks(history()), until_s=5000.0, listed=lambda _: 3.06, kind="g5.xlarge")
    assert "p3.2xlarge" in (caught.value.hint or "")
    with pytest.raises(UsageError, match="no on-demand price"):
        own_trace(looks(history()), until_s=5000.0, listed=lambda _: None)


def test_zones_left_out_are_told_of_and_prices_from_elsewhere_are_said_to_be() -> None:
    far = dataclasses.replace(THERE, region="eu-west-1", zone="euw1-az1")
    dark = dataclasses.replace(HERE, zone="use1-az9")
    records = [
        *history(),
        ("j", 1301.0, intended("d", far)),
        ("j", 1302.0, created("d", 4020.0, 1.2)),
        ("j", 1303.0, intended("e", dark)),  # never answered: whether there was capacity is not known
    ]

    def listed(offer: Offer) -> float | None:
        return 3.06 if offer.region == "us-east-1" else None

    seen = "aws/us-east-1/use1-az9 is left out: no spot capacity of p3.2xlarge was seen there"
    without = own_trace(looks(records), until_s=5000.0, listed=listed)
    assert without.places == ("aws/us-east-1/use1-az1", "aws/us-east-1/use1-az2")
    assert without.notes == (
        "aws/eu-west-1/euw1-az1 is left out: no on-demand price of p3.2xlarge is known there or elsewhere",
        seen,
    )
    filled = own_trace(looks(records), until_s=5000.0, listed=listed, elsewhere=lambda _: 3.5)
    assert len(filled.places) == 3
    assert set(filled.zones[0].on_demand_usd_per_hour.tolist()) == {3.5}
    assert "taken at $3.5/h, the highest known in other regions" in filled.notes[0]
    assert filled.notes[1:] == (seen,)


def test_other_refusals_are_no_word_on_capacity() -> None:
    records = [r for r in history() if not isinstance(r[2], ev.LeaseReleased)]
    quota = [
        (job, at, dataclasses.replace(e, kind="quota") if isinstance(e, ev.LeaseRefused) else e)
        for job, at, e in records
    ]
    assert all(look.up is not False for look in looks(quota))
