"""What one size costs in one region now, asked for when a machine of it is wanted.

The Retail Prices API keeps no history: a row says since when its price holds. What was in force before is
known as far as this process has asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final

from arylcloud.core.errors import ArylError
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import PricePoint
from arylcloud.providers.azure.prices import AzurePrices, create
from arylcloud.providers.patience import Patience

FRESH_S: Final = 600.0
AGAIN_S: Final = 60.0
"""A list that could not be read is asked again after so long: not by every look at a machine."""
Steps = list[tuple[float, float]]
"""(since, $/h), oldest first."""


class ListPrices:
    """Safe to use from several threads."""

    def __init__(self, settings: Mapping[str, str], patience: Patience | None = None) -> None:
        self._source: AzurePrices = create(settings, patience or Patience(tries=4, longest_s=20.0))
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str, Market], tuple[Steps, float]] = {}
        self._failed_s: dict[tuple[str, str], float] = {}
        self._none_s: dict[tuple[str, str, Market], float] = {}
        """When the list had no row for it: an answer, too."""

    def now(self, offer: Offer, fresh_s: float = FRESH_S) -> tuple[float, float] | None:
        """($/h, wall seconds at which it was asked for); None where the list cannot be read, or has none."""
        steps, asked_s = self._steps(offer, fresh_s)
        in_force = [usd for since_s, usd in steps if since_s <= time.time()]
        return (in_force[-1], asked_s) if in_force else None

    def history(self, offer: Offer, from_s: float, to_s: float) -> tuple[PricePoint, ...]:
        """As the port's ``price_history``; empty where the price is not known."""
        steps, _ = self._steps(offer, min(FRESH_S, max(1.0, (to_s - from_s) / 60)))
        if not steps:
            return ()
        before = [usd for since_s, usd in steps if since_s <= from_s]
        first = before[-1] if before else steps[0][1]  # the oldest that is known
        later = [(since_s, usd) for since_s, usd in steps if from_s < since_s <= to_s]
        points = [PricePoint(from_s=from_s, usd_per_hour=first)]
        for since_s, usd in later:
            if usd != points[-1].usd_per_hour:
                points.append(PricePoint(from_s=since_s, usd_per_hour=usd))
        return tuple(points)

    def _steps(self, offer: Offer, fresh_s: float) -> tuple[Steps, float]:
        key = (offer.region, offer.instance_type, offer.market)
        now_s = time.time()
        with self._lock:
            known = self._known.get(key)
            failed_s, none_s = self._failed_s.get(key[:2], 0.0), self._none_s.get(key, 0.0)
        if known is not None and now_s - known[1] <= fresh_s:
            return known
        if now_s - failed_s < AGAIN_S or now_s - none_s <= fresh_s:
            return known or ([], now_s)
        try:
            found = self._source.of_size(offer.region, offer.instance_type)
        except ArylError:  # the catalogue's price stands, with its age
            with self._lock:
                self._failed_s[key[:2]] = now_s
            return known or ([], now_s)
        with self._lock:
            for market in Market:
                one = (*key[:2], market)
                if market in found:
                    self._known[one] = (_merged(self._known.get(one, ([], 0.0))[0], found[market]), now_s)
                else:
                    self._none_s[one] = now_s
            return self._known.get(key, ([], now_s))


def _merged(older: Steps, newer: Steps) -> Steps:
    """What was known stays; of one moment the newest word counts."""
    return sorted({**dict(older), **dict(newer)}.items())
