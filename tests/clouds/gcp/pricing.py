"""What machines cost in the emulated Google Cloud: by parts, over time, as SKUs and as dollars."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
from clouds.prices.gcp import MACHINES, GcpPriceEmulator
from clouds.prices.server import Request

from arylcloud.core.offer import Market, Offer
from arylcloud.providers.bounds import iso


def _fit(emulator: GcpPriceEmulator) -> None:
    """Parts that add up to each machine's own price, where there are such."""
    groups: dict[tuple[str, str, Market], list[Offer]] = {}
    for one in emulator.offers:
        groups.setdefault((one.instance_type.rpartition("-")[0], one.region, one.market), []).append(one)
    for (family, region, market), rows in groups.items():
        core, on_demand, spot, ssd = MACHINES[family]
        gpu = spot if market is Market.SPOT else on_demand
        names = (f"{core} Core", f"{core} Ram", gpu)
        counts = np.array([(o.vcpus or 0, o.mem_gib or 0, o.gpu_count or (o.vcpus or 0) / 48) for o in rows])
        disks = emulator.parts.get(("SSD", region, market), 0.0) * ssd / 730
        wanted = np.array([(o.usd_per_hour or 0) - disks * n[2] for o, n in zip(rows, counts, strict=True)])
        guess = np.array([emulator.parts.get((name, region, market), 0.0) for name in names])
        usd = guess + np.linalg.lstsq(counts, wanted - counts @ guess, rcond=None)[0]
        if (usd > 0).all():
            for name, value in zip(names, usd, strict=True):
                emulator.parts[name, region, market] = round(float(value), 9)


def _with_plain(types: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    plain = {"name": "n1-standard-8", "guestCpus": 8, "memoryMb": 30720}
    return types + [(zone, plain) for zone in sorted({zone for zone, _ in types})]


class PriceBook:
    """The prices of ``offers``; from then on, what ``turn`` makes of them."""

    def __init__(self, offers: tuple[Offer, ...]) -> None:
        self.offers = offers
        self._emulator = GcpPriceEmulator(offers, copies=0)
        _fit(self._emulator)
        self._offers = {(o.region, o.instance_type, o.market.value): o for o in self._emulator.offers}
        self._types = _with_plain(self._emulator.machine_types())
        self._pages: dict[tuple[int, str], bytes] = {}
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
        return self._types

    def page(self, query: dict[str, str]) -> bytes:
        """Of ``/v1/services/6F81-5844-456A/skus``."""
        key = (len(self._books), json.dumps(query))
        if key not in self._pages:
            self._pages[key] = self._made(query)
        return self._pages[key]

    def _made(self, query: dict[str, str]) -> bytes:
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
