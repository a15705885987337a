"""What is there, is paid for, and does nothing: commands without steps, silent machines, machines in waiting.

Reported once each; what is done then is the user's word (``aryl: hung``). Two bounds hold whatever it is: a
machine that is silent for longer than ``unattended`` should have ended itself long ago, and is ended; and a
command that hangs again and again at the same checkpoint is not started a fourth time.
"""

from __future__ import annotations

from typing import Final, Literal

from arylcloud.core import events as ev
from arylcloud.core.job import WhenHung
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.ports import MachineState
from arylcloud.core.protocol import AgentPhase, Heartbeat
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.state import Epoch, Lease

IDLE_S: Final = 1800.0
"""Without a word, and without a step ever shown: reading data and compiling take minutes."""
MAX_RESTARTS: Final = 3
"""In a row, from one and the same checkpoint."""
SAVE_AT_THE_END_S: Final = 600.0
"""What a machine may take to save at the end of its lease, and some more."""
HUNG: Final = "hung"
FROZEN: Final = "frozen"
_WAITING: Final = frozenset({JobPhase.PROVISIONING, JobPhase.WAITING, JobPhase.RECOVERING})


def judge(d: Draft) -> None:
    """Look at every machine and at the open epoch's command; nothing is judged by a mailbox that is away."""
    if not d.observed.mailbox_ok:
        return
    for lease in d.state.open_leases:
        if lease.phase is LeasePhase.SUSPECT:
            _frozen(d, lease)
        elif lease.phase is LeasePhase.READY and d.state.phase in _WAITING:
            _in_waiting(d, lease)
    epoch = d.member_epoch
    if epoch is not None and not d.draining and not d.stopping and d.state.migration is None:
        _command(d, epoch)


def _frozen(d: Draft, lease: Lease) -> None:
    """Silent, and its cloud says that it runs: its kernel hangs, or its network is gone for good."""
    machine = d.machine(lease)
    if not d.listed(lease) or machine is None or machine.state is not MachineState.RUNNING:
        return
    spec, silent_s = d.state.spec, d.silent_s(lease)
    if silent_s >= spec.hung.silent_s:
        price = "" if lease.usd_per_hour is None else f" at ${lease.usd_per_hour:.4f}/h"
        text = f"{lease.lease_id} is silent for {_span(silent_s)}, and {lease.offer.cloud} runs it{price}"
        _seen(d, 0, lease, "frozen", silent_s, text, do=spec.hung.do)
        if spec.hung.do == "restart":
            d.end(lease, FROZEN, f"{text}; another takes its place")
            return
        if spec.hung.do == "stop":
            d.phase(JobPhase.STOPPING, HUNG, text)
            return
    if silent_s >= spec.unattended_s + spec.grace_s + SAVE_AT_THE_END_S:
        why = f"silent for {_span(silent_s)}: its lease has run out, and it has not ended itself"
        d.end(lease, FROZEN, why)


def _in_waiting(d: Draft, lease: Lease) -> None:
    """Set up and without work: others of its gang are not to be had. Said, for it costs."""
    beat = d.beat(lease)
    if beat is None or beat.phase not in (AgentPhase.READY, AgentPhase.DRAINED):
        return
    newest = d.state.epoch
    since_s = max(lease.since_s, newest.opened_at_s if newest is not None else 0.0)
    idle_s = d.now_s - since_s
    if idle_s >= IDLE_S:
        text = f"{lease.lease_id} has waited {_span(idle_s)} for the others of its gang, and is paid for"
        number = newest.number if newest is not None else 0
        _seen(d, number, lease, "idle", idle_s, text, do="report")


