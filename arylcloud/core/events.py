"""Events: the journal's records, and the answer to every "why".

A job's state is the fold of its events (``launcher/state.py``); logs, screens and reports render
them. ``at_s`` on the record is wall seconds, fields named ``launched_s``/``ended_s``/``from_s`` are
market seconds (the cloud's own clock).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from arylcloud.core.codec import SCHEMA_VERSION, decode, dumps, encode, parse
from arylcloud.core.errors import IntegrityError
from arylcloud.core.events_money import BaselineQuoted as BaselineQuoted
from arylcloud.core.events_money import Charged as Charged
from arylcloud.core.events_money import FilesChanged as FilesChanged
from arylcloud.core.events_money import LeasePriced as LeasePriced
from arylcloud.core.events_money import LimitNear as LimitNear
from arylcloud.core.events_money import LimitsChanged as LimitsChanged
from arylcloud.core.events_money import LimitUnknown as LimitUnknown
from arylcloud.core.events_money import Notified as Notified
from arylcloud.core.events_money import OfferBarred as OfferBarred
from arylcloud.core.events_money import Planned as Planned
from arylcloud.core.events_money import PricesChecked as PricesChecked
from arylcloud.core.events_money import QueueDecided as QueueDecided
from arylcloud.core.events_money import StallSeen as StallSeen
from arylcloud.core.job import JobSpec
from arylcloud.core.offer import Offer
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.pipeline import Pipelines
from arylcloud.core.ports import Billing
from arylcloud.core.protocol import Member

Purpose = Literal["start", "replace", "migrate", "grow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    spec: JobSpec
    prefix_uri: str
    journal_id: str
    market_origin_s: float
    market_scale: float
    plan_digest: str | None = None
    quotes: tuple[BaselineQuoted, ...] = ()
    """What the report compares with, as of the choice: in this record, or a crash could come between."""
    quoted: tuple[Offer, ...] = ()
    """What the clouds were asked before it was confirmed, at the price confirmed; without a price: it
    was not to be had. The launcher's first choice is the one that somebody has agreed to."""
    nodes: int | None = None
    """How many machines were confirmed, of a job whose number may change. None = all that it may have."""
    queued: bool = False
    """It waits for ``serve --policy`` to say when and on what it runs."""
    store_place: str | None = None
    """``cloud/region`` of the bucket under ``prefix_uri``. Empty: not known at launch; None = a folder, or a
    journal of before."""
    planned: Planned | None = None
    """For the report to compare with; None = without a profile nothing was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPhaseChanged:
    phase: JobPhase
    code: str
    """Stable cause code, never empty: ``capacity``, ``user_command``, ``stop_requested``…"""
    text: str
    exit_code: int | None = None
    """Of the user's command, once it has ended by itself."""
    until_s: float | None = None
    """Wall seconds up to which it waits at most, of a wait by choice; None = of no such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherStarted:
    launcher_id: str
    host: str
    pid: int
    adopted: bool = False
    home: str = ""
    """Id of the journal file that it keeps: which of several homes holds the job. Empty: not said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseIntended:
    """Journaled before the cloud is asked: from here on the lease is ours to account for."""

    lease_id: str
    token: str
    offer: Offer
    index: int
    attempt: int
    purpose: Purpose
    until_s: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseCreated:
    lease_id: str
    instance_id: str
    launched_s: float
    usd_per_hour: float | None
    address: str | None
    billing: Billing = field(default_factory=Billing)
    """The cloud's rule for this machine, as it was then: reports need no adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRefused:
    """The cloud said no and nothing exists (``kind`` of the error; ``other`` is tried elsewhere)."""

    lease_id: str
    kind: str
    code: str | None
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateUncertain:
    """Create failed in a way that may have left a machine: nothing new until a list has told."""

    lease_id: str
    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePhaseChanged:
    """READY, SUSPECT, DOOMED; the phases with figures of their own have their own events."""

    lease_id: str
    phase: LeasePhase
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEnding:
    """Intent to terminate, journaled before the call."""

    lease_id: str
    code: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReleased:
    """The cloud no longer lists it as running."""

    lease_id: str
    ended_s: float
    cause: str
    """An EndCause value."""
    code: str | None = None
    """How it went, of one that was never heard and that nobody of us had ended."""
    text: str | None = None
    """Why, in the cloud's own words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeSeen:
    lease_id: str
    action: str
    acts_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskSeen:
    """The cloud thinks it likelier than usual that it will take the machine back: a warning, no notice."""

    lease_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochOpened:
    """Journaled before the epoch document is written."""

    number: int
    attempt: int
    members: tuple[Member, ...]
    resume_from: str | None
    resume_step: int
    reason: str
    grace_s: float | None = None
    """See ``EpochDoc.grace_s``."""
    pipelines: Pipelines | None = None
    """See ``EpochDoc.pipelines``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeChosen:
    """How many machines an elastic job should have from now on."""

    nodes: int
    code: Literal["plan", "scale"]
    """Who says so: the planner, for the work that is left; or a user, and then it stays so."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRefused:
    """A request to scale that cannot be done; the job goes on as it is."""

    number: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStarted:
    """First progress of an epoch's command: boot ends here. Said again of one that runs still, where its
    command's start had been taken for it."""

    epoch: int
    lease_id: str
    at_s: float
    """By its machine's clock."""
    step: int
    ran_s: float = 0.0
    """How long ago that was when this was journaled: no two machines' clocks are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStopped:
    """An epoch's command no longer runs: handed over, ended, or lost with its machine."""

    epoch: int
    lease_id: str
    at_s: float
    """Wall seconds of the last sign of it."""
    last_step: int
    committed_step: int
    committed_saved_at_s: float | None
    """When the newest committed checkpoint was saved: what ran after it is lost work."""
    how: Literal["drained", "exited", "lost"]
    told: bool = True
    """``EndDoc.told``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnded:
    """The user's command ended by itself (not by our signal)."""

    epoch: int
    rank: int
    exit_code: int
    in_setup: bool
    tail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCommitted:
    manifest: str
    epoch: int
    step: int
    saved_at_s: float
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRejected:
    """Damaged: never restored; the one before is used."""

    manifest: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSeen:
    number: int
    verb: str
    args: dict[str, Any]
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationStarted:
    to: Offer
    from_offer: str
    expected_saving_usd: float | None
    forced: bool
    why: str
    nodes: int | None = None
    """How many machines there; None = as many as here."""
    move_usd: float | None = None
    """What the move was expected to cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationEnded:
    done: bool
    text: str
    expected_saving_usd: float | None = None
    took_usd: float | None = None
    """What the new machines have cost before they took over: double running, boot included."""
    took_s: float | None = None
    """Wall seconds since it started."""


Event = (
    JobSubmitted
    | JobPhaseChanged
    | LauncherStarted
    | LeaseIntended
    | LeaseCreated
    | LeaseRefused
    | CreateUncertain
    | LeasePhaseChanged
    | LeasePriced
    | PricesChecked
    | LimitUnknown
    | LimitNear
    | LimitsChanged
    | FilesChanged
    | StallSeen
    | QueueDecided
    | LeaseEnding
    | LeaseReleased
    | NoticeSeen
    | RiskSeen
    | EpochOpened
    | SizeChosen
    | ScaleRefused
    | TrainingStarted
    | TrainingStopped
    | CommandEnded
    | CheckpointCommitted
    | CheckpointRejected
    | RequestSeen
    | MigrationStarted
    | MigrationEnded
    | OfferBarred
    | Charged
    | BaselineQuoted
    | Notified
)

EVENT_TYPES: dict[str, type] = {cls.__name__: cls for cls in Event.__args__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of a job's journal."""

    job_id: str
    seq: int
    """From 1, without gaps."""
    at_s: float
    writer: str
    """Launcher id: two writers of one ``seq`` is the conflict that the fence finds."""
    cause_id: str | None
    """``seq`` of the record, or name of the observation, that made this one happen."""
    event: Event

    def to_bytes(self) -> bytes:
        return dumps(
            {
                "schema_version": SCHEMA_VERSION,
                "job_id": self.job_id,
                "seq": self.seq,
                "at_s": self.at_s,
                "writer": self.writer,
                "cause_id": self.cause_id,
                "kind": type(self.event).__name__,
                "body": encode(self.event),
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes, *, what: str = "journal record") -> Record:
        raw = parse(data, what=what)
        if not isinstance(raw, dict):
            raise IntegrityError(f"{what}: an object was expected")
        version = raw.get("schema_version")
        if version != SCHEMA_VERSION:
            raise IntegrityError(
                f"{what} has schema_version {version!r}, this arylcloud knows {SCHEMA_VERSION}",
                hint="a newer arylcloud wrote it: upgrade this one",
            )
        event_type = EVENT_TYPES.get(str(raw.get("kind")))
        if event_type is None:
            raise IntegrityError(f"{what}: unknown event kind {raw.get('kind')!r}")
        head = decode(_Head, raw, where=what)
        return cls(
            job_id=head.job_id,
            seq=head.seq,
            at_s=head.at_s,
            writer=head.writer,
            cause_id=head.cause_id,
            event=decode(event_type, raw.get("body"), where=f"{what}.body"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    job_id: str
    seq: int
    at_s: float
    writer: str
    cause_id: str | None = None
