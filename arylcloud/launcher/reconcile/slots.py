"""Filling the job's slots: which machines should exist that do not, and which exist too often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from arylcloud.core import events as ev
from arylcloud.core.offer import Offer
from arylcloud.core.phases import LeasePhase
from arylcloud.launcher.actions import DueStart
from arylcloud.launcher.limits import burn_usd_per_hour, hard_left_s, reserve_usd
from arylcloud.launcher.offers import acceptable, barred, why_none
from arylcloud.launcher.reconcile import sizes
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.reconcile.membership import begins_anew
from arylcloud.launcher.refusals import summary, utc
from arylcloud.launcher.state import Lease

HELD: Final = "spot_awaited"
"""Code of a wait that the deadline policy has chosen."""


def repeat_intents(d: Draft) -> None:
    """INTENDED without outcome: the launcher died between the two, or its cloud had no time for the call.
    The same token is asked again."""
    if not d.observed.mailbox_ok:
        return
    for lease in d.state.open_leases:
        if lease.phase is not LeasePhase.INTENDED or lease.lease_id in d.asked():
            continue
        throttled = lease.uncertain_kind == "throttled"
        if not lease.uncertain or (throttled and barred(lease.offer, d.state.bars, d.now_market_s) is None):
            d.repeat_create(lease)


def trim(d: Draft) -> None:
    """One machine per slot: what a migration left behind, or brought in vain, goes."""
    keep = {lease.lease_id for lease in (*d.holders().values(), *d.targets())}
    epoch = d.member_epoch
    busy = {lease.lease_id for lease in d.at_work(epoch)} if epoch else set()
    for lease in d.state.open_leases:
        if lease.phase not in (LeasePhase.ENDING, LeasePhase.DOOMED) and lease.lease_id not in keep:
            if lease.lease_id in busy:
                continue  # still working for the open epoch
            if d.elastic and lease.phase is not LeasePhase.INTENDED and len(keep) >= d.size:
                d.end(lease, "surplus", f"{d.size} machines are wanted")
            else:
                d.end(lease, "surplus", "another machine has its place")


def fill(d: Draft) -> None:
    """Ask for what is missing, on one offer for all slots: an epoch lives in one zone, on one type."""
    if not d.observed.mailbox_ok:  # no intent could be mirrored before its effect
        return
    holders = d.holders()
    if len(holders) >= d.size or not _may_replace(d):
        return
    if holders and not _may_grow(d, len(holders)):
        return
    offer = _kin(d, holders) if holders else _choice(d)
    if offer is None:
        return
    if not holders:
        sizes.for_offer(d, offer)
    free = [index for index in range(d.state.spec.nodes_max) if index not in holders]
    for index in free[: d.size - len(holders)]:
        d.create(offer, index, _purpose(d, index), lease_until_s(d, offer), _why(d, index))


def _purpose(d: Draft, index: int) -> ev.Purpose:
    epoch = d.member_epoch
    if epoch is None:
        return "start"
    ours = [x for x in d.state.leases.values() if x.attempt > d.state.history_attempt]
    return "replace" if not d.elastic or any(x.index == index for x in ours) else "grow"


def _may_grow(d: Draft, count: int) -> bool:
    """Where enough machines are there, one more has to be worth its boot and the others' hand-over; and
    none is asked for while all move elsewhere. (Of survivors that wait for all to begin anew, it is.)"""
    if count < d.state.spec.nodes_min or begins_anew(d, d.holders().values()):
        return True
    if d.state.migration is not None:
        return False
    return d.member_epoch is None or sizes.pays(d, count, d.size, boots=d.size - count)


def lease_until_s(d: Draft, offer: Offer) -> float:
    """How long one more machine goes on if no launcher is ever heard: ``unattended``, or until the budget
    or ``max_runtime`` is used up. (What a launcher renews, and what not, is told by its beats.)"""
    until_s = d.now_s + d.state.spec.unattended_s
    price, burn = offer.usd_per_hour, burn_usd_per_hour(d.state)
    rate = None if price is None or burn is None else max(price * d.size, burn + price)
    left_s = hard_left_s(
        d.state,
        d.now_s,
        spent_usd=d.desired.spent_usd,
        usd_per_hour=rate,
        boot_s=d.timing.boot_timeout_s,
        reserve_usd=reserve_usd(d.state, rate),
    )
    return until_s if left_s is None else min(until_s, d.now_s + left_s)


def _may_replace(d: Draft) -> bool:
    """What has run once, and is not to run again, is not completed again; unless a user asks for more."""
    return d.member_epoch is None or not sizes.never_again(d) or (d.elastic and d.state.size_pinned)


def _choice(d: Draft) -> Offer | None:
    """The best offer that may be tried now; None = wait (and ``d.waiting`` says for what)."""
    due = d.desired.due
    if due is None and d.desired.by_policy and d.actions:
        return None  # lost in this very pass: its policy is asked at the next, which comes at once
    if due is not None and due.to is None:
        d.waiting, d.waiting_until_s = (HELD, due.why), due.until_s
        return None
    if due is not None and due.to is not None:
        bar = barred(due.to, d.state.bars, d.now_market_s)
        if bar is not None:
            d.waiting = (bar.code, f"{bar.why}; {due.why}")
        return due.to if bar is None else None
    free = acceptable(d.desired.ranking, d.state.bars, d.state.cooling, d.now_market_s, d.timing)
    if not free:
        code, text = why_none(d.desired.ranking, d.state.bars, d.now_market_s)
        said = summary(d.state)
        d.waiting = (code, text if said is None else f"{said}; {_next_try(d)}")
        return None
    bar = barred(free[0], d.state.bars, d.now_market_s)
    return free[0] if bar is None else None  # throttled: the same call again, later


def _next_try(d: Draft) -> str:
    bars = [barred(offer, d.state.bars, d.now_market_s) for offer in d.desired.ranking]
    ends = [bar.until_s for bar in bars if bar is not None]
    return (
        f"next try {utc(d.state.market_clock.wall_s(min(ends)))}" if ends else "no other offer is acceptable"
    )


def _kin(d: Draft, holders: Mapping[int, Lease]) -> Offer | None:
    """The survivors' own offer, so that they are kept. Where that is barred, all move together: the
    survivors are ended (idle, drained) as soon as there is somewhere else to go."""
    epoch = d.member_epoch
    survivors = list(holders.values())
    offer = survivors[0].offer
    due = d.desired.due
    regroup = barred(offer, d.state.bars, d.now_market_s) is not None or _must_leave(due, offer)
    enough = d.elastic and len(survivors) >= d.state.spec.nodes_min
    if regroup and enough and not begins_anew(d, survivors):
        return None  # they go on without it, and it is tried again when the bar ends
    if not regroup and not (begins_anew(d, survivors) and _all_members(d, survivors)):
        return next((o for o in d.desired.ranking if o.key == offer.key), offer)  # its price of today
    choice = _choice(d)
    busy = d.at_work(epoch) if epoch else ()
    held = due is not None and due.to is None
    if (choice is None and not held) or any(lease in busy for lease in survivors):
        return None
    then = "the job waits for spot" if choice is None else f"all machines move to {choice.key}"
    for lease in survivors:
        d.end(lease, "regroup", f"{offer.key} cannot be completed; {then}")
    return None  # the next pass finds every slot empty


def _must_leave(due: DueStart | None, offer: Offer) -> bool:
    """No time is left to complete a gang where it was: all begin elsewhere."""
    return due is not None and due.forced and due.to is not None and due.to.key != offer.key


def _all_members(d: Draft, leases: list[Lease]) -> bool:
    epoch = d.member_epoch
    return epoch is not None and {x.lease_id for x in leases} <= {m.lease_id for m in epoch.members}


def _why(d: Draft, index: int) -> str:
    lost = [lease for lease in d.state.leases.values() if lease.index == index]
    by = "" if d.desired.due is None else f"; {d.desired.due.why}"
    if not lost:
        return f"rank {index}: the best of {len(d.desired.ranking)} offers{by}"
    last = lost[-1]
    return (
        f"rank {index}: in place of {last.lease_id}, {last.cause or last.ending_code or 'given notice'}{by}"
    )
