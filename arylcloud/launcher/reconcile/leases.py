"""Which machines must go, and seeing to it that they do."""

from __future__ import annotations

from typing import Final

from arylcloud.core.offer import Market
from arylcloud.core.phases import LeasePhase
from arylcloud.core.ports import EndCause, MachineState
from arylcloud.core.protocol import BAD_HARDWARE, AgentPhase
from arylcloud.launcher.leasebill import FIRST_HOUR_S
from arylcloud.launcher.offers import bar_for, bar_offer
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.state import Lease

PRICE_TOLERANCE: Final = 0.10
"""A machine that costs this much more than it was quoted at is not what was chosen."""

TAKES_S: Final = 60.0
"""A cloud that has given notice takes the machine at the moment it said, or so much later."""

NO_ROOM: Final = "no_room"
UNHEARD: Final = "unheard"
BAD_STARTS: Final = frozenset({"boot_timeout", "broken", UNHEARD})
"""Ending codes of machines that never got to work. (Bad hardware is nobody's fault: another is asked for.)"""


def judge(d: Draft) -> None:
    """End what costs too much, never came up, cannot work, is lost, or has handed over."""
    for lease in d.state.open_leases:
        match lease.phase:
            case LeasePhase.INTENDED:
                _uncertain(d, lease)
            case LeasePhase.PENDING:
                _ = _too_dear(d, lease) or _stopped(d, lease) or _booting(d, lease)
            case LeasePhase.READY | LeasePhase.SUSPECT:
                _ = _too_dear(d, lease) or _broken(d, lease) or _stopped(d, lease) or _lost(d, lease)
            case LeasePhase.DOOMED:
                _doomed(d, lease)
            case _:
                pass


def finish_ending(d: Draft) -> None:
    """Ask again for every end that the cloud has not confirmed: a call may be lost, a network down."""
    asked = d.asked()
    for lease in d.state.open_leases:
        if lease.phase is LeasePhase.ENDING and lease.lease_id not in asked:
            machine = d.machine(lease)
            if machine is None and lease.instance_id is None:
                continue  # nothing to end: it never came, or has not landed yet
            d.end(lease, lease.ending_code or "ending", "not gone yet")


def sweep(d: Draft) -> None:
    """End machines of this journal and job that no open lease stands for: they landed after all."""
    for machine in d.observed.machines:
        if machine.state is MachineState.GONE or machine.job_id != d.state.job_id:
            continue
        if machine.journal_id != d.state.journal_id:
            continue  # somebody else's: `gc --owner` is for that
        lease = d.state.leases.get(machine.lease_id)
        if lease is None:
            d.sweep(machine, "no lease of this job stands for it")
        elif not lease.open:
            d.sweep(machine, f"its lease is {lease.phase}: it landed late")
        elif lease.instance_id is not None and lease.instance_id != machine.instance_id:
            d.sweep(machine, f"{lease.instance_id} is the machine of its lease")


def _uncertain(d: Draft, lease: Lease) -> None:
    """Create had no clear answer. If it left a machine, the list shows it in time; else: elsewhere.
    (A throttled call is made again, until the cloud has time for it: ``slots.repeat_intents``.)"""
    if not lease.uncertain or lease.uncertain_at_s is None or not d.listed(lease):
        return
    if lease.uncertain_kind == "throttled":
        return
    if d.machine(lease) is None and d.now_s >= lease.uncertain_at_s + d.timing.landing_s:
        why = f"create had no clear answer, and nothing came in {d.timing.landing_s:.0f} s"
        d.end(lease, "create_uncertain", why)
        barred = bar_for("other", lease.offer, d.now_market_s, d.timing, before=d.state.bars)
        if barred is not None:
            d.note(barred)


def _too_dear(d: Draft, lease: Lease) -> bool:
    """The price of the *created* machine, not the one it was chosen at. Later moves are the market's."""
    epoch = d.member_epoch
    if not lease.prices or (epoch and lease.lease_id in {m.lease_id for m in epoch.members}):
        return False
    price = lease.prices[0].usd_per_hour
    cap = d.state.spec.constraints.max_usd_per_hour
    quoted = lease.offer.usd_per_hour
    if cap is not None and price > cap:
        why = f"it costs ${price:.4f}/h, over the cap of ${cap:.4f}/h"
    elif quoted is not None and price > quoted * (1 + PRICE_TOLERANCE):
        why = f"it costs ${price:.4f}/h, but was quoted at ${quoted:.4f}/h"
    else:
        return False
    d.end(lease, "over_cap", why)
    bar(d, lease, "over_cap", why)
    return True


