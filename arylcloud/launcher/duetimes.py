"""What a live deadline has to leave time for besides work, in market hours. Pure.

From asking for a machine to work on it; what a loss throws away, and how late it is seen; from the last step
to a job that has finished. Each by the worst that the job has seen, or what is planned until it has seen one.
"""

from __future__ import annotations

from typing import Final

from arylcloud.launcher.actions import Observed, Timing
from arylcloud.launcher.duesize import takes_all
from arylcloud.launcher.sightings import LOSSES
from arylcloud.launcher.state import JobState

BOOTS: Final = 2.0
"""Of the planned boot, until a start has been measured."""
MEASURED: Final = 1.1
"""Of the worst start seen: the next one may be a little worse."""
RECENT: Final = 5
"""Starts, and losses."""
RECENT_SAVES: Final = 8
RESTORE_GB_PER_S: Final = 0.5
PASSES: Final = 3
"""From a last step to an end that is known: the agent sees it, saves and says so; the launcher reads it."""


def begin_h(state: JobState, boot_h: float, timing: Timing) -> float:
    """From asking to working, restore included; and before it, from a loss until it is seen."""
    scale_h = state.market_clock.scale / 3600.0
    took = [
        (t.began_at_s - state.leases[t.lease_id].intended_at_s) * scale_h
        for t in state.trainings
        if t.epoch == _first_epoch_of(state, t.lease_id)
        and state.leases[t.lease_id].purpose in ("start", "replace")
        and not (takes_all(state) and _joined(state, t.epoch))
    ]
    planned_h = BOOTS * boot_h + _gb(state) / RESTORE_GB_PER_S * scale_h
    begun_h = MEASURED * max(took[-RECENT:]) if took else planned_h
    return begun_h + _seen_late_h(state, timing)


def lost_h(state: JobState, observed: Observed, unsaved_h: float) -> float:
    """Work that a loss throws away: what is not in the store now, or will not be before the next save is."""
    every_s = state.spec.checkpoint.interval_s or max(_gaps_s(state), default=0.0)
    return max((every_s + _upload_s(state, observed)) * state.market_clock.scale / 3600.0, unsaved_h)


def closing_h(state: JobState, observed: Observed, timing: Timing) -> float:
    """After the last step: a last save and its upload, and what it takes to hear of it. No measured speed has
    it, and a loss that took all slack has left none for it."""
    save_s = max((b.save_s for b in observed.beats.values() if b.save_s is not None), default=0.0)
    wall_s = save_s + _upload_s(state, observed) + PASSES * timing.tick_s
    return wall_s * state.market_clock.scale / 3600.0


def _upload_s(state: JobState, observed: Observed) -> float:
    """Of ended machines, too: the next one's takes as long."""
    uploads_s = [b.upload_s for b in observed.beats.values() if b.upload_s is not None]
    return max(uploads_s) if uploads_s else _gb(state) / RESTORE_GB_PER_S


def _seen_late_h(state: JobState, timing: Timing) -> float:
    """From a loss until the journal has it, the worst of late; at least the time between two passes, and no
    more than a silent machine takes to be asked after (that nobody was here once says nothing of next time).
    """
    clock = state.market_clock
    late_s = [
        clock.market_s(x.ended_at_s) - x.ended_s
        for x in state.leases.values()
        if x.cause in LOSSES and x.ended_s is not None and x.ended_at_s is not None
    ]
    most_s = (timing.silent_s + timing.tick_s) * clock.scale
    return min(max(timing.tick_s * clock.scale, *late_s[-RECENT:], 0.0), most_s) / 3600.0


def _gb(state: JobState) -> float:
    newest = state.lineage
    return newest.total_bytes / 1e9 if newest is not None else (state.spec.checkpoint.size_gb or 0.0)


def _gaps_s(state: JobState) -> list[float]:
    """Between the last saves, whatever epoch they are of: a machine that has just begun saves no more often
    than the one before it, and where it did, the job would go back and forth."""
    begun = {t.epoch: t.started_at_s for t in reversed(state.trainings)}
    found, pairs = [], list(zip((None, *state.checkpoints), state.checkpoints, strict=False))
    for before, after in pairs[-RECENT_SAVES:]:
        since_s = before.saved_at_s if before and before.epoch == after.epoch else begun.get(after.epoch)
        if since_s is not None:
            found.append(after.saved_at_s - since_s)
    return found


def _first_epoch_of(state: JobState, lease_id: str) -> int | None:
    return next(
        (e.number for e in state.epochs if any(m.lease_id == lease_id for m in e.members)),
        None,
    )


def _joined(state: JobState, number: int) -> bool:
    """Others were at work already: who joins waits for a moment that suits them."""
    before = [e for e in state.epochs if e.members and e.number < number]
    now = {m.lease_id for e in state.epochs if e.number == number for m in e.members}
    return bool(before) and any(m.lease_id in now for m in before[-1].members)
