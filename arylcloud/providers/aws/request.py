"""What RunInstances is asked, as far as no question is needed for it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from arylcloud.core.offer import Market
from arylcloud.core.ports import MachineSpec
from arylcloud.providers.aws import tags


def token_in(spec: MachineSpec, zone: str) -> str:
    """Of RunInstances: one token with another subnet would be refused, so each zone has its own."""
    if spec.offer.zone is not None:
        return spec.token[:64]
    return hashlib.sha256(f"{spec.token}|{zone}".encode()).hexdigest()


def request(spec: MachineSpec, settings: Mapping[str, str]) -> dict[str, Any]:
    """For one spec always the same."""
    asked: dict[str, Any] = {
        "InstanceType": spec.offer.instance_type,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": spec.token[:64],
        "UserData": spec.user_data,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpTokens": "required",
            "HttpEndpoint": "enabled",
            "HttpPutResponseHopLimit": 2,  # a container on the machine is one hop more
        },
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tags.as_list(tags.of_machine(spec), settings)}
            for kind in ("instance", "volume", "network-interface")
        ],
    }
    if profile := settings.get("instance_profile") or spec.identity:
        asked["IamInstanceProfile"] = {"Arn" if profile.startswith("arn:") else "Name": profile}
    if spec.offer.market is Market.SPOT:
        spot = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        if spec.max_usd_per_hour is not None:
            spot["MaxPrice"] = f"{spec.max_usd_per_hour:.5f}"
        asked["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": spot}
    return asked
