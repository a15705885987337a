"""The job's own phases: why it ends, how it ends, and what it is called until then."""

from __future__ import annotations

from typing import Final

from arylcloud.core import events as ev
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.ports import EndCause, MachineState
from arylcloud.core.units import say_duration
from arylcloud.launcher import actions as act
from arylcloud.launcher.offers import DETERMINISTIC
from arylcloud.launcher.reconcile import caps, migration, slots
from arylcloud.launcher.reconcile.draft import HEARD, Draft
from arylcloud.launcher.reconcile.leases import BAD_STARTS
from arylcloud.launcher.refusals import refusal_text
from arylcloud.launcher.state import JobState, Lease
from arylcloud.launcher.telling import telling_line

MAX_BAD_STARTS: Final = 5
"""So many machines in a row that never got to work are no accident: the image, the set-up, the network."""

FINISHED: Final = "finished"
STOP: Final = "stop_requested"
_OVERTAKEN_BY_FINISH: Final = frozenset({STOP, "over_budget", "max_runtime", "hung"})


def decide(d: Draft) -> None:
    """Enter STOPPING for the first cause that holds. Once in it, only a finish changes the outcome."""
    if d.stopping:
        if d.state.phase_code in _OVERTAKEN_BY_FINISH and _finished(d):
            d.phase(JobPhase.STOPPING, FINISHED, "the command has finished on all ranks")
        return
    cause = _finish(d) or _refused(d) or _asked(d) or caps.reached(d) or _given_up(d)
    if cause is not None:
        code, text, exit_code = cause
        d.phase(JobPhase.STOPPING, code, text, exit_code)


Cause = tuple[str, str, int | None]


def _finished(d: Draft) -> bool:
    epoch = d.member_epoch
    if epoch is None:
        return False
    done = {c.rank for c in d.state.commands_ended if c.epoch == epoch.number and c.exit_code == 0}
    return done >= {m.rank for m in epoch.members}


def _finish(d: Draft) -> Cause | None:
    if _finished(d):
        return FINISHED, "the command has finished on all ranks", 0
    epoch = d.member_epoch
    for ended in d.state.commands_ended:
        if ended.exit_code == 0:
            continue
        said = telling_line(ended.tail, of_setup=ended.in_setup)
        last = f": {said}" if said else ""
        if ended.in_setup:
            return "setup", f"setup failed with exit code {ended.exit_code}{last}", ended.exit_code
        if epoch is not None and ended.epoch == epoch.number:
            text = f"the command failed with exit code {ended.exit_code} on rank {ended.rank}{last}"
            return "user_command", text, ended.exit_code
    return None


def _refused(d: Draft) -> Cause | None:
    """What no other try helps with. A cloud that lets us do nothing is no such thing while another may, nor
    is one that has let us before: credentials expire, and somebody logs in again."""
    shut = {x.offer.cloud for x in _current(d.state) if x.phase is LeasePhase.REFUSED and x.cause == "access"}
    ours = [x for x in d.state.leases.values() if x.phase is not LeasePhase.REFUSED]
    shut -= {x.offer.cloud for x in ours if x.launched_s is not None}
    for lease in _current(d.state):
        if lease.phase is not LeasePhase.REFUSED or lease.cause not in DETERMINISTIC:
            continue
        if lease.cause != "access" or not d.desired.capabilities.keys() - shut:
            return lease.cause or "usage", refusal_text(lease), None
    return None


def _asked(d: Draft) -> Cause | None:
    stop = d.state.stop
    return None if stop is None else (STOP, f"stop asked for by {stop.by}", None)


def _given_up(d: Draft) -> Cause | None:
    spec = d.state.spec
    if spec.recovery == "none" or spec.on_node_loss == "fail":
        rule = "recovery: none" if spec.recovery == "none" else "on_node_loss: fail"
        for lease in _current(d.state):
            if _was_member(d.state, lease) and _lost(lease):
                how = lease.cause or lease.ending_code
                return "node_lost", f"{lease.lease_id} was lost ({how}); {rule}", None
    trained = {t.lease_id for t in d.state.trainings}
    row = 0
    for lease in _current(d.state):
        alone = lease.phase is LeasePhase.RELEASED and lease.cause == EndCause.SELF
        if lease.ending_code in BAD_STARTS or (alone and lease.lease_id not in trained):
            if _beside_work(d, lease):
                continue
            row += 1
            if row >= MAX_BAD_STARTS and not _enough_work(d):
                last = lease.ending_code or "it ended itself"
                last += f" ({lease.end_text})" if lease.end_text else ""
                return "bad_starts", f"{row} machines in a row never got to work; the last: {last}", None
        elif lease.lease_id in trained:
            row = 0
    return None


def _enough_work(d: Draft) -> bool:
    """An elastic job that works is not ended because no more machines come up for it."""
    epoch = d.member_epoch
    if epoch is None or not d.elastic:
        return False
    here = [x for x in d.members(epoch) if x.phase in HEARD]
    return len(here) >= d.state.spec.nodes_min


def _beside_work(d: Draft, bad: Lease) -> bool:
    """Whether a machine that never got to work was one more, given up while a gang without it trained: of a
    growth or a move. What comes of the gang later has nothing to do with it."""
    opened = [e for e in d.state.epochs if e.opened_at_s <= bad.since_s]
    if not opened or opened[-1].drain or _was_member(d.state, bad):
        return False
    least = d.state.spec.nodes_min
    trained = [t for t in d.state.trainings if t.epoch == opened[-1].number]
    there = [x for x in d.members(opened[-1]) if x.ended_at_s is None or x.ended_at_s > bad.since_s]
    return len(trained) >= least and len(there) >= least


