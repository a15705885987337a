"""GCP's price list speaks of cores, GiB and GPUs; here they become machines.

Which part of which machine a SKU is stands in its description only. The wordings are those of the public
list in 2026 (``Nvidia H100 80GB Mega GPU attached to Spot Preemptible VMs running in Tokyo``); what is not
recognised is left out, and a machine that lacks a part has no price: half a price is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from arylcloud.core.live import Shape
from arylcloud.core.offer import Market

HOURS_PER_MONTH: Final = 730.0
"""GCP's own, for what is priced by the month."""
_PER_HOUR: Final = {"h": 1.0, "GiBy.h": 1.0, "GiBy.mo": 1.0 / HOURS_PER_MONTH}
_LEFT_OUT: Final = re.compile(
    r"Commitment|Sole Tenancy|Reserved|Reservation|Custom|Premium|DWS|Calendar Mode|Flex[- ]?Start"
    r"|[Ss]uspended|Virtual Workstation|Confidential|Upgrade"
)
_SPOT: Final = re.compile(r"^Spot Preemptible |attached to Spot Preemptible VMs")
_CORE_RAM: Final = re.compile(r"^(?:Spot Preemptible )?(\S+)(?: \S+)*? (Core|Ram) running in ")
_GPU: Final = re.compile(r"^(?:Spot Preemptible )?(.+?) (?:attached to Spot Preemptible VMs )?running in ")
_LOCAL_SSD: Final = "SSD backed Local Storage"

