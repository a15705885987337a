"""The update of assumed hazards by own machines: what must hold of it, and that it finds known rates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.offers import QUICK, offer

from arylcloud.core.offer import Market
from arylcloud.pricing.hazard import OwnHistory, SpotAdvisor, hazard_per_hour
from arylcloud.pricing.ownrates import CLOUD_BOUND, WEIGHT, Kind, Tally, adverse, factors
from arylcloud.pricing.table import from_offers

KIND: Kind = ("aws", "us-east-1", "p3.2xlarge")
OTHER: Kind = ("aws", "us-west-2", "g5.xlarge")
ADVISOR = SpotAdvisor(as_of="2025-06-28", bands={("us-east-1", "p3.2xlarge"): "<5%"})


def tally(losses: int, expected: float) -> Tally:
    return Tally(losses=losses, expected=expected)


tallies = st.builds(tally, st.integers(0, 200), st.floats(0.001, 200))
zonal = st.dictionaries(st.sampled_from("abcd"), tallies, max_size=4)


def whole(zones: dict[str, Tally]) -> Tally:
    return Tally(
        losses=sum(one.losses for one in zones.values()),
        expected=sum(one.expected for one in zones.values()),
    )


def test_one_lucky_hour_does_not_make_a_market_safe() -> None:
    found = factors({KIND: tally(0, 1 / 12)}, {})
    assert found.kind[KIND] == pytest.approx(WEIGHT / (WEIGHT + 1 / 12))
    assert found.kind[KIND] > 0.95


def test_a_zone_beside_its_siblings_by_hand() -> None:
    zones = {(KIND, "a"): tally(6, 2.0), (KIND, "b"): tally(0, 4.0)}
    found = factors({KIND: tally(6, 6.0)}, zones)
    # zone a: b's 4 expected losses count for 2 · 4 / (2 + 4) = 4/3; then its own 6 of 2
    assert found.zone[KIND, "a"] == pytest.approx((2 * 2 / (2 + 4 / 3) + 6) / (2 + 2))
    assert found.zone[KIND, "b"] == pytest.approx((2 * (2 + 6 / 2) / (2 + 1) + 0) / (2 + 4))
    assert found.kind[KIND] == pytest.approx(1.0)
    assert found.cloud == {"aws": pytest.approx(1.0)}


@QUICK
@given(zonal, st.dictionaries(st.sampled_from([OTHER, ("gcp", "x", "y")]), tallies, max_size=2))
def test_factors_are_positive_and_what_was_seen_pulls_the_right_way(
    zones: dict[str, Tally], others: dict[Kind, Tally]
) -> None:
    kinds = dict(others) | ({KIND: whole(zones)} if zones else {})
    found = factors(kinds, {(KIND, zone): one for zone, one in zones.items()})
    for theta in (*found.cloud.values(), *found.kind.values(), *found.zone.values()):
        assert 0 < theta < np.inf
    for theta in found.cloud.values():
        assert 1 / CLOUD_BOUND <= theta <= CLOUD_BOUND
    if not zones:
        return
    first = sorted(zones)[0]
    more = {**zones, first: tally(zones[first].losses + 1, zones[first].expected)}
    again = factors({**kinds, KIND: whole(more)}, {(KIND, zone): one for zone, one in more.items()})
    assert again.kind[KIND] > found.kind[KIND]
    for zone in zones:  # a loss anywhere in the region makes no zone of it look safer
        assert again.zone[KIND, zone] >= found.zone[KIND, zone] - 1e-9
    longer = {**zones, first: tally(zones[first].losses, zones[first].expected + 1)}
    safer = factors({**kinds, KIND: whole(longer)}, {(KIND, zone): one for zone, one in longer.items()})
    assert safer.zone[KIND, first] < found.zone[KIND, first] + 1e-9


@QUICK
@given(st.integers(0, 50), st.floats(0.01, 50))
def test_many_hours_leave_nothing_of_what_was_assumed(losses: int, expected: float) -> None:
    many = factors({KIND: tally(losses * 10**6, expected * 10**6)}, {})
    assert many.kind[KIND] == pytest.approx(losses / expected, rel=1e-2, abs=1e-2)
    assert 1 < adverse(losses * 10**6, 3.0) <= 3.0


def own(zone: str | None, hours: float, losses: int, kind: Kind = KIND) -> OwnHistory:
    cloud, region, name = kind
    return OwnHistory(
        cloud=cloud, region=region, zone=zone, instance_type=name,
        hours=hours, losses=losses, recent_hours=hours, recent_losses=losses,
    )  # fmt: skip


def test_every_row_says_what_it_goes_by() -> None:
    def spot(**changes: object) -> object:
        return offer(market=Market.SPOT, **changes)

    rows = [spot(zone="a"), spot(zone="b"), spot(), spot(region="us-west-2"), spot(cloud="gcp"), offer()]
    table = from_offers(rows)  # type: ignore[arg-type]
    plain = hazard_per_hour(table, advisor=ADVISOR)
    history = [own(None, 90.0, 5), own("a", 41.0, 3)]
    found = hazard_per_hour(table, advisor=ADVISOR, history=history)
    band = "Spot Advisor band <5% (2025-06-28), mean life 48 h"
    region = f"own: 5 losses in 90 h in us-east-1; before: {band}"
    assert [found.source_of(i) for i in range(len(rows))] == [
        f"own: 3 losses in 41 h in a, 5 losses in 90 h in us-east-1; before: {band}",
        region,
        region,
        "own: 5 losses in 90 h of other machines at aws; before: no band, mean life 12 h",
        "assumed: no band, mean life 12 h",
        "not interrupted by the cloud (on demand or reserved)",
    ]
    theta = factors({KIND: Tally(losses=5, expected=90 / 48)}, {})
    assert found.per_hour[1] == pytest.approx(theta.kind[KIND] / 48)
    assert found.per_hour[3] == pytest.approx(theta.cloud["aws"] / 12)
    assert found.per_hour[4:].tolist() == plain.per_hour[4:].tolist()
    worst = hazard_per_hour(table, "p90", advisor=ADVISOR, history=history)
    ratio = worst.per_hour[:5] / found.per_hour[:5]
    assert ratio.tolist() == pytest.approx([adverse(5, 3.0)] * 3 + [3.0] * 2)
    assert found.adverse[found.source[:5]].tolist() == pytest.approx(ratio.tolist())
    mixed = hazard_per_hour(table, advisor=ADVISOR, history=history[::-1])
    assert (mixed.per_hour.tolist(), mixed.sources) == (found.per_hour.tolist(), found.sources)


def test_quiet_hours_make_a_place_likelier_to_last_but_never_certain() -> None:
    table = from_offers([offer(market=Market.SPOT)])
    rates = [
        float(hazard_per_hour(table, advisor=ADVISOR, history=[own(None, hours, 0)]).per_hour[0])
        for hours in (1.0, 10.0, 100.0, 1000.0, 1e5)
    ]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 0.95 / 48
    assert rates[-1] > 0
    assert "own: no losses in 1 h" in hazard_per_hour(
        table, advisor=ADVISOR, history=[own(None, 1, 0)]
    ).source_of(0)


def test_known_rates_are_predicted_better_with_history_than_without() -> None:
    """Zones with rates of their own around a wrong band: log-loss of the next 100 h in each."""
    generator = np.random.default_rng(5)
    gain = []
    for _ in range(60):
        level = generator.gamma(1.0, 1.0) + 0.05
        true = level * generator.gamma(3.0, 1 / 3.0, size=4) / 12
        hours = generator.exponential(30.0, size=4) + 1
        losses = generator.poisson(true * hours)
        kinds = {KIND: Tally(losses=int(losses.sum()), expected=hours.sum() / 12)}
        zones = {
            (KIND, str(i)): Tally(losses=int(n), expected=h / 12)
            for i, (h, n) in enumerate(zip(hours, losses, strict=True))
        }
        found = factors(kinds, zones)
        for i, rate in enumerate(true):
            theta = found.zone[KIND, str(i)]
            # expected log-likelihood of a Poisson process: rate · log(said) − said, per hour
            gain.append(rate * np.log(theta) - (theta - 1) / 12)
    assert np.mean(gain) > 0.02
    assert np.mean(np.array(gain) > 0) > 0.7
