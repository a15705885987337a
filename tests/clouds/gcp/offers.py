"""Offers of the emulated Google Cloud, and machines wanted there."""

from __future__ import annotations

from pathlib import Path

from arylcloud.core.offer import Market, Offer
from arylcloud.providers.gcp.adapter import GcpProvider, create

SHAPES = {
    "g2-standard-4": ("L4", 1, 4.0, 16.0, 0.71),
    "g2-standard-8": ("L4", 1, 8.0, 32.0, 0.85),
    "g2-standard-24": ("L4", 2, 24.0, 96.0, 2.0),
    "a2-highgpu-1g": ("A100", 1, 12.0, 85.0, 3.67),
    "n1-standard-8": ("T4", 1, 8.0, 30.0, 0.73),
}


def offer(
    instance_type: str = "g2-standard-4",
    *,
    zone: str | None = "us-central1-a",
    region: str = "us-central1",
    market: Market = Market.SPOT,
    usd_per_hour: float | None = None,
) -> Offer:
    gpu, gpus, vcpus, mem_gib, _ = SHAPES[instance_type]
    return Offer(
        cloud="gcp",
        region=region,
        zone=zone,
        instance_type=instance_type,
        gpu=gpu,
        gpu_count=gpus,
        gpu_mem_gib=24.0,
        vcpus=vcpus,
        mem_gib=mem_gib,
        market=market,
        usd_per_hour=usd_per_hour,
        as_of=None,
        source="test",
    )


def sold() -> tuple[Offer, ...]:
    """What the emulated project is offered: L4 in four zones of two regions, A100 in one."""
    found = []
    for market, factor in ((Market.ON_DEMAND, 1.0), (Market.SPOT, 0.4)):
        for name in ("g2-standard-4", "g2-standard-8", "g2-standard-24"):
            for zone in ("us-central1-a", "us-central1-b", "us-central1-c", "europe-west4-a"):
                usd = SHAPES[name][4] * factor
                found.append(
                    offer(name, zone=zone, region=zone[:-2], market=market, usd_per_hour=round(usd, 4))
                )
        found.append(
            offer("a2-highgpu-1g", zone="us-central1-a", market=market, usd_per_hour=round(3.67 * factor, 4))
        )
    return tuple(found)


def connect(state: Path, settings: dict[str, str], **more: str) -> GcpProvider:
    return create(state, {**settings, **more})
