"""A command that fails: the user's own failure, or the echo of a machine that was gone or cut off.

Peers of a lost rank fail, too, with whatever their framework makes of a connection that is reset. So a
failure counts only once every machine of the epoch has been heard after it; and where one of them was silent
as it happened and came back, the gang starts again from its last checkpoint instead. (How long machines
were silent is known to the launcher that was looking: one that has started since counts the failure.)
"""

from __future__ import annotations

from typing import Final

from arylcloud.core.phases import LeasePhase
from arylcloud.core.protocol import EndDoc
from arylcloud.launcher.reconcile import sizes
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.state import Epoch, Lease

SIGNAL_PROOF_S: Final = 5.0
"""A command that died of a signal has died with its machine, unless the machine is heard this much later."""
AROUND_S: Final = 2.0
"""A silence that ended so shortly before a failure was seen may be its cause."""


def outlived(d: Draft, epoch: Epoch, end: EndDoc) -> bool:
    """Whether every machine of the epoch was well when the command failed, and after: then the failure is
    the user's. Else it may be the echo of a lost machine (peers fail, shutdowns send signals)."""
    proof_s = SIGNAL_PROOF_S if end.exit_code > 128 else 0.0
    for lease in d.members(epoch):
        beat = d.beat(lease)
        if beat is None or beat.notice is not None or lease.phase is LeasePhase.DOOMED:
            return False
        if lease.lease_id == end.lease_id:
            well = beat.at_s >= end.at_s + proof_s  # two moments of one clock
        else:
            wrote_after_s = d.observed.wrote_after_s.get((end.epoch, end.rank, lease.lease_id), 0.0)
            well = _heard_after(d, lease, end, proof_s) or wrote_after_s > proof_s
        if not well:
            return False
    return not _cut_off(d, epoch, end)


def echoed(d: Draft, epoch: Epoch) -> str | None:
    """Why the gang has to start again, though all its machines are well: a rank has failed while one of
    them was cut off. None = no such thing, or it is not over yet."""
    told = {(c.epoch, c.rank) for c in d.state.commands_ended}
    for lease in d.members(epoch):
        heard_s = d.observed.heard_s_ago.get(lease.lease_id)
        if lease.phase is not LeasePhase.READY or heard_s is None or heard_s > d.timing.silent_s:
            return None
    for end in sorted(d.observed.ends, key=lambda e: e.rank):
        seen_s = d.observed.end_seen_s_ago.get((end.epoch, end.rank), 0.0)
        failed = end.epoch == epoch.number and not end.signalled and end.exit_code != 0
        late = seen_s > d.timing.silent_s + AROUND_S  # until then it may turn out to be a loss
        if failed and late and (end.epoch, end.rank) not in told and _cut_off(d, epoch, end):
            return f"rank {end.rank} failed with exit code {end.exit_code} while a machine was cut off"
    return None


def _heard_after(d: Draft, lease: Lease, end: EndDoc, proof_s: float) -> bool:
    """A peer's heartbeat has changed since we saw the end: in our own time."""
    seen_s = d.observed.end_seen_s_ago.get((end.epoch, end.rank))
    heard_s = d.observed.heard_s_ago.get(lease.lease_id)
    return seen_s is not None and heard_s is not None and heard_s < seen_s and seen_s - heard_s >= proof_s


def _cut_off(d: Draft, epoch: Epoch, end: EndDoc) -> bool:
    """Whether a machine of a gang was silent when the end was seen, or until shortly before, for half as long
    as makes one SUSPECT. Not twice from one and the same checkpoint."""
    seen_s = d.observed.end_seen_s_ago.get((end.epoch, end.rank))
    if len(epoch.members) < 2 or seen_s is None or sizes.never_again(d) or _in_vain(d, epoch):
        return False
    enough_s = d.timing.silent_s / 2
    for lease in d.members(epoch):
        heard_s = d.observed.heard_s_ago.get(lease.lease_id, 0.0)
        lasted_s, over_s = d.observed.pauses.get(lease.lease_id, (0.0, 0.0))
        if heard_s - seen_s >= enough_s or (lasted_s >= enough_s and over_s <= seen_s + AROUND_S):
            return True
    return False


def _in_vain(d: Draft, epoch: Epoch) -> bool:
    """This epoch has committed nothing, and the one before had begun at the same checkpoint."""
    before = [e for e in d.state.epochs if e.members and e.number < epoch.number]
    own = any(c.epoch == epoch.number for c in d.state.checkpoints)
    return bool(before) and not own and before[-1].resume_from == epoch.resume_from