def _booting(d: Draft, lease: Lease) -> bool:
    if not d.observed.mailbox_ok or d.now_s <= lease.since_s + d.timing.boot_timeout_s:
        return False
    why = f"not heard within {d.timing.boot_timeout_s:.0f} s of its creation"
    d.end(lease, "boot_timeout", why)
    bar(d, lease, "boot_timeout", why)
    return True


def _broken(d: Draft, lease: Lease) -> bool:
    """A machine that cannot work is replaced. (A bad checkpoint is no fault of the machine; a failed
    set-up ends the job: see ``facts`` and ``lifecycle``.)"""
    beat = d.beat(lease)
    if beat is None or beat.phase is not AgentPhase.BROKEN:
        return False
    message = beat.message or "it cannot do its work"
    if any(manifest in message for manifest in d.state.rejected):
        return False
    if any(end.in_setup and end.lease_id == lease.lease_id for end in d.observed.ends):
        return False
    code = "bad_hardware" if message.startswith(BAD_HARDWARE) else "broken"
    d.end(lease, code, message)
    bar(d, lease, code, message)
    return True


def _stopped(d: Draft, lease: Lease) -> bool:
    """Not gone, and not running either, though nobody of us has asked: Azure bills a machine that has shut
    itself down, and keeps what it found no room for, until they are ended."""
    machine = d.machine(lease)
    if lease.phase is LeasePhase.READY or machine is None or machine.state is not MachineState.STOPPING:
        return False
    ending = "stopped", "its cloud keeps it, but it does not run"
    vain = in_vain(d, lease, machine.end_cause, machine.end_text)
    if vain is not None and vain[0] == NO_ROOM:
        ending = vain
    d.end(lease, *ending)
    if vain is not None:
        bar(d, lease, *ending)
    return True


def in_vain(d: Draft, lease: Lease, cause: EndCause | None, said: str | None) -> tuple[str, str] | None:
    """(code, why) of a machine that its cloud shows ended, or standing, before it was ever heard, though
    nobody of us has asked; None for any other. Its offer is barred: it would be asked for again at once, and
    for ever. (Where the mailbox cannot be read, the silence is ours.)"""
    if lease.phase is not LeasePhase.PENDING or not d.observed.mailbox_ok:
        return None
    code, how = {
        EndCause.NO_ROOM: (NO_ROOM, "its cloud had no room for it after all"),
        EndCause.INTERRUPTED: ("taken", "its cloud took it back before it was heard"),
        EndCause.TERMINATED: ("ended", "somebody ended it before it was heard"),
    }.get(cause or EndCause.UNKNOWN, (UNHEARD, "it ended before it was heard"))
    return code, f"{how}: {said}" if said else how


def _lost(d: Draft, lease: Lease) -> bool:
    """Silent, and its cloud has not answered for long either. (Where the cloud answers, its word
    counts alone; where the mailbox is away too, it is we who are cut off.)"""
    unlisted_s = d.observed.unlisted_s.get(lease.offer.cloud, 0.0)
    if lease.phase is not LeasePhase.SUSPECT or d.listed(lease) or not d.observed.mailbox_ok:
        return False
    if min(unlisted_s, d.now_s - lease.since_s) < d.timing.lost_s:
        return False
    d.end(lease, "lost", f"silent, and {lease.offer.cloud} cannot be asked, for {d.timing.lost_s:.0f} s")
    return True


def _doomed(d: Draft, lease: Lease) -> None:
    """Given notice: ended as soon as it has handed over, so that nothing more is paid for it."""
    epoch = d.member_epoch
    at_work = epoch is not None and lease in d.at_work(epoch)
    if not at_work and _free_if_taken(d, lease):
        return
    # the cloud's moment may be by another clock than ours: since the notice came, too
    acts_at_s = max(lease.notice_acts_at_s or lease.since_s, lease.since_s)
    overdue = d.now_s > acts_at_s + d.timing.drain_timeout_s
    if at_work and not overdue:
        return
    d.end(lease, "noticed", "it has handed over" if not at_work else "the cloud has not acted on its notice")


def _free_if_taken(d: Draft, lease: Lease) -> bool:
    """Its cloud does not charge for what it takes back in the first hour: it is left to do so, as long as it
    keeps its word."""
    acts_at_s = lease.notice_acts_at_s
    if acts_at_s is None or lease.launched_s is None or d.now_s > acts_at_s + TAKES_S:
        return False
    taken_s = d.state.market_clock.market_s(acts_at_s + TAKES_S)
    return (
        lease.billing.first_hour_interruption_free
        and lease.offer.market is Market.SPOT
        and taken_s - lease.launched_s < FIRST_HOUR_S
    )


def bar(d: Draft, lease: Lease, code: str, why: str) -> None:
    d.note(bar_offer(lease.offer, code, why, d.now_market_s, d.timing, d.state.bars))