CORES: Final[Mapping[str, str]] = {
    "A2": "a2",
    "A3": "a3",
    "A3Plus": "a3-mega",
    "A3Ultra": "a3-ultra",
    "G2": "g2",
    "G4": "g4",
}
"""First word of a core's or RAM's description → machine family."""
GPUS: Final[Mapping[str, str]] = {
    "nvidia tesla a100 gpu": "a100",
    "nvidia tesla a100 80gb gpu": "a100-80gb",
    "nvidia h100 80gb gpu": "h100",
    "nvidia h100 80gb mega gpu": "h100-mega",
    "nvidia h100 mega 80gb gpu": "h100-mega",
    "nvidia h100 80gb plus gpu": "h100-mega",
    "nvidia h200 141gb gpu": "h200",
    "h200 141gb gpu": "h200",
    "nvidia l4 gpu": "l4",
    "rtx 6000 96gb": "rtx6000",
    "a4 nvidia b200 (1 gpu slice)": "b200-slice",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a machine family is billed as."""

    gpu: str
    core: str | None
    """None = cores and RAM are in the price of the GPU."""
    ssd_gib_per_gpu: float = 0.0
    """Local disks that come with the machine, and are billed with it."""


RECIPES: Final[tuple[tuple[str, Recipe], ...]] = (
    ("a2-ultragpu-", Recipe(gpu="a100-80gb", core="a2", ssd_gib_per_gpu=375.0)),
    ("a2-", Recipe(gpu="a100", core="a2")),
    ("a3-megagpu-", Recipe(gpu="h100-mega", core="a3-mega", ssd_gib_per_gpu=750.0)),
    ("a3-ultragpu-", Recipe(gpu="h200", core="a3-ultra", ssd_gib_per_gpu=1500.0)),
    ("a3-highgpu-", Recipe(gpu="h100", core="a3", ssd_gib_per_gpu=750.0)),
    ("a4-highgpu-", Recipe(gpu="b200-slice", core=None)),
    ("g2-standard-", Recipe(gpu="l4", core="g2")),
    ("g4-standard-", Recipe(gpu="rtx6000", core="g4")),
)
"""First prefix that fits."""
_G4_VCPUS_PER_GPU: Final = 48.0


@dataclass(slots=True)
class Parts:
    """Hourly prices of parts, by (part, region, market)."""

    usd: dict[tuple[str, str, Market], float] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    effective: dict[tuple[str, str, Market], str] = field(default_factory=dict)
    """Since when the price is in force, as the list has it (RFC 3339)."""

    def read(self, sku: Mapping[str, Any]) -> None:
        """Take in one SKU of the list."""
        reason = self._read(sku)
        if reason is not None:
            self.left_out[reason] = self.left_out.get(reason, 0) + 1

    def _read(self, sku: Mapping[str, Any]) -> str | None:
        category = sku.get("category") or {}
        usage = category.get("usageType")
        if usage not in ("OnDemand", "Preemptible"):
            return "a commitment"
        text = str(sku.get("description") or "")
        part = recognise(text, str(category.get("resourceFamily")))
        if part is None:
            return "no part of a GPU machine"
        usd = hourly_usd(sku.get("pricingInfo") or ())
        if usd is None:
            return "no hourly price in US dollars"
        market = Market.SPOT if usage == "Preemptible" or _SPOT.search(text) else Market.ON_DEMAND
        since = str(sku["pricingInfo"][-1].get("effectiveTime") or "")
        for region in sku.get("serviceRegions") or ():
            key = (part, region, market)
            if usd >= self.usd.get(key, 0.0):  # of two, never the one that promises less
                self.usd[key], self.effective[key] = usd, since
        return None

    def machine_usd(self, name: str, shape: Shape, region: str, market: Market) -> float | None:
        """Per hour of a machine; None where a part of it has no price there."""
        needs = _needs(name, shape)
        if needs is None:
            return None
        prices = [self.usd.get((part, region, market)) for part, _ in needs]
        if any(price is None for price in prices):
            return None
        return sum(amount * price for (_, amount), price in zip(needs, prices, strict=True) if price)

    def since_s(self, name: str, shape: Shape, region: str, market: Market) -> float | None:
        """Wall seconds since when the machine costs what it does; None where the list does not say."""
        moments = [self.effective.get((part, region, market)) for part, _ in _needs(name, shape) or ()]
        try:
            return max((datetime.fromisoformat(one).timestamp() for one in moments if one), default=None)
        except ValueError:
            return None


def _needs(name: str, shape: Shape) -> list[tuple[str, float]] | None:
    """(part, how much of it); None for a machine whose parts are not known."""
    recipe = next((recipe for prefix, recipe in RECIPES if name.startswith(prefix)), None)
    gpu_count = number_of_gpus(name, shape)
    if recipe is None or gpu_count is None:
        return None
    needs = [(recipe.gpu, gpu_count)]
    if recipe.core is not None:
        if shape.vcpus is None or shape.mem_gib is None:
            return None
        needs += [(f"{recipe.core}/core", shape.vcpus), (f"{recipe.core}/ram", shape.mem_gib)]
    if recipe.ssd_gib_per_gpu:
        needs.append(("ssd", recipe.ssd_gib_per_gpu * gpu_count))
    return needs


def number_of_gpus(name: str, shape: Shape) -> float | None:
    """Also a fraction: the small G4 machines have an eighth, a quarter, a half of a GPU."""
    if shape.gpu_count:
        return float(shape.gpu_count)
    if name.startswith("g4-standard-") and shape.vcpus:
        return shape.vcpus / _G4_VCPUS_PER_GPU
    return None


def recognise(description: str, resource_family: str = "Compute") -> str | None:
    """Which part of a GPU machine a SKU is.

    >>> recognise("Spot Preemptible A3Plus Instance Ram running in Tokyo")
    'a3-mega/ram'
    >>> recognise("Nvidia Tesla A100 80GB GPU attached to Spot Preemptible VMs running in Americas")
    'a100-80gb'
    >>> recognise("Commitment v1: A2 Cpu in Americas for 1 Year") is None
    True
    """
    if _LEFT_OUT.search(description):
        return None
    if resource_family == "Storage":
        return "ssd" if description.startswith(_LOCAL_SSD) else None
    if found := _CORE_RAM.match(description):
        family = CORES.get(found.group(1))
        if family == "a3" and description.startswith(("A3 Ultra", "Spot Preemptible A3 Ultra")):
            family = "a3-ultra"
        return None if family is None else f"{family}/{found.group(2).lower()}"
    if found := _GPU.match(description):
        return GPUS.get(found.group(1).lower())
    return None


def hourly_usd(pricing: Iterable[Mapping[str, Any]]) -> float | None:
    """US dollars per hour of one unit, of the newest price; None where it is priced in another way."""
    newest = list(pricing)[-1:]
    if not newest:
        return None
    expression = newest[0].get("pricingExpression") or {}
    rates = expression.get("tieredRates") or ()
    if not rates:
        return None
    price = rates[-1].get("unitPrice") or {}
    usd = int(price.get("units") or 0) + int(price.get("nanos") or 0) / 1e9
    per_hour = _PER_HOUR.get(expression.get("usageUnit", ""))
    if per_hour is None or price.get("currencyCode") != "USD" or not usd > 0:
        return None
    return usd * per_hour
