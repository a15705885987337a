"""What the core needs of the world. Each docstring is the method's contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from arylcloud.core.clock import MarketClock
from arylcloud.core.offer import Offer

# ---------------------------------------------------------------- machines


class MachineState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    """Still paid for, or may be."""
    GONE = "gone"
    """Ended; listed for a while so that its end and its cause can be read."""


class EndCause(StrEnum):
    TERMINATED = "terminated"
    """We asked for it."""
    INTERRUPTED = "interrupted"
    """The cloud took it back."""
    SELF = "self"
    """The machine ended itself (dead-man's switch)."""
    NO_ROOM = "no_room"
    """It was taken on and never ran: there was no room, or no quota, for it after all. Not billed."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpec:
    """What ``create`` is asked for."""

    token: str
    """Idempotency: a second create with this token returns the first one's machine."""
    journal_id: str
    job_id: str
    lease_id: str
    offer: Offer
    user_data: str
    """The boot stub: no secrets, < 16 KB."""
    until_s: float
    """Wall seconds; tagged ``arylcloud-until`` and enforced by the machine itself."""
    max_usd_per_hour: float | None
    disk_gb: float | None = None
    image: str | None = None
    nodes: int = 1
    """So many machines are to work together in this zone: near one another, and with a way to one another."""
    gang: bool = False
    """More of them may come to work with it later, though it begins alone."""
    identity: str | None = None
    """What it runs as (``core.stores.Lending.identity``): instance profile, service account, identity.
    None = what the adapter's settings name, or nothing."""

    @property
    def in_gang(self) -> bool:
        """Whether it is put, and given a network, as one of several."""
        return self.gang or self.nodes > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine as its cloud sees it. Seconds are market seconds (see MarketClock)."""

    instance_id: str
    token: str
    journal_id: str
    job_id: str
    lease_id: str
    cloud: str
    region: str
    zone: str | None
    instance_type: str
    market: str
    state: MachineState
    usd_per_hour: float | None
    """The price in force now, for the instance; None = the cloud does not say."""
    launched_s: float
    """When the bill starts: the cloud's own launch time."""
    ended_s: float | None = None
    """When the bill ends; None while it runs."""
    end_cause: EndCause | None = None
    """Of one that is STOPPING only where its cloud had NO_ROOM."""
    end_text: str | None = None
    """Why, in the cloud's own words; None = it does not say."""
    address: str | None = None
    until_s: float | None = None
    """Wall seconds: end of its lease, as renewed last where the cloud lets machines renew it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricePoint:
    """From ``from_s`` (market seconds) on, until the next point, the price is ``usd_per_hour``."""

    from_s: float
    usd_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Billing:
    minimum_s: float = 60.0
    first_hour_interruption_free: bool = False
    """AWS: an interruption by the cloud in the first hour costs nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Optional abilities as data; an adapter never raises NotImplementedError."""

    notice_s: float
    """Best-effort warning before an interruption; 0 = none."""
    billing: Billing
    market_clock: MarketClock
    boot_s: float
    """Usual wall seconds from create to the first heartbeat."""
    list_every_s: float = 0.0
    """Wall seconds between two lists of its machines while nothing is about to change; 0 = as often as one
    likes."""
    renews_until: bool = False
    """Machines may renew their ``until``, so that the one which is listed is the lease's end."""
    compressed: bool = False
    """True on the local cloud under compressed time: its dollars are not spent by anyone."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """How its machines learn of an interruption: ``protocol``, ``url``, ``poll_s``, ``lead_s`` (from
    notice to end, where machines are made with another than the cloud's usual one; ``agent/notice.py``);
    empty = the machine's own environment says."""
    machine_env: Mapping[str, str] = field(default_factory=dict)
    """What a machine of this cloud has to have in its environment (regions, endpoints, how it ends itself):
    never a secret."""


class Provider(Protocol):
    """One cloud. Every method may raise AccessError, ThrottledError, OtherCloudError."""

    @property
    def name(self) -> str: ...

    def capabilities(self) -> Capabilities: ...

    def quote(self, offer: Offer) -> Offer:
        """The offer at its price now, ``as_of`` now. Read-only, retryable.
        Raises CapacityError where the type is not offered there at present."""
        ...

    def create(self, spec: MachineSpec) -> Machine:
        """Idempotent by ``spec.token``: asked twice, it answers with the first one's machine.
        Raises CapacityError, QuotaError, AccessError: this call has created nothing (an earlier one
        with the same token may have). Any other error: it may have; the caller finds out with
        ``list_machines``. Never retried inside."""
        ...

    def list_machines(self, *, journal_id: str | None, offers: Sequence[Offer] = ()) -> tuple[Machine, ...]:
        """All machines tagged with this journal (None: any journal), over every region of
        ``offers`` (empty: every region). Read-only, retryable. May lag a create by seconds; shows
        ended machines for at least 10 minutes."""
        ...

    def terminate(self, machine: Machine) -> None:
        """Ask for its end, with its disks and addresses. Idempotent; the missing is success.
        Returns before the end: the caller asks ``list_machines`` until it is gone."""
        ...

    def price_history(self, offer: Offer, from_s: float, to_s: float) -> tuple[PricePoint, ...]:
        """Price steps in force within [from_s, to_s] (market seconds), the first at or before
        ``from_s``. Read-only, retryable. On demand: one point."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Something that a cloud holds for us beside machines: a network, a role, a disk left behind."""

    cloud: str
    region: str
    kind: str
    """As the cloud calls it: ``security-group``, ``network``, ``nic``, ``disk``, ``role``…"""
    resource_id: str
    journal_id: str
    job_id: str | None = None
    """Of a job's own; None = shared by all jobs of the journal."""
    costs: bool = False
    """Whether it is paid for while it exists."""


class Infrastructure(Protocol):
    """What an adapter sets up beside machines. May raise as :class:`Provider` does."""

    def resources(self, *, journal_id: str | None) -> tuple[Resource, ...]:
        """Everything that carries this journal's tag (None: any journal's), over every region.
        Read-only, retryable."""
        ...

    def remove(self, resource: Resource) -> None:
        """Idempotent; the missing is success. Raises ConflictError while a machine still uses it."""
        ...


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The cloud does not let us ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that ``check`` looked at."""

    cloud: str
    region: str | None
    subject: str
    """``identity``, ``permissions``, ``quota``, ``image``, ``network``, ``bucket``, ``offered``; ``set up``
    where the cloud cannot be asked from here."""
    verdict: Verdict
    said: str
    """One line, with the exact name and numbers: quota L-3819A6DF needs 96 vCPUs, has 0."""
    remedy: str | None = None
    about: str | None = None
    """``Offer.key`` of what is ``offered`` or not; of a ``quota`` the key without the zone, since all zones
    of a region share it. None: of the cloud, or the region, as such."""


class Checks(Protocol):
    def check(self, offers: Sequence[Offer], *, nodes: int, until_s: float | None) -> tuple[Finding, ...]:
        """The very calls that a launch on these offers would make, dry: nothing is created. A cloud that
        says no is a FAILED finding, not an exception. ``until_s``: wall seconds of the planned end, for
        credentials that expire before."""
        ...


class PriceSource(Protocol):
    """Live prices of one cloud. ``pricing`` lays them over the catalogue."""

    @property
    def name(self) -> str: ...

    def offers(self) -> tuple[Offer, ...]:
        """Every GPU offer at its price now, each with ``as_of`` and ``source``. Read-only."""
        ...


# ---------------------------------------------------------------- objects


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    key: str
    size: int
    modified_s: float


class ObjectStore(Protocol):
    """A prefix of an object store; keys are relative to it. Every method may raise StoreError
    (cannot be reached, or refused): retryable, all methods are idempotent but ``create``."""

    @property
    def uri(self) -> str: ...

    def create(self, key: str, data: bytes) -> bool:
        """Put-if-absent, atomic: True if written, False if the key exists already."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Atomic overwrite: readers see the old or the new bytes, never a mixture."""
        ...

    def get(self, key: str) -> bytes | None:
        """The object, or None if there is none."""
        ...

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """Objects whose key starts with ``prefix`` and is greater than ``after``, in key order."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Remove; the missing is success."""
        ...
