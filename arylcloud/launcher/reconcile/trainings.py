"""When each rank's command began to train, where it stopped, and what it had committed by then."""

from __future__ import annotations

from typing import Literal

from arylcloud.core import events as ev
from arylcloud.core.phases import LeasePhase
from arylcloud.launcher.reconcile.draft import HEARD, Draft
from arylcloud.launcher.state import Lease, Training


def note(d: Draft) -> None:
    """Starts and stops that the heartbeats show."""
    epoch = d.member_epoch
    begun = {(t.epoch, t.lease_id) for t in d.state.trainings}
    starts = {(t.lease_id, t.started_at_s) for t in d.state.trainings}
    for lease in d.members(epoch) if epoch is not None else ():
        beat = d.beat(lease)
        if epoch is None or beat is None or beat.first_step_s is None:
            continue
        shown_before = (lease.lease_id, beat.first_step_s) in starts  # the epoch before's, still on show
        if (epoch.number, lease.lease_id) not in begun and beat.epoch >= epoch.number and not shown_before:
            event = ev.TrainingStarted(
                epoch=epoch.number,
                lease_id=lease.lease_id,
                at_s=beat.first_step_s,
                step=epoch.resume_step,
                ran_s=max(0.0, beat.at_s - beat.first_step_s) + d.silent_s(lease),
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
        at_s = max(at_s, beat.at_s)
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
        )
    )
