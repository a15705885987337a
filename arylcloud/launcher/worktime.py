"""Which of a lease's time was steps, and which of those steps any later checkpoint still holds.

Pure: from the job's state to disjoint spans. The journal tells step time in wall seconds; spans are
in market seconds, because that is what is paid for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from arylcloud.launcher.state import Epoch, JobState, Lease, Training

SpanKind = Literal["boot", "useful", "lost_work", "idle"]
_MANIFEST_EPOCH = re.compile(r"e(\d{6})-\d{6}\.json$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Market seconds [``from_s``, ``to_s``) of one lease, spent on one thing."""

    kind: SpanKind
    from_s: float
    to_s: float


def lease_spans(state: JobState, lease: Lease, from_s: float, to_s: float) -> tuple[Span, ...]:
    """[``from_s``, ``to_s``) of ``lease`` cut into spans: disjoint, in order, nothing left out.

    boot = start → first step (all of it, where no step was ever taken); lost_work = step time that
    no later manifest holds; idle = the rest without steps; useful = the rest with.
    """
    spans: list[Span] = []
    at = from_s

    def until(kind: SpanKind, end_s: float) -> None:
        nonlocal at
        end_s = min(max(end_s, at), to_s)
        if end_s > at:
            spans.append(Span(kind=kind, from_s=at, to_s=end_s))
            at = end_s

    waiting: SpanKind = "boot"
    for start_s, stop_s, kept_until_s in _step_times(state, lease):
        until(waiting, start_s)
        waiting = "idle"
        until("useful", min(stop_s, kept_until_s))
        until("lost_work", stop_s)
    until(waiting, to_s)
    return tuple(spans)


def _step_times(state: JobState, lease: Lease) -> list[tuple[float, float, float]]:
    """(start, stop, kept until) in market seconds for each epoch that this lease trained in."""
    market_s = state.market_clock.market_s
    found = []
    for epoch in state.epochs:
        if lease.lease_id not in {member.lease_id for member in epoch.members}:
            continue
        gang = [t for t in state.trainings if t.epoch == epoch.number]
        # a rank that reports no progress of its own steps with the others, or not at all
        own = [t for t in gang if t.lease_id == lease.lease_id] or gang
        if not own:
            continue
        start = min(t.started_at_s for t in own)
        stop = max(math.inf if t.stopped_at_s is None else t.stopped_at_s for t in own)
        kept = kept_until_s(state, epoch)
        found.append(tuple(market_s(at) if math.isfinite(at) else at for at in (start, stop, kept)))
    return sorted((start, stop, kept) for start, stop, kept in found)


def kept_until_s(state: JobState, epoch: Epoch) -> float:
    """Wall seconds up to which the steps of ``epoch`` are part of what the job became.

    +inf: all of them. -inf: none, because a later epoch began again from before this one. Every later
    epoch says by its ``resume_from`` what it took over; the earliest cut holds.
    """
    trainings = [t for t in state.trainings if t.epoch == epoch.number]
    later = [e for e in state.epochs if e.number > epoch.number and not e.drain]
    if not later:
        return min((_kept_at_end(state, t) for t in trainings), default=math.inf)
    return min(_taken_over(state, epoch, trainings, e) for e in later)


def _taken_over(state: JobState, epoch: Epoch, trainings: list[Training], later: Epoch) -> float:
    if later.resume_from is None:
        return -math.inf
    known = {c.manifest: c for c in state.checkpoints}.get(later.resume_from)
    source = known.epoch if known is not None else _epoch_of(later.resume_from)
    if source is None or source < epoch.number:
        return -math.inf
    if source > epoch.number:
        return math.inf  # what that epoch resumed from is asked of it, not here
    if _complete(trainings, known.step if known is not None else later.resume_step):
        return math.inf
    if known is not None:
        return known.saved_at_s
    return _committed_at(trainings)


def _kept_at_end(state: JobState, training: Training) -> float:
    """For the last epoch: running loses nothing yet; a command that ended well needs no checkpoint."""
    if training.stopped_at_s is None:
        return math.inf
    if training.how == "exited":
        failed = any(c.exit_code != 0 for c in state.commands_ended if c.epoch == training.epoch)
        if not failed and state.exit_code in (None, 0):
            return math.inf
    elif training.how == "drained" and _complete([training], training.committed_step or 0):
        return math.inf
    return _committed_at([training])


def _complete(trainings: Iterable[Training], step: int) -> bool:
    """The checkpoint at ``step`` holds every step taken. Of a machine that vanished nobody knows
    what it did after its last report, so that its tail counts as lost."""
    return all(
        t.how in ("drained", "exited") and t.last_step is not None and t.last_step <= step for t in trainings
    )


def _committed_at(trainings: Iterable[Training]) -> float:
    return max(
        (t.committed_saved_at_s for t in trainings if t.committed_saved_at_s is not None), default=-math.inf
    )


def _epoch_of(manifest: str) -> int | None:
    found = _MANIFEST_EPOCH.search(manifest)
    return int(found[1]) if found else None
