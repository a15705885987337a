"""Machines that their cloud ends before they are heard: not asked for again at once, and not for ever."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from support.harness import OFFERS, spec
from support.situation import CLOCK, NOW_S, draft, ended, events, lease, machine

from arylcloud.core import events as ev
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.ports import Billing, EndCause, MachineState
from arylcloud.launcher import actions as act
from arylcloud.launcher import leasebill
from arylcloud.launcher.fold import apply
from arylcloud.launcher.reconcile import facts, leases, reconcile
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.refusals import summary
from arylcloud.launcher.state import JobState, Lease

SAID = "Client.InternalError: Client error on launch"
A = lease(0)
PENDING = replace(A, phase=LeasePhase.PENDING, since_s=NOW_S - 5.0)
CASES = {
    EndCause.UNKNOWN: "unheard",
    EndCause.SELF: "unheard",
    EndCause.NO_ROOM: "no_room",
    EndCause.INTERRUPTED: "taken",
    EndCause.TERMINATED: "ended",
}


def gone(of: Lease, cause: EndCause | None, **more: Any) -> Draft:
    shown = machine(of, state=MachineState.GONE, end_cause=cause, end_text=SAID)
    d = draft(of, epochs=[], beats=[], machines=[shown], **more)
    facts.note_facts(d)
    return d


def bars(d: Draft) -> list[tuple[str, str, bool]]:
    return [(b.scope, b.code, b.why.endswith(f": {SAID}")) for b in events(d, ev.OfferBarred)]


@pytest.mark.parametrize(("cause", "code"), CASES.items())
def test_its_offer_is_barred_and_the_clouds_words_are_kept(cause: EndCause, code: str) -> None:
    d = gone(PENDING, cause)
    (released,) = events(d, ev.LeaseReleased)
    assert (released.cause, released.code, released.text) == (cause.value, code, SAID)
    assert bars(d) == [(A.offer.key, code, True)]
    after = d.state.leases[A.lease_id]
    assert (after.phase, after.ending_code, after.end_text) == (LeasePhase.RELEASED, code, SAID)
    assert (code in leases.BAD_STARTS) == (cause in (EndCause.UNKNOWN, EndCause.SELF))
    told = {"unheard": "never got to work", "no_room": "no capacity in 1 zone"}.get(code)
    assert told is None or told in (summary(d.state) or "")


@pytest.mark.parametrize("cause", CASES)
def test_only_of_what_was_never_heard_and_nobody_of_us_has_ended(cause: EndCause) -> None:
    """Where the mailbox cannot be read, it may have been heard by now."""
    for phase in (LeasePhase.READY, LeasePhase.SUSPECT, LeasePhase.ENDING):
        assert not bars(gone(replace(A, phase=phase), cause))
    assert not bars(gone(PENDING, cause, observed={"mailbox_ok": False}))
    (released,) = events(gone(A, cause), ev.LeaseReleased)
    assert released.code is None


def test_what_was_heard_has_run() -> None:
    (released,) = events(gone(A, EndCause.NO_ROOM), ev.LeaseReleased)
    assert released.cause == EndCause.INTERRUPTED
    (released,) = events(gone(PENDING, EndCause.NO_ROOM), ev.LeaseReleased)
    assert released.cause == EndCause.NO_ROOM


def test_what_never_ran_is_no_loss_and_costs_nothing() -> None:
    d = gone(PENDING, EndCause.NO_ROOM)
    assert (d.state.interruptions, d.state.losses) == (0, ())
    assert leasebill.is_free(d.state.leases[A.lease_id], CLOCK.market_s(NOW_S))
    assert not leasebill.is_free(gone(PENDING, EndCause.UNKNOWN).state.leases[A.lease_id], 1e9)


@pytest.mark.parametrize(("cause", "code"), [(None, "stopped"), (EndCause.NO_ROOM, "no_room")])
def test_what_stands_before_it_is_heard_is_barred_too(cause: EndCause | None, code: str) -> None:
    """Azure keeps what it found no room for; a machine whose boot failed has switched itself off."""
    d = draft(
        PENDING,
        epochs=[],
        beats=[],
        machines=[machine(PENDING, state=MachineState.STOPPING, end_cause=cause, end_text=SAID)],
    )
    leases.judge(d)
    assert list(ended(d).values()) == [code]
    assert [(b.scope, b.code) for b in events(d, ev.OfferBarred)] == [(A.offer.key, code)]
    suspect = replace(A, phase=LeasePhase.SUSPECT)
    d = draft(suspect, epochs=[], beats=[], machines=[machine(suspect, state=MachineState.STOPPING)])
    leases.judge(d)
    assert not events(d, ev.OfferBarred)


def looked(state: JobState, d: Draft, now_s: float, cause: EndCause) -> tuple[JobState, int]:
    """One pass in a cloud that makes what is asked for, and has ended it by the next; how many were made."""
    pending = [x for x in state.leases.values() if x.phase is LeasePhase.PENDING]
    shown = [machine(x, state=MachineState.GONE, end_cause=cause, end_text=SAID) for x in pending]
    made = 0
    for action in reconcile(state, replace(d.observed, machines=tuple(shown)), d.desired, now_s):
        told: list[ev.Event] = []
        if isinstance(action, act.Note):
            told = [action.event]
        elif isinstance(action, act.CreateLease):
            made += 1
            intended = {name: getattr(action, name) for name in ev.LeaseIntended.__dataclass_fields__}
            told = [
                ev.LeaseIntended(**intended),
                ev.LeaseCreated(
                    lease_id=action.lease_id,
                    instance_id=f"i-{action.attempt}",
                    launched_s=CLOCK.market_s(now_s),
                    usd_per_hour=1.0,
                    address=None,
                    billing=Billing(),
                ),
            ]
        for event in told:
            record = ev.Record(
                job_id=state.job_id, seq=state.seq + 1, at_s=now_s, writer="w", cause_id=None, event=event
            )
            state = apply(state, record)
    return state, made


@pytest.mark.parametrize("cause", CASES)
def test_a_cloud_that_ends_whatever_it_makes(cause: EndCause) -> None:
    d = draft(
        epochs=[],
        beats=[],
        machines=[],
        state={"phase": JobPhase.PROVISIONING, "attempts": 0},
        job=spec(1),
        desired={"ranking": OFFERS[:1]},
    )
    state, made, now_s = d.state, [], NOW_S
    for _ in range(200):
        state, count = looked(state, d, now_s, cause)
        made += [now_s] * count
        now_s += 2.0
    gaps = [later - before for before, later in pairwise(made)]
    assert all(later >= before for before, later in pairwise(gaps)), "longer and longer"
    assert len(made) < 12
    if CASES[cause] == "unheard":
        assert (state.phase, state.phase_code) == (JobPhase.FAILED, "bad_starts")
        assert state.phase_text == f"5 machines in a row never got to work; the last: unheard ({SAID})"
    else:
        assert (state.phase, state.phase_code) == (JobPhase.WAITING, CASES[cause])


def test_a_journal_of_before_folds_as_it_did() -> None:
    """Then neither how nor why was written down: what it told five times is held against no job now."""
    d = draft(*(lease(0, n, phase=LeasePhase.PENDING) for n in range(1, 7)), epochs=[], beats=[], machines=[])
    state = d.state
    for one in list(state.leases.values()):
        event = ev.LeaseReleased(lease_id=one.lease_id, ended_s=one.launched_s or 0.0, cause="unknown")
        whole = ev.Record(
            job_id=state.job_id, seq=state.seq + 1, at_s=NOW_S, writer="w", cause_id=None, event=event
        )
        old = whole.to_bytes().replace(b',"code":null', b"").replace(b',"text":null', b"")
        assert b"code" not in old
        assert b"text" not in old
        state = apply(state, ev.Record.from_bytes(old, what="old"))
    assert {x.ending_code for x in state.leases.values()} == {None}
    again = replace(d.desired, ranking=OFFERS[:1])
    notes = [a.event for a in reconcile(state, d.observed, again, NOW_S + 1.0) if isinstance(a, act.Note)]
    assert not [n for n in notes if isinstance(n, ev.JobPhaseChanged) and n.phase is JobPhase.STOPPING]
