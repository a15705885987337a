"""One account of the emulated AWS: what is scripted for it, and what has happened in it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from arylcloud.core.offer import Offer

FIRST_HOUR_S = 3600.0
MINIMUM_S = 60.0


@dataclass(slots=True, kw_only=True)
class Fault:
    """What the next ``times`` calls of ``operation`` answer with."""

    operation: str
    code: str
    status: int = 400
    message: str = "scripted"
    times: int = 1
    region: str | None = None
    effect: str = "none"
    """``none``: nothing is done · ``done``: it is done, and the answer says the error all the same ·
    ``late``: it is done ``late_s`` after the answer · ``cut``: it is done, and the connection breaks ·
    ``html``: nothing is done, and a proxy answers."""
    late_s: float = 0.5


@dataclass(slots=True, kw_only=True)
class Life:
    """A machine, from its creation to its end. Seconds are wall seconds."""

    instance: Any
    """moto's."""
    region: str
    zone_id: str
    instance_type: str
    market: str
    user_data: str
    max_usd: float | None
    vcpus: int
    gpus: int
    spot_request: str | None
    launched_s: float
    state: str = "pending"
    notice_acts_s: float | None = None
    ending_s: float | None = None
    """The bill ends here."""
    cause: str = ""
    """StateReason's code."""
    placement: str | None = None
    """Its placement group."""
    efas: int = 0
    """Interfaces of that kind."""

    @property
    def instance_id(self) -> str:
        return str(self.instance.id)

    @property
    def live(self) -> bool:
        return self.ending_s is None


@dataclass(slots=True, kw_only=True)
class Account:
    """Changed by tests while the server runs; ``lock`` is the server's."""

    id: str
    key: str
    lock: threading.RLock
    faults: list[Fault] = field(default_factory=list)
    capacity: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """(zone id, type, market) → how many there may be; without an entry: any number."""
    spot: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    """(zone id, type) → steps (since, $/h), oldest first: the spot market there."""
    on_demand: dict[tuple[str, str], float] = field(default_factory=dict)
    """(region, type) → $/h, as the price list has it."""
    types: dict[str, Offer] = field(default_factory=dict)
    """Where any are named: what has a price here is sold where it has one, though moto may not know of it. By
    name, as they are described."""
    quotas: dict[tuple[str, str], float] = field(default_factory=dict)
    """(region, code) → vCPUs; without an entry 1,000."""
    scores: dict[tuple[str, str], int] = field(default_factory=dict)
    """(zone id, type) → spot placement score; without an entry 3, as AWS scores a single type."""
    placements: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    """(region, name) of placement groups → their tags."""
    denied: set[str] = field(default_factory=set)
    """Operations that its user may not call."""
    regions: tuple[str, ...] = ("us-east-1", "us-west-2", "eu-central-1")
    """Enabled."""
    boot_s: float = 0.0
    """From creation to running."""
    end_s: float = 0.0
    """From the order to terminated."""
    lag_s: float = 0.0
    """For so long a new instance is missing in lists."""
    notice_s: float = 120.0
    profile_lag_s: float = 0.0
    """For so long EC2 does not know a new instance profile."""
    page: int = 0
    """Most instances in an answer to DescribeInstances; 0 = as asked."""
    says_when: bool = True
    """Whether an interrupted machine's StateTransitionReason has a time."""
    lives: dict[str, Life] = field(default_factory=dict)
    profiles: dict[str, str] = field(default_factory=dict)
    """Instance → its instance profile."""
    tokens: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Client token → (what was asked, instance)."""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """(region, operation), in order."""

    @property
    def called(self) -> Counter[str]:
        return Counter(operation for _, operation in self.calls)

    def price_at(self, zone_id: str, instance_type: str, at_s: float) -> float | None:
        steps = self.spot.get((zone_id, instance_type))
        return None if not steps else [usd for since_s, usd in steps if since_s <= at_s][-1]

    def live(self, zone_id: str | None = None) -> list[Life]:
        return [life for life in self.lives.values() if life.live and zone_id in (None, life.zone_id)]

    def bill(self) -> dict[str, float]:
        """Dollars by instance up to now, by AWS's rules: per second, a minute at least, at the price in
        force; an interruption by AWS within the first hour is free."""
        return {one.instance_id: self._bill(one) for one in self.lives.values()}

    def _bill(self, life: Life) -> float:
        # whole seconds, as AWS writes its moments
        start_s = float(int(life.launched_s))
        end_s = float(int(time.time() if life.ending_s is None else life.ending_s))
        taken = life.cause == "Server.SpotInstanceTermination"
        if taken and end_s - start_s < FIRST_HOUR_S:
            return 0.0
        end_s = max(end_s, start_s + MINIMUM_S)
        if life.market != "spot":
            return self.on_demand[life.region, life.instance_type] * (end_s - start_s) / 3600
        steps = self.spot[life.zone_id, life.instance_type]
        moments = [start_s, *(at_s for at_s, _ in steps if start_s < at_s < end_s), end_s]
        total = 0.0
        for begin_s, stop_s in pairwise(moments):
            price = self.price_at(life.zone_id, life.instance_type, begin_s)
            assert price is not None
            total += price * (stop_s - begin_s) / 3600
        return total
