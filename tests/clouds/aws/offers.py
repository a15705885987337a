"""Offers of the emulated AWS, and machines wanted there."""

from __future__ import annotations

import os
from pathlib import Path

from arylcloud.core.offer import Market, Offer
from arylcloud.providers.aws.adapter import AwsProvider, create

VCPUS = {"g4dn.xlarge": 4.0, "g4dn.2xlarge": 8.0, "g5.xlarge": 4.0}


def offer(
    instance_type: str = "g4dn.xlarge",
    *,
    zone: str | None = "use1-az4",
    region: str = "us-east-1",
    market: Market = Market.SPOT,
    usd_per_hour: float | None = None,
) -> Offer:
    return Offer(
        cloud="aws",
        region=region,
        zone=zone,
        instance_type=instance_type,
        gpu="T4",
        gpu_count=1,
        gpu_mem_gib=16.0,
        vcpus=VCPUS.get(instance_type),
        mem_gib=16.0,
        market=market,
        usd_per_hour=usd_per_hour,
        as_of=None,
        source="test",
    )


def connect(home: Path | None = None, **settings: str) -> AwsProvider:
    """Without a ``home`` nothing can be written down: what was seen stays in memory."""
    return create(Path(os.devnull) if home is None else home, settings)
