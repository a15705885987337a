"""Time comes from one injected object; nothing else in the product reads a clock."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Wall time. ``now_s`` is Unix seconds (UTC); ``sleep_until`` returns at or after ``at_s``."""

    def now_s(self) -> float: ...

    def sleep_until(self, at_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class SystemClock:
    def now_s(self) -> float:
        return time.time()

    def sleep_until(self, at_s: float) -> None:
        delay = at_s - time.time()
        if delay > 0:
            time.sleep(delay)


@dataclass(slots=True)
class ManualClock:
    """For tests and simulations: time moves only when told, or when somebody sleeps."""

    at_s: float = 0.0

    def now_s(self) -> float:
        return self.at_s

    def sleep_until(self, at_s: float) -> None:
        self.at_s = max(self.at_s, at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketClock:
    """How a market's time runs against wall time.

    Real clouds: the identity. The local cloud may compress: one wall second is ``scale`` market
    seconds from ``origin_s`` on. Prices, bills, deadlines and budgets are in market seconds;
    notices, heartbeats, time-outs and grace in wall seconds (DESIGN, "Compressed time").
    """

    origin_s: float = 0.0
    scale: float = 1.0

    def market_s(self, wall_s: float) -> float:
        return self.origin_s + (wall_s - self.origin_s) * self.scale

    def wall_s(self, market_s: float) -> float:
        return self.origin_s + (market_s - self.origin_s) / self.scale
