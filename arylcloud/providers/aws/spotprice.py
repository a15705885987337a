"""Spot prices as EC2 tells them: the steps of one type in one zone, and what is in force now."""

from __future__ import annotations

import math
import threading
import time
from datetime import UTC, datetime
from typing import Any, Final

from arylcloud.core.errors import CapacityError
from arylcloud.core.offer import Offer
from arylcloud.core.ports import Machine, PricePoint
from arylcloud.providers.aws.client import Calls
from arylcloud.providers.aws.place import Places

LINUX: Final = "Linux/UNIX"
FRESH_S: Final = 60.0
"""A price this young is not asked for again for a machine that runs: EC2 changes them a few times a day."""
_Key = tuple[str, str | None, str]


class SpotPrices:
    """Safe to use from several threads."""

    def __init__(self, calls: Calls, places: Places) -> None:
        self._calls = calls
        self._places = places
        self._lock = threading.Lock()
        self._known: dict[_Key, tuple[float, float]] = {}
        """($/h, wall seconds at which it was asked for)"""

    def now(self, offer: Offer) -> tuple[float, float]:
        """($/h, wall seconds at which it was asked for); the cheapest zone where the offer names none.
        Raises CapacityError where there is no spot market."""
        asked = self._ask((offer.region, offer.zone, offer.instance_type))
        if asked is None:
            raise _no_market(offer)
        return asked

    def of_machine(self, machine: Machine) -> float | None:
        """What it pays now; None where EC2 tells no price for its zone. Never a price from before it was
        launched."""
        key = (machine.region, machine.zone, machine.instance_type)
        with self._lock:
            known = self._known.get(key)
        if known is None or known[1] < machine.launched_s or time.time() - known[1] > FRESH_S:
            known = self._ask(key)
        return None if known is None else known[0]

    def history(self, offer: Offer, from_s: float, to_s: float) -> tuple[PricePoint, ...]:
        """Steps within [from_s, to_s], the first at or before ``from_s``; of the zone that is the cheapest
        at the end where the offer names none. Raises CapacityError without any."""
        steps = self._steps((offer.region, offer.zone, offer.instance_type), from_s, to_s)
        if not steps:
            raise _no_market(offer)
        return min(steps.values(), key=lambda points: points[-1].usd_per_hour)

    def _ask(self, key: _Key) -> tuple[float, float] | None:
        at_s = time.time()
        steps = self._steps(key, at_s, at_s)
        if not steps:
            return None
        found = (min(points[-1].usd_per_hour for points in steps.values()), at_s)
        with self._lock:
            self._known[key] = found
        return found

    def _steps(self, key: _Key, from_s: float, to_s: float) -> dict[str, tuple[PricePoint, ...]]:
        """By zone name, oldest first. EC2 answers with what was in force at the start, too."""
        region, zone, instance_type = key
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
        for row in sorted(
            rows, key=lambda one: one["Timestamp"]
        ):  # of those before the start, the last counts
            usd = _price(row["SpotPrice"])
            if usd is not None:
                at_s = max(row["Timestamp"].timestamp(), from_s)
                by_zone.setdefault(row["AvailabilityZone"], {})[at_s] = usd
        return {
            name: tuple(PricePoint(from_s=at_s, usd_per_hour=usd) for at_s, usd in steps.items())
            for name, steps in by_zone.items()
        }


def _price(text: str) -> float | None:
    """None for what cannot be one."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if 0 < found < math.inf else None


def _no_market(offer: Offer) -> CapacityError:
    return CapacityError(f"aws has no spot market for {offer.instance_type} in {offer.place}", code="NoSpot")


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
