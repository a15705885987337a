"""Which of a lease's time was steps, and which of those steps any later checkpoint still holds.

Pure: from the job's state to disjoint spans. The journal tells step time in wall seconds; spans are
in market seconds, because that is what is paid for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from arylcloud.core.events import TrainingStopped
from arylcloud.launcher.state import JobState, Lease, Training

SpanKind = Literal["boot", "useful", "lost_work", "idle"]
TAIL_S: Final = 15.0
"""Wall seconds from a last save to the end of its command (its libraries take a while), nobody's loss."""
_MANIFEST_EPOCH = re.compile(r"e(\d{6})-\d{6}\.json$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Market seconds [``from_s``, ``to_s``) of one lease, spent on one thing."""

    kind: SpanKind
    from_s: float
    to_s: float


def lease_spans(
    state: JobState, lease: Lease, kept: Mapping[int, float], from_s: float, to_s: float
) -> tuple[Span, ...]:
    """[``from_s``, ``to_s``) of ``lease`` cut into spans: disjoint, in order, nothing left out.

    boot = start → first step (all of it, where no step was ever taken); lost_work = step time that
    no later manifest holds; idle = the rest without steps; useful = the rest with. ``kept`` is
    ``kept_until_s(state)``.
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
    for start_s, stop_s, keep_s in _step_times(state, lease, kept):
        until(waiting, start_s)
        waiting = "idle"
        until("useful", min(stop_s, keep_s))
        until("lost_work", stop_s)
    until(waiting, to_s)
    return tuple(spans)


def _step_times(state: JobState, lease: Lease, kept: Mapping[int, float]) -> list[tuple[float, float, float]]:
    """(start, stop, kept until) in market seconds for each epoch that this lease trained in."""
    market_s = state.market_clock.market_s
    member_of = {e.number for e in state.epochs if any(m.lease_id == lease.lease_id for m in e.members)}
    # a checkpoint shows steps even where the training itself told of none before
    first_save = {c.epoch: c.saved_at_s for c in reversed(state.checkpoints)}
    gangs: dict[int, list[Training]] = {}
    for training in state.trainings:
        if training.epoch in member_of:
            gangs.setdefault(training.epoch, []).append(training)
    found = []
    for number, gang in gangs.items():
        # a rank that reports no progress of its own steps with the others
        own = [t for t in gang if t.lease_id == lease.lease_id] or gang
        start = min(min(t.started_at_s for t in own), first_save.get(number, math.inf))
        stop = max(math.inf if t.stopped_at_s is None else t.stopped_at_s for t in own)
        found.append((market_s(start), market_s(stop), market_s(kept[number])))
    return sorted(found)


def kept_until_s(state: JobState) -> dict[int, float]:
    """For each epoch that runs something: wall seconds up to which its steps are part of what the job
    became. +inf: all of them; -inf: none, because a later epoch began again from before it.

    Every later epoch says by its ``resume_from`` what it took over; the earliest cut holds.
    """
    trainings: dict[int, list[Training]] = {}
    for training in state.trainings:
        trainings.setdefault(training.epoch, []).append(training)
    committed = {c.manifest: c for c in state.checkpoints}
    kept: dict[int, float] = {}
    lowest = math.inf  # oldest epoch that any later one resumed from
    cuts: dict[int, float] = {}  # epoch → earliest moment at which a later one took it over
    later = False
    for epoch in reversed(state.epochs):
        if epoch.drain:
            continue
        gang = trainings.get(epoch.number, [])
        if not later:
            kept[epoch.number] = min((_kept_at_end(state, t) for t in gang), default=math.inf)
        elif lowest < epoch.number:
            kept[epoch.number] = -math.inf
        else:
            kept[epoch.number] = cuts.get(epoch.number, math.inf)
        later = True
        checkpoint = committed.get(epoch.resume_from) if epoch.resume_from is not None else None
        source = checkpoint.epoch if checkpoint is not None else _epoch_of(epoch.resume_from)
        lowest = min(lowest, source)
        step = checkpoint.step if checkpoint is not None else epoch.resume_step
        source_gang = trainings.get(source, [])
        if _complete(state, source_gang, step):
            cut = math.inf
        else:
            cut = checkpoint.saved_at_s if checkpoint is not None else _committed_at(source_gang)
        cuts[source] = min(cuts.get(source, math.inf), cut)
    return kept


def _kept_at_end(state: JobState, training: Training) -> float:
    """For the last epoch: running loses nothing yet; a command that ended well needs no checkpoint."""
    if training.stopped_at_s is None:
        return math.inf
    if training.how == "exited":
        failed = any(c.exit_code != 0 for c in state.commands_ended if c.epoch == training.epoch)
        if not failed and state.exit_code in (None, 0):
            return math.inf
    elif training.how == "drained" and _complete(state, [training], training.committed_step or 0):
        return math.inf
    return _committed_at([training])


def _complete(state: JobState, trainings: Iterable[Training], step: int) -> bool:
    """The checkpoint at ``step`` holds every step taken. Of a machine that vanished nobody knows
    what it did after its last report, so that its tail counts as lost; nor of a command that we ended and
    that never told of steps, after its last checkpoint."""
    return all(
        t.how in ("drained", "exited")
        and t.last_step is not None
        and t.last_step <= step
        and not unsaved(t, state)
        for t in trainings
    )


def unsaved(t: Training | TrainingStopped, state: JobState | None = None) -> bool:
    """Whether a command which we ended went on after its last checkpoint, where checkpoints are all there is
    to go by: it tells of no steps, and did not save when it was asked to end.

    Saves are by the clock of rank 0, which commits them: of another rank of ``state`` it is not known, and
    False. Without ``state``, ``t`` is taken to be rank 0's."""
    stopped_s = t.at_s if isinstance(t, TrainingStopped) else t.stopped_at_s
    if t.told or t.how != "drained" or stopped_s is None:
        return False
    if state is not None and _rank(state, t) != 0:
        return False
    return t.committed_saved_at_s is None or stopped_s - t.committed_saved_at_s > TAIL_S


def _rank(state: JobState, t: Training | TrainingStopped) -> int:
    epoch = next((e for e in state.epochs if e.number == t.epoch), None)
    return next((m.rank for m in (epoch.members if epoch else ()) if m.lease_id == t.lease_id), 0)


def _committed_at(trainings: Iterable[Training]) -> float:
    return max(
        (t.committed_saved_at_s for t in trainings if t.committed_saved_at_s is not None),
        default=-math.inf,
    )


def _epoch_of(manifest: str | None) -> int:
    """Epoch that wrote ``manifest``, by its name; 0, older than all, for the beginning."""
    found = _MANIFEST_EPOCH.search(manifest) if manifest is not None else None
    return int(found[1]) if found else 0
