"""Which layers each rank of the next epoch holds, of a job that trains by pipeline templates."""

from __future__ import annotations

from collections.abc import Sequence

from arylcloud.core.pipeline import Pipelines, Run
from arylcloud.core.protocol import Member
from arylcloud.launcher.reconcile.draft import Draft


def assigned(d: Draft, members: Sequence[Member]) -> Pipelines | None:
    """The plan table's row for so many machines, laid over them. None: the job divides its own work.

    It goes into the journal with the epoch: a launcher that takes over finds it, and makes none."""
    spec = d.state.spec
    if spec.pipeline is None or not members:
        return None
    from arylcloud.planner.templates.assign import assign

    before = _held(d)
    return assign(
        spec.pipeline,
        nodes_max=spec.nodes_max,
        zones=[zone(d, m) for m in members],
        held=[before.get(m.lease_id) for m in members],
    )


def zone(d: Draft, member: Member) -> str:
    """Where that machine is, as its cloud says; an offer of a whole region does not."""
    lease = d.state.leases[member.lease_id]
    machine = d.machine(lease)
    found = lease.offer.zone or (machine.zone if machine is not None else None)
    return "/".join((lease.offer.cloud, lease.offer.region, found or ""))


def _held(d: Draft) -> dict[str, Run]:
    """By lease: the layers of the epoch before. A machine that sat it out has nothing of use."""
    epoch = d.member_epoch
    if epoch is None or epoch.pipelines is None:
        return {}
    ranks = {m.rank: m.lease_id for m in epoch.members}
    stages = [s for r in epoch.pipelines.replicas for s in r.stages]
    return {ranks[s.rank]: (s.first, s.last) for s in stages}
