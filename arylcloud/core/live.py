"""Live prices: what a cloud's price source is asked for, and how it answers. Columns, not objects.

A source names its *parts* (AWS spot of one region, GCP's one list of SKUs): what can be asked for, can fail
and is remembered alone. It is told again what it wanted to remember, so that a second refresh asks only for
what can have changed. Who merges the answers, and decides what need not be asked, is ``pricing/refresh``.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from arylcloud.core.offer import Market

Memory = Mapping[str, str]
"""What a part wants to be told again: a timestamp, a version."""

NO_MEMORY: Final[Memory] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The hardware of an instance type; unknown is None."""

    gpu: str | None
    """Canonical (``core/gpus``) where it is known there."""
    gpu_count: int | None
    gpu_mem_gib: float | None
    vcpus: float | None
    mem_gib: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the catalogue in force knows of one cloud."""

    shapes: Mapping[str, Shape]
    places: Mapping[str, frozenset[tuple[str, str | None]]]
    """Instance type → (region, zone) where it is sold; zone None = somewhere in the region."""
    regions: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What can be asked for alone."""

    name: str
    """Unique within the cloud, and stable: ``spot/us-east-1``."""
    regions: tuple[str, ...]
    """Empty = every region that the answer speaks of."""
    markets: tuple[Market, ...]
    """Empty = it tells of no prices."""
    version: str | None = None
    """Of the cloud's list: where it is the one that was read last, nothing needs to be asked."""
    max_age_s: float | None = None
    """For lists without a version: an answer younger than this is not asked for again."""


@dataclass(slots=True)
class PriceColumns:
    """Prices, one per place, instance type and market; all columns of one length."""

    region: list[str] = field(default_factory=list)
    zone: list[str | None] = field(default_factory=list)
    """None = the whole region."""
    instance_type: list[str] = field(default_factory=list)
    market: list[Market] = field(default_factory=list)
    usd_per_hour: array[float] = field(default_factory=lambda: array("d"))
    """Per instance."""
    at_s: array[float] = field(default_factory=lambda: array("d"))
    """Unix seconds: since when the price is in force; NaN = the cloud does not say."""

    def __len__(self) -> int:
        return len(self.region)

    def add(
        self,
        region: str,
        zone: str | None,
        instance_type: str,
        market: Market,
        usd_per_hour: float,
        at_s: float = float("nan"),
    ) -> None:
        self.region.append(region)
        self.zone.append(zone)
        self.instance_type.append(instance_type)
        self.market.append(market)
        self.usd_per_hour.append(usd_per_hour)
        self.at_s.append(at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a part said."""

    prices: PriceColumns
    """Every price now in the part's regions and markets: what is not listed is not sold there any more."""
    source: str
    """As the offers' ``source`` says it: ``AWS spot price history``."""
    memory: Memory = field(default_factory=dict)
    changes: PriceColumns | None = None
    """Changes of prices since the memory, where the cloud keeps them; None = it does not."""
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    """Of instance types that ``Known`` lacks, as the cloud describes them."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Raw rows without an offer, by reason."""
    bands: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(region, instance type) → how often the cloud takes such spot machines back: a key of
    ``pricing/hazard.MEAN_LIFE_H``."""


@dataclass(slots=True)
class Meter:
    """What the asking cost; shared by the threads that ask."""

    calls: int = 0
    bytes_in: int = 0
    """As they came over the wire, headers apart."""
    raw_rows: int = 0
    waited: int = 0
    """Calls that were repeated after a throttle or a passing fault."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count(self, *, calls: int = 0, bytes_in: int = 0, raw_rows: int = 0, waited: int = 0) -> None:
        with self._lock:
            self.calls += calls
            self.bytes_in += bytes_in
            self.raw_rows += raw_rows
            self.waited += waited


class NotAsked(Exception):
    """What it takes to ask a part is not there, and need not be (an account, for what is told without one
    by other parts): no error, but said. What was known of the part stays."""


class LiveSource(Protocol):
    """Live prices of one cloud. Both methods may raise AccessError, ThrottledError (after patience),
    OtherCloudError, UsageError (a setting); both only read, and may be repeated."""

    @property
    def cloud(self) -> str: ...

    def parts(self, known: Known, regions: Sequence[str], meter: Meter) -> Sequence[Part]:
        """What can be asked for, of ``regions`` (empty: all) only. May call the cloud (for its regions, for
        the versions of its lists)."""
        ...

    def ask(self, part: Part, memory: Memory, known: Known, meter: Meter) -> Answer:
        """One part, whole: every page, or an error. ``memory``: as the last answer to this part left it;
        empty at first. Called from several threads at once, for different parts. May raise NotAsked."""
        ...
