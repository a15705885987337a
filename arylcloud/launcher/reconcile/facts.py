"""What the world says, journaled. Passive: no rule here asks for anything.

Order matters within a pass: what a machine committed is known before how its command ended, and both
before the machine is counted as lost.
"""

from __future__ import annotations

from arylcloud.core import events as ev
from arylcloud.core.phases import LeasePhase
from arylcloud.core.ports import Billing, EndCause, Machine, MachineState
from arylcloud.core.protocol import AgentPhase, Heartbeat, Notice
from arylcloud.launcher.reconcile import trainings
from arylcloud.launcher.reconcile.draft import HEARD, Draft
from arylcloud.launcher.reconcile.echo import outlived
from arylcloud.launcher.reconcile.leases import bar, in_vain
from arylcloud.launcher.state import Lease


def note_facts(d: Draft) -> None:
    _requests(d)
    _appeared(d)
    _heard(d)
    _checkpoints(d)
    _commands_ended(d)
    trainings.note(d)
    _left(d)


def _requests(d: Draft) -> None:
    for request in sorted(d.observed.requests, key=lambda r: r.number):
        if request.number <= d.state.requests_seen:
            continue
        d.note(
            ev.RequestSeen(number=request.number, verb=request.verb, args=dict(request.args), by=request.by),
            cause_id=f"request {request.number}",
        )


def _appeared(d: Draft) -> None:
    """A machine of ours that the journal has not recorded: a crash, a lost answer, a late landing."""
    for lease in tuple(d.state.leases.values()):
        machine = d.machine(lease) if lease.instance_id is None else None
        if machine is not None:
            d.note(_created(d, lease, machine), cause_id=f"list of {machine.cloud}")
        elif lease.instance_id is None:
            continue
        if lease.phase is LeasePhase.REFUSED:
            # its slot has gone to another: paid for until it is gone. (Whoever recorded the machine may have
            # died before this.)
            why = f"its cloud had refused it ({lease.cause}), and made it all the same"
            ending = ev.LeaseEnding(lease_id=lease.lease_id, code="landed_late", why=why)
            d.note(ending, cause_id=f"list of {lease.offer.cloud}")


def _created(d: Draft, lease: Lease, machine: Machine) -> ev.LeaseCreated:
    capabilities = d.desired.capabilities.get(machine.cloud)
    return ev.LeaseCreated(
        lease_id=lease.lease_id,
        instance_id=machine.instance_id,
        launched_s=machine.launched_s,
        usd_per_hour=machine.usd_per_hour,
        address=machine.address,
        billing=capabilities.billing if capabilities is not None else Billing(),
    )


def _heard(d: Draft) -> None:
    for lease in d.state.open_leases:
        beat = d.beat(lease)
        if beat is None:
            continue
        if lease.phase is LeasePhase.PENDING:
            d.note(_phase(lease, LeasePhase.READY, "first heartbeat"), cause_id=f"beat {beat.seq}")
        elif lease.phase is LeasePhase.SUSPECT and d.silent_s(lease) < d.timing.silent_s:
            d.note(_phase(lease, LeasePhase.READY, "heard again"), cause_id=f"beat {beat.seq}")
        elif lease.phase is LeasePhase.READY and _silent(d, lease):
            text = f"not heard for {d.silent_s(lease):.0f} s; kept until its cloud says that it is gone"
            d.note(_phase(lease, LeasePhase.SUSPECT, text), cause_id=f"beat {beat.seq}")
            d.notify(f"suspect:{lease.lease_id}", f"{lease.lease_id} is {text}")
        if beat.notice is not None and d.state.leases[lease.lease_id].phase in HEARD - {LeasePhase.DOOMED}:
            d.note(_notice(d, lease, beat, beat.notice), cause_id=f"beat {beat.seq}")
        elif beat.at_risk_s is not None and not lease.at_risk:
            d.note(ev.RiskSeen(lease_id=lease.lease_id), cause_id=f"beat {beat.seq}")


def _notice(d: Draft, lease: Lease, beat: Heartbeat, notice: Notice) -> ev.NoticeSeen:
    """How much time there is left: by the machine's clock, which may differ from ours and the cloud's, but
    never more than its cloud gives notice (``Capabilities.notice_s``)."""
    left_s = max(0.0, notice.at_s - beat.at_s)
    able = d.desired.capabilities.get(lease.offer.cloud)
    if able is not None and able.notice_s > 0:
        left_s = min(left_s, able.notice_s)
    acts_at_s = d.now_s + left_s
    return ev.NoticeSeen(lease_id=lease.lease_id, action=notice.action, acts_at_s=acts_at_s)


def _silent(d: Draft, lease: Lease) -> bool:
    """Where the mailbox cannot be read, silence is ours, not the machine's."""
    return d.observed.mailbox_ok and d.silent_s(lease) > d.timing.silent_s


def _phase(lease: Lease, phase: LeasePhase, text: str) -> ev.LeasePhaseChanged:
    return ev.LeasePhaseChanged(lease_id=lease.lease_id, phase=phase, text=text)


