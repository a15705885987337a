"""Events about money, limits and guards: a part of ``core/events``, which names them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from arylcloud.core.offer import Offer
from arylcloud.core.ports import PricePoint


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePriced:
    """The price in force from ``from_s`` on: what the ledger integrates."""

    lease_id: str
    from_s: float
    usd_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesChecked:
    """Whether a lease's price steps are all in the journal, where they could not be read at its release."""

    lease_id: str
    complete: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUnknown:
    """A limit of the user cannot be judged at present: said once."""

    limit: Literal["budget"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitNear:
    """Most of a limit is used up: said once, while there is still time to do something about it."""

    limit: Literal["budget", "deadline"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsChanged:
    """The user's limits from here on, all of them (``core/job.Constraints`` says what each is); None = no
    such limit. What else the job was submitted with stays."""

    budget_usd: float | None
    deadline_s: float | None
    max_runtime_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferBarred:
    """Planners see fewer offers until ``until_s`` (market seconds: capacity is the market's). ``scope``:
    ``place[:type[:market]]``, like the beginning of ``Offer.key`` (``launcher/offers.covers``)."""

    scope: str
    until_s: float
    code: str
    why: str
    times: int = 1  # in a row
    spared: tuple[str, ...] = ()
    """Zones inside the scope that are not barred: the cloud itself has named them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDecided:
    """A queued job may run now, on GPUs of this kind alone. (Making way is a request to stop.)"""

    gpu: str
    why: str
    nodes: int | None = None
    """On so many machines, neither more nor fewer; None = as many as it would have without a queue."""
    count: int | None = None
    """GPUs of each; None = not said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallSeen:
    """A command, or a machine, that is there and does nothing: once per epoch (0: none), lease and kind.
    ``lease_id`` is empty where it is the epoch's whole gang."""

    epoch: int
    lease_id: str
    kind: Literal["hung", "idle", "frozen"]
    """No step for many times the usual; no step was ever shown and it says nothing; the machine is silent,
    and its cloud says that it runs."""
    for_s: float
    do: Literal["report", "restart", "stop"]
    """What is done about it."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Charged:
    """Money other than machines."""

    what: Literal["egress", "storage"]
    usd: float
    """In addition to what was charged before; a lower bound where some of it is unknown."""
    gb: float
    text: str
    unknown: str = ""
    """What of all so far has no known price, in words; the newest event of a kind says. Empty = nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineQuoted:
    """What the report compares with, quoted when the choice was made, so that no later catalogue
    changes a report. A later quote of the same ``name`` and offer replaces the earlier one."""

    name: Literal["on_demand", "cheapest_per_hour", "fixed_zone"]
    """``on_demand``: the twin of a type that the job is put on (one for each such type); ``fixed_zone``:
    the first placement's offer; ``cheapest_per_hour``: the acceptable one with the lowest $/h."""
    offer: Offer
    """With its price; None in it = not known."""
    speed: float | None = None
    """Throughput on this offer relative to the one first chosen (same number of nodes)."""
    prices: tuple[PricePoint, ...] = ()
    """Price steps over the job's life (market seconds), once it has ended; else the quote holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesChanged:
    """What the job's machines run from here on: a folder that was sent anew, of a job that had ended."""

    workdir: str
    """Where it is, on the machine of whoever sent it."""
    sha256: str
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What the plan that was confirmed expected of the job, from its submission to its end."""

    usd_p50: float
    usd_p90: float
    hours_p50: float
    """Market hours."""
    hours_p90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Notified:
    topic: str
    ok: bool
    text: str
