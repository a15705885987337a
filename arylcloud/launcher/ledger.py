"""What a job cost: money from events, at the price in force, and where it went.

Pure, and from the journal alone: a catalogue that changes later, or loses a row, changes no report.

**Bill.** compute of a lease = ∫ price(t) dt over its market time from the cloud's own launch to its
end (open leases: to now), per second, at least ``Billing.minimum_s`` (what is missing to it at the last
price before its end); nothing where the cloud interrupts a spot machine in its first hour and does not
charge for it. A price that is unknown for any part of that time makes the lease's compute unknown, and
the job's with it: never 0.

**Split.** compute = useful + boot + lost work + idle, disjoint in time (``worktime``).

**Rounding.** Integrals are exact fractions. Each lease is rounded once, half to even, to whole
micro-dollars; its parts by rounding their running sums, so that they add up to it exactly and a part
of nothing is 0. Everything else is integer addition: all sums hold exactly, to the cent and below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import get_args

from arylcloud.core.offer import Offer
from arylcloud.core.phases import JobPhase
from arylcloud.core.ports import EndCause, PricePoint
from arylcloud.launcher.leasebill import (
    MICRO,
    billed_until_s,
    in_force,
    integral_usd,
    is_free,
    is_priced,
    micro_of,
)
from arylcloud.launcher.spent import unpriced
from arylcloud.launcher.state import JobState, Lease
from arylcloud.launcher.worktime import Span, SpanKind, kept_until_s, lease_spans

_KINDS: tuple[SpanKind, ...] = get_args(SpanKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSeconds:
    """Machine seconds (market time) by what they were spent on."""

    useful: float
    boot: float
    lost_work: float
    idle: float

    @property
    def total(self) -> float:
        return self.useful + self.boot + self.lost_work + self.idle

    @property
    def waste(self) -> float:
        return self.boot + self.lost_work + self.idle


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitMicro:
    """Whole micro-dollars (10⁻⁶ USD) by what they were spent on."""

    useful: int = 0
    boot: int = 0
    lost_work: int = 0
    idle: int = 0

    @property
    def total(self) -> int:
        return self.useful + self.boot + self.lost_work + self.idle

    @property
    def waste(self) -> int:
        return self.boot + self.lost_work + self.idle


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseCost:
    """What one machine cost. Seconds are market seconds."""

    lease_id: str
    instance_id: str | None
    offer: Offer
    launched_s: float
    ended_s: float | None
    """None: still paid for."""
    cause: str | None
    noticed: bool
    """The cloud had announced that it takes the machine back."""
    billed_s: float
    free: bool
    """Interrupted in its first hour on a cloud that does not charge for that."""
    spans: tuple[Span, ...]
    """``billed_s`` cut by use."""
    seconds: SplitSeconds
    micro: SplitMicro | None
    """None: the price is not known for all of ``billed_s``."""
    prices: tuple[PricePoint, ...]
    """Up to its end, if it has one."""
    prices_complete: bool = True
    """False: steps up to its end could not be read."""

    @property
    def usd_per_hour(self) -> float | None:
        """Mean over the billed time."""
        if self.micro is None or self.billed_s <= 0 or self.free:
            return None
        return self.micro.total / MICRO / self.billed_s * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The account of a job. Money in whole micro-dollars (``*_micro``); ``None`` = not known."""

    job_id: str
    name: str
    phase: JobPhase
    phase_code: str
    phase_text: str
    exit_code: int | None
    as_of_s: float
    """Market seconds up to which open leases are counted."""
    started_s: float
    """Market seconds of the submission."""
    ended_s: float | None
    compressed: bool
    """The market's clock ran faster than the wall's (local cloud): nobody spent these dollars."""
    leases: tuple[LeaseCost, ...]
    seconds: SplitSeconds
    compute_micro: int | None
    split_micro: SplitMicro | None
    egress_micro: int | None
    storage_micro: int | None
    known_micro: int
    """Lower bound: what is known to be owed, where some price is not known."""
    unknown: tuple[str, ...]
    """What is not known, in sentences; empty in a complete account."""
    budget_usd: float | None
    interruptions: int
    """Machines that the cloud took back, announced or not."""
    interruptions_with_notice: int
    migrations: int
    epochs: int
    attempts: int
    final_step: int | None

    @property
    def total_micro(self) -> int | None:
        if self.compute_micro is None or self.egress_micro is None or self.storage_micro is None:
            return None
        return self.compute_micro + self.egress_micro + self.storage_micro


