"""Who belongs in the next epoch of a job whose number of machines may change, and when that is worth one.

Membership and money are decided apart: a machine that is silent leaves the epoch and is kept; one that is
lost leaves, and may be replaced; one that has come joins, at a committed checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from arylcloud.core.phases import LeasePhase
from arylcloud.core.protocol import AgentPhase, Member
from arylcloud.launcher.reconcile import sizes
from arylcloud.launcher.reconcile.draft import HEARD, HOLDING, Draft
from arylcloud.launcher.state import Epoch, Lease

_FREE = frozenset({AgentPhase.READY, AgentPhase.DRAINED, AgentPhase.EXITED, AgentPhase.BROKEN})
_COMING = frozenset({LeasePhase.INTENDED, LeasePhase.PENDING, LeasePhase.READY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Why the open epoch cannot stay as it is."""

    why: str
    hurry: bool = False
    """A rank is gone: what the others wait for in a collective will not come."""
    at_once: bool = False
    """Nobody has to stand ready before it is drained."""


def gang(d: Draft, leases: Sequence[Lease]) -> tuple[Member, ...] | None:
    """``leases`` as members, ranked as they stand; None unless each is set up and free."""
    found = []
    for rank, lease in enumerate(leases):
        address = joinable(d, lease)
        if address is None:
            return None
        found.append(Member(lease_id=lease.lease_id, rank=rank, address=address))
    return tuple(found) or None


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


def next_members(d: Draft) -> tuple[Member, ...] | None:
    """Who could begin now; None = not enough, or others are worth waiting for."""
    kept = d.holders()
    if not d.elastic:
        return gang(d, list(kept.values())) if len(kept) == d.size else None
    able = [lease for lease in kept.values() if joinable(d, lease) is not None]
    if len(able) < d.state.spec.nodes_min or (len(able) < d.size and _worth_waiting(d, kept.values(), able)):
        return None
    return gang(d, _by_rank(d, able))


def change(d: Draft, epoch: Epoch) -> Change | None:
    """Of an elastic job; None = the epoch may go on as it is."""
    members = d.members(epoch)
    kept = {lease.lease_id for lease in d.holders().values()}
    silent = left_behind(d, epoch)
    drained = {t.lease_id for t in d.state.trainings if t.epoch == epoch.number and t.how == "drained"}
    out = [x for x in members if x.phase not in HEARD]
    gone = [x for x in out if x.lease_id not in drained]
    doomed = [x for x in members if x.phase is LeasePhase.DOOMED]
    surplus = [x for x in members if x.lease_id not in kept]
    if gone or silent:
        how = [f"{x.lease_id} is lost" for x in gone] + [f"{x.lease_id} is silent" for x in silent]
        return Change(why=", ".join(how), hurry=True)
    if doomed or out:  # who is out and has handed over leaves the others the time to do so, too
        how = [f"{x.lease_id} has notice" for x in doomed] + [f"{x.lease_id} has left" for x in out]
        return Change(why=", ".join(how))
    if any(c.epoch == epoch.number for c in d.state.commands_ended):
        return None  # a rank has finished: the others are about to
    if surplus:
        return Change(why=f"{d.size} machines are wanted, {len(members)} work", at_once=True)
    joiners = _joiners(d, epoch)
    if joiners:
        who = ", ".join(x.lease_id for x in joiners)
        return Change(why=f"{who} can join: {len(members) + len(joiners)} machines", at_once=True)
    return None


def left_behind(d: Draft, epoch: Epoch) -> tuple[Lease, ...]:
    """Members that are silent, where the others go on without them. Their machines are kept; what they still
    write is of an old epoch."""
    if not d.elastic or sizes.never_again(d):
        return ()
    members = d.members(epoch)
    silent = tuple(x for x in members if x.phase is LeasePhase.SUSPECT)
    if not silent:
        return ()
    mine = {x.lease_id for x in members}
    well = [x for x in members if x.phase is LeasePhase.READY]
    well += [x for x in d.holders().values() if x.lease_id not in mine and joinable(d, x) is not None]
    return silent if len(well) >= d.state.spec.nodes_min else ()


