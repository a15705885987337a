"""When each rank's command began to train, where it stopped, and what it had committed by then."""

from __future__ import annotations

from typing import Final, Literal

from arylcloud.core import events as ev
from arylcloud.core.phases import LeasePhase
from arylcloud.core.protocol import AgentPhase, Heartbeat
from arylcloud.launcher.reconcile.draft import HEARD, Draft
from arylcloud.launcher.state import Epoch, Lease, Training

UNSEEN_S: Final = 600.0
"""Wall seconds after which a command that runs counts as training though it has shown no step: it loads for
very long, or never tells."""
ROUND_S: Final = 1.0


def note(d: Draft) -> None:
    """Starts and stops that the heartbeats show."""
    epoch = d.member_epoch
    for lease in d.members(epoch) if epoch is not None else ():
        beat = d.beat(lease)
        if epoch is None or beat is None or beat.epoch < epoch.number:
            continue
        if (began_s := _began_s(d, epoch, lease, beat)) is not None and _new(d, epoch, lease, beat, began_s):
            event = ev.TrainingStarted(
                epoch=epoch.number,
                lease_id=lease.lease_id,
                at_s=began_s,
                step=epoch.resume_step,
                ran_s=max(0.0, beat.at_s - began_s) + d.silent_s(lease),
            )
            d.note(event, cause_id=f"beat {beat.seq}")
    by_number = {e.number: e for e in d.state.epochs}
    for training in d.state.trainings:
        lease = d.state.leases[training.lease_id]
        beat = d.beat(lease)
        if training.stopped_at_s is not None or beat is None or lease.phase not in HEARD:
            continue
        left = epoch is not None and training.epoch < epoch.number and lease.phase is LeasePhase.SUSPECT
        drained = beat.drained_epoch >= training.epoch and d.settled(lease, by_number[training.epoch])
        if drained or left:  # of one that the others have left behind, nothing counts any more
            stop(d, lease, training)


def _began_s(d: Draft, epoch: Epoch, lease: Lease, beat: Heartbeat) -> float | None:
    """When its command began to train, by its machine's clock: at its first step; of one that has shown none
    for long, or has ended well without, when it was started."""
    if beat.first_step_s is not None:
        return beat.first_step_s
    started_s = beat.command_started_s
    if started_s is None or beat.epoch != epoch.number:
        return None
    ran_s = beat.at_s - started_s + d.silent_s(lease)
    if ran_s > d.now_s - epoch.opened_at_s + ROUND_S:
        return None  # of the epoch before, still on show
    if beat.phase is AgentPhase.RUNNING:
        limit_s, scale = d.state.spec.constraints.max_runtime_s, d.state.market_clock.scale
        patience_s = UNSEEN_S if limit_s is None else min(UNSEEN_S, limit_s / scale)
        return started_s if ran_s >= patience_s else None
    return started_s if beat.phase is AgentPhase.EXITED and beat.exit_code == 0 else None


def _new(d: Draft, epoch: Epoch, lease: Lease, beat: Heartbeat, began_s: float) -> bool:
    """Whether that is to be noted: not what an epoch before began, still on show; and a second time only
    where its command's start had stood for a step that it has shown since."""
    own = [t for t in d.state.trainings if t.lease_id == lease.lease_id]
    before = [t for t in own if t.epoch < epoch.number]
    if any(t.stopped_at_s is None or began_s < t.stopped_at_s for t in before):
        return False
    known = next((t for t in own if t.epoch == epoch.number), None)
    if known is None:
        return True
    if known.stopped_at_s is not None or beat.first_step_s is None or beat.command_started_s is None:
        return False
    by_its_start = abs(known.started_at_s - beat.command_started_s) <= ROUND_S
    return by_its_start and began_s > known.started_at_s + ROUND_S


def _shown_until_s(training: Training, beat: Heartbeat) -> float:
    """Up to when it may have run, for all that its machine says: at most until its next command began."""
    next_s = beat.command_started_s
    if beat.epoch > training.epoch and next_s is not None and next_s > training.started_at_s:
        return min(beat.at_s, next_s)
    return beat.at_s


def stop(d: Draft, lease: Lease, training: Training) -> None:
    """That it has ended, as far as it is known where it was and how."""
    epoch = next(e for e in d.state.epochs if e.number == training.epoch)
    rank = next(m.rank for m in epoch.members if m.lease_id == lease.lease_id)
    end = next((e for e in d.observed.ends if (e.epoch, e.rank) == (training.epoch, rank)), None)
    beat = d.beat(lease)
    own = [c for c in d.state.checkpoints if c.epoch == training.epoch and c.manifest not in d.state.rejected]
    committed_step = own[-1].step if own else epoch.resume_step
    how: Literal["drained", "exited", "lost"] = "lost"
    steps = [training.first_step, committed_step]
    at_s = training.started_at_s
    if beat is not None:
        at_s = max(at_s, _shown_until_s(training, beat))
        if beat.step is not None and beat.epoch >= training.epoch:
            steps.append(beat.step)
        if beat.drained_epoch >= training.epoch:
            how = "drained"
    if end is not None:
        at_s = max(training.started_at_s, end.at_s)
        how = "drained" if end.signalled and not end.finished else "exited"
        if end.step is not None:
            steps.append(end.step)
    d.note(
        ev.TrainingStopped(
            epoch=training.epoch,
            lease_id=lease.lease_id,
            at_s=at_s,
            last_step=max(steps),
            committed_step=committed_step,
            committed_saved_at_s=own[-1].saved_at_s if own else None,
            how=how,
            told=end is None or end.told,
        )
    )
