"""Each fault that the doctor speaks of, put into a healthy catalogue and found there."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.offers import offer

from arylcloud.core.offer import Market, Offer
from arylcloud.pricing.catalogue import load_bundled
from arylcloud.pricing.doctor import examine, family, left_out
from arylcloud.pricing.table import from_offers, parse_as_of

HEALTHY = [
    offer(),
    offer(market=Market.SPOT, usd_per_hour=0.92),
    offer(instance_type="p3.8xlarge", gpu_count=4, vcpus=32.0, usd_per_hour=12.24),
    offer(gpu="P100", instance_type="box", gpu_mem_gib=16.0, market=Market.RESERVED, usd_per_hour=1.0),
    offer(cloud="gcp", region="us-central1", instance_type="n1-standard-8", usd_per_hour=2.48),
]


def found(extra: list[Offer], **options: float) -> dict[str, tuple[str, int]]:
    findings = examine(from_offers(HEALTHY + extra), **options)  # type: ignore[arg-type]
    return {f.code: (f.level, f.count) for f in findings}


def test_a_healthy_catalogue_gives_nothing_to_say() -> None:
    assert found([]) == {}


def test_the_bundled_catalogue_has_no_errors_and_says_its_gaps() -> None:
    findings = {f.code: f for f in examine(load_bundled())}
    assert [f for f in findings.values() if f.level == "error"] == []
    assert findings["age_unknown"].count == 721
    assert findings["gpu_count_unknown"].count == 866
    assert findings["spot_equals_on_demand"].count == 6  # three above, three below, all within 1e-4
    assert findings["more_gpus_for_less_other_shape"].level == "warning"
    assert {"no_gcp_n1", "no_p100"} <= findings.keys()
    assert {f.code: f.count for f in left_out()} == {
        "left_out_duplicate": 132,
        "left_out_spot_equals_on_demand": 36,
    }


@pytest.mark.parametrize(
    ("fault", "code", "level"),
    [
        (offer(zone="z", usd_per_hour=None), "price_missing", "error"),
        (offer(zone="z", usd_per_hour=math.nan), "price_missing", "error"),
        (offer(zone="z", usd_per_hour=0.0), "price_not_positive", "error"),
        (offer(zone="z", usd_per_hour=-1.0), "price_not_positive", "error"),
        (offer(zone="z", usd_per_hour=math.inf), "price_infinite", "error"),
        (offer(zone="z", usd_per_hour=-math.inf), "price_infinite", "error"),
        (offer(zone="z", market=Market.SPOT, usd_per_hour=3.0602), "spot_above_on_demand", "error"),
        (offer(zone="z", market=Market.SPOT, usd_per_hour=3.06009), "spot_equals_on_demand", "warning"),
        (offer(zone="z", market=Market.SPOT, usd_per_hour=3.06), "spot_equals_on_demand", "warning"),
        (offer(instance_type="p3.16xlarge", gpu_count=8, vcpus=64.0, usd_per_hour=12.0),
         "more_gpus_for_less", "error"),
        (offer(instance_type="p3.16xlarge", gpu_count=8, vcpus=96.0, usd_per_hour=12.0),
         "more_gpus_for_less_other_shape", "warning"),
        (offer(instance_type="p3.16xlarge", gpu_count=8, vcpus=None, usd_per_hour=12.0),
         "more_gpus_for_less_other_shape", "warning"),
        (offer(zone="z", as_of=None), "age_unknown", "warning"),
        (offer(zone="z", as_of="2026-08-01"), "age_in_future", "warning"),
        (offer(zone="z", gpu_count=None), "gpu_count_unknown", "warning"),
        (offer(zone="z", gpu="Z9", instance_type="z9"), "gpu_unknown", "warning"),
        (offer(zone="z", gpu_mem_gib=32.0), "gpu_memory", "warning"),
    ],
)  # fmt: skip
def test_a_fault_is_found_as_what_it_is_and_alone(fault: Offer, code: str, level: str) -> None:
    assert found([fault], now_s=parse_as_of("2026-07-25")) == {code: (level, 1)}


def test_duplicates_are_counted_with_all_their_rows() -> None:
    assert found([offer(usd_per_hour=3.07)]) == {"duplicate": ("error", 2)}


def test_other_families_places_and_markets_are_not_compared() -> None:
    cheap = {"gpu_count": 8, "vcpus": 64.0, "usd_per_hour": 0.5}
    others = [
        offer(instance_type="p3dn.24xlarge", **cheap),
        offer(instance_type="p3.16xlarge", region="us-east-2", **cheap),
        offer(instance_type="p3.16xlarge", market=Market.RESERVED, **cheap),
    ]
    assert found(others) == {}


def test_focus_speaks_only_of_its_rows_though_it_compares_with_all() -> None:
    rows = [*HEALTHY, offer(zone="a", as_of=None), offer(zone="z", market=Market.SPOT, usd_per_hour=4.0)]
    focus = np.arange(len(rows)) == len(rows) - 1
    findings = examine(from_offers(rows), focus=focus)
    assert [(f.code, f.count) for f in findings] == [("spot_above_on_demand", 1)]
    assert findings[0].example == ("aws/us-east-1/z:p3.2xlarge:spot: $4/h spot, $3.06/h on demand")


def test_an_empty_catalogue_is_only_empty() -> None:
    assert {f.level for f in examine(from_offers([]))} == {"info"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("p4d.24xlarge", "p4d"),
        ("a2-megagpu-16g", "a2-megagpu"),
        ("g4-standard-384", "g4-standard"),
        ("Standard_NC24ads_A100_v4", "Standard_NCads_A100_v4"),
        ("Standard_NV36adms_A10_v5", "Standard_NVadms_A10_v5"),
        ("box", "box"),
    ],
)
def test_family_is_the_type_without_its_size(name: str, expected: str) -> None:
    assert family(name) == expected
