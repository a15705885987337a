"""Who is a member, and since when. The epoch number is the fence: older ones are not read."""

from __future__ import annotations

from arylcloud.core.phases import LeasePhase
from arylcloud.core.protocol import AgentPhase
from arylcloud.launcher import actions as act
from arylcloud.launcher.reconcile.draft import HEARD, Draft
from arylcloud.launcher.reconcile.echo import echoed
from arylcloud.launcher.reconcile.membership import Change, change, left_behind, next_members
from arylcloud.launcher.reconcile.pipelines import assigned
from arylcloud.launcher.state import Epoch, Lease


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
    found = _change(d, epoch) if epoch is not None else None
    if epoch is not None and found is None and not d.draining:
        return
    coming = next_members(d)
    if epoch is not None and not handed_over(d, epoch, found, wait=coming is None):
        return
    if coming is not None:
        hurried = found is not None and found.hurry  # whoever was left behind has no time to save, either
        grace_s = d.timing.loss_grace_s if hurried else None
        here = {m.lease_id for m in coming}
        again = epoch is not None and found is not None and here == {m.lease_id for m in epoch.members}
        reason = found.why if again and found is not None and found.at_once else _reason(d, epoch, here)
        d.open_epoch(coming, reason, grace_s, assigned(d, coming))


def handed_over(d: Draft, epoch: Epoch, change: Change | None, *, wait: bool = False) -> bool:
    """True once nothing of ``epoch`` runs (or has not answered a drain for long). Opens the drain.

    ``wait``: nobody stands ready to take over. A single doomed machine is then left to use the time
    that it has; of several, the others cannot go on without it and are drained at once."""
    change = change or Change(why="moving")
    silent = left_behind(d, epoch)
    busy = [lease for lease in d.at_work(epoch) if lease not in silent]
    if not busy:
        return True
    grace_s = d.timing.loss_grace_s if change.hurry else None
    if not d.draining:
        if not wait or change.at_once or len(epoch.members) > 1:
            d.open_epoch((), change.why, grace_s)
        return False
    drain = d.state.epochs[-1]
    if change.hurry and drain.grace_s is None:  # lost since: its peers may wait for it in vain
        d.open_epoch((), change.why, grace_s)
        return False
    return d.now_s > drain.opened_at_s + d.timing.drain_timeout_s


def intact(d: Draft, epoch: Epoch) -> bool:
    """Every member is there, is where it should be, and can go on; and nobody else is to be one."""
    return _change(d, epoch) is None


def _change(d: Draft, epoch: Epoch) -> Change | None:
    if epoch.resume_from in d.state.rejected:
        beats = [d.beat(lease) for lease in d.members(epoch)]
        if any(b is not None and b.phase is AgentPhase.BROKEN and b.epoch == epoch.number for b in beats):
            return Change(why=f"{epoch.resume_from} is damaged")
    text = echoed(d, epoch)
    if text is not None:
        return Change(why=text, hurry=True, at_once=True)
    if d.elastic:
        return change(d, epoch)
    holders = {lease.lease_id for lease in d.holders().values()}
    if all(m.lease_id in holders for m in epoch.members) and len(epoch.members) == d.size:
        return None
    return Change(why="a machine has left" if d.size > 1 else "moving")


def _reason(d: Draft, epoch: Epoch | None, coming: set[str]) -> str:
    count = len(coming)
    if epoch is None:
        return "all machines are ready" if count == d.size else f"{count} of {d.size} machines are ready"
    if epoch.resume_from in d.state.rejected:
        return f"{epoch.resume_from} is damaged: back to the checkpoint before it"
    members = d.members(epoch)
    left = [x for x in members if x.lease_id not in coming]
    if not d.elastic:
        gone = [x.lease_id for x in members if x.phase is not LeasePhase.READY]
        return f"in place of {', '.join(gone)}" if gone else "all machines are ready again"
    said = [f"{x.lease_id} {_went(x)}" for x in left]
    said += [f"{x} joins" for x in sorted(coming - {m.lease_id for m in epoch.members})]
    size = f"{count} of {d.size} machines" if count != d.size else f"{count} machines"
    return f"{size}: {', '.join(said)}" if said else f"{size}, ready again"


def _went(lease: Lease) -> str:
    if lease.phase is LeasePhase.SUSPECT:
        return "is silent (kept)"
    if lease.notice_acts_at_s is not None:
        return "has notice"
    return "leaves" if lease.phase in HEARD or lease.ending_code == "surplus" else "is gone"