def _current(state: JobState) -> list[Lease]:
    return [lease for lease in state.leases.values() if lease.attempt > state.history_attempt]


def _was_member(state: JobState, lease: Lease) -> bool:
    return any(m.lease_id == lease.lease_id for e in state.epochs for m in e.members)


def _lost(lease: Lease) -> bool:
    """Gone or going without our wish."""
    if lease.ending_code is not None:
        return lease.ending_code in ("lost", "noticed", "broken", "stopped", "frozen")
    return lease.phase is LeasePhase.RELEASED and lease.cause != EndCause.TERMINATED


def wind_down(d: Draft) -> None:
    """Final checkpoint, then release of everything, then the end: in this order, each confirmed."""
    epoch = d.member_epoch
    busy = d.at_work(epoch) if epoch is not None else ()
    if busy and epoch is not None:
        reported = {e.lease_id for e in d.observed.ends if e.epoch == epoch.number}
        still_running = any(lease.lease_id not in reported for lease in busy)
        if still_running and not d.draining and d.observed.mailbox_ok:
            d.open_epoch((), d.state.phase_text)
        since_s = d.state.epochs[-1].opened_at_s if d.draining else d.state.phase_since_s
        if d.now_s > since_s + d.timing.drain_timeout_s:
            busy = ()
    waiting_for = {lease.lease_id for lease in busy}
    for lease in d.state.open_leases:
        if lease.phase is not LeasePhase.ENDING and lease.lease_id not in waiting_for:
            d.end(lease, d.state.phase_code, d.state.phase_text)
    if _nothing_left(d):
        _conclude(d)


def _nothing_left(d: Draft) -> bool:
    """Every cloud in which there may have been a machine of ours says that there is none any more. (One
    that cannot be asked has said nothing. Where we may not even ask for a machine, there was none.)"""
    touched = {
        lease.offer.cloud
        for lease in d.state.leases.values()
        if not (lease.phase is LeasePhase.REFUSED and lease.cause in DETERMINISTIC)
    }
    gone = all(m.state is MachineState.GONE for m in d.observed.machines)
    return not d.state.open_leases and touched <= d.observed.listed and gone and not _wait_for_prices(d)


def _wait_for_prices(d: Draft) -> bool:
    """The account is closed with the job: steps that could not be read get a while to turn up. (Of a lease
    that is released in this pass, its steps have not been asked for yet.)"""
    if any(isinstance(a, act.Note) and isinstance(a.event, ev.LeaseReleased) for a in d.actions):
        return True
    missing = [
        x.prices_missing_since_s for x in d.state.leases.values() if x.prices_missing_since_s is not None
    ]
    if not missing:
        return False
    return d.now_s < max(d.state.phase_since_s, *missing) + d.timing.prices_patience_s


def _conclude(d: Draft) -> None:
    state = d.state
    code, text = state.phase_code, state.phase_text
    outcome = {FINISHED: JobPhase.SUCCEEDED, STOP: JobPhase.STOPPED}.get(code, JobPhase.FAILED)
    deadline_s = state.spec.constraints.deadline_s
    # done when the work is: machines and bills that are waited for then are nobody's delay
    clock = state.market_clock
    took_s = clock.market_s(state.phase_since_s) - clock.market_s(state.submitted_at_s)
    if outcome is JobPhase.SUCCEEDED and deadline_s is not None and took_s > deadline_s:
        code, text = "missed_deadline", f"finished, {say_duration(took_s - deadline_s)} after its deadline"
    d.notify(f"ended:{state.history_epoch}:{state.history_attempt}", f"{state.job_id} {outcome}: {text}")
    d.phase(outcome, code, text, state.exit_code)


def name_phase(d: Draft) -> None:
    """What the job is doing, said when it changes."""
    moving = migration.phase(d)
    epoch = d.member_epoch
    if moving is not None:
        d.phase(*moving)
    elif epoch is not None and not d.draining and all(x.phase in HEARD for x in d.members(epoch)):
        doomed = [x for x in d.members(epoch) if x.phase is LeasePhase.DOOMED and d.settled(x, epoch)]
        if not doomed:
            where = d.members(epoch)[0].offer.key
            short = f" ({d.size} wanted)" if len(epoch.members) < d.size else ""
            text = f"epoch {epoch.number} on {len(epoch.members)} × {where}{short}"
            d.phase(JobPhase.RUNNING, "running", text)
            return
        _between(d)
    else:
        _between(d)


def _between(d: Draft) -> None:
    if d.waiting is not None:
        code, text = d.waiting
        d.phase(JobPhase.WAITING, code, text, until_s=d.waiting_until_s)
        if code == slots.HELD:
            return  # by choice, and told by `status`: nobody has to do anything about it
        d.notify(f"waiting:{d.state.attempts}", f"{d.state.job_id} waits: {text}")
    elif d.member_epoch is not None:
        regroups = d.elastic and d.draining
        text = f"regrouping: {d.state.epochs[-1].reason}" if regroups else "a replacement is on its way"
        d.phase(JobPhase.RECOVERING, "recovering", text)
    elif d.state.open_leases:
        offer = d.state.open_leases[-1].offer.key
        d.phase(JobPhase.PROVISIONING, "provisioning", f"{d.size} × {offer} asked for")