def build_report(state: JobState, *, now_s: float) -> Report:
    """The account of ``state`` at ``now_s`` (wall seconds, as clocks give them; the job's own market
    clock translates)."""
    market_s = state.market_clock.market_s
    as_of_s = market_s(now_s)
    kept = kept_until_s(state)
    leases = tuple(
        cost
        for lease in state.leases.values()
        if (cost := _lease_cost(state, lease, kept, as_of_s)) is not None
    )
    splits = [cost.micro for cost in leases if cost.micro is not None]
    split = SplitMicro(
        useful=sum(s.useful for s in splits),
        boot=sum(s.boot for s in splits),
        lost_work=sum(s.lost_work for s in splits),
        idle=sum(s.idle for s in splits),
    )
    complete = len(splits) == len(leases)
    egress, storage = (charged_micro(state, what) for what in ("egress", "storage"))
    vague = unpriced(state)
    noticed = [cost for cost in leases if cost.noticed]
    unnoticed = [c for c in leases if not c.noticed and c.cause == EndCause.INTERRUPTED.value]
    return Report(
        job_id=state.job_id,
        name=state.spec.name,
        phase=state.phase,
        phase_code=state.phase_code,
        phase_text=state.phase_text,
        exit_code=state.exit_code,
        as_of_s=as_of_s,
        started_s=market_s(state.submitted_at_s),
        ended_s=market_s(state.phase_since_s) if state.phase.ended else None,
        compressed=state.market_clock.scale != 1.0,
        leases=leases,
        seconds=_seconds(span for cost in leases for span in cost.spans),
        compute_micro=split.total if complete else None,
        split_micro=split if complete else None,
        egress_micro=None if "egress" in vague else egress,
        storage_micro=None if "storage" in vague else storage,
        known_micro=split.total + egress + storage,
        unknown=(
            *(_missing(cost) for cost in leases if cost.micro is None),
            *(f"{what}: no price is known of {text}" for what, text in vague.items()),
        ),
        budget_usd=state.spec.constraints.budget_usd,
        interruptions=len(noticed) + len(unnoticed),
        interruptions_with_notice=len(noticed),
        migrations=state.migrations_done,
        epochs=len(state.epochs),
        attempts=state.attempt,
        final_step=final_step(state),
    )


def _lease_cost(state: JobState, lease: Lease, kept: Mapping[int, float], as_of_s: float) -> LeaseCost | None:
    """The bill of one lease up to ``as_of_s`` (market seconds). None for a lease of which the cloud
    never had a machine: nothing is owed for it."""
    if lease.launched_s is None:
        return None
    launched = lease.launched_s
    until = billed_until_s(lease, launched, as_of_s)
    spans = lease_spans(state, lease, kept, launched, until)
    free = is_free(lease, as_of_s)
    prices = in_force(lease)
    micro: SplitMicro | None = None
    if free:
        micro = SplitMicro()
    elif is_priced(lease):
        micro = round_split((span.kind, integral_usd(prices, span.from_s, span.to_s)) for span in spans)
    return LeaseCost(
        lease_id=lease.lease_id,
        instance_id=lease.instance_id,
        offer=lease.offer,
        launched_s=launched,
        ended_s=lease.ended_s,
        cause=lease.cause,
        noticed=lease.notice_acts_at_s is not None,
        billed_s=until - launched,
        free=free,
        spans=spans,
        seconds=_seconds(spans),
        micro=micro,
        prices=prices,
        prices_complete=lease.prices_missing_since_s is None,
    )


def round_split(parts: Iterable[tuple[SpanKind, Fraction]]) -> SplitMicro:
    """Exact USD by kind to whole micro-dollars that sum to the rounded whole.

    >>> third = Fraction(1, 3_000_000)
    >>> round_split([("useful", third), ("boot", third), ("idle", third)])
    SplitMicro(useful=1, boot=0, lost_work=0, idle=0)
    """
    exact = dict.fromkeys(_KINDS, Fraction(0))
    for kind, usd in parts:
        exact[kind] += usd
    sums = [Fraction(0)]
    for kind in _KINDS:
        sums.append(sums[-1] + exact[kind])
    rounded = {kind: micro_of(b) - micro_of(a) for kind, (a, b) in zip(_KINDS, pairwise(sums), strict=True)}
    return SplitMicro(**rounded)


def final_step(state: JobState) -> int | None:
    """Highest committed step of the lineage; after a command that ended well, the last one it took."""
    lineage = state.lineage
    steps = [lineage.step] if lineage is not None else []
    if state.phase is JobPhase.SUCCEEDED:
        last = state.epochs[-1].number if state.epochs else 0
        with_members = max((e.number for e in state.epochs if not e.drain), default=last)
        steps += [t.last_step for t in state.trainings if t.epoch == with_members and t.last_step is not None]
    return max(steps, default=None)


def _seconds(spans: Iterable[Span]) -> SplitSeconds:
    total = dict.fromkeys(_KINDS, 0.0)
    for span in spans:
        total[span.kind] += span.to_s - span.from_s
    return SplitSeconds(**total)


def charged_micro(state: JobState, what: str) -> int:
    """What is known to be owed for egress, or for storage."""
    return sum(micro_of(Fraction(c.usd)) for c in state.charges if c.what == what)


def _missing(cost: LeaseCost) -> str:
    what = f"price of {cost.offer.instance_type} in {cost.offer.place} ({cost.lease_id})"
    if not cost.prices:
        return f"{what} is unknown"
    if not cost.prices_complete:
        return f"{what} may have changed: its history could not be read to the end"
    return f"{what} is unknown for its first {cost.prices[0].from_s - cost.launched_s:,.0f} s"
