"""Who is a member, and since when. The epoch number is the fence: older ones are not read."""

from __future__ import annotations

from arylcloud.core.phases import LeasePhase
from arylcloud.core.protocol import AgentPhase, Member
from arylcloud.launcher import actions as act
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.state import Epoch, Lease

_FREE = frozenset({AgentPhase.READY, AgentPhase.DRAINED, AgentPhase.EXITED, AgentPhase.BROKEN})


def publish(d: Draft) -> None:
    """Epochs that the journal has and the mailbox has not: a crash came between."""
    if not d.observed.mailbox_ok:
        return
    opened_now = {a.number for a in d.actions if isinstance(a, act.OpenEpoch)}
    for epoch in d.state.epochs:
        if epoch.number > d.observed.published_epoch and epoch.number not in opened_now:
            d.actions.append(act.PublishEpoch(number=epoch.number))


def advance(d: Draft) -> None:
    """Open the next epoch when membership has to change and every command has handed over.

    Members that live are drained first, so that their last checkpoint is what the next epoch
    resumes from; a machine that is gone is not waited for."""
    if not d.observed.mailbox_ok:
        return
    epoch = d.member_epoch
    coming = next_members(d)
    if epoch is not None:
        if not d.draining and intact(d, epoch):
            return
        if not handed_over(d, epoch, "a machine has left" if d.nodes > 1 else "moving", wait=coming is None):
            return
    if coming is not None:
        d.open_epoch(coming, _reason(d, epoch))


def handed_over(d: Draft, epoch: Epoch, why: str, *, wait: bool = False) -> bool:
    """True once nothing of ``epoch`` runs (or has not answered a drain for long). Opens the drain.

    ``wait``: nobody stands ready to take over. A single doomed machine is then left to use the time
    that it has; of several, the others cannot go on without it and are drained at once."""
    busy = d.at_work(epoch)
    if not busy:
        return True
    if not d.draining:
        if not wait or d.nodes > 1:
            d.open_epoch((), why)
        return False
    drain = d.state.epochs[-1]
    return d.now_s > drain.opened_at_s + d.timing.drain_timeout_s


def intact(d: Draft, epoch: Epoch) -> bool:
    """Every member is there, is where it should be, and can go on."""
    holders = {lease.lease_id for lease in d.holders().values()}
    if epoch.resume_from is not None and epoch.resume_from in d.state.rejected:
        beats = [d.beat(lease) for lease in d.members(epoch)]
        if any(b is not None and b.phase is AgentPhase.BROKEN and b.epoch == epoch.number for b in beats):
            return False
    return all(m.lease_id in holders for m in epoch.members) and len(epoch.members) == d.nodes


def next_members(d: Draft) -> tuple[Member, ...] | None:
    """The gang in order of rank, once every slot's machine is set up and free; else None."""
    return gang(d, d.holders())


def gang(d: Draft, by_slot: dict[int, Lease]) -> tuple[Member, ...] | None:
    found = []
    for rank in range(d.nodes):
        lease = by_slot.get(rank)
        address = joinable(d, lease) if lease is not None else None
        if lease is None or address is None:
            return None
        found.append(Member(lease_id=lease.lease_id, rank=rank, address=address))
    return tuple(found)


def joinable(d: Draft, lease: Lease) -> str | None:
    """Its address, if it is READY in the cloud's eyes and in its own."""
    beat = d.beat(lease)
    if lease.phase is not LeasePhase.READY or beat is None or beat.phase not in _FREE:
        return None
    epoch = d.member_epoch
    if beat.phase is AgentPhase.BROKEN and not (epoch and epoch.resume_from in d.state.rejected):
        return None
    if epoch is not None and lease in d.at_work(epoch):
        return None
    machine = d.machine(lease)
    return lease.address or (machine.address if machine is not None else None)


def _reason(d: Draft, epoch: Epoch | None) -> str:
    if epoch is None:
        return "all machines are ready"
    if epoch.resume_from is not None and epoch.resume_from in d.state.rejected:
        return f"{epoch.resume_from} is damaged: back to the checkpoint before it"
    gone = [lease.lease_id for lease in d.members(epoch) if lease.phase is not LeasePhase.READY]
    return f"in place of {', '.join(gone)}" if gone else "all machines are ready again"
