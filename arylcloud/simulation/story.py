"""A job's whole story, as the world saw it: what ``checker`` holds its laws against.

Put together by whoever ran the world (``chaos``), or looked at it afterwards. Seconds are the world's own,
whatever anybody's clock said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from arylcloud.core import events as ev
from arylcloud.core.phases import JobPhase
from arylcloud.core.protocol import EpochDoc


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a launcher asked of a cloud."""

    at_s: float
    caller: str
    """Id of the launcher."""
    verb: Literal["create", "terminate"]
    token: str
    """Of the machine: which lease it is about."""
    lease_id: str
    head: int
    """The newest record of the job's journal in its mailbox at that moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineTruth:
    """A machine as its world knows it."""

    instance_id: str
    token: str
    lease_id: str
    landed_s: float
    in_time: bool
    """It came within the time in which a create may land."""
    ended_s: float | None
    bill_micro: int | None
    """Whole micro-dollars, by the world's own account; None: it has not ended."""
    denied: bool = False
    """Its cloud said that there was no capacity."""
    listed_s: float = 0.0
    """It is in no list before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One rank's command, as it really ran: from its start to its end."""

    epoch: int
    lease_id: str
    from_s: float
    to_s: float
    first_step: int
    last_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A manifest, as it really came into the mailbox."""

    manifest: str
    epoch: int
    step: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The newest checkpoint that an epoch's command has left whole on its machines' disks."""

    epoch: int
    step: int
    leases: tuple[str, ...]
    """Whose machines have it: one, or each a part."""
    saved_s: float
    until_s: float
    """The first of the machines was, or would have been, taken by its cloud then; infinite: never."""
    closed: tuple[tuple[float, float], ...]
    """When the way from one of them to the store was closed."""
    said: str = ""
    """What the first of them said of it last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    job_id: str
    records: tuple[ev.Record, ...]
    """As they lie in the mailbox."""
    local: tuple[ev.Record, ...]
    """As the last launcher's home has them."""
    written_s: Mapping[int, float]
    """When each record was in some journal, at the latest: its home's, or the mailbox."""
    documents: Mapping[int, EpochDoc]
    """The epochs as their machines are told them."""
    authors: Mapping[int, str]
    """Who wrote the document of each epoch."""
    calls: tuple[Call, ...]
    machines: tuple[MachineTruth, ...]
    runs: tuple[Ran, ...]
    commits: tuple[Commit, ...]
    total_steps: int
    kept: tuple[Kept, ...] = ()
    may_end: frozenset[JobPhase] = frozenset({JobPhase.SUCCEEDED})
    """How it may end, after what was done to it."""
    resolution_s: float = 1.0
    """How exactly moments of runs and records are known."""
    drain_timeout_s: float = 600.0
    bugs: tuple[str, ...] = ()
    """Exceptions that nobody meant."""
