"""What moving and keeping bytes costs; what nobody says is unknown, never free."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from arylcloud.pricing.catalogue import load_bundled
from arylcloud.pricing.tariffs import Tariffs, load_tariffs


@pytest.fixture(scope="module")
def tariffs() -> Tariffs:
    return load_tariffs()


@pytest.mark.parametrize(
    ("source", "target", "usd", "says"),
    [
        ("aws/us-east-1/use1-az4", "aws/us-east-1", 0.0, "own region"),
        ("aws/us-east-1", "aws/us-east-2", 0.01, ""),
        ("aws/us-east-1/use1-az4", "aws/us-west-2/usw2-az1", 0.02, ""),
        ("aws/us-east-1", "gcp/us-central1", 0.09, "first paid tier"),
        ("aws/eu-west-1", "internet", 0.09, "us-east-1's tariff stands for eu-west-1"),
        ("aws/ap-south-1", "internet", None, "no egress tariff of aws/ap-south-1"),
        ("gcp/us-central1", "azure/eastus", 0.12, "free allowance left out"),
        ("gcp/us-central1", "gcp/us-east1", 0.02, "every pair of US regions"),
        ("gcp/us-central1", "gcp/europe-west4", 0.12, "upper bound"),
        ("gcp/asia-east1", "gcp/us-central1", None, "no tariff between"),
        ("azure/eastus", "azure/westus2", 0.02, "every pair of US regions"),
        ("azure/eastus", "aws/us-east-1", 0.087, "to 10 TB"),
        ("azure/australiaeast", "azure/eastus", None, "no tariff between"),
        ("azure/austriaeast", "internet", 0.087, "stands for austriaeast"),
        ("oci/us-ashburn-1", "internet", None, "no egress tariff of oci"),
        ("local", "aws/us-east-1", 0.0, ""),
        ("internet", "aws/us-east-1", 0.0, ""),
    ],
)
def test_egress(tariffs: Tariffs, source: str, target: str, usd: float | None, says: str) -> None:
    tariff = tariffs.egress(source, target)
    assert tariff.usd == usd
    assert says in tariff.assumption
    assert tariff.source
    assert tariff.unit == "GB"


@pytest.mark.parametrize(
    ("cloud", "storage", "disk"),
    [
        ("aws", 0.023, 0.08),
        ("azure", 0.018, 0.075),
        ("gcp", 0.02, 0.1),
        ("local", 0.0, 0.0),
        ("oci", None, None),
    ],
)
def test_storage_and_disks(tariffs: Tariffs, cloud: str, storage: float | None, disk: float | None) -> None:
    for tariff, usd in ((tariffs.storage(cloud), storage), (tariffs.disk(cloud), disk)):
        assert tariff.usd == usd
        assert tariff.unit == "GB-month"
        assert tariff.as_of is not None or usd in (None, 0.0)


def test_no_pair_of_places_in_the_catalogue_is_silently_free() -> None:
    tariffs = load_tariffs()
    table = load_bundled()
    places = sorted({f"{o.cloud}/{o.region}" for o in table.offers()})
    for source in places:
        for target in (*places, "internet"):
            tariff = tariffs.egress(source, target)
            assert (tariff.usd == 0) == (source == target), (source, target)
            assert tariff.usd is not None or tariff.assumption


@pytest.mark.skipif("ARYLCLOUD_STUDY_DATA" not in os.environ, reason="no study data here")
def test_every_pair_of_the_source_has_its_price() -> None:
    path = Path(os.environ["ARYLCLOUD_STUDY_DATA"]) / "prices" / "aws_inter_region_egress.csv"
    rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
    tariffs = load_tariffs()
    assert len(rows) == len(tariffs.aws_pairs) == 1122
    for source, target, usd in rows:
        assert tariffs.egress(f"aws/{source}", f"aws/{target}").usd == float(usd)
