"""Moving a running job, make-before-break. Each step may be the last: the job goes on regardless."""

from __future__ import annotations

from collections.abc import Iterable

from arylcloud.core import events as ev
from arylcloud.core.offer import Market, Offer
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.launcher.actions import MoveAdvice
from arylcloud.launcher.duesize import fewest, takes_all
from arylcloud.launcher.offers import barred, covers
from arylcloud.launcher.reconcile.draft import HOLDING, Draft
from arylcloud.launcher.reconcile.epochs import handed_over, intact
from arylcloud.launcher.reconcile.membership import Change, gang, prefetched, survives
from arylcloud.launcher.reconcile.pipelines import assigned
from arylcloud.launcher.reconcile.slots import lease_until_s
from arylcloud.launcher.state import Epoch, Lease


def step(d: Draft) -> None:
    epoch = d.member_epoch
    if epoch is None or not d.observed.mailbox_ok:
        return
    if d.state.migration is not None:
        _go_on(d, epoch)
    elif not d.draining and intact(d, epoch):
        _start(d, epoch)


def _start(d: Draft, epoch: Epoch) -> None:
    current = d.members(epoch)[0].offer
    request, advice = d.state.migrate_request, d.desired.move
    if any(lease.phase is not LeasePhase.READY for lease in d.members(epoch)):
        return
    nodes = d.size
    if request is not None:
        found = _asked_for(d, current, request)
        if isinstance(found, str):
            d.note(ev.MigrationEnded(done=False, text=found), cause_id=f"request {request.number}")
            return
        cause, why = f"request {request.number}", f"asked for by {request.by}"
        advised = advice if advice is not None and advice.to.key == found.key else None
        target = found
        nodes = _nodes(d, d.desired.sizes.get(target.key))
    elif advice is not None and _may_move(d, current, advice):
        target, cause, why, advised = advice.to, "advice", advice.why, advice
        nodes = _nodes(d, advice.nodes)
    else:
        return
    d.note(
        ev.MigrationStarted(
            to=target,
            from_offer=current.key,
            expected_saving_usd=advised.saving_usd if advised is not None else None,
            move_usd=advised.move_usd if advised is not None else None,
            forced=request is not None,
            why=why,
            nodes=nodes if d.elastic else None,
        ),
        cause_id=cause,
    )
    for index in range(nodes):
        d.create(target, index, "migrate", lease_until_s(d, target), why)


def _nodes(d: Draft, best: int | None) -> int:
    """How many machines there: the best number for that offer, unless a user has named one."""
    spec = d.state.spec
    if not d.elastic or d.state.size_pinned or best is None:
        return d.size
    return min(max(best, spec.nodes_min), spec.nodes_max)


def _asked_for(d: Draft, current: Offer, request: ev.RequestSeen) -> Offer | str:
    """The offer that a request names (or, without a name, that the policy would choose), or why not."""
    wanted = request.args.get("to")
    if wanted:
        if covers(str(wanted), current):
            return "it is there already"
        named = [o for o in d.desired.ranking if o.key == wanted or covers(str(wanted), o)]
        offers = [o for o in named if o.key != current.key]
        if not offers:
            return "it is there already" if named else f"{wanted} is no offer that this job accepts"
    elif d.desired.move is not None:
        offers = [d.desired.move.to]
    else:
        return f"no market is better than {current.key} by enough to pay for a move"
    free = [o for o in offers if barred(o, d.state.bars, d.now_market_s) is None]
    if not free:
        bar = barred(offers[0], d.state.bars, d.now_market_s)
        return f"{offers[0].key} is barred: {bar.why if bar else ''}"
    return free[0]


def _may_move(d: Draft, current: Offer, advice: MoveAdvice) -> bool:
    spec, to = d.state.spec, advice.to
    if not spec.migrate.auto or spec.recovery == "none" or to.key == current.key:
        return False
    if barred(to, d.state.bars, d.now_market_s) is not None:
        return False
    last_s = d.state.migration_at_s
    return (
        last_s is None
        or advice.urgent
        or (d.now_market_s - d.state.market_clock.market_s(last_s) >= spec.migrate.at_most_every_s)
    )