def _checkpoints(d: Draft) -> None:
    """Manifests of the newest epoch with members; a stray machine of an older one is not read."""
    epoch = d.member_epoch
    known = {c.manifest for c in d.state.checkpoints}
    for seen in sorted(d.observed.checkpoints, key=lambda c: (c.epoch, c.number)):
        fresh = seen.key not in known and seen.key not in d.state.rejected
        if fresh and epoch is not None and seen.epoch == epoch.number:
            d.note(
                ev.CheckpointCommitted(
                    manifest=seen.key,
                    epoch=seen.epoch,
                    step=seen.step,
                    saved_at_s=seen.saved_at_s,
                    total_bytes=seen.total_bytes,
                ),
                cause_id=f"manifest {seen.key}",
            )
    for key in sorted(d.observed.damaged):
        if key not in d.state.rejected:
            d.note(ev.CheckpointRejected(manifest=key, message=d.observed.damaged[key]))
    if epoch is None or epoch.resume_from is None or epoch.resume_from in d.state.rejected:
        return
    for lease in d.members(epoch):
        beat = d.beat(lease)
        if beat is None or beat.phase is not AgentPhase.BROKEN or beat.epoch != epoch.number:
            continue
        said = beat.message or ""
        if epoch.resume_from in said:
            event = ev.CheckpointRejected(manifest=epoch.resume_from, message=said)
            d.note(event, cause_id=f"beat {beat.seq}")
            return


def _commands_ended(d: Draft) -> None:
    epoch = d.member_epoch
    told = {(c.epoch, c.rank) for c in d.state.commands_ended}
    for end in sorted(d.observed.ends, key=lambda e: (e.epoch, e.rank)):
        if (end.epoch, end.rank) in told:
            continue
        lease = d.state.leases.get(end.lease_id)
        if end.in_setup:
            ours = lease is not None and lease.attempt > d.state.history_attempt
            doomed = lease is not None and lease.notice_acts_at_s is not None
            counts = ours and not doomed and not end.signalled and end.exit_code != 0
        elif epoch is None or end.epoch != epoch.number:
            counts = False
        else:
            counts = end.finished or (not end.signalled and end.exit_code != 0 and outlived(d, epoch, end))
        if counts:
            d.note(
                ev.CommandEnded(
                    epoch=end.epoch,
                    rank=end.rank,
                    exit_code=end.exit_code,
                    in_setup=end.in_setup,
                    tail=end.tail,
                ),
                cause_id=f"end e{end.epoch} r{end.rank}",
            )


def _left(d: Draft) -> None:
    """RELEASED, and only where the cloud says so: it lists the machine as gone, or lists it no more."""
    for lease in tuple(d.state.leases.values()):
        machine = d.machine(lease)
        if not lease.open:
            if lease.phase is LeasePhase.RELEASED and machine is not None:
                _correct_end(d, lease, machine)
            continue
        if lease.phase is LeasePhase.INTENDED or not d.listed(lease):
            continue
        if machine is not None:
            if machine.state is MachineState.GONE:
                ended_s = d.now_market_s if machine.ended_s is None else machine.ended_s
                _release(d, lease, ended_s, machine.end_cause, machine.end_text)
        elif lease.instance_id is None:
            if lease.phase is LeasePhase.ENDING and d.now_s >= _landed_by_s(d, lease):
                _release(d, lease, d.now_market_s, EndCause.TERMINATED)
        elif _absent(d, lease):
            acted = lease.notice_acts_at_s is not None and d.now_s >= lease.notice_acts_at_s
            ended = EndCause.TERMINATED if lease.phase is LeasePhase.ENDING else EndCause.UNKNOWN
            _release(d, lease, d.now_market_s, EndCause.INTERRUPTED if acted else ended)


def _landed_by_s(d: Draft, lease: Lease) -> float:
    """Until when a create without answer may still bring a machine (wall seconds)."""
    last_call_s = lease.since_s if lease.uncertain_at_s is None else lease.uncertain_at_s
    return last_call_s + d.timing.landing_s + d.timing.list_lag_s


def _absent(d: Draft, lease: Lease) -> bool:
    """Not listed, for longer than lists lag; and, unless we ended it, not heard either."""
    created_s = lease.intended_at_s if lease.created_at_s is None else lease.created_at_s
    if d.now_s < created_s + d.timing.list_lag_s:
        return False
    if lease.phase is LeasePhase.ENDING:
        return True
    return _silent(d, lease)


def _release(d: Draft, lease: Lease, ended_s: float, cause: EndCause | None, said: str | None = None) -> None:
    for training in d.state.trainings:
        if training.lease_id == lease.lease_id and training.stopped_at_s is None:
            trainings.stop(d, lease, training)
    if cause is None:
        cause = EndCause.TERMINATED if lease.phase is LeasePhase.ENDING else EndCause.UNKNOWN
    if cause is EndCause.NO_ROOM and lease.phase in HEARD:  # it did run
        cause = EndCause.INTERRUPTED
    if lease.launched_s is not None:
        ended_s = max(ended_s, lease.launched_s)
    vain = in_vain(d, lease, cause, said)
    d.note(
        ev.LeaseReleased(
            lease_id=lease.lease_id,
            ended_s=ended_s,
            cause=cause.value,
            code=None if vain is None else vain[0],
            text=said,
        ),
        cause_id=f"list of {lease.offer.cloud}",
    )
    if vain is not None:
        bar(d, lease, *vain)


def _correct_end(d: Draft, lease: Lease, machine: Machine) -> None:
    """A machine that landed after its lease was closed, swept since: the ledger gets its real end."""
    if machine.ended_s is None or lease.ended_s is None or lease.ended_at_s is None:
        return
    late = lease.created_at_s is not None and lease.created_at_s > lease.ended_at_s
    if late and machine.state is MachineState.GONE and machine.ended_s > lease.ended_s:
        cause = machine.end_cause or EndCause.TERMINATED
        d.note(ev.LeaseReleased(lease_id=lease.lease_id, ended_s=machine.ended_s, cause=cause.value))
