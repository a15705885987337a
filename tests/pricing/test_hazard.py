"""Losses per hour: assumed lives by band, each cloud's its own, and own history over them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.offers import offer

from arylcloud.core.errors import IntegrityError
from arylcloud.core.offer import Market
from arylcloud.pricing.catalogue import load_bundled
from arylcloud.pricing.hazard import (
    OwnHistory,
    SpotAdvisor,
    bundled_advisor,
    hazard_per_hour,
    read_advisor,
)
from arylcloud.pricing.ownrates import adverse
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
        recent_hours=40.0,
        recent_losses=20.0,
    )
    for quantile, factor in (("mean", 1.0), ("p90", 3.0)):
        hazards = hazard_per_hour(table, quantile, advisor=both, history=[own])
        assumed = {0: 48.0, 1: 12.0, 2: 12.0, 3: 4.0, 5: 6.0}  # 5: as bad as its neighbour can make it
        for i, life_h in assumed.items():
            assert hazards.per_hour[i] == pytest.approx(factor / life_h)
        theta = (2 + 20) / (2 + 40 / 12)
        p90 = 1.0 if quantile == "mean" else adverse(20, 3.0)
        assert hazards.per_hour[4] == pytest.approx(theta / 12 * p90)
        assert hazards.source_of(0) == "assumed: Spot Advisor band <5% (2025-06-28), mean life 48 h"
        assert hazards.source_of(3) == "assumed: Azure eviction rate >20% (2026-11-30), mean life 4 h"
        assert hazards.source_of(4) == "own: 20 losses in 40 h in us-east-1; before: no band, mean life 12 h"
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


def test_a_file_with_unknown_bands_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bands.json"
    path.write_text(json.dumps({"schema_version": 1, "as_of": "x", "bands": {"50%": {}}}))
    with pytest.raises(IntegrityError):
        read_advisor(path)