def _go_on(d: Draft, epoch: Epoch) -> None:
    targets = {lease.index: lease for lease in d.targets()}
    migration = d.state.migration
    wanted = d.size if migration is None or migration.nodes is None else migration.nodes
    if len(targets) < _enough(d, epoch, wanted, targets.values()):
        d.note(ev.MigrationEnded(done=False, text=f"the new machine is not to be had: {_fate(d)}"))
        return
    if not intact(d, epoch) and not (d.draining and _whole(d, epoch)):
        if _whole(d, epoch) or survives(d, epoch):
            return  # they start again, or the others go on; and move then, or later
        text = "the old machine is lost or has notice; the new one takes over"
        d.note(ev.MigrationEnded(done=True, text=text))
        return
    members = gang(d, [targets[index] for index in sorted(targets)])
    if members is None or not (d.draining or all(prefetched(d, t, epoch) for t in targets.values())):
        return
    if any(c.epoch == epoch.number for c in d.state.commands_ended):
        return  # a rank has finished: the others are about to
    old = d.members(epoch)
    if not handed_over(d, epoch, Change(why=f"moving to {targets[min(targets)].offer.key}")):
        return
    members_offer, started_s = targets[min(targets)].offer, d.state.migration_at_s
    took_usd = _double_usd(d, targets.values())
    pipelines = assigned(d, members)
    d.open_epoch(members, f"moved to {members_offer.key}", pipelines=pipelines)
    for lease in old:
        if lease.phase is not LeasePhase.ENDING and lease.open:
            d.end(lease, "migrated", f"the job has moved to {members_offer.key}")
    text = f"{old[0].offer.key} → {members_offer.key}"
    d.note(
        ev.MigrationEnded(
            done=True,
            text=text,
            expected_saving_usd=migration.expected_saving_usd if migration is not None else None,
            took_usd=took_usd,
            took_s=None if started_s is None else d.now_s - started_s,
        )
    )


def _enough(d: Draft, epoch: Epoch, wanted: int, targets: Iterable[Lease]) -> int:
    """New machines that a move needs: all that it wants; where a policy has an elastic job move on spot, as
    many as work for it now, and from on demand what is to be had. (On demand is the whole gang, and what a
    user has asked for holds.)"""
    dear = any(x.offer.market is not Market.SPOT for x in targets)
    forced = d.state.migration is not None and d.state.migration.forced
    if not takes_all(d.state) or d.state.size_pinned or dear or forced:
        return wanted
    at_work = [x for x in d.members(epoch) if x.phase in HOLDING]
    if any(x.offer.market is not Market.SPOT for x in at_work):
        return fewest(d.state)
    return max(fewest(d.state), min(len(at_work), wanted))


def _double_usd(d: Draft, targets: Iterable[Lease]) -> float | None:
    """What the new machines have cost until now, at their present prices; None = one is not known."""
    total = 0.0
    for lease in targets:
        if lease.usd_per_hour is None or lease.launched_s is None:
            return None
        total += lease.usd_per_hour * max(0.0, d.now_market_s - lease.launched_s) / 3600.0
    return total


def _whole(d: Draft, epoch: Epoch) -> bool:
    """None of the old gang is lost: it drains for the move, or starts again where it is."""
    return all(lease.phase in (LeasePhase.READY, LeasePhase.SUSPECT) for lease in d.members(epoch))


def _fate(d: Draft) -> str:
    started_s = d.state.migration_at_s or 0.0
    ours = [
        lease
        for lease in d.state.leases.values()
        if lease.purpose == "migrate" and lease.intended_at_s >= started_s
    ]
    return ", ".join(f"{x.lease_id} {x.phase} ({x.cause or x.ending_code or 'no answer'})" for x in ours)


def phase(d: Draft) -> tuple[JobPhase, str, str] | None:
    migration = d.state.migration
    if migration is None:
        return None
    return JobPhase.MIGRATING, "migrate", f"{migration.from_offer} → {migration.to.key}: {migration.why}"
