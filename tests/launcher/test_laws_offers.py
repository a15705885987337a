"""Which offers may be tried now, at the bounds of bars and cool-downs; and what a refusal bars."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.harness import OFFERS, TIMING

from arylcloud.core.events import OfferBarred
from arylcloud.launcher import offers
from arylcloud.launcher.actions import Timing
from arylcloud.launcher.offers import acceptable, bar_for, bar_offer, barred, covers, family, holds, why_none

HERE, NEXT, WEST, EU = OFFERS
NOW_S = 10_000.0
CAPACITY_S, QUOTA_S = TIMING.capacity_bar_market_s, TIMING.quota_bar_market_s


def bar(scope: str, until_s: float = NOW_S + 1.0, code: str = "capacity", **more: object) -> OfferBarred:
    return replace(OfferBarred(scope=scope, until_s=until_s, code=code, why="none"), **more)  # type: ignore[arg-type]


# ---------------------------------------------------------------- scopes


@pytest.mark.parametrize(
    ("scope", "covered"),
    [
        ("aws", True),
        ("aw", False),
        ("gcp", False),
        ("aws/us-east-1", True),
        ("aws/us-east", False),
        (HERE.place, True),
        (f"{HERE.place}x", False),
        (HERE.key, True),
        ("aws:p3.*", True),
        ("aws:p3.2xlarge", True),
        ("aws:p4.*", False),
        ("aws::spot", True),
        ("aws::on_demand", False),
        ("aws:p3.*:on_demand", False),
        ("aws:p3.*:spot", True),
    ],
)
def test_what_a_scope_speaks_of(scope: str, covered: bool) -> None:
    assert covers(scope, HERE) is covered


def test_spared_zones_are_not_barred() -> None:
    one = bar("aws/us-east-1", spared=(NEXT.zone,))
    assert holds(one, HERE)
    assert not holds(one, NEXT)
    assert not holds(bar("gcp", spared=(NEXT.zone,)), HERE)


def test_of_several_the_one_that_ends_last() -> None:
    first, last = bar("aws", NOW_S + 1.0), bar(HERE.key, NOW_S + 2.0)
    assert barred(HERE, [first, last], NOW_S) is last
    assert barred(HERE, [last, first], NOW_S) is last
    assert barred(HERE, [bar("aws", NOW_S)], NOW_S) is None, "it has ended"
    assert barred(HERE, [bar("gcp", NOW_S + 9.0)], NOW_S) is None


# ---------------------------------------------------------------- what may be tried


def test_cooling_regions_last_and_only_where_nothing_else_is_left() -> None:
    cool = [(NOW_S - TIMING.region_cooldown_market_s + 0.1, "aws/us-east-1")]
    assert acceptable(OFFERS, [], cool, NOW_S, TIMING) == (WEST, EU)
    assert acceptable((HERE, NEXT), [], cool, NOW_S, TIMING) == (HERE, NEXT)
    over = [(NOW_S - TIMING.region_cooldown_market_s, "aws/us-east-1")]
    assert acceptable(OFFERS, [], over, NOW_S, TIMING) == OFFERS
    assert acceptable(OFFERS, [bar("aws")], cool, NOW_S, TIMING) == ()
    assert acceptable(OFFERS, [bar(WEST.key), bar(EU.key)], cool, NOW_S, TIMING) == (HERE, NEXT)


def test_a_throttled_cloud_is_no_reason_to_go_elsewhere() -> None:
    assert acceptable(OFFERS, [bar("aws/us-east-1", code="throttled")], [], NOW_S, TIMING) == OFFERS
    assert acceptable(OFFERS, [bar("aws/us-east-1")], [], NOW_S, TIMING) == (WEST, EU)


def test_why_nothing_can_be_had() -> None:
    code, text = why_none(OFFERS, [bar(HERE.key, code="quota"), bar(WEST.key), bar(EU.key)], NOW_S)
    assert code == "capacity"
    assert "(capacity 2, quota 1)" in text
    assert why_none(OFFERS, [], NOW_S)[0] == "no_offer"
    assert why_none(OFFERS, [bar("aws", NOW_S)], NOW_S)[0] == "no_offer"


# ---------------------------------------------------------------- what a refusal bars


@pytest.mark.parametrize("kind", ["usage", "missing_extra", "infeasible", "local_state", "store"])
def test_what_is_the_same_everywhere_bars_nothing(kind: str) -> None:
    assert bar_for(kind, HERE, NOW_S, TIMING) is None


@pytest.mark.parametrize(
    ("kind", "scope", "barred_scope", "lasts_s"),
    [
        ("throttled", None, "aws/us-east-1", offers.THROTTLE_MARKET_S),
        ("throttled", "zone", "aws/us-east-1", offers.THROTTLE_MARKET_S),
        ("capacity", None, HERE.key, CAPACITY_S),
        ("other", None, HERE.key, CAPACITY_S),
        ("capacity", "region", "aws/us-east-1:p3.2xlarge:spot", CAPACITY_S),
        ("capacity", "family", "aws/us-east-1:p*:spot", CAPACITY_S),
        ("capacity", "market", "aws/us-east-1::spot", CAPACITY_S),
        ("capacity", "account", "aws", CAPACITY_S),
        ("access", None, "aws", CAPACITY_S),
        ("quota", None, "aws/us-east-1:p*:spot", QUOTA_S),
        ("quota", "zone", HERE.key, QUOTA_S),
    ],
)
def test_by_what_it_speaks_of(kind: str, scope: str | None, barred_scope: str, lasts_s: float) -> None:
    found = bar_for(kind, HERE, NOW_S, TIMING, scope=scope)  # type: ignore[arg-type]
    assert found is not None
    assert (found.scope, found.code, found.until_s) == (barred_scope, kind, NOW_S + lasts_s)
    assert (found.times, found.spared) == (1, ())
    assert holds(found, HERE)
    assert ("no quota for" in found.why) is (kind == "quota")


def test_zones_that_the_cloud_names_instead_are_spared() -> None:
    named = (HERE.zone or "", NEXT.zone or "")
    found = bar_for("capacity", HERE, NOW_S, TIMING, elsewhere=named)
    assert found is not None
    assert found.scope == "aws/us-east-1:p3.2xlarge:spot"
    assert found.spared == (NEXT.zone,), "not the one that has just said no"
    assert f"its cloud names {named[0]}, {named[1]}" in found.why
    wide = bar_for("capacity", HERE, NOW_S, TIMING, elsewhere=named, scope="account")
    assert wide is not None
    assert wide.scope == "aws"


def test_again_is_twice_as_long_up_to_a_limit() -> None:
    before: list[OfferBarred] = []
    lasted = []
    for _ in range(5):
        found = bar_for("capacity", HERE, NOW_S, TIMING, before=before)
        assert found is not None
        lasted.append((found.times, found.until_s - NOW_S))
        before = [found]
    times = [1.0, 2.0, 4.0, offers.LONGEST, offers.LONGEST]
    assert lasted == [(i + 1, CAPACITY_S * x) for i, x in enumerate(times)]
    assert Timing().capacity_bar_market_s * offers.LONGEST == 3600.0, "an hour, as the docs say"
    long = bar_for("capacity", HERE, NOW_S, TIMING, before=[bar(HERE.key, times=5000)])
    assert long is not None
    assert long.until_s - NOW_S == CAPACITY_S * offers.LONGEST


@pytest.mark.parametrize(
    ("ended_s_ago", "times", "again"),
    [
        (CAPACITY_S - 0.1, 1, True),
        (CAPACITY_S, 1, False),
        (2 * CAPACITY_S - 0.1, 2, True),
        (2 * CAPACITY_S, 2, False),
    ],
)
def test_one_that_is_over_for_as_long_as_it_lasted_is_forgotten(
    ended_s_ago: float, times: int, again: bool
) -> None:
    before = [bar(HERE.key, NOW_S - ended_s_ago, times=times)]
    found = bar_for("capacity", HERE, NOW_S, TIMING, before=before)
    assert found is not None
    assert found.times == (times + 1 if again else 1)
    for other in (replace(before[0], scope=NEXT.key), replace(before[0], code="other")):
        found = bar_for("capacity", HERE, NOW_S, TIMING, before=[other])
        assert found is not None
        assert found.times == 1
    several = [bar(HERE.key, times=3), bar(HERE.key, times=1)]
    found = bar_for("capacity", HERE, NOW_S, TIMING, before=several)
    assert found is not None
    assert found.times == 4


def test_a_quota_is_not_raised_by_waiting_unless_others_use_it() -> None:
    before = [bar("aws/us-east-1:p*:spot", code="quota", times=2)]
    for in_use, lasts_s, times in ((False, QUOTA_S, 1), (True, CAPACITY_S * 4, 3)):
        found = bar_for("quota", HERE, NOW_S, TIMING, in_use=in_use, before=before)
        assert found is not None
        assert (found.until_s - NOW_S, found.times) == (lasts_s, times)
    full = bar_for("capacity", HERE, NOW_S, TIMING, in_use=False)
    assert full is not None
    assert full.until_s - NOW_S == CAPACITY_S


def test_a_machine_that_was_no_good_bars_its_own_offer() -> None:
    found = bar_offer(HERE, "broken", "no disk", NOW_S, TIMING, [])
    assert (found.scope, found.code, found.why) == (HERE.key, "broken", "no disk")
    assert found.until_s == NOW_S + CAPACITY_S
    assert bar_offer(HERE, "broken", "no disk", NOW_S, TIMING, [found]).times == 2


@pytest.mark.parametrize(
    ("cloud", "kind", "pattern"),
    [
        ("aws", "p3.2xlarge", "p*"),
        ("aws", "g5.xlarge", "[gv]*"),
        ("aws", "vt1.3xlarge", "[gv]*"),
        ("aws", "inf2.xlarge", "inf*"),
        ("aws", "trn1.2xlarge", "trn*"),
        ("aws", "pg2.large", "p*"),
        ("gcp", "a2-highgpu-1g", "a2-highgpu-*"),
        ("azure", "Standard_NC24ads_A100_v4", "Standard_NC*ads_A100_v4"),
    ],
)
def test_families(cloud: str, kind: str, pattern: str) -> None:
    assert family(replace(HERE, cloud=cloud, instance_type=kind)) == pattern
