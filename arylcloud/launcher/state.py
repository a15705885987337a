"""A job as its journal tells it: values only (``fold`` makes them from the journal's records)."""

from __future__ import annotations

from dataclasses import dataclass, field

from arylcloud.core import events as ev
from arylcloud.core.clock import MarketClock
from arylcloud.core.job import JobSpec
from arylcloud.core.offer import Offer
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.pipeline import Pipelines
from arylcloud.core.ports import Billing, PricePoint
from arylcloud.core.protocol import Member

BY_QUEUE = "queue"
"""Key in the arguments of a stop that the queue has asked for, with the reason: such a job comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One machine that we may be paying for, identified by our token before the cloud knows it."""

    lease_id: str
    token: str
    offer: Offer
    index: int
    attempt: int
    purpose: ev.Purpose
    phase: LeasePhase
    since_s: float
    """Wall seconds of the last change of phase."""
    intended_at_s: float
    until_s: float
    why: str
    instance_id: str | None = None
    address: str | None = None
    launched_s: float | None = None
    ended_s: float | None = None
    cause: str | None = None
    ending_code: str | None = None
    """Why we ended it; or how it went, if that was before it was heard."""
    end_text: str | None = None
    """Why it ended, in its cloud's own words."""
    ended_at_s: float | None = None
    """Wall seconds at which its end was journaled."""
    prices: tuple[PricePoint, ...] = ()
    prices_missing_since_s: float | None = None
    """Wall seconds since when steps up to its end are missing: what it cost is not known. None = none is."""
    billing: Billing = field(default_factory=Billing)
    uncertain: bool = False
    """A create failed without proof that nothing exists."""
    uncertain_at_s: float | None = None
    """Wall seconds of that failure: what it left behind may land for a while after it."""
    uncertain_kind: str | None = None
    """Of its error; ``throttled``: the same call is made again, with the same token."""
    created_at_s: float | None = None
    """Wall seconds at which the cloud's answer (or its list) was journaled."""
    notice_acts_at_s: float | None = None
    at_risk: bool = False
    """The cloud has warned that it may take it."""
    refusal: ev.LeaseRefused | None = None

    @property
    def open(self) -> bool:
        return not self.phase.closed

    @property
    def usd_per_hour(self) -> float | None:
        return self.prices[-1].usd_per_hour if self.prices else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One rank's command in one epoch (wall seconds)."""

    epoch: int
    lease_id: str
    started_at_s: float
    """By its machine's clock, as are all moments here but the next."""
    began_at_s: float
    """The same moment in the journal's time."""
    first_step: int
    stopped_at_s: float | None = None
    last_step: int | None = None
    committed_step: int | None = None
    committed_saved_at_s: float | None = None
    how: str | None = None
    told: bool = True
    """Its steps are by its own word; else by its checkpoints alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    number: int
    attempt: int
    members: tuple[Member, ...]
    resume_from: str | None
    resume_step: int
    opened_at_s: float
    reason: str
    grace_s: float | None = None
    pipelines: Pipelines | None = None

    @property
    def drain(self) -> bool:
        return not self.members


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """GPUs of one kind kept for a queued job, whether it had machines or not (wall seconds)."""

    gpu: str
    begin_s: float
    end_s: float | None = None
    """None = it has them still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    job_id: str
    spec: JobSpec
    prefix_uri: str
    journal_id: str
    market_clock: MarketClock
    submitted_at_s: float
    phase: JobPhase = JobPhase.PENDING
    phase_code: str = "submitted"
    phase_text: str = "submitted"
    phase_since_s: float = 0.0
    phase_until_s: float | None = None
    """Of a wait by choice (``JobPhaseChanged.until_s``)."""
    seq: int = 0
    leases: dict[str, Lease] = field(default_factory=dict)
    epochs: tuple[Epoch, ...] = ()
    trainings: tuple[Training, ...] = ()
    checkpoints: tuple[ev.CheckpointCommitted, ...] = ()
    rejected: frozenset[str] = frozenset()
    """Manifests that are damaged."""
    bars: tuple[ev.OfferBarred, ...] = ()
    quoted: tuple[Offer, ...] = ()
    """As its clouds said when it was submitted (``JobSubmitted``)."""
    requests_seen: int = 0
    stop: ev.RequestSeen | None = None
    """A stop that has been asked for and not been overtaken by a resume."""
    migrate_request: ev.RequestSeen | None = None
    scale_request: ev.RequestSeen | None = None
    """Not answered yet."""
    size: int | None = None
    """How many machines it should have, of those that it may have; None = all (``reconcile.sizes``)."""
    size_pinned: bool = False
    """A user has said so: the planner is not asked."""
    size_at_s: float | None = None
    """Wall seconds at which that was said; None = since its submission."""
    migration: ev.MigrationStarted | None = None
    """The one under way."""
    migration_at_s: float | None = None
    """Wall seconds at which the last migration started."""
    migrations_done: int = 0
    interruptions: int = 0
    commands_ended: tuple[ev.CommandEnded, ...] = ()
    exit_code: int | None = None
    charges: tuple[ev.Charged, ...] = ()
    baselines: tuple[ev.BaselineQuoted, ...] = ()
    attempts: int = 0
    """Leases intended so far."""
    notified: frozenset[str] = frozenset()
    limits_unknown: frozenset[str] = frozenset()
    """Limits of which it has been said that they cannot be judged."""
    limits_near: frozenset[str] = frozenset()
    """Limits of which it has been said that most is used up."""
    stalls: tuple[ev.StallSeen, ...] = ()
    store_place: str | None = None
    """``cloud/region`` of its store; None = a folder, or not known."""
    files_sha256: str | None = None
    """Of files that were sent anew; None = those of its launch."""
    files_at_s: float | None = None
    """When that was, wall seconds."""
    planned: ev.Planned | None = None
    """As ``JobSubmitted.planned``."""
    queued: bool = False
    """It was submitted to a queue (``serve --policy``)."""
    placed: ev.QueueDecided | None = None
    """The queue's newest word on what it runs on. None = anything, or nothing yet of a job that is queued."""
    turns: tuple[Turn, ...] = ()
    """All that the queue has given it."""
    losses: tuple[tuple[float, str], ...] = ()
    """(market seconds, offer key) of each loss to the cloud."""
    cooling: tuple[tuple[float, str], ...] = ()
    """(market seconds, ``cloud/region``) of each notice and each loss: where not to go first."""
    history_epoch: int = 0
    """Epochs up to this number ended before the last resume: their ends say nothing about now."""
    history_attempt: int = 0
    """Leases up to this attempt, likewise."""
    launcher: ev.LauncherStarted | None = None
    """The newest: whose home holds the job."""

    @property
    def open_leases(self) -> tuple[Lease, ...]:
        return tuple(lease for lease in self.leases.values() if lease.open)

    @property
    def epoch(self) -> Epoch | None:
        return self.epochs[-1] if self.epochs else None

    @property
    def attempt(self) -> int:
        return self.epochs[-1].attempt if self.epochs else 0

    @property
    def wanted(self) -> int:
        """How many machines it should have, within its range. While it has its turn in a queue: as many as
        the queue has counted."""
        size = self.size if self.turn_nodes is None else self.turn_nodes
        most = self.spec.nodes_max
        return most if size is None else min(max(size, self.spec.nodes_min), most)

    @property
    def turn_nodes(self) -> int | None:
        """The size of its present turn in a queue: not to be scaled. None = it has none, or of any size."""
        return None if self.placed is None else self.placed.nodes

    @property
    def lineage(self) -> ev.CheckpointCommitted | None:
        """The newest checkpoint that a new epoch may resume from: of the open epoch if it
        committed one, else the one that it resumed from itself. Damaged ones are passed over; a drain
        commits nothing and resumes from nothing."""
        by_key = {c.manifest: c for c in self.checkpoints}
        for epoch in reversed(self.epochs):
            own = [c for c in self.checkpoints if c.epoch == epoch.number and c.manifest not in self.rejected]
            if own:
                return own[-1]
            if epoch.resume_from is not None and epoch.resume_from not in self.rejected:
                return by_key.get(epoch.resume_from)
        return None
