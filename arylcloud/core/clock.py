"""Time comes from one injected object; nothing else in the product reads a clock.

Wall time is for documents: it may be set, forwards and back, at any moment. How long something has taken,
or may still take, is measured by ``monotonic_s``, or by a :class:`SlewedClock` where both are needed.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Final, Protocol

_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""What goes on while the machine is suspended: on Linux BOOTTIME; on macOS MONOTONIC does (and Python's
``time.monotonic`` does not)."""


class Clock(Protocol):
    def now_s(self) -> float:
        """Wall time: Unix seconds (UTC)."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since some moment of this machine: never set, never back, counted while it is suspended."""
        ...

    def sleep(self, seconds: float) -> None:
        """Returns after ``seconds`` or later; at once for 0 and less."""
        ...


@dataclass(frozen=True, slots=True)
class SystemClock:
    def now_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.clock_gettime(_STEADY)

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)


@dataclass(slots=True)
class ManualClock:
    """For tests and simulations: time moves only when told, or when somebody sleeps."""

    at_s: float = 0.0
    """Wall time; whoever moves it lets time pass."""
    stepped_s: float = 0.0

    def now_s(self) -> float:
        return self.at_s

    def monotonic_s(self) -> float:
        return self.at_s - self.stepped_s

    def sleep(self, seconds: float) -> None:
        self.at_s += max(0.0, seconds)

    def step(self, seconds: float) -> None:
        """The wall clock is set, forwards or back: no time passes."""
        self.at_s += seconds
        self.stepped_s += seconds


SLEW: Final = 0.02
"""Below the margins of all our time-outs; a clock that was set by an hour is caught up with in two days."""
READ_S: Final = 1e-3
"""The two clocks are not read at once: less than this is no step."""


@dataclass(slots=True)
class SlewedClock:
    """Wall time without its steps: it runs up to 2 % faster or slower until it has caught up with a
    wall clock that was set. So every difference of two readings is within 2 % of the time that
    has passed.

    >>> clock = ManualClock(1000.0)
    >>> slewed = SlewedClock(clock)
    >>> clock.step(-3600.0); clock.at_s += 100.0
    >>> slewed.now_s(), clock.now_s()
    (1098.0, -2500.0)
    """

    clock: Clock
    _now_s: float = field(init=False)
    _wall_s: float = field(init=False)
    _read_s: float = field(init=False)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._now_s = self._wall_s = self.clock.now_s()
        self._read_s = self.clock.monotonic_s()

    def go_on_from(self, now_s: float) -> None:
        """It is ``now_s``, whatever the wall says; from here on it catches up with that."""
        with self._lock:
            self._now_s = now_s
            self._read_s = self.clock.monotonic_s()

    def now_s(self) -> float:
        with self._lock:
            wall_s, read_s = self.clock.now_s(), self.clock.monotonic_s()
            passed_s = max(0.0, read_s - self._read_s)
            self._read_s = read_s
            self._wall_s = wall_s
            most_s = SLEW * passed_s
            behind_s = wall_s - (self._now_s + passed_s)
            if abs(behind_s) <= most_s + READ_S:
                self._now_s = wall_s
            else:
                self._now_s += passed_s + min(max(behind_s, -most_s), most_s)
            return self._now_s

    @property
    def ahead_s(self) -> float:
        """Of the wall, at present: 0 unless that was set. A moment of the wall (a notice's) is this much
        later here."""
        now_s = self.now_s()
        return 0.0 if now_s == self._wall_s else now_s - self._wall_s

    def monotonic_s(self) -> float:
        return self.clock.monotonic_s()

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)


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
