"""What moving and keeping bytes costs. Every figure says its source, its date and what it assumes.

A place is ``cloud/region`` (a zone may follow), or ``internet``. Egress is paid to the cloud that the
bytes leave; entering is free everywhere. Figures are list prices of the first paid tier: free allowances
and discounts of volume are left out, so that a cost is never shown too low. What no source tells is
``usd=None``, never 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from arylcloud.core.errors import IntegrityError

INTERNET: Final = "internet"
LOCAL: Final = "local"
OWN: Final = (LOCAL, "pool")
"""Machines and disks of one's own: nobody charges for what leaves them, or lies on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """A price per unit with everything one must know to believe it."""

    usd: float | None
    """Per ``unit``; None = unknown."""
    unit: str
    source: str
    as_of: str | None
    assumption: str
    """What the figure takes for granted, in words; empty where it is exact."""


_FIRST_PAID_TIER: Final = {"aws": "to 10 TB", "azure": "to 10 TB", "gcp": "premium tier 0-1 TB"}
_DISKS: Final = {"aws": "EBS gp3", "azure": "Standard SSD", "gcp": "pd-balanced"}
_STORES: Final = {"aws": "S3 Standard", "azure": "Blob Hot LRS", "gcp": "Standard regional"}
_AZURE_ZONE_1: Final = (
    *("us", "canada", "europe", "uk", "france", "germany", "sweden", "norway", "switzerland"),
    *("italy", "poland", "spain", "austria", "belgium", "denmark"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariffs:
    """The bundled figures, read once by ``load_tariffs`` and asked many times."""

    facts: tuple[Mapping[str, Any], ...]
    aws_pairs: Mapping[tuple[str, str], float]
    pairs_source: str
    pairs_as_of: str | None

    def egress(self, from_place: str, to_place: str) -> Tariff:
        """$/GB for bytes that leave ``from_place`` for ``to_place``."""
        cloud, region = _split(from_place)
        to_cloud, to_region = _split(to_place)
        if cloud in (*OWN, INTERNET):
            return Tariff(usd=0.0, unit="GB", source="no cloud is left", as_of=None, assumption="")
        if (cloud, region) == (to_cloud, to_region):
            return Tariff(
                usd=0.0,
                unit="GB",
                source="clouds do not charge for object-store traffic within a region",
                as_of=None,
                assumption="the store lies in the machine's own region",
            )
        if cloud == to_cloud:
            return self._between_regions(cloud, region, to_region)
        return self._to_internet(cloud, region)

    def _between_regions(self, cloud: str, region: str, to_region: str) -> Tariff:
        if cloud == "aws" and (pair := self.aws_pairs.get((region, to_region))) is not None:
            return Tariff(
                usd=pair, unit="GB", source=self.pairs_source, as_of=self.pairs_as_of, assumption=""
            )
        both_us = _in_us(cloud, region) and _in_us(cloud, to_region)
        fact = self._fact(cloud, "egress_inter_region", "us to us") if both_us else None
        if fact is None:
            bound = self._to_internet(cloud, region)
            if bound.usd is None:
                return _unknown("GB", f"no tariff between {cloud}/{region} and {cloud}/{to_region}")
            return replace(bound, assumption=f"upper bound, the internet tariff: {bound.assumption}")
        return _of(fact, "GB", f"{fact['region']}'s tariff stands for every pair of US regions")

    def _to_internet(self, cloud: str, region: str) -> Tariff:
        fact = self._fact(cloud, "egress_internet", _FIRST_PAID_TIER.get(cloud, ""))
        if fact is None:
            return _unknown("GB", f"no egress tariff of {cloud}")
        if not _in_first_tariff_zone(cloud, region):
            return _unknown(
                "GB", f"no egress tariff of {cloud}/{region} (dearer outside North America, Europe)"
            )
        tier = f"first paid tier ({fact['item']}), free allowance left out"
        same = region == fact["region"]
        return _of(fact, "GB", tier if same else f"{tier}; {fact['region']}'s tariff stands for {region}")

    def storage(self, cloud: str) -> Tariff:
        """$/GB-month in the cloud's standard object store."""
        return self._monthly(cloud, "object_storage", _STORES)

    def disk(self, cloud: str) -> Tariff:
        """$/GB-month of a boot disk."""
        return self._monthly(cloud, "boot_disk", _DISKS)

    def _monthly(self, cloud: str, kind: str, items: Mapping[str, str]) -> Tariff:
        if cloud in OWN:
            return Tariff(usd=0.0, unit="GB-month", source="your own disk", as_of=None, assumption="")
        fact = self._fact(cloud, kind, items[cloud]) if cloud in items else None
        if fact is None:
            return _unknown("GB-month", f"no {kind.replace('_', ' ')} tariff of {cloud}")
        return _of(fact, "GB-month", f"{fact['item']}; {fact['region']}'s tariff stands for every region")

    def _fact(self, cloud: str, kind: str, item: str) -> Mapping[str, Any] | None:
        for fact in self.facts:
            if fact["cloud"] == cloud and fact["kind"] == kind and fact["item"].startswith(item):
                return fact
        return None


def _of(fact: Mapping[str, Any], unit: str, assumption: str) -> Tariff:
    return Tariff(
        usd=fact["usd"], unit=unit, source=fact["source"], as_of=fact["as_of"], assumption=assumption
    )


def _unknown(unit: str, why: str) -> Tariff:
    return Tariff(usd=None, unit=unit, source="unknown", as_of=None, assumption=why)


def _split(place: str) -> tuple[str, str]:
    cloud, _, rest = place.partition("/")
    return cloud, rest.partition("/")[0]


def _in_us(cloud: str, region: str) -> bool:
    if cloud == "azure":
        return "us" in region and not region.startswith(("australia", "austria"))
    return region.startswith("us-")


def _in_first_tariff_zone(cloud: str, region: str) -> bool:
    """North America and Europe, where the clouds' internet tariffs are one."""
    if cloud == "azure":
        return not region.startswith("australia") and any(name in region for name in _AZURE_ZONE_1)
    prefixes = {"aws": ("us-", "ca-", "eu-"), "gcp": ("us-", "northamerica-", "europe-")}
    return region.startswith(prefixes.get(cloud, ()))


def load_tariffs(path: Path | None = None) -> Tariffs:
    """The bundled tariffs (or those of ``path``, in the same format)."""
    path = Path(__file__).parent / "data" / "tariffs.json" if path is None else path
    document = json.loads(path.read_bytes())
    if document.get("schema_version") != 1:
        raise IntegrityError(f"{path} has a schema that this version does not know")
    pairs = document["aws_pairs"]
    return Tariffs(
        facts=tuple(document["facts"]),
        aws_pairs={
            (source, to): float(price)
            for source, by_price in pairs["usd_per_gb"].items()
            for price, targets in by_price.items()
            for to in targets
        },
        pairs_source=pairs["source"],
        pairs_as_of=pairs["as_of"],
    )
