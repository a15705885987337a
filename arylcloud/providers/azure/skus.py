"""Which GPU sizes this subscription may have where: Azure's list of SKUs with its restrictions.

The list of one region is some megabytes, of which the SDK would make models for 2 CPU s: it is read as it is,
once an hour, and only its GPU sizes are kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from arylcloud.core.offer import Offer
from arylcloud.providers.azure.client import Arm, items

VERSION: Final = "2021-07-01"
FRESH_S: Final = 3600.0
_SERIES: Final = "Standard_N"
"""All sizes with GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sku:
    name: str
    family: str
    """As SKUs call it; quotas spell it with other capitals."""
    vcpus: float | None
    zones: frozenset[str]
    """Where this subscription may have it."""
    barred: str | None
    """Why it may not be had in the region at all; None = it may."""
    arm64: bool


class Skus:
    """Safe to use from several threads."""

    def __init__(self, arm: Arm) -> None:
        self._arm = arm
        self._lock = threading.Lock()
        self._asking: dict[str, threading.Lock] = {}
        self._known: dict[str, tuple[dict[str, Sku], float]] = {}

    def of(self, region: str, instance_type: str) -> Sku | None:
        """None where there is no such size in the region."""
        with self._lock:
            asking = self._asking.setdefault(region, threading.Lock())
        with asking:  # whoever comes second waits for the first one's answer, regions for no other
            known = self._known.get(region)
            if known is None or time.monotonic() - known[1] > FRESH_S:
                known = self._known[region] = (self._ask(region), time.monotonic())
        return known[0].get(instance_type.lower())

    def barred(self, offer: Offer) -> str | None:
        """Why this offer cannot be had by this subscription; None = it may be asked for."""
        sku = self.of(offer.region, offer.instance_type)
        if sku is None:
            return "there is no such size in that region"
        if sku.barred is not None:
            return sku.barred
        if offer.zone is not None and offer.zone not in sku.zones:
            return f"this subscription may have it in zones {', '.join(sorted(sku.zones)) or 'of none'} only"
        return None

    def _ask(self, region: str) -> dict[str, Sku]:
        what = f"sizes in {region}"
        path = f"{self._arm.scope}/providers/Microsoft.Compute/skus"
        return {
            str(one["name"]).lower(): _read(one)
            for one in items(self._arm, what, path, VERSION, {"$filter": f"location eq '{region}'"})
            if one.get("resourceType") == "virtualMachines" and str(one["name"]).startswith(_SERIES)
        }


def _read(one: Mapping[str, Any]) -> Sku:
    able = {str(c["name"]): str(c["value"]) for c in one.get("capabilities") or []}
    zones = {str(zone) for place in one.get("locationInfo") or [] for zone in place.get("zones") or []}
    barred = None
    for limit in one.get("restrictions") or []:
        if limit.get("type") == "Zone":
            zones -= {str(zone) for zone in (limit.get("restrictionInfo") or {}).get("zones") or []}
        else:
            barred = f"restricted: {limit.get('reasonCode')}"
    return Sku(
        name=str(one["name"]),
        family=str(one.get("family") or ""),
        vcpus=_number(able, "vCPUsAvailable") or _number(able, "vCPUs"),
        zones=frozenset(zones),
        barred=barred,
        arm64=able.get("CpuArchitectureType", "x64").lower() == "arm64",
    )


def _number(able: Mapping[str, str], name: str) -> float | None:
    try:
        return float(able[name])
    except (KeyError, ValueError):
        return None