def survives(d: Draft, epoch: Epoch) -> bool:
    """Whether an elastic gang that has lost machines goes on with the others."""
    if not d.elastic or sizes.never_again(d) or d.state.spec.on_node_loss == "restart":
        return False
    well = [x for x in d.members(epoch) if x.phase is LeasePhase.READY]
    return len(well) >= d.state.spec.nodes_min


def begins_anew(d: Draft, kept: Iterable[Lease]) -> bool:
    """``on_node_loss: restart``, a member is gone, and others of that epoch are left: they go on with nobody
    missing, or not at all."""
    epoch = d.member_epoch
    if epoch is None or d.state.spec.on_node_loss != "restart":
        return False
    left, members = list(kept), d.members(epoch)
    return any(x not in left for x in members) and any(x in members for x in left)


def _worth_waiting(d: Draft, kept: Iterable[Lease], able: list[Lease]) -> bool:
    """Whether machines on their way are waited for, though enough stand ready."""
    mine = {x.lease_id for x in able}
    coming = [x for x in kept if x.lease_id not in mine and x.phase in _COMING]
    epoch = d.member_epoch
    if epoch is not None:
        members = d.members(epoch)
        if all(x.phase in HOLDING for x in members):
            return False
        rule = d.state.spec.on_node_loss
        if any(x in members for x in able):  # there are survivors
            return rule == "restart" or (rule == "replace" and bool(coming))
    ready_s = min(x.since_s for x in able)
    return bool(coming) and d.now_s < ready_s + d.timing.gather_s


def _by_rank(d: Draft, leases: list[Lease]) -> list[Lease]:
    """Survivors first, in their order: rank 0 stays where the last checkpoint is on the disk."""
    epoch = d.member_epoch
    ranks = {m.lease_id: m.rank for m in epoch.members} if epoch else {}
    return sorted(leases, key=lambda x: (ranks.get(x.lease_id, len(ranks)), x.index))


def _joiners(d: Draft, epoch: Epoch) -> list[Lease]:
    """Machines that are taken on now: set up, beside a checkpoint that was committed in this epoch, and not
    so often that the work stands still."""
    if d.state.migration is not None:
        return []
    mine = {m.lease_id for m in epoch.members}
    others = [x for x in d.holders().values() if x.lease_id not in mine]
    able = [x for x in others if joinable(d, x) is not None]
    if not able or not any(c.epoch == epoch.number for c in d.state.checkpoints):
        return []
    coming = [x for x in others if x not in able and x.phase in _COMING]
    if coming and d.now_s < min(x.since_s for x in able) + d.timing.gather_s:
        return []
    grown_s = _last_growth_s(d)
    if grown_s is not None and d.now_s < grown_s + d.timing.regain_s:
        return []
    if not all(prefetched(d, x, epoch) for x in able):
        return []
    if not sizes.pays(d, len(epoch.members), len(epoch.members) + len(able)):
        return []
    return able


def _last_growth_s(d: Draft) -> float | None:
    """When machines were last taken on by an epoch that went on."""
    last: Epoch | None = None
    found: float | None = None
    for epoch in d.state.epochs:
        if epoch.drain or epoch.number <= d.state.history_epoch:
            continue
        if last is not None:
            before = {m.lease_id for m in last.members}
            now = {m.lease_id for m in epoch.members}
            if now - before and now & before:
                found = epoch.opened_at_s
        last = epoch
    return found


def prefetched(d: Draft, lease: Lease, epoch: Epoch) -> bool:
    """The last checkpoint (or one just overtaken) is on that machine's disk; or it takes too long."""
    lineage = d.state.lineage
    if lineage is None or d.now_s > lease.since_s + d.timing.drain_timeout_s:
        return True
    beat = d.beat(lease)
    if beat is None or beat.phase is AgentPhase.BROKEN:
        return False
    recent = [c.manifest for c in d.state.checkpoints if c.epoch == epoch.number][-3:]
    return beat.prefetched in {lineage.manifest, *recent}