def _command(d: Draft, epoch: Epoch) -> None:
    """By the rank that moved last: where one still moves, the others wait for it."""
    found = [(lease, d.beat(lease)) for lease in d.members(epoch) if lease.phase is LeasePhase.READY]
    beats = [(lease, b) for lease, b in found if b is not None and b.epoch == epoch.number]
    if not beats or len(beats) < len(epoch.members):
        return  # some are not heard, or not there yet: another rule's
    if any(b.phase is not AgentPhase.RUNNING for _, b in beats):
        return
    told = [(lease, b, stall) for lease, b in beats if (stall := _stalled(d, lease, b)) is not None]
    if len(told) < len(beats):
        return
    _, beat, (kind, for_s) = min(told, key=lambda one: one[2][1])
    do = d.state.spec.hung.do
    if kind == "hung":
        usual = "" if beat.step_gap_s is None else f" (one in {_span(beat.step_gap_s)} is usual)"
        at = "" if beat.step is None else f" since step {beat.step:,}"
        text = f"no progress for {_span(for_s)}{at}{usual}"
    else:
        text = f"it has shown no step in epoch {epoch.number}, and has written nothing for {_span(for_s)}"
    if do == "restart" and _in_vain(d, epoch):
        do, text = "stop", f"{text}; it has hung {MAX_RESTARTS} times before from the same checkpoint"
    _seen(d, epoch.number, None, kind, for_s, text, do=do)
    if do == "stop":
        d.phase(JobPhase.STOPPING, HUNG, text)
    elif do == "restart":
        d.open_epoch((), f"starting again: {text}")


Kind = Literal["hung", "idle"]


def _stalled(d: Draft, lease: Lease, beat: Heartbeat) -> tuple[Kind, float] | None:
    """Of one rank: for how long, once that is too long. A rank that shows no steps is known by its output."""
    hung = d.state.spec.hung
    since_beat_s = d.silent_s(lease)
    if beat.step_age_s is None:
        if beat.quiet_s is None:
            return None
        bound_s = hung.least_s if hung.times is None else max(hung.least_s, IDLE_S)
        for_s = beat.quiet_s + since_beat_s
        return ("idle", for_s) if for_s >= bound_s else None
    bound_s = hung.least_s
    if hung.times is not None:
        if beat.step_gap_s is None:
            return None  # what is usual is not known yet
        bound_s = max(bound_s, hung.times * beat.step_gap_s)
    for_s = beat.step_age_s + since_beat_s
    return ("hung", for_s) if for_s >= bound_s else None


def _in_vain(d: Draft, epoch: Epoch) -> bool:
    """Whether it has been started again often enough without a checkpoint more."""
    lineage = d.state.lineage
    if lineage is not None and lineage.step > epoch.resume_step:
        return False
    by_number = {e.number: e for e in d.state.epochs}
    before = [
        by_number[s.epoch].resume_step
        for s in d.state.stalls
        if s.do == "restart" and d.state.history_epoch < s.epoch < epoch.number
    ]
    return before[-MAX_RESTARTS:] == [epoch.resume_step] * MAX_RESTARTS


def _seen(
    d: Draft,
    epoch: int,
    lease: Lease | None,
    kind: Literal["hung", "idle", "frozen"],
    for_s: float,
    text: str,
    *,
    do: WhenHung,
) -> None:
    """Journaled and told, once per epoch and kind; of a machine alone, once per machine, too."""
    lease_id = "" if lease is None else lease.lease_id
    if any((s.epoch, s.lease_id, s.kind) == (epoch, lease_id, kind) for s in d.state.stalls):
        return
    beat = d.beat(lease) if lease is not None else None
    event = ev.StallSeen(epoch=epoch, lease_id=lease_id, kind=kind, for_s=for_s, do=do, text=text)
    d.note(event, cause_id=f"beat {beat.seq}" if beat is not None else None)
    d.notify(f"{kind}:{epoch}:{lease_id}", f"{d.state.job_id}: {text}")


def _span(seconds: float) -> str:
    """``0.4 s``, ``12 min``, ``3.5 h``."""
    if seconds < 100.0:
        return f"{seconds:.2g} s" if seconds < 10.0 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60.0 else f"{seconds / 3600:.1f} h"
