"""Offers of the emulated Azure, and machines wanted there."""

from __future__ import annotations

from pathlib import Path

from clouds.azure.emulator import AzureEmulator
from clouds.azure.subscription import SIZES, Subscription

from arylcloud.core.offer import Market, Offer
from arylcloud.providers.azure.adapter import AzureProvider, create

T4 = "Standard_NC4as_T4_v3"
T4_LARGE = "Standard_NC8as_T4_v3"
V100 = "Standard_NC6s_v3"


def offer(
    instance_type: str = T4,
    *,
    zone: str | None = None,
    region: str = "eastus",
    market: Market = Market.SPOT,
    usd_per_hour: float | None = None,
) -> Offer:
    size = SIZES.get(instance_type)
    return Offer(
        cloud="azure",
        region=region,
        zone=zone,
        instance_type=instance_type,
        gpu="T4",
        gpu_count=1,
        gpu_mem_gib=16.0,
        vcpus=None if size is None else float(size.vcpus),
        mem_gib=16.0,
        market=market,
        usd_per_hour=usd_per_hour,
        as_of=None,
        source="test",
    )


def connect(azure: AzureEmulator, sub: Subscription, home: Path, **settings: str) -> AzureProvider:
    return create(home, {**azure.settings(sub), **settings})
