"""The on-demand price of one type in one region, asked for when a machine of it is wanted."""

from __future__ import annotations

import json
import threading
import time
from typing import Final

from arylcloud.core.errors import ArylError
from arylcloud.providers.aws.client import Calls
from arylcloud.providers.aws.prices import EC2, WANTED, hourly

HOME: Final = "us-east-1"
"""Where the price list is served."""
FRESH_S: Final = 3600.0


class ListPrices:
    """Safe to use from several threads."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[float | None, float]] = {}

    def now(self, region: str, instance_type: str) -> tuple[float, float] | None:
        """($/h, wall seconds at which it was asked for); None where the list cannot be read, or has none."""
        key = (region, instance_type)
        with self._lock:
            known = self._known.get(key)
        if known is None or time.time() - known[1] > FRESH_S:
            known = (self._ask(region, instance_type), time.time())
            with self._lock:
                self._known[key] = known
        return None if known[0] is None else (known[0], known[1])

    def _ask(self, region: str, instance_type: str) -> float | None:
        wanted = {"regionCode": region, "instanceType": instance_type, **WANTED}
        filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
        try:
            found = self._calls.pages(
                "pricing", HOME, "get_products", "PriceList", ServiceCode=EC2, Filters=filters
            )
        except ArylError:
            return None  # the catalogue's price stands, with its age
        prices = [price[0] for price in map(hourly, map(json.loads, found)) if price is not None]
        return min(prices, default=None)
