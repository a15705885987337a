"""What ``reconcile`` may ask for, and what it is shown. Values only.

The executor carries actions out in order: intent journaled, effect, outcome journaled. An action
without a journal record of its own is idempotent and harmless to repeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from arylcloud.core.events import Event, Purpose
from arylcloud.core.offer import Offer
from arylcloud.core.pipeline import Pipelines
from arylcloud.core.ports import Capabilities, Machine
from arylcloud.core.protocol import EndDoc, Heartbeat, Member, RequestDoc


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateLease:
    """Journal LeaseIntended (unless the lease is INTENDED already: a crash came between, and the
    same token makes the repeat harmless), create, journal LeaseCreated, LeaseRefused (with an
    OfferBarred) or CreateUncertain."""

    lease_id: str
    token: str
    offer: Offer
    index: int
    attempt: int
    purpose: Purpose
    until_s: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndLease:
    """Journal LeaseEnding (unless ENDING already), terminate ``machine`` if the cloud shows one."""

    lease_id: str
    machine: Machine | None
    code: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepMachine:
    """Terminate a machine that carries this journal's id and whose lease is closed or unknown."""

    machine: Machine
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEpoch:
    """Journal EpochOpened, then create the epoch document."""

    number: int
    attempt: int
    members: tuple[Member, ...]
    resume_from: str | None
    resume_step: int
    reason: str
    grace_s: float | None = None
    pipelines: Pipelines | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishEpoch:
    """The epoch is journaled, its document is not in the mailbox: a crash came between."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Journal an observation or a decision that has no effect outside the journal."""

    event: Event
    cause_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Tell the user (``aryl: notify``) and journal that it was tried."""

    topic: str
    text: str


Action = CreateLease | EndLease | SweepMachine | OpenEpoch | PublishEpoch | Note | Notify


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSeen:
    """A manifest in the mailbox whose own digest holds."""

    key: str
    epoch: int
    number: int
    step: int
    saved_at_s: float
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The world, as far as it answered."""

    machines: tuple[Machine, ...]
    """Of this journal and job, over every cloud in ``listed``."""
    listed: frozenset[str]
    """Clouds whose list answered this time; of the others nothing is concluded."""
    beats: Mapping[str, Heartbeat]
    ends: tuple[EndDoc, ...]
    checkpoints: tuple[CheckpointSeen, ...]
    damaged: Mapping[str, str]
    """Manifest keys whose digest does not hold, with what is wrong."""
    requests: tuple[RequestDoc, ...]
    """Not yet journaled ones, in order."""
    published_epoch: int
    """Highest epoch document in the mailbox."""
    mailbox_ok: bool = True
    """False: the mailbox could not be read; beats and documents are then those of last time."""
    unlisted_s: Mapping[str, float] = field(default_factory=dict)
    """Clouds that cannot be asked: for how many seconds of this observer's own time."""
    heard_s_ago: Mapping[str, float] = field(default_factory=dict)
    """By lease: seconds of this observer's own time since its heartbeat last changed before our eyes (or
    was read for the first time: it may have been lying there for long). No two machines' clocks are ever
    compared; infinite for one that was SUSPECT already when we began to look."""
    pauses: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By lease: how long its last long pause between two signs of life was, and how long ago it ended: of
    this observer's own time, less what it did not look itself."""
    end_seen_s_ago: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """By (epoch, rank): likewise, since its EndDoc was first seen."""
    wrote_after_s: Mapping[tuple[int, int, str], float] = field(default_factory=dict)
    """By (epoch, rank, lease): how much later than that EndDoc the lease's heartbeat was written which lay
    there when the EndDoc was first seen. Both by the store's clock, in whole seconds on some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveAdvice:
    """The migration policy's word on the current placement (computed by the planner)."""

    to: Offer
    saving_usd: float
    move_usd: float | None
    """None = not estimated: it moves for another reason."""
    why: str
    nodes: int | None = None
    """How many machines there; None = as many as here."""
    urgent: bool = False
    """Staying would miss the deadline, or its policy says so: however short ago the last move was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueStart:
    """The deadline policy's word to a job that lacks machines: what may be asked for now, nothing else."""

    to: Offer | None
    """None: nothing. It waits for spot, and nothing is paid for."""
    until_s: float
    """Wall seconds of the latest safe start on demand: no wait goes beyond."""
    why: str
    forced: bool = False
    """No time is left to try anything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What the remaining work comes to where the job runs now, by number of machines (planner)."""

    offer_key: str
    best: int
    """The number of machines that is best."""
    loss: Mapping[int, float]
    """Number of machines → the objective's value in dollars; less is better. Sizes that cannot be
    estimated are not in it."""
    handover: float
    """What one change of size costs, likewise: every machine stands still for the length of a hand-over."""
    boot: float = 0.0
    """What it costs to bring one more machine up."""
    in_hours: bool = False
    """The objective is time alone: hours, not dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Wall seconds unless said otherwise."""

    tick_s: float = 1.0
    silent_s: float = 10.0
    """Unheard for this long: SUSPECT."""
    lost_s: float = 600.0
    """SUSPECT and the cloud cannot be asked for this long: LOST."""
    boot_timeout_s: float = 900.0
    """PENDING without a heartbeat for this long: ended, tried elsewhere."""
    landing_s: float = 120.0
    """A create without answer may still land for this long."""
    list_lag_s: float = 60.0
    """A created machine may be missing from lists for this long."""
    drain_timeout_s: float = 600.0
    """A drain epoch that is not answered for this long goes on without (last manifest)."""
    end_retry_s: float = 5.0
    prices_patience_s: float = 600.0
    """So long the end of a job waits for prices that cannot be read; then its report says so."""
    region_cooldown_market_s: float = 900.0
    gather_s: float = 120.0
    """An elastic job begins, or takes machines on, so long after the first of them was ready, though others
    are still on their way."""
    loss_grace_s: float = 1.0
    """Between signal and SIGKILL where a rank is gone: the others may hang in a collective for ever."""
    grow_every_s: float = 300.0
    """Between two changes of size that nobody has asked for."""
    regain_s: float = 60.0
    """Between two times that machines are taken on again: one that comes and goes must not stop the others
    each time."""
    capacity_bar_market_s: float = 600.0
    quota_bar_market_s: float = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """What should be, beside the journal: computed outside so that ``reconcile`` stays pure."""

    ranking: tuple[Offer, ...]
    """Acceptable offers, best first (planner); bars are applied by ``reconcile``."""
    move: MoveAdvice | None
    capabilities: Mapping[str, Capabilities]
    timing: Timing
    checkpoint_interval_s: float | None = None
    losses_per_hour: float | None = None
    """Of the gang of the epoch that is open, or about to be, in wall hours. None = not known, or the job's
    file gives the interval."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Offer key → the best number of machines of it, for the work that is left. Not in it: not known."""
    scaling: Scaling | None = None
    """None: not known, or nothing runs."""
    late: str | None = None
    """Why the deadline may not, or cannot, be kept; None = it is kept even if things go badly."""
    spent_usd: float | None = None
    """So far, as limits go by it (``ledger.spent_for_limits_usd``). None = not known: no budget is judged."""
    due: DueStart | None = None
    """None: machines are asked for in the order of ``ranking``."""
    by_policy: bool = False
    """A deadline policy has its say, also where it has none for a machine (the job has what it needs)."""
