"""What a refusal bars, for how long, what is remembered of it, and what a person is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.harness import JOB, OFFERS, TIMING, Harness, offer, spec

from arylcloud.core import errors
from arylcloud.core import events as ev
from arylcloud.core.errors import AccessError, CapacityError, QuotaError
from arylcloud.core.offer import Market
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.launcher.fold import replay
from arylcloud.launcher.offers import LONGEST, bar_for, holds
from arylcloud.launcher.refusals import summary

HERE = offer()
SAME_ZONE_OTHER_TYPE = replace(HERE, instance_type="p3.8xlarge")
OTHER_ZONE = offer(zone="b")
OTHER_REGION = offer("us-west-2")
ON_DEMAND = replace(HERE, market=Market.ON_DEMAND)
OTHER_FAMILY = replace(HERE, instance_type="g5.xlarge")
OTHER_CLOUD = replace(HERE, cloud="gcp", instance_type="a2-highgpu-1g")
ALL = {
    "here": HERE,
    "type": SAME_ZONE_OTHER_TYPE,
    "zone": OTHER_ZONE,
    "region": OTHER_REGION,
    "market": ON_DEMAND,
    "family": OTHER_FAMILY,
    "cloud": OTHER_CLOUD,
}


@pytest.mark.parametrize(
    ("kind", "scope", "hit"),
    [
        ("capacity", None, {"here"}),
        ("capacity", "zone", {"here"}),
        ("capacity", "region", {"here", "zone"}),
        ("quota", None, {"here", "zone", "type"}),
        ("quota", "family", {"here", "zone", "type"}),
        ("quota", "market", {"here", "zone", "type", "family"}),
        ("quota", "account", {"here", "zone", "type", "family", "market", "region"}),
        ("access", None, {"here", "zone", "type", "family", "market", "region"}),
    ],
)
def test_what_a_scope_bars(kind: str, scope: errors.Scope | None, hit: set[str]) -> None:
    bar = bar_for(kind, HERE, 100.0, TIMING, scope=scope)
    assert bar is not None
    assert {name for name, o in ALL.items() if holds(bar, o)} == hit


def test_zones_that_the_cloud_names_are_spared() -> None:
    third = offer(zone="c")
    bar = bar_for("capacity", HERE, 0.0, TIMING, elsewhere=("us-east-1-c", "us-east-1-a"))
    assert bar is not None
    assert [holds(bar, o) for o in (HERE, OTHER_ZONE, third, OTHER_REGION)] == [True, True, False, False]
    assert "us-east-1-c" in bar.why


def test_each_time_twice_as_long_up_to_a_limit() -> None:
    base_s, now_s, lasted = TIMING.capacity_bar_market_s, 0.0, []
    bars: list[ev.OfferBarred] = []
    for _ in range(6):
        bar = bar_for("capacity", HERE, now_s, TIMING, before=bars)
        assert bar is not None
        lasted.append(bar.until_s - now_s)
        bars, now_s = [bar], bar.until_s + 1.0
    assert lasted == [base_s, 2 * base_s, 4 * base_s, LONGEST * base_s, LONGEST * base_s, LONGEST * base_s]
    calm_s = bars[0].until_s + LONGEST * base_s
    again = bar_for("capacity", HERE, calm_s, TIMING, before=bars)
    assert again is not None
    assert (again.times, again.until_s - calm_s) == (1, base_s)  # over for as long as it lasted
    other = bar_for("capacity", OTHER_ZONE, now_s, TIMING, before=bars)
    assert other is not None
    assert other.times == 1


def test_of_a_quota_waiting_changes_nothing() -> None:
    first = bar_for("quota", HERE, 0.0, TIMING)
    assert first is not None
    again = bar_for("quota", HERE, first.until_s, TIMING, before=[first])
    assert again is not None
    assert again.until_s - first.until_s == TIMING.quota_bar_market_s


def test_of_one_that_others_use_it_does() -> None:
    busy = bar_for("quota", HERE, 0.0, TIMING, in_use=True)
    assert busy is not None
    assert busy.until_s == TIMING.capacity_bar_market_s
    assert holds(busy, OTHER_ZONE)
    again = bar_for("quota", HERE, busy.until_s, TIMING, in_use=True, before=[busy])
    assert again is not None
    assert again.until_s - busy.until_s == 2 * TIMING.capacity_bar_market_s


# ---------------------------------------------------------------- through a launcher


def asked(h: Harness) -> list[str]:
    return [r.event.offer.key for r in h.journal.records(JOB) if isinstance(r.event, ev.LeaseIntended)]


def test_one_quota_error_is_not_asked_for_twice_over_a_region_and_is_named(tmp_path: Path) -> None:
    h = Harness(tmp_path, ranking=OFFERS[:2])
    hint = "ask for more: https://example.org/L-7212CCBC"
    error = QuotaError("aws us-east-1: quota L-7212CCBC allows 0 vCPUs", code="L-7212CCBC", hint=hint)
    h.world.says = {o.key: error for o in OFFERS}
    h.until(JobPhase.WAITING)
    assert asked(h) == [OFFERS[0].key]  # its sister in zone b is of the same quota
    assert h.state.phase_code == "quota"
    assert "spot p3.2xlarge in aws/us-east-1" in h.state.phase_text
    assert hint in h.state.phase_text


def test_a_wait_sums_up_what_was_tried(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    quota = QuotaError("no quota", code="L-7212CCBC", hint="ask for more: https://example.org/L-7212CCBC")
    full = CapacityError("nothing there", code="InsufficientInstanceCapacity")
    h.world.says = {o.key: full for o in OFFERS[:3]} | {OFFERS[3].key: quota}
    h.until(JobPhase.WAITING)
    assert asked(h) == [o.key for o in OFFERS]
    text = h.state.phase_text
    assert text.startswith("no capacity in 3 zones of aws (tried 00:16")
    assert "; quota: spot p3.2xlarge in aws/eu-west-1: ask for more: " in text
    assert replay(h.journal.records(h.state.job_id)).bars == h.state.bars  # a restart remembers
    h.tick(3)
    h.restart()
    assert len(asked(h)) == len(OFFERS)
    h.world.says.clear()
    h.until(JobPhase.RUNNING)
    assert summary(h.state) is None


def test_of_two_clouds_one_that_lets_us_do_nothing_ends_no_job(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    there = [replace(o, cloud="gcp") for o in OFFERS[:2]]
    h.ranking = (OFFERS[0], *there)
    h.launcher.executor.providers["gcp"] = h.world  # type: ignore[index]
    h.launcher.observer.providers["gcp"] = h.world  # type: ignore[index]
    plain = h._desire
    both = {"aws": h.world.capabilities(), "gcp": h.world.capabilities()}
    h.launcher.desire = lambda *args: replace(plain(*args), capabilities=both)
    denied = AccessError("aws: not authorized", code="UnauthorizedOperation", hint="arylcloud check")
    h.world.says = {OFFERS[0].key: denied}
    h.until(JobPhase.RUNNING)
    assert asked(h) == [OFFERS[0].key, there[0].key]
    assert h.state.open_leases[0].offer.cloud == "gcp"


def test_a_job_whose_clouds_all_shut_it_out_ends_with_what_helps(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    denied = AccessError("aws: not authorized", code="UnauthorizedOperation", hint="arylcloud check")
    h.world.says = {o.key: denied for o in OFFERS}
    h.until(JobPhase.FAILED)
    assert len(asked(h)) == 1
    assert h.state.phase_code == "access"
    assert "not authorized (arylcloud check)" in h.state.phase_text


def test_a_loss_cools_its_region_and_a_warning_too(tmp_path: Path) -> None:
    h = Harness(tmp_path, spec=spec(1))
    h.until(JobPhase.RUNNING)
    (lease,) = h.state.open_leases
    h.launcher.executor.note(h.state, ev.RiskSeen(lease_id=lease.lease_id))
    h.state = h.launcher.refold()
    assert h.state.leases[lease.lease_id].at_risk
    assert h.state.leases[lease.lease_id].phase is LeasePhase.READY
    assert [region for _, region in h.state.cooling] == ["aws/us-east-1"]
    h.world.full = set()
    h.world.interrupt(h.running[0].instance_id)
    h.until(JobPhase.RECOVERING, JobPhase.PROVISIONING)
    h.until(JobPhase.RUNNING)
    assert h.state.open_leases[-1].offer.region != "us-east-1"
