"""What machines cost in the emulated Google Cloud: by parts, over time, as SKUs and as dollars."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from clouds.prices.gcp import GcpPriceEmulator
from clouds.prices.server import Request

from arylcloud.core.offer import Market, Offer
from arylcloud.providers.bounds import iso


class PriceBook:
    """The prices of ``offers``; from then on, what ``turn`` makes of them."""

    def __init__(self, offers: tuple[Offer, ...]) -> None:
        self._emulator = GcpPriceEmulator(offers, copies=0)
        self._offers = {(o.region, o.instance_type, o.market.value): o for o in self._emulator.offers}
        self._books: list[tuple[float, dict[Any, float]]] = [(0.0, dict(self._emulator.parts))]

    def turn(self, region: str, market: str, factor: float, at_s: float) -> None:
        """From ``at_s`` on all parts there cost ``factor`` times what they do."""
        parts = {
            key: usd * factor if key[1:] == (region, Market(market)) else usd
            for key, usd in self._books[-1][1].items()
        }
        self._books.append((at_s, parts))
        self._use(parts)

    def usd(self, region: str, instance_type: str, market: str, at_s: float) -> float:
        self._use([parts for since_s, parts in self._books if since_s <= at_s][-1])
        return round(self._emulator.machine_usd(self._offers[region, instance_type, market]), 6)

    def cost(self, region: str, instance_type: str, market: str, from_s: float, to_s: float) -> float:
        moments = [from_s, *(since_s for since_s, _ in self._books if from_s < since_s < to_s), to_s]
        return sum(
            self.usd(region, instance_type, market, begin_s) * (end_s - begin_s) / 3600
            for begin_s, end_s in pairwise(moments)
        )

    def machine_types(self) -> list[tuple[str, dict[str, Any]]]:
        """(zone, machine type)."""
        plain = {"name": "n1-standard-8", "guestCpus": 8, "memoryMb": 30720}
        zones = sorted({zone for zone, _ in self._emulator.machine_types()})
        return self._emulator.machine_types() + [(zone, plain) for zone in zones]

    def page(self, query: dict[str, str]) -> bytes:
        """Of ``/v1/services/6F81-5844-456A/skus``."""
        since_s, parts = self._books[-1]
        self._use(parts)
        path = "/v1/services/6F81-5844-456A/skus"
        found = json.loads(
            self._emulator.answer(Request(method="GET", path=path, query=query, headers={}, body=b"")).body
        )
        for sku in found["skus"] if since_s else ():
            sku["pricingInfo"][-1]["effectiveTime"] = iso(since_s)
        return json.dumps(found).encode()

    def _use(self, parts: dict[Any, float]) -> None:
        self._emulator.parts = parts
        self._emulator.__dict__.pop("skus", None)
