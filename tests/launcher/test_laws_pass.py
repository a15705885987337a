"""One whole pass, situation by situation: each rule has its turn, in its order, only where it is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.harness import OFFERS, TIMING, spec
from support.situation import BEGUN_S, NOW_S, beat, draft, elastic, epoch, lease, machine

from arylcloud.core import events as ev
from arylcloud.core.job import Constraints
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.ports import Machine, MachineState
from arylcloud.core.protocol import AgentPhase, RequestDoc
from arylcloud.launcher import actions as act
from arylcloud.launcher.reconcile import reconcile
from arylcloud.launcher.reconcile.draft import Draft

A, B, C = lease(0), lease(1), lease(2)
ENDING = replace(A, phase=LeasePhase.ENDING, ending_code="surplus")
STRAY = machine(lease(7, 7))
STOPPING: dict[str, Any] = {"phase": JobPhase.STOPPING, "phase_code": "stop_requested"}
STOPPED: dict[str, Any] = {"phase": JobPhase.STOPPED, "phase_code": "stop_requested"}
LEFT = replace(A, phase=LeasePhase.RELEASED, cause="terminated", ended_s=A.launched_s, ended_at_s=NOW_S)


def pass_over(d: Draft) -> tuple[str, ...]:
    """What one pass does, in a word each: actions, and events that are noted."""
    actions = reconcile(d.state, d.observed, d.desired, d.now_s)
    return tuple(word(a) for a in actions)


def word(action: act.Action) -> str:
    if isinstance(action, act.Note):
        event = action.event
        return (
            f"{event.phase} {event.code}" if isinstance(event, ev.JobPhaseChanged) else type(event).__name__
        )
    if isinstance(action, act.EndLease):
        return f"end {action.lease_id[-5:]} {action.code}"
    return type(action).__name__


def asked(verb: str, **args: Any) -> dict[str, Any]:
    document = RequestDoc(number=1, verb=verb, args=args, at_s=NOW_S, by="user@host")  # type: ignore[arg-type]
    return {"requests": (document,)}


def gone(*of: Machine) -> list[Machine]:
    return [replace(m, state=MachineState.GONE, ended_s=m.launched_s) for m in of]


def test_where_all_is_well_nothing_is_done() -> None:
    assert pass_over(draft(A, B)) == ()
    assert pass_over(draft(A, epochs=[epoch(1, A)], state={"phase": JobPhase.SUCCEEDED})) == ()


def test_what_the_world_says_comes_first_and_then_what_follows_from_it() -> None:
    """A lone machine is gone: journaled, another is asked for, and the job says so."""
    lost = draft(A, machines=gone(machine(A)), beats=[])
    assert pass_over(lost) == ("LeaseReleased", "CreateLease", "recovering recovering")


def test_which_machines_must_go() -> None:
    boots = replace(A, phase=LeasePhase.PENDING, since_s=NOW_S - TIMING.boot_timeout_s - 1.0)
    here = {"job": spec(1), "epochs": [], "beats": [], "state": {"phase": JobPhase.PROVISIONING}}
    assert pass_over(draft(boots, **here))[0] == "end n0-a1 boot_timeout"
    stopped = pass_over(draft(boots, **{**here, "state": STOPPING}))
    assert stopped == ("end n0-a1 stop_requested",), "of a job that stops they go anyway"


def test_one_with_notice_goes_when_it_has_handed_over_or_was_not_taken() -> None:
    overdue_s = NOW_S - TIMING.drain_timeout_s - 1.0
    for acts_at_s, done, why in (
        (NOW_S + 60.0, True, "it has handed over"),
        (NOW_S + 60.0, False, None),
        (overdue_s, False, "the cloud has not acted on its notice"),
        (overdue_s, True, "it has handed over"),
    ):
        doomed = replace(A, phase=LeasePhase.DOOMED, notice_acts_at_s=acts_at_s)
        said = [beat(A, AgentPhase.DRAINED, epoch=2, drained_epoch=2)] if done else [beat(A)]
        d = draft(doomed, epochs=[epoch(1, A), epoch(2)], beats=said)
        ends = [a for a in reconcile(d.state, d.observed, d.desired, NOW_S) if isinstance(a, act.EndLease)]
        assert [(a.code, a.why) for a in ends] == ([] if why is None else [("noticed", why)])


def test_who_trains_is_not_disturbed_by_what_is_said_of_its_checkpoint() -> None:
    """It has restored it. Only a machine that says that it cannot work makes it a bad one."""
    since: dict[str, Any] = {"epochs": [epoch(1, A, B, resume_from="m")]}
    assert pass_over(draft(A, B, state={"rejected": frozenset({"m"})}, **since)) == ()
    assert pass_over(draft(A, B, beats=[beat(A, message="m was slow to read"), beat(B)], **since)) == ()
    broken = [beat(A, AgentPhase.BROKEN, message="m is damaged"), beat(B)]
    assert "CheckpointRejected" in pass_over(draft(A, B, beats=broken, **since))


def test_what_hangs() -> None:
    silent = replace(A, phase=LeasePhase.SUSPECT, since_s=NOW_S - 90_000.0)
    hangs: dict[str, Any] = {"beats": [], "observed": {"heard_s_ago": {A.lease_id: 90_000.0}}}
    assert "end n0-a1 frozen" in pass_over(draft(silent, **hangs))
    assert "end n0-a1 frozen" not in pass_over(draft(silent, state=STOPPING, **hangs))


def test_a_stop_is_seen_saved_and_wound_down() -> None:
    saves = pass_over(draft(A, observed=asked("stop")))
    assert saves == ("RequestSeen", "stopping stop_requested", "OpenEpoch")
    done = [beat(A, AgentPhase.DRAINED, epoch=2, drained_epoch=2)]
    ends = draft(A, epochs=[epoch(1, A), epoch(2)], beats=done, state=STOPPING)
    assert pass_over(ends) == ("end n0-a1 stop_requested",)
    over = draft(A, epochs=[epoch(1, A), epoch(2)], beats=[], machines=gone(machine(A)), state=STOPPING)
    assert pass_over(over) == ("LeaseReleased",), "its prices are asked for before the account is closed"
    assert pass_over(draft(LEFT, epochs=[epoch(1, A), epoch(2)], machines=[], state=STOPPING)) == (
        "stopped stop_requested",
    )


def test_a_budget_that_is_used_up() -> None:
    spent = draft(A, job=spec(1, constraints=Constraints(budget_usd=10.0)), desired={"spent_usd": 10.0})
    said = pass_over(spent)
    assert [x for x in said if x.startswith("stopping ")] == ["stopping over_budget"]


def test_a_job_that_stops_buys_nothing_and_moves_nowhere() -> None:
    for more in (asked("migrate", to="aws/eu-west-1"), asked("scale", nodes=3)):
        said = pass_over(draft(A, job=elastic(), state=STOPPING, observed=more))
        assert not {"CreateLease", "MigrationStarted", "SizeChosen"} & set(said)


def test_a_document_that_is_not_there_is_written_for_a_job_that_stops_too() -> None:
    missing = {"published_epoch": 0}
    assert pass_over(draft(A, observed=missing)) == ("PublishEpoch",)
    begun = epoch(2, opened_at_s=NOW_S)
    drains = draft(A, epochs=[epoch(1, A), begun], state=STOPPING, observed={"published_epoch": 1})
    assert pass_over(drains) == ("PublishEpoch",)
    over = draft(LEFT, epochs=[epoch(1, A)], machines=[], state=STOPPED, observed=missing)
    assert pass_over(over) == (), "of one that has ended nobody reads it"


def test_a_size_that_is_asked_for() -> None:
    grows = pass_over(draft(A, B, job=elastic(), state={"size": 2}, observed=asked("scale", nodes=3)))
    assert "SizeChosen" in grows
    assert grows.index("SizeChosen") < grows.index("CreateLease"), "in the same pass"


def test_a_move() -> None:
    moves = pass_over(draft(A, observed=asked("migrate", to="aws/eu-west-1")))
    assert moves[:3] == ("RequestSeen", "MigrationStarted", "CreateLease")
    assert moves[3].startswith("migrating ")


def test_one_too_many_goes() -> None:
    assert pass_over(draft(A, lease(0, 9), job=spec(1), epochs=[epoch(1, A)])) == ("end n0-a9 surplus",)


def test_the_first_machines_and_the_first_epoch() -> None:
    first = {"job": spec(2), "epochs": [], "state": {"phase": JobPhase.PENDING, "phase_code": "submitted"}}
    made = pass_over(draft(beats=[], **first))
    assert made[:2] == ("CreateLease", "CreateLease")
    assert made[2].startswith("provisioning ")
    ready = [beat(x, AgentPhase.READY, epoch=0) for x in (A, B)]
    begun = pass_over(draft(A, B, beats=ready, **first))
    assert begun[0] == "OpenEpoch"
    assert "PublishEpoch" not in begun, "the order to open it writes it"


def test_a_call_that_may_never_have_been_made_is_made_again() -> None:
    intended = lease(
        0, phase=LeasePhase.INTENDED, instance_id=None, launched_s=None, created_at_s=None, prices=()
    )
    d = draft(intended, job=spec(1), epochs=[], beats=[], machines=[])
    (create,) = (
        a for a in reconcile(d.state, d.observed, d.desired, d.now_s) if isinstance(a, act.CreateLease)
    )
    assert create.token == intended.token


@pytest.mark.parametrize("phase", [JobPhase.RUNNING, JobPhase.STOPPING, JobPhase.STOPPED, JobPhase.FAILED])
def test_whatever_becomes_of_the_job_machines_are_ended(phase: JobPhase) -> None:
    """One whose end is not confirmed, and one that landed after all."""
    d = draft(ENDING, B, job=spec(2), machines=[machine(A), machine(B), STRAY], state={"phase": phase})
    said = pass_over(d)
    assert "end n0-a1 surplus" in said
    assert said.count("SweepMachine") == 1


def test_where_the_job_stands_is_said_last() -> None:
    """By what the pass has decided: no sooner."""
    pends = replace(A, phase=LeasePhase.PENDING, since_s=NOW_S - 1.0)
    d = draft(pends, epochs=[epoch(1, B)], beats=[], state={"leases": {x.lease_id: x for x in (pends, B)}})
    gone_b = replace(B, phase=LeasePhase.RELEASED, cause="interrupted", ended_s=BEGUN_S, ended_at_s=BEGUN_S)
    d.state = replace(d.state, leases={x.lease_id: x for x in (gone_b, pends)})
    said = pass_over(d)
    assert said
    assert said[-1].startswith("recovering ")


def test_nothing_of_other_clouds_offers_is_touched() -> None:
    """Somebody else's machine, of the same prefix or not, is no business of this job."""
    for theirs in (replace(STRAY, journal_id="theirs"), replace(STRAY, job_id="other-0a1b2c3d")):
        assert pass_over(draft(A, machines=[machine(A), theirs])) == ()
    assert OFFERS[0].key == A.offer.key
