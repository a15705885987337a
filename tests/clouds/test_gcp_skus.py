"""What GCP's descriptions mean, and what its published prices of parts add up to."""

from __future__ import annotations

from typing import Any

import pytest

from arylcloud.core.live import Shape
from arylcloud.core.offer import Market
from arylcloud.providers.gcp.skus import Parts, hourly_usd, recognise


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("A2 Instance Core running in Americas", "a2/core"),
        ("Spot Preemptible A2 Instance Ram running in Japan", "a2/ram"),
        ("A3 Instance Core running in Americas", "a3/core"),
        ("A3Plus Instance Ram running in Tokyo", "a3-mega/ram"),
        ("A3Ultra Instance Core running in Netherlands", "a3-ultra/core"),
        ("A3 Ultra Instance Ram running in Americas", "a3-ultra/ram"),
        ("G2 Instance Core running in Salt Lake City", "g2/core"),
        ("G4 Instance Ram running in Iowa", "g4/ram"),
        ("Nvidia Tesla A100 GPU attached to Spot Preemptible VMs running in Americas", "a100"),
        ("Nvidia Tesla A100 80GB GPU running in Iowa", "a100-80gb"),
        ("Nvidia H100 80GB GPU running in Americas", "h100"),
        ("Nvidia H100 80GB Mega GPU attached to Spot Preemptible VMs running in Tokyo", "h100-mega"),
        ("Nvidia H100 80GB Plus GPU running in Americas", "h100-mega"),
        ("H200 141GB GPU running in Netherlands", "h200"),
        ("RTX 6000 96GB attached to Spot Preemptible VMs running in Belgium", "rtx6000"),
        ("A4 Nvidia B200 (1 gpu slice) running in Americas", "b200-slice"),
        ("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", "b200-slice"),
        # what is another thing, however alike
        ("Commitment v1: A2 Cpu in Americas for 1 Year", None),
        ("DWS Calendar Mode A3 Instance Core running in Americas", None),
        ("DWS Calendar Mode A4 Nvidia B200 (1 gpu slice) running in Americas", None),
        ("Nvidia Tesla T4 GPU attached to Sole Tenancy VMs running in Americas", None),
        ("Nvidia L4 Virtual Workstation GPU running in Iowa", None),
        ("A2 Sole Tenancy Instance Core running in Americas", None),
        ("N2 Custom Instance Core running in Americas", None),
        ("A4 Instance Core running in Iowa", None),
        ("Reserved A3 Instance Core running in Americas", None),
        ("E2 Instance Core running in Americas", None),
        ("Network Egress via Carrier Peering", None),
    ],
)
def test_descriptions(text: str, part: str | None) -> None:
    assert recognise(text) == part


def sku(text: str, usd: float, usage: str = "OnDemand", unit: str = "h", family: str = "Compute") -> Any:
    nanos = round(usd * 1e9)
    price = {"currencyCode": "USD", "units": str(nanos // 10**9), "nanos": nanos % 10**9}
    return {
        "description": text,
        "category": {"resourceFamily": family, "usageType": usage},
        "serviceRegions": ["us-central1"],
        "pricingInfo": [{"pricingExpression": {"usageUnit": unit, "tieredRates": [{"unitPrice": price}]}}],
    }


def shape(count: int | None, vcpus: float, mem_gib: float) -> Shape:
    return Shape(gpu="X", gpu_count=count, gpu_mem_gib=None, vcpus=vcpus, mem_gib=mem_gib)


def test_published_parts_add_up_to_the_published_machine() -> None:
    """us-central1 in 2026: g2-standard-8 at 0.853608 an hour; a3-highgpu-4g with its 3,000 GiB of SSD."""
    parts = Parts()
    for one in (
        sku("G2 Instance Core running in Americas", 0.024988),
        sku("G2 Instance Ram running in Americas", 0.002927, unit="GiBy.h"),
        sku("Nvidia L4 GPU running in Americas", 0.560040),
        sku("A3 Instance Core running in Americas", 0.03222),
        sku("A3 Instance Ram running in Americas", 0.002817, unit="GiBy.h"),
        sku("Nvidia H100 80GB GPU running in Americas", 11.06),
        sku("SSD backed Local Storage", 0.08, unit="GiBy.mo", family="Storage"),
        sku("RTX 6000 96GB running in Iowa", 1.5),
        sku("G4 Instance Core running in Iowa", 0.04891),
        sku("G4 Instance Ram running in Iowa", 0.005, unit="GiBy.h"),
        sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", 4.9542),
    ):
        parts.read(one)

    def usd(name: str, of: Shape, market: Market = Market.ON_DEMAND) -> float | None:
        return parts.machine_usd(name, of, "us-central1", market)

    assert usd("g2-standard-8", shape(1, 8, 32)) == pytest.approx(0.853608)
    a3 = 0.03222 * 104 + 0.002817 * 936 + 4 * 11.06 + 3000 * 0.08 / 730
    assert usd("a3-highgpu-4g", shape(4, 104, 936)) == pytest.approx(a3)
    # an eighth of a GPU, though no whole number of them is known
    small = 1.5 / 8 + 6 * 0.04891 + 22 * 0.005
    assert usd("g4-standard-6", shape(None, 6, 22)) == pytest.approx(small)
    # all inclusive; on spot by its description, whatever its usage type says
    assert usd("a4-highgpu-8g", shape(8, 224, 3968), Market.SPOT) == pytest.approx(8 * 4.9542)
    assert usd("a4-highgpu-8g", shape(8, 224, 3968)) is None
    # half a price is none
    assert usd("g2-standard-8", shape(1, 8, 32), Market.SPOT) is None
    assert usd("a2-highgpu-1g", shape(1, 12, 85)) is None
    assert usd("g2-standard-8", shape(None, 8, 32)) is None
    assert usd("n1-standard-8", shape(1, 8, 30)) is None


def priced(unit: str, currency: str, units: str) -> Any:
    rates = [{"unitPrice": {"currencyCode": currency, "units": units}}]
    return [{"pricingExpression": {"usageUnit": unit, "tieredRates": rates}}]


@pytest.mark.parametrize(
    "pricing",
    [
        [],
        [{"pricingExpression": {"usageUnit": "h", "tieredRates": []}}],
        priced("mo", "USD", "1"),
        priced("h", "EUR", "1"),
        priced("h", "USD", "0"),
    ],
)
def test_what_is_no_hourly_price_is_none(pricing: Any) -> None:
    assert hourly_usd(pricing) is None
