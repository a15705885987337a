"""Losses per hour: assumed lives by band, own history where there is enough of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.offers import QUICK, offer

from arylcloud.core.errors import IntegrityError
from arylcloud.core.offer import Market
from arylcloud.pricing.catalogue import load_bundled
from arylcloud.pricing.hazard import (
    OwnHistory,
    SpotAdvisor,
    bundled_advisor,
    hazard_per_hour,
    nelson_aalen,
    read_advisor,
)
from arylcloud.pricing.table import from_offers

BANDS = {"<5%": 48.0, "5-10%": 24.0, "10-15%": 12.0, "15-20%": 8.0, ">20%": 4.0}


@pytest.mark.parametrize(("band", "life_h"), BANDS.items())
def test_spot_lives_as_its_band_says_and_a_third_of_it_at_p90(band: str, life_h: float) -> None:
    table = from_offers([offer(market=Market.SPOT, zone="use1-az1"), offer()])
    advisor = SpotAdvisor(as_of="2025-06-28", bands={("us-east-1", "p3.2xlarge"): band})
    hazards = hazard_per_hour(table, advisor=advisor)
    assert hazards.per_hour.tolist() == [pytest.approx(1 / life_h), 0.0]
    assert hazards.source_of(0).startswith(f"assumed: Spot Advisor band {band} (2025-06-28)")
    p90 = hazard_per_hour(table, "p90", advisor=advisor)
    assert p90.per_hour.tolist() == [pytest.approx(3 / life_h), 0.0]


def test_without_a_band_twelve_hours_are_assumed_and_other_clouds_have_none() -> None:
    advisor = SpotAdvisor(as_of="x", bands={("us-east-1", "p3.2xlarge"): "<5%"})
    table = from_offers(
        [
            offer(market=Market.SPOT, region="us-east-2"),
            offer(market=Market.SPOT, cloud="gcp"),
            offer(market=Market.RESERVED),
        ]
    )
    hazards = hazard_per_hour(table, advisor=advisor)
    assert hazards.per_hour.tolist() == [pytest.approx(1 / 12), pytest.approx(1 / 12), 0.0]
    assert "no band" in hazards.source_of(0)
    assert "not interrupted" in hazards.source_of(2)


def test_each_cloud_has_its_own_bands() -> None:
    names = ("p3.2xlarge", "Standard_NC6s_v3")
    table = from_offers(
        [
            offer(market=Market.SPOT, cloud=cloud, instance_type=name)
            for cloud in ("aws", "azure", "gcp")
            for name in names
        ]
    )
    # the same region and names everywhere: only the cloud tells whose they are
    azure = SpotAdvisor(as_of="2026-11-30", cloud="azure", bands={("us-east-1", names[1]): ">20%"})
    both = SpotAdvisor(as_of="2025-06-28", bands={("us-east-1", names[0]): "<5%"}, also=(azure,))
    own = OwnHistory(
        cloud="gcp",
        region="us-east-1",
        zone=None,
        instance_type=names[0],
        hours=40.0,
        losses=20,
        estimate=nelson_aalen(np.full(20, 2.0), np.ones(20, dtype=bool)),
    )
    for quantile, factor in (("mean", 1.0), ("p90", 3.0)):
        hazards = hazard_per_hour(table, quantile, advisor=both, history=[own])
        assumed = {0: 48.0, 1: 12.0, 2: 12.0, 3: 4.0, 5: 6.0}  # 5: as bad as its neighbour can make it
        for i, life_h in assumed.items():
            assert hazards.per_hour[i] == pytest.approx(factor / life_h)
        assert hazards.source_of(0) == "assumed: Spot Advisor band <5% (2025-06-28), mean life 48 h"
        assert hazards.source_of(3) == "assumed: Azure eviction rate >20% (2026-11-30), mean life 4 h"
        assert hazards.source_of(4) == "own history: 20 losses, Nelson–Aalen"
        assert hazards.adverse[hazards.source[3]] == pytest.approx(3.0)


def test_bundled_rows_have_the_hazard_of_their_own_band() -> None:
    table, advisor = load_bundled(), bundled_advisor()
    hazards = hazard_per_hour(table)
    for i, row in enumerate(table.offers()):
        band = advisor.bands.get((row.region, row.instance_type)) if row.cloud == "aws" else None
        life_h = BANDS[band] if band else 12.0
        expected = 1 / life_h if row.market is Market.SPOT else 0.0
        assert hazards.per_hour[i] == pytest.approx(expected), row.key
    assert len(advisor.bands) == 682


def test_own_history_goes_first_and_a_zones_before_its_regions() -> None:
    spot = [offer(market=Market.SPOT, zone=zone) for zone in ("a", "b")]
    table = from_offers([*spot, offer(), offer(market=Market.SPOT, region="us-east-2")])

    def own(zone: str | None, life_h: float, losses: int) -> OwnHistory:
        lives = np.full(losses, life_h)
        return OwnHistory(
            cloud="aws",
            region="us-east-1",
            zone=zone,
            instance_type="p3.2xlarge",
            hours=float(lives.sum()),
            losses=losses,
            estimate=nelson_aalen(lives, np.ones(losses, dtype=bool)),
        )

    assumed = hazard_per_hour(table).per_hour
    hazards = hazard_per_hour(table, history=[own("b", 2.0, 25), own(None, 5.0, 20)])
    assert hazards.per_hour[:3].tolist() == [pytest.approx(1 / 5), pytest.approx(1 / 2), 0.0]
    assert hazards.source_of(1) == "own history: 25 losses, Nelson–Aalen"
    # the other region is of the same cloud: it is corrected by what was seen there, by no more than twice
    assert assumed[3] / 2 <= hazards.per_hour[3] <= 2 * assumed[3]
    assert hazards.per_hour[3] != assumed[3]


def test_nelson_aalen_by_hand() -> None:
    estimate = nelson_aalen(np.array([1.0, 2.0, 2.0, 3.0, 5.0]), np.array([True, True, False, False, True]))
    assert estimate.times_h.tolist() == [1.0, 2.0, 5.0]
    assert estimate.at_risk.tolist() == [5, 4, 1]
    assert estimate.cumulative.tolist() == pytest.approx([1 / 5, 1 / 5 + 1 / 4, 1 / 5 + 1 / 4 + 1])
    assert estimate.variance.tolist() == pytest.approx([1 / 25, 1 / 25 + 1 / 16, 1 / 25 + 1 / 16 + 1])
    assert estimate.losses == 3


def test_nelson_aalen_finds_a_constant_rate_under_censoring() -> None:
    generator = np.random.default_rng(7)
    lives, watched = generator.exponential(8.0, 4000), generator.uniform(0, 24, 4000)
    estimate = nelson_aalen(np.minimum(lives, watched), lives <= watched)
    assert estimate.per_hour() == pytest.approx(1 / 8, rel=0.06)
    assert estimate.per_hour("p90") > estimate.per_hour()


@QUICK
@given(
    st.lists(st.tuples(st.floats(0.01, 100), st.booleans()), min_size=1, max_size=40).filter(
        lambda rows: any(lost for _, lost in rows)
    )
)
def test_cumulative_hazard_rises_and_order_does_not_matter(rows: list[tuple[float, bool]]) -> None:
    lives, lost = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    estimate = nelson_aalen(lives, lost)
    assert (np.diff(estimate.cumulative) > 0).all()
    assert estimate.cumulative.tolist() == nelson_aalen(lives[::-1], lost[::-1]).cumulative.tolist()
    assert 0 < estimate.per_hour() <= estimate.per_hour("p90")


@pytest.mark.parametrize(
    ("lives", "lost"), [([1.0], [False]), ([0.0], [True]), ([np.inf], [True]), ([1.0, 2.0], [True])]
)
def test_what_cannot_be_estimated_is_refused(lives: list[float], lost: list[bool]) -> None:
    with pytest.raises(ValueError):
        nelson_aalen(np.array(lives), np.array(lost))


def test_a_file_with_unknown_bands_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bands.json"
    path.write_text(json.dumps({"schema_version": 1, "as_of": "x", "bands": {"50%": {}}}))
    with pytest.raises(IntegrityError):
        read_advisor(path)
