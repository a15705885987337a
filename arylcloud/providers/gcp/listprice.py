"""What a machine costs now: the sum of its parts in the Cloud Billing Catalog, and when that last changed.

The catalogue is one list of every SKU, some tens of thousands: it is read when a machine is wanted, kept, and
read again after some hours. Where it cannot be read, the price of the offers' catalogue stands, with its age.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from arylcloud.core.errors import ArylError
from arylcloud.core.live import Meter, Shape
from arylcloud.core.offer import Market
from arylcloud.core.ports import PricePoint
from arylcloud.providers.gcp.prices import pages
from arylcloud.providers.gcp.skus import Parts
from arylcloud.providers.patience import Patience
from arylcloud.providers.web import Web

log = logging.getLogger("arylcloud.gcp")
FRESH_S: Final = 3600.0
AGAIN_S: Final = 600.0
"""After a list that could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be priced."""

    instance_type: str
    shape: Shape
    region: str
    market: Market


class ListPrices:
    """Safe to use from several threads."""

    def __init__(self, settings: Mapping[str, str], patience: Patience | None = None) -> None:
        self._settings = settings
        self._web = Web("gcp", patience or Patience(tries=4, longest_s=20.0))
        self._lock = threading.Lock()
        self._parts: Parts | None = None
        self._asked_s = 0.0
        self._tried_s = 0.0
        self._steps: dict[Wanted, list[PricePoint]] = {}

    def now(self, wanted: Wanted) -> tuple[float, float] | None:
        """($/h, wall seconds at which the list was read); None where it cannot be read, or has no such
        machine."""
        with self._lock:
            self._refresh()
            usd = self._usd(wanted)
            return None if usd is None else (usd, self._asked_s)

    def history(self, wanted: Wanted, from_s: float, to_s: float) -> tuple[PricePoint, ...]:
        """The steps that were seen, the first at ``from_s``: the list says since when a price is in force,
        not what it was before. Empty where nothing is known."""
        with self._lock:
            self._refresh()
            if self._usd(wanted) is None:
                return ()
            steps = [one for one in self._steps[wanted] if one.from_s <= to_s] or self._steps[wanted][:1]
        before = [one for one in steps if one.from_s <= from_s]
        first = before[-1] if before else steps[0]
        after = [one for one in steps if one.from_s > from_s and one is not first]
        return (PricePoint(from_s=from_s, usd_per_hour=first.usd_per_hour), *after)

    # ------------------------------------------------------------ parts

    def _usd(self, wanted: Wanted) -> float | None:
        if self._parts is None:
            return None
        usd = self._parts.machine_usd(wanted.instance_type, wanted.shape, wanted.region, wanted.market)
        if usd is None:
            return None
        usd = round(usd, 6)
        steps = self._steps.setdefault(wanted, [])
        if not steps or steps[-1].usd_per_hour != usd:
            since_s = self._parts.since_s(wanted.instance_type, wanted.shape, wanted.region, wanted.market)
            since_s = self._asked_s if since_s is None else min(since_s, self._asked_s)
            if steps:
                since_s = max(since_s, steps[-1].from_s + 1e-3)
            steps.append(PricePoint(from_s=since_s, usd_per_hour=usd))
        return usd

    def _refresh(self) -> None:
        now_s = time.time()
        if self._parts is not None and now_s - self._asked_s < FRESH_S:
            return
        if now_s - self._tried_s < AGAIN_S:
            return
        self._tried_s = now_s
        parts = Parts()
        try:
            for page in pages(self._web, self._settings, Meter()):
                for sku in page.get("skus") or ():
                    parts.read(sku)
        except ArylError as error:  # the catalogue's price stands, with its age
            log.warning("the list of prices cannot be read: %s", error.message)
            return
        self._parts, self._asked_s, self._tried_s = parts, now_s, 0.0
        wanted: Any
        for wanted in list(self._steps):
            self._usd(wanted)
