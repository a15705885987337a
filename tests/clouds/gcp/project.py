"""One project of the emulated Google Cloud: what is scripted for it, and what has happened in it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from clouds.gcp.pricing import PriceBook

Doc = dict[str, Any]
MINIMUM_S = 60.0


@dataclass(slots=True, kw_only=True)
class Fault:
    """What the next ``times`` calls of ``method`` answer with."""

    method: str
    """``instances.insert``."""
    code: str
    """``errors[].reason``; the code of the operation's error where ``effect`` is ``operation``."""
    status: int = 400
    message: str = "scripted"
    times: int = 1
    retry_after_s: float | None = None
    effect: str = "none"
    """``none``: nothing is done · ``operation``: 200, and the operation fails · ``late``: it is done
    ``late_s`` after the answer · ``cut``: it is done, the connection breaks · ``html``: a proxy answers."""
    late_s: float = 0.5
    details: list[Doc] = field(default_factory=list)
    """``errorDetails`` of an operation's error."""


@dataclass(slots=True, kw_only=True)
class Life:
    """A machine, from its creation to its end. Seconds are wall seconds."""

    doc: Doc
    zone: str
    instance_type: str
    market: str
    gpus: int
    model: str
    """``L4``: of its quota."""
    launched_s: float
    boots_s: float
    max_run_s: float | None
    preempted: bool = False
    """What the metadata service says."""
    acts_s: float | None = None
    stopping_s: float | None = None
    """Being deleted or preempted since."""
    gone_at_s: float | None = None
    """When the end that is on its way comes."""
    ended_s: float | None = None
    """The bill ends here."""
    cause: str = ""
    """The operation that ended it first."""
    removed: bool = False
    failed: bool = False
    """Its insertion's operation ends with an error: it was never a machine."""
    started: bool = False
    """Its user data runs."""

    @property
    def name(self) -> str:
        return str(self.doc["name"])

    @property
    def region(self) -> str:
        return self.zone.rpartition("-")[0]

    @property
    def live(self) -> bool:
        return self.ended_s is None


@dataclass(slots=True, kw_only=True)
class Project:
    """Changed by tests while the server runs; ``lock`` is the server's."""

    id: str
    lock: threading.RLock
    prices: PriceBook
    faults: list[Fault] = field(default_factory=list)
    capacity: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """(zone, type, market) → how many there may be; without an entry: any number."""
    quotas: dict[tuple[str, str], float] = field(default_factory=dict)
    """(region, or "" for all, metric) → limit; without an entry 64."""
    denied: set[str] = field(default_factory=set)
    """Permissions that its user has not."""
    op_s: float = 0.1
    """How long an operation takes."""
    boot_s: float = 0.1
    end_s: float = 0.1
    lag_s: float = 0.0
    """For so long a new instance is missing in lists."""
    notice_s: float = 30.0
    page: int = 0
    """Most items of an answer; 0 = as asked."""
    tells: bool = True
    """Whether operations of an end are listed."""
    lives: dict[str, Life] = field(default_factory=dict)
    """By name; a name that is used again replaces the one before."""
    past: list[Life] = field(default_factory=list)
    operations: dict[str, Doc] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    """Request id → operation."""
    networks: dict[str, Doc] = field(default_factory=dict)
    firewalls: dict[str, Doc] = field(default_factory=dict)
    subnetworks: dict[tuple[str, str], Doc] = field(default_factory=dict)
    resource_policies: dict[tuple[str, str], Doc] = field(default_factory=dict)
    disks: dict[tuple[str, str], Doc] = field(default_factory=dict)
    accounts: dict[str, str] = field(default_factory=dict)
    """Access token → service account."""
    identities: dict[str, Doc] = field(default_factory=dict)
    """Service accounts, by e-mail address."""
    policies: dict[str, Doc] = field(default_factory=dict)
    """Of instances and service accounts, by name."""
    calls: list[str] = field(default_factory=list)
    """``instances.insert``, in order."""

    @property
    def called(self) -> Counter[str]:
        return Counter(self.calls)

    def live(self, zone: str | None = None) -> list[Life]:
        return [life for life in self.lives.values() if life.live and zone in (None, life.zone)]

    def bill(self) -> dict[str, float]:
        """Dollars by instance up to now: per second, a minute at least, at the price in force."""
        return {one.name: self._bill(one) for one in [*self.past, *self.lives.values()]}

    def _bill(self, life: Life) -> float:
        if life.failed:
            return 0.0
        end_s = time.time() if life.ended_s is None else life.ended_s
        end_s = max(end_s, life.launched_s + MINIMUM_S)
        return self.prices.cost(life.region, life.instance_type, life.market, life.launched_s, end_s)
