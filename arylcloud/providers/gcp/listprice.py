"""What a machine costs now: the sum of its parts in the Cloud Billing Catalog, and when that last changed.

The catalogue is one list of every SKU, some tens of thousands: it is read when a machine is wanted, kept, and
read again after an hour, beside what goes on meanwhile. Where it cannot be read, the price of the offers'
catalogue stands, with its age.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from arylcloud.core.errors import ArylError, UsageError
from arylcloud.core.live import Meter, Shape
from arylcloud.core.offer import Market
from arylcloud.core.ports import PricePoint
from arylcloud.providers.gcp.prices import pages
from arylcloud.providers.gcp.skus import Parts
from arylcloud.providers.patience import Patience
from arylcloud.providers.web import Web

log = logging.getLogger("arylcloud.gcp")
EVERY_S: Final = 3600.0
"""``[gcp] prices_every_s``."""
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
        self._every_s = _every_s(settings)
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._parts: Parts | None = None
        self._asked_s = 0.0
        self._tried_s = 0.0
        self._steps: dict[Wanted, list[PricePoint]] = {}

    def freshen(self) -> None:
        """Read again now what is old: before a price is promised or paid."""
        self._refresh(wait=True)

    def now(self, wanted: Wanted) -> tuple[float, float] | None:
        """($/h, wall seconds at which the list was read); None where it cannot be read, or has no such
        machine."""
        self._refresh(wait=False)
        with self._lock:
            usd = self._usd(wanted)
            return None if usd is None else (usd, self._asked_s)

    def history(self, wanted: Wanted, from_s: float, to_s: float) -> tuple[PricePoint, ...]:
        """The steps that were seen, the first at ``from_s``. The list says since when a price is in force,
        not what it was before: where nothing older was seen the first price is the later one's, and the
        moment from which it is certain has its own step. Empty where nothing is known."""
        self._refresh(wait=True)  # it ends up in a bill
        with self._lock:
            if self._usd(wanted) is None:
                return ()
            steps = list(self._steps[wanted])
        first = next((one for one in reversed(steps) if one.from_s <= from_s), steps[0])
        after = [one for one in steps if from_s < one.from_s <= to_s]
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

    def _refresh(self, *, wait: bool) -> None:
        """Where the list is old. Only the first one is waited for, unless ``wait`` says so."""
        if not self._old():
            return
        if wait or self._parts is None:
            with self._reading:
                if self._old():
                    self._read()
        elif self._reading.acquire(blocking=False):
            threading.Thread(target=self._read_and_release, name="gcp-prices", daemon=True).start()

    def _old(self) -> bool:
        now_s = time.time()
        if now_s - self._tried_s < AGAIN_S:
            return False
        return self._parts is None or now_s - self._asked_s >= self._every_s

    def _read_and_release(self) -> None:
        try:
            if self._old():
                self._read()
        finally:
            self._reading.release()

    def _read(self) -> None:
        now_s = time.time()
        parts = Parts()
        try:
            for page in pages(self._web, self._settings, Meter()):
                for sku in page.get("skus") or ():
                    parts.read(sku)
        except ArylError as error:  # the catalogue's price stands, with its age
            self._tried_s = now_s
            log.warning("the list of prices cannot be read: %s", error.message)
            return
        with self._lock:
            self._parts, self._asked_s, self._tried_s = parts, now_s, 0.0
            for wanted in list(self._steps):
                self._usd(wanted)


def _every_s(settings: Mapping[str, str]) -> float:
    try:
        return float(settings.get("prices_every_s", EVERY_S))
    except ValueError:
        raise UsageError("[gcp] prices_every_s is no number") from None
