"""Spot prices as EC2 tells them: the steps of one type in one zone, and what is in force now."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Any, Final

from arylcloud.core.errors import CapacityError
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import Machine, PricePoint
from arylcloud.providers.aws.client import Calls
from arylcloud.providers.aws.place import Places

LINUX: Final = "Linux/UNIX"
FRESH_S: Final = 60.0
"""A price this young is not asked for again: EC2 changes them a few times a day."""


class SpotPrices:
    """Safe to use from several threads."""

    def __init__(self, calls: Calls, places: Places) -> None:
        self._calls = calls
        self._places = places
        self._lock = threading.Lock()
        self._now: dict[tuple[str, str | None, str], tuple[float, float, float]] = {}

    def now(self, offer: Offer) -> tuple[float, float]:
        """($/h, wall seconds at which it was asked for); the cheapest zone where the offer names none.
        Raises CapacityError where there is no spot market."""
        key = (offer.region, offer.zone, offer.instance_type)
        with self._lock:
            known = self._now.get(key)
        if known is not None and time.monotonic() - known[2] < FRESH_S:
            return known[0], known[1]
        at_s = time.time()
        steps = self._steps(offer.region, offer.zone, offer.instance_type, at_s, at_s)
        if not steps:
            raise CapacityError(
                f"aws has no spot market for {offer.instance_type} in {offer.place}", code="NoSpot"
            )
        price = min(points[-1].usd_per_hour for points in steps.values())
        with self._lock:
            self._now[key] = (price, at_s, time.monotonic())
        return price, at_s

    def of_machine(self, machine: Machine) -> float | None:
        """What it pays now; None where EC2 tells no price for its zone."""
        key = (machine.region, machine.zone, machine.instance_type)
        with self._lock:
            known = self._now.get(key)
        if known is not None and time.monotonic() - known[2] < FRESH_S:
            return known[0]
        at_s = time.time()
        steps = self._steps(*key, at_s, at_s)
        if not steps:
            return None
        price = min(points[-1].usd_per_hour for points in steps.values())
        with self._lock:
            self._now[key] = (price, at_s, time.monotonic())
        return price

    def history(self, offer: Offer, from_s: float, to_s: float) -> tuple[PricePoint, ...]:
        """Steps within [from_s, to_s], the first at or before ``from_s``. Raises CapacityError without any."""
        steps = self._steps(offer.region, offer.zone, offer.instance_type, from_s, to_s)
        if not steps:
            raise CapacityError(
                f"aws has no spot market for {offer.instance_type} in {offer.place}", code="NoSpot"
            )
        return min(steps.values(), key=lambda points: points[-1].usd_per_hour)

    def offers(self, region: str) -> list[Offer]:
        """Every GPU type with a spot market in the region, zone by zone; shapes are the catalogue's."""
        at_s = time.time()
        found = self._calls.pages(
            "ec2",
            region,
            "describe_spot_price_history",
            "SpotPriceHistory",
            StartTime=_moment(at_s),
            EndTime=_moment(at_s),
            ProductDescriptions=[LINUX],
        )
        zones = self._places.zone_ids(region)
        newest: dict[tuple[str, str], Any] = {}
        for one in found:
            key = (zones.get(one["AvailabilityZone"], one["AvailabilityZone"]), one["InstanceType"])
            if key not in newest or one["Timestamp"] > newest[key]["Timestamp"]:
                newest[key] = one
        as_of = datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return [
            Offer(
                cloud="aws",
                region=region,
                zone=zone,
                instance_type=kind,
                gpu=None,
                gpu_count=None,
                gpu_mem_gib=None,
                vcpus=None,
                mem_gib=None,
                market=Market.SPOT,
                usd_per_hour=float(one["SpotPrice"]),
                as_of=as_of,
                source="AWS spot price history",
            )
            for (zone, kind), one in sorted(newest.items())
        ]

    def _steps(
        self, region: str, zone: str | None, instance_type: str, from_s: float, to_s: float
    ) -> dict[str, tuple[PricePoint, ...]]:
        """By zone name. EC2 answers with what was in force at the start, too."""
        asked: dict[str, Any] = {
            "InstanceTypes": [instance_type],
            "ProductDescriptions": [LINUX],
            "StartTime": _moment(from_s),
            "EndTime": _moment(max(to_s, from_s)),
        }
        if zone is not None:
            name = self._places.zone_names(region).get(zone)
            if name is None:
                return {}
            asked["AvailabilityZone"] = name
        rows = self._calls.pages("ec2", region, "describe_spot_price_history", "SpotPriceHistory", **asked)
        by_zone: dict[str, dict[float, float]] = {}
        for row in rows:
            at_s = (
                max(row["Timestamp"].timestamp(), from_s)
                if row["Timestamp"].timestamp() <= from_s
                else (row["Timestamp"].timestamp())
            )
            by_zone.setdefault(row["AvailabilityZone"], {}).setdefault(at_s, float(row["SpotPrice"]))
        return {
            name: tuple(PricePoint(from_s=at_s, usd_per_hour=steps[at_s]) for at_s in sorted(steps))
            for name, steps in by_zone.items()
        }


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
