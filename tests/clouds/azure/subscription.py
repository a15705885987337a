"""One subscription of the emulated Azure: what is scripted for it, and what has happened in it."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

MINIMUM_S = 60.0
Doc = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Fault:
    """What the next ``times`` calls of ``operation`` answer with."""

    operation: str
    """Method and type: ``PUT virtualMachines``."""
    code: str
    status: int = 400
    message: str = "scripted"
    times: int = 1
    effect: str = "none"
    """``none``: nothing is done · ``done``: it is done, and the answer says the error all the same ·
    ``late``: it is done ``late_s`` after the answer · ``cut``: it is done, and the connection breaks ·
    ``html``: nothing is done, and a proxy answers · ``inside``: it is taken, and fails in the operation,
    ``late_s`` later."""
    late_s: float = 0.3
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    family: str
    vcpus: int
    gpus: int
    zones: tuple[str, ...] = ("1", "2", "3")
    barred: str | None = None
    """ReasonCode of a restriction."""


SIZES = {
    "Standard_NC4as_T4_v3": Size(family="standardNCASv3_T4Family", vcpus=4, gpus=1),
    "Standard_NC8as_T4_v3": Size(family="standardNCASv3_T4Family", vcpus=8, gpus=1),
    "Standard_NC6s_v3": Size(family="standardNCSv3Family", vcpus=6, gpus=1),
    "Standard_NC24ads_A100_v4": Size(family="StandardNCADSA100v4Family", vcpus=24, gpus=1),
}


@dataclass(slots=True, kw_only=True)
class Vm:
    """A machine, from its order to its end. Seconds are wall seconds."""

    id: str
    doc: Doc
    region: str
    zone: str | None
    size: str
    market: str
    user_data: str
    max_usd: float | None
    created_s: float
    principal: str | None
    fails: tuple[str, str, float] | None = None
    """(code, message, seconds after its order) of an operation that comes to nothing."""
    state: str = "Creating"
    power: str | None = None
    booted: bool = False
    notice_acts_s: float | None = None
    event_id: str | None = None
    ending_s: float | None = None
    """The bill ends here."""
    cause: str = ""
    """``delete``, ``self``, ``evicted``."""
    gone: bool = False

    @property
    def name(self) -> str:
        return self.id.split("/")[-1]

    @property
    def live(self) -> bool:
        """It is paid for."""
        return self.ending_s is None and self.state != "Failed" and self.power != "deallocated"


@dataclass(slots=True, kw_only=True)
class Subscription:
    """Changed by tests while the server runs; ``lock`` is the server's."""

    id: str
    client: str
    """Of its user, an application."""
    lock: threading.RLock
    sizes: dict[str, Size] = field(default_factory=lambda: dict(SIZES))
    regions: tuple[str, ...] = ("eastus", "westeurope")
    faults: list[Fault] = field(default_factory=list)
    capacity: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """(region, size, market) → how many there may be; without an entry: any number."""
    usd: dict[tuple[str, str, str], list[tuple[float, float]]] = field(default_factory=dict)
    """(region, size, market) → steps (since, $/h), oldest first."""
    gives: dict[str, str] = field(default_factory=dict)
    """Size that is asked for → size that is made."""
    quotas: dict[tuple[str, str], float] = field(default_factory=dict)
    """(region, name) → vCPUs; without an entry 1,000."""
    evictions: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """(region, size) → eviction rate, as Azure writes it."""
    denied: set[str] = field(default_factory=set)
    """Operations that its user may not call."""
    images: tuple[str, ...] = ("2404", "2404-v100", "2204")
    policy: str | None = None
    """A tag that every machine has to have."""
    allocate_s: float = 0.0
    """From the order until Azure knows whether there is room."""
    boot_s: float = 0.0
    """From the order to running."""
    end_s: float = 0.0
    lag_s: float = 0.0
    """For so long a new machine is missing in lists."""
    log_lag_s: float = 0.0
    """The activity log is that late."""
    notice_s: float = 30.0
    page: int = 0
    """Most items of a page; 0 = all."""
    token_s: float = 3600.0
    documents: dict[str, Doc] = field(default_factory=dict)
    """Everything but machines, by id in lower case."""
    vms: dict[str, Vm] = field(default_factory=dict)
    """Also those that are gone; by id in lower case and number."""
    operations: dict[str, Doc] = field(default_factory=dict)
    roles: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Id of a role assignment → (its scope, principal)."""
    log: list[Doc] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    @property
    def called(self) -> Counter[str]:
        return Counter(self.calls)

    def live(self) -> list[Vm]:
        return [vm for vm in self.vms.values() if vm.live]

    def there(self) -> list[Vm]:
        return [vm for vm in self.vms.values() if not vm.gone]

    def vm(self, instance_id: str) -> Vm:
        """By our adapter's name for it: ``group/name``."""
        group, name = instance_id.split("/")
        return next(
            vm
            for vm in self.vms.values()
            if vm.id.lower().split("/")[4] == group and vm.name.lower() == name.lower()
        )

    def left(self) -> list[str]:
        """Ids of everything that is there, but machines."""
        return sorted(doc["id"] for doc in self.documents.values())

    def price_at(self, vm: Vm, at_s: float) -> float:
        steps = self.usd[vm.region, vm.size, vm.market]
        return [usd for since_s, usd in steps if since_s <= at_s][-1]

    def bill(self) -> dict[str, float]:
        """Dollars by machine up to now: per second, a minute at least, at the price in force."""
        return {vm.name: self._bill(vm) for vm in self.vms.values() if vm.fails is None}

    def _bill(self, vm: Vm) -> float:
        end_s = max(time.time() if vm.ending_s is None else vm.ending_s, vm.created_s + MINIMUM_S)
        steps = self.usd[vm.region, vm.size, vm.market]
        inner = [at_s for at_s, _ in steps if vm.created_s < at_s < end_s]
        moments = [vm.created_s, *inner, end_s]
        return sum(
            self.price_at(vm, begin_s) * (stop_s - begin_s) / 3600 for begin_s, stop_s in pairwise(moments)
        )


def fresh_id() -> str:
    return str(uuid.uuid4())
