"""Why a job ends, how it ends, and what it is called until then: each rule alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.harness import JOB, OFFERS, TIMING, spec
from support.situation import (
    BEGUN_S,
    CLOCK,
    NOW_S,
    actions,
    beat,
    capabilities,
    draft,
    elastic,
    ended,
    epoch,
    events,
    failure,
    lease,
    machine,
    training,
)

from arylcloud.core import events as ev
from arylcloud.core.job import Constraints
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.ports import MachineState
from arylcloud.core.protocol import AgentPhase
from arylcloud.launcher import actions as act
from arylcloud.launcher.reconcile import lifecycle
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.state import Lease

A, B = lease(0), lease(1)
NOTIFY = "https://example.com/…"


def done(rank: int = 0, number: int = 1, **more: Any) -> ev.CommandEnded:
    return replace(ev.CommandEnded(epoch=number, rank=rank, exit_code=0, in_setup=False, tail=""), **more)


def cause(d: Draft) -> str | None:
    """Why it begins to end."""
    lifecycle.decide(d)
    return d.state.phase_code if d.state.phase is JobPhase.STOPPING else None


# ---------------------------------------------------------------- by its command


def test_finished_when_all_ranks_of_the_newest_epoch_have() -> None:
    assert cause(draft(A, B, state={"commands_ended": (done(),)})) is None
    d = draft(A, B, state={"commands_ended": (done(), done(1))})
    assert cause(d) == "finished"
    assert d.state.exit_code == 0
    old = (done(number=3), done(1))
    assert cause(draft(A, B, state={"commands_ended": old})) is None
    assert cause(draft(A, epochs=[], state={"commands_ended": (done(),)})) is None
    both = (done(), done(1), done(2, 7))
    assert cause(draft(A, B, state={"commands_ended": both})) == "finished"


def test_a_failure_of_the_newest_epoch_ends_it_with_its_code_and_last_line() -> None:
    bad = done(1, exit_code=3, tail="Traceback\n  File\nValueError: no\n")
    d = draft(A, B, state={"commands_ended": (done(), bad)})
    assert cause(d) == "user_command"
    assert d.state.exit_code == 3
    assert d.state.phase_text == "the command failed with exit code 3 on rank 1: ValueError: no"
    assert cause(draft(A, B, state={"commands_ended": (replace(bad, epoch=0),)})) is None
    assert cause(draft(A, epochs=[], state={"commands_ended": (bad,)})) is None, "of none that is open"
    quiet = replace(bad, tail=" \n")
    d = draft(A, B, state={"commands_ended": (quiet,)})
    assert cause(d) == "user_command"
    assert d.state.phase_text.endswith("on rank 1")


def test_a_failed_set_up_ends_it_whatever_the_epoch() -> None:
    bad = done(exit_code=2, in_setup=True, epoch=0, tail="no pip")
    d = draft(A, epochs=[], state={"commands_ended": (bad,)})
    assert cause(d) == "setup"
    assert (d.state.phase_text, d.state.exit_code) == ("setup failed with exit code 2: no pip", 2)


@pytest.mark.parametrize(
    ("code", "overtaken"),
    [
        ("stop_requested", True),
        ("over_budget", True),
        ("max_runtime", True),
        ("hung", True),
        ("user_command", False),
    ],
)
def test_once_it_ends_only_a_finish_changes_why(code: str, overtaken: bool) -> None:
    ending: dict[str, Any] = {"phase": JobPhase.STOPPING, "phase_code": code, "phase_text": code}
    assert cause(draft(A, state={**ending, "commands_ended": (done(),)})) == (
        "finished" if overtaken else code
    )
    stop = ev.RequestSeen(number=1, verb="stop", args={}, by="user@host")
    d = draft(A, state={**ending, "stop": stop})
    assert cause(d) == code
    assert not d.actions


# ---------------------------------------------------------------- by its clouds, or its user


def refused(kind: str, of: Lease = A, **more: Any) -> Lease:
    return replace(of, phase=LeasePhase.REFUSED, cause=kind, **more)


@pytest.mark.parametrize(
    ("kind", "ends"),
    [
        ("usage", True),
        ("missing_extra", True),
        ("access", True),
        ("infeasible", True),
        ("local_state", True),
        ("capacity", False),
        ("quota", False),
    ],
)
def test_what_no_other_try_helps_with(kind: str, ends: bool) -> None:
    assert cause(draft(refused(kind), epochs=[])) == (kind if ends else None)
    before = draft(refused(kind), epochs=[], state={"history_attempt": 1})
    assert cause(before) is None, "of before the last resume"
    open_ = draft(replace(A, cause=kind), epochs=[])
    assert cause(open_) is None


def test_of_access_once_every_cloud_has_said_so() -> None:
    two = {"capabilities": {"aws": capabilities(), "gcp": capabilities()}}
    assert cause(draft(refused("access"), epochs=[], desired=two)) is None
    other = refused("access", replace(B, offer=replace(OFFERS[0], cloud="gcp")))
    assert cause(draft(refused("access"), other, epochs=[], desired=two)) == "access"
    full = replace(other, cause="capacity")
    assert cause(draft(refused("access"), full, epochs=[], desired=two)) is None
    open_ = replace(other, phase=LeasePhase.PENDING)
    assert cause(draft(refused("access"), open_, epochs=[], desired=two)) is None
    usage = refused("usage")
    assert cause(draft(usage, epochs=[], desired=two)) == "usage", "of anything else at once"


def test_a_cloud_that_has_let_us_before_is_asked_again() -> None:
    """Its credentials have expired, and somebody logs in again. One that has only been asked has let us do
    nothing yet."""
    let_us = replace(B, phase=LeasePhase.RELEASED, cause="interrupted")
    assert cause(draft(refused("access"), let_us, epochs=[], state={"history_attempt": 0})) is None
    only_asked = replace(B, phase=LeasePhase.INTENDED, launched_s=None)
    assert cause(draft(refused("access"), only_asked, epochs=[])) == "access"


def test_a_stop_says_who_has_asked() -> None:
    stop = ev.RequestSeen(number=1, verb="stop", args={}, by="user@host")
    d = draft(A, state={"stop": stop})
    assert cause(d) == "stop_requested"
    assert d.state.phase_text == "stop asked for by user@host"


# ---------------------------------------------------------------- by what it has lost


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({"ending_code": "lost"}, True),
        ({"ending_code": "noticed"}, True),
        ({"ending_code": "broken"}, True),
        ({"ending_code": "stopped"}, True),
        ({"ending_code": "frozen"}, True),
        ({"ending_code": "migrated"}, False),
        ({"phase": LeasePhase.RELEASED, "cause": "interrupted"}, True),
        ({"phase": LeasePhase.RELEASED, "cause": "self"}, True),
        ({"phase": LeasePhase.RELEASED, "cause": "terminated"}, False),
        ({"phase": LeasePhase.SUSPECT}, False),
        ({"phase": LeasePhase.RELEASED, "ending_code": "noticed", "cause": "interrupted"}, True),
    ],
)
@pytest.mark.parametrize("rule", [{"recovery": "none"}, {"on_node_loss": "fail"}, {}])
def test_what_is_not_run_again_ends_with_a_member(
    changes: dict[str, Any], lost: bool, rule: dict[str, Any]
) -> None:
    state = {"trainings": (training(A), training(B))}
    gone = replace(B, phase=LeasePhase.ENDING, **changes) if "phase" not in changes else replace(B, **changes)
    d = draft(A, gone, job=spec(2, **rule), state=state)
    found = cause(d)
    assert found == ("node_lost" if lost and rule else None)
    if found:
        how = changes.get("cause") or changes["ending_code"]
        ((name, word),) = rule.items()
        assert d.state.phase_text == f"{B.lease_id} was lost ({how}); {name}: {word}"
    beside = draft(A, gone, job=spec(1, **rule), epochs=[epoch(1, A)], state=state)
    assert cause(beside) is None, "it was no member"
    before = draft(A, gone, job=spec(2, **rule), state={**state, "history_attempt": 2})
    assert cause(before) is None


def bad(count: int, first: int = 0, **more: Any) -> list[Lease]:
    """Machines that were given up before they got to work."""
    how: dict[str, Any] = {"phase": LeasePhase.RELEASED, "ending_code": "boot_timeout", "cause": "terminated"}
    return [replace(lease(0, first + i + 1), **{**how, **more}) for i in range(count)]


BOUND = lifecycle.MAX_BAD_STARTS


@pytest.mark.parametrize(
    ("more", "counts"),
    [
        ({}, True),
        ({"ending_code": "broken"}, True),
        ({"ending_code": None, "cause": "self"}, True),
        ({"ending_code": "bad_hardware"}, False),
        ({"ending_code": None, "cause": "interrupted"}, False),
        ({"ending_code": None, "cause": "self", "phase": LeasePhase.ENDING}, False),
    ],
)
def test_machines_that_never_get_to_work_are_no_accident_in_a_row(more: dict[str, Any], counts: bool) -> None:
    assert cause(draft(*bad(BOUND - 1, **more), epochs=[])) is None
    d = draft(*bad(BOUND, **more), epochs=[])
    assert cause(d) == ("bad_starts" if counts else None)
    if counts:
        last = more.get("ending_code", "boot_timeout") or "it ended itself"
        assert d.state.phase_text == f"5 machines in a row never got to work; the last: {last}"
    again = draft(*bad(BOUND, **more), epochs=[], state={"history_attempt": 1})
    assert cause(again) is None, "the first was before the last resume"


def test_one_that_worked_begins_the_count_anew() -> None:
    before, worked, after = bad(2), lease(0, 3, phase=LeasePhase.RELEASED, cause="interrupted"), bad(4, 3)
    state = {"trainings": (training(worked, stopped_at_s=NOW_S),)}
    assert cause(draft(*before, worked, *after, epochs=[], state=state)) is None
    assert cause(draft(*before, worked, *after, epochs=[])) == "bad_starts", "it never trained"
    own = [replace(x, ending_code=None, cause="self") for x in bad(BOUND)]
    trained = {"trainings": tuple(training(x, stopped_at_s=NOW_S) for x in own)}
    assert cause(draft(*own, epochs=[], state=trained)) is None, "they ended themselves after work"
    broke = {"trainings": (training(after[0], stopped_at_s=NOW_S),)}
    assert cause(draft(*bad(1), *after, epochs=[], state=broke)) == "bad_starts"


def beside(
    job: Any, *, epochs: Any = None, trained: bool = True, since_s: float = NOW_S, **more: Any
) -> Draft:
    """A trains; machine after machine is brought up beside it in vain."""
    vain = [replace(x, since_s=since_s) for x in bad(BOUND, 1)]
    runs = (training(A),) if trained else ()
    return draft(
        A,
        *vain,
        job=job,
        epochs=[epoch(1, A)] if epochs is None else epochs,
        state={"trainings": runs},
        **more,
    )


def test_what_never_came_up_beside_work_is_not_held_against_it() -> None:
    assert cause(beside(spec(1))) is None
    assert cause(beside(spec(1), trained=False)) == "bad_starts", "it has not trained"
    assert cause(beside(spec(1), since_s=BEGUN_S - 0.1)) == "bad_starts", "before it began"
    assert cause(beside(spec(1), since_s=BEGUN_S)) is None
    drained = [epoch(1, A), epoch(2, opened_at_s=BEGUN_S + 1.0)]
    assert cause(beside(spec(1), epochs=drained)) == "bad_starts", "it did not work then"
    later = [epoch(1, A), epoch(2, opened_at_s=NOW_S + 1.0)]
    assert cause(beside(spec(1), epochs=later)) is None, "it worked then"
    assert cause(beside(replace(elastic(2), on_node_loss="replace"))) == "bad_starts", "too few"


def test_an_elastic_job_that_works_is_not_ended_because_no_more_come_up() -> None:
    none: dict[str, Any] = {"trained": False, "since_s": NOW_S}
    assert cause(beside(elastic(1), **none)) is None
    assert cause(beside(elastic(2), **none)) == "bad_starts"
    assert cause(beside(elastic(1), epochs=[], **none)) == "bad_starts"
    gone = replace(B, phase=LeasePhase.RELEASED, cause="interrupted", ended_at_s=NOW_S - 50.0)
    vain = [replace(x, since_s=NOW_S) for x in bad(BOUND, 1)]
    assert cause(draft(A, gone, *vain, job=elastic(2), epochs=[epoch(1, A, gone)])) == "bad_starts"


def test_machines_that_break_at_work_one_after_the_other_are_no_accident_either() -> None:
    broke = [replace(x, since_s=NOW_S - 50.0 + i) for i, x in enumerate(bad(BOUND, ending_code="broken"))]
    gangs = [epoch(1 + i, x, opened_at_s=NOW_S - 60.0 + i) for i, x in enumerate(broke)]
    runs = tuple(training(x, 1 + i, stopped_at_s=NOW_S) for i, x in enumerate(broke))
    d = draft(*broke, job=spec(1), epochs=gangs, state={"trainings": runs})
    assert cause(d) == "bad_starts"


def test_who_was_gone_by_then_did_not_work() -> None:
    for ended_at_s, worked in ((NOW_S - 10.0, False), (NOW_S - 20.0, False), (NOW_S - 9.9, True)):
        gone = replace(A, phase=LeasePhase.RELEASED, cause="interrupted", ended_at_s=ended_at_s)
        vain = [replace(x, since_s=NOW_S - 10.0) for x in bad(BOUND, 1)]
        runs = {"trainings": (training(A),)}
        d = draft(gone, *vain, job=spec(1), epochs=[epoch(1, gone)], state=runs)
        assert (cause(d) is None) is worked


# ---------------------------------------------------------------- winding down


def winding(*of: Lease, code: str = "stop_requested", since_s: float = NOW_S, **more: Any) -> Draft:
    state = {
        "phase": JobPhase.STOPPING,
        "phase_code": code,
        "phase_text": "as asked",
        "phase_since_s": since_s,
        **more.pop("state", {}),
    }
    d = draft(*of, state=state, **more)
    lifecycle.wind_down(d)
    return d


def test_who_works_saves_first_and_who_does_not_goes_at_once() -> None:
    pending = replace(B, phase=LeasePhase.PENDING)
    d = winding(A, pending, epochs=[epoch(1, A)])
    (drain,) = actions(d, act.OpenEpoch)
    assert (drain.members, drain.reason) == ((), "as asked")
    assert ended(d) == {B.lease_id: "stop_requested"}
    asked = [epoch(1, A), epoch(2, opened_at_s=NOW_S)]
    assert not winding(A, epochs=asked).actions, "asked once"
    d = winding(A, beats=[beat(A, AgentPhase.DRAINED, 2, drained_epoch=2)], epochs=asked)
    assert ended(d) == {A.lease_id: "stop_requested"}
    d = winding(A, observed={"mailbox_ok": False})
    assert not d.actions, "it cannot be asked"
    going = replace(A, phase=LeasePhase.ENDING, ending_code="noticed")
    assert not winding(going).actions, "of what ends already the code stays, and the call is another rule's"


def test_who_has_ended_by_itself_is_not_told_to_stop() -> None:
    d = winding(A, observed={"ends": (failure(A),)})
    assert not d.actions, "what it saved is on its way"
    assert actions(winding(A, observed={"ends": (failure(A, epoch=7),)}), act.OpenEpoch)
    assert actions(winding(A, B, observed={"ends": (failure(A),)}), act.OpenEpoch), "the other runs"


@pytest.mark.parametrize(
    ("ago_s", "over"), [(TIMING.drain_timeout_s, False), (TIMING.drain_timeout_s + 0.1, True)]
)
def test_it_is_not_waited_for_for_ever(ago_s: float, over: bool) -> None:
    drain = epoch(2, opened_at_s=NOW_S - ago_s)
    d = winding(A, epochs=[epoch(1, A), drain], since_s=NOW_S)
    assert ended(d) == ({A.lease_id: "stop_requested"} if over else {})
    cut = winding(A, observed={"mailbox_ok": False}, since_s=NOW_S - ago_s)
    assert ended(cut) == ({A.lease_id: "stop_requested"} if over else {}), "nor a mailbox that is away"


RELEASED = replace(A, phase=LeasePhase.RELEASED, cause="terminated", ended_s=1.0, ended_at_s=NOW_S)


@pytest.mark.parametrize(
    ("code", "phase"),
    [
        ("finished", JobPhase.SUCCEEDED),
        ("stop_requested", JobPhase.STOPPED),
        ("over_budget", JobPhase.FAILED),
        ("hung", JobPhase.FAILED),
    ],
)
def test_what_it_ends_as(code: str, phase: JobPhase) -> None:
    d = winding(RELEASED, code=code, machines=[], job=spec(1, notify=NOTIFY))
    assert (d.state.phase, d.state.phase_code, d.state.phase_text) == (phase, code, "as asked")
    (told,) = actions(d, act.Notify)
    assert told.text == f"{JOB} {phase}: as asked"


@pytest.mark.parametrize(("limit_s", "missed"), [(10_400.0, False), (10_399.0, True)])
def test_a_finish_after_its_deadline_is_named_so(limit_s: float, missed: bool) -> None:
    """Submitted 5200 s ago on the wall: 10,400 s of the market's."""
    assert CLOCK.scale == 2.0
    late = spec(1, constraints=Constraints(deadline_s=limit_s))
    d = winding(RELEASED, code="finished", machines=[], job=late)
    assert d.state.phase is JobPhase.SUCCEEDED
    assert d.state.phase_code == ("missed_deadline" if missed else "finished")
    if missed:
        assert d.state.phase_text == "finished, 1 s after its deadline"
    stopped = winding(RELEASED, code="stop_requested", machines=[], job=late)
    assert stopped.state.phase_code == "stop_requested"


def test_who_finished_in_time_is_not_late_because_its_machines_were_slow_to_go() -> None:
    """Nor because prices are waited for: its work was done, and its last checkpoint saved."""
    due = spec(1, constraints=Constraints(deadline_s=10_300.0))
    d = winding(RELEASED, code="finished", since_s=NOW_S - 100.0, machines=[], job=due)
    assert d.state.phase_code == "finished"
    d = winding(RELEASED, code="finished", since_s=NOW_S - 40.0, machines=[], job=due)
    assert d.state.phase_text == "finished, 20 s after its deadline"


def test_it_is_over_when_every_cloud_has_said_so() -> None:
    def over(*of: Lease, **more: Any) -> bool:
        return winding(*of, epochs=[], **more).state.phase.ended

    assert over(RELEASED, machines=[])
    assert over(RELEASED, machines=[machine(A, state=MachineState.GONE)])
    assert not over(RELEASED, machines=[machine(A)])
    assert not over(RELEASED, machines=[], observed={"listed": frozenset()})
    assert not over(RELEASED, replace(B, phase=LeasePhase.ENDING), machines=[])
    assert over(refused("access"), machines=[], observed={"listed": frozenset()}), "there was none"
    assert not over(refused("capacity"), machines=[], observed={"listed": frozenset()})
    assert not over(replace(RELEASED, cause="access"), machines=[], observed={"listed": frozenset()})


@pytest.mark.parametrize(
    ("missing_ago_s", "stopping_ago_s", "waits"),
    [
        (None, 0.0, False),
        (TIMING.prices_patience_s - 0.1, 1e3, True),
        (TIMING.prices_patience_s, 1e3, False),
        (1e3, TIMING.prices_patience_s - 0.1, True),
        (1e3, TIMING.prices_patience_s, False),
    ],
)
def test_prices_get_a_while_to_turn_up(
    missing_ago_s: float | None, stopping_ago_s: float, waits: bool
) -> None:
    since_s = None if missing_ago_s is None else NOW_S - missing_ago_s
    of = replace(RELEASED, prices_missing_since_s=since_s)
    d = winding(of, machines=[], epochs=[], since_s=NOW_S - stopping_ago_s)
    assert d.state.phase.ended is not waits


def test_of_what_is_released_in_this_pass_they_are_asked_for_first() -> None:
    going = replace(A, phase=LeasePhase.ENDING)
    d = draft(going, epochs=[], machines=[], state={"phase": JobPhase.STOPPING, "phase_code": "finished"})
    d.note(ev.LeaseReleased(lease_id=A.lease_id, ended_s=1.0, cause="terminated"))
    lifecycle.wind_down(d)
    assert not d.state.phase.ended
    other = draft(
        RELEASED, epochs=[], machines=[], state={"phase": JobPhase.STOPPING, "phase_code": "finished"}
    )
    other.note(ev.LimitNear(limit="budget", text="near"))
    other.sweep(machine(B), "landed late")
    lifecycle.wind_down(other)
    assert other.state.phase.ended, "of nothing else"


# ---------------------------------------------------------------- what it is called


def named(*of: Lease, waiting: tuple[str, str] | None = None, **more: Any) -> tuple[JobPhase, str, str]:
    state = {"phase": JobPhase.PENDING, "phase_code": "", **more.pop("state", {})}
    d = draft(*of, state=state, **more)
    d.waiting = waiting
    lifecycle.name_phase(d)
    return d.state.phase, d.state.phase_code, d.state.phase_text


def test_it_runs_where_all_its_members_are_there() -> None:
    key = A.offer.key
    assert named(A, B) == (JobPhase.RUNNING, "running", f"epoch 1 on 2 × {key}")
    assert named(A, B, job=elastic()) == (JobPhase.RUNNING, "running", f"epoch 1 on 2 × {key} (3 wanted)")
    for phase in (LeasePhase.SUSPECT, LeasePhase.DOOMED):
        assert named(A, replace(B, phase=phase))[0] is JobPhase.RUNNING, phase
    for phase in (LeasePhase.ENDING, LeasePhase.RELEASED):
        found = named(A, replace(B, phase=phase))
        assert found == (JobPhase.RECOVERING, "recovering", "a replacement is on its way")
    assert named(A, epochs=[epoch(1, A), epoch(2)])[0] is JobPhase.RECOVERING
    doomed = replace(B, phase=LeasePhase.DOOMED)
    said = [beat(A), beat(B, AgentPhase.DRAINED, drained_epoch=1)]
    assert named(A, doomed, beats=said)[0] is JobPhase.RECOVERING, "it has handed over"
    assert named(A, B, beats=said)[0] is JobPhase.RUNNING


def test_between_two_epochs() -> None:
    drain = [epoch(1, A), epoch(2, reason="i-2 joins")]
    assert named(A, job=elastic(), epochs=drain)[2] == "regrouping: i-2 joins"
    assert named(A, job=spec(1), epochs=drain)[2] == "a replacement is on its way"
    gone = replace(A, phase=LeasePhase.RELEASED)
    assert named(gone, job=elastic())[2] == "a replacement is on its way"
    assert named(gone, waiting=("capacity", "none")) == (JobPhase.WAITING, "capacity", "none")
    asked = replace(A, phase=LeasePhase.PENDING)
    assert named(asked, job=spec(2), epochs=[]) == (
        JobPhase.PROVISIONING,
        "provisioning",
        f"2 × {A.offer.key} asked for",
    )
    assert named(epochs=[])[0] is JobPhase.PENDING
    move = ev.MigrationStarted(
        to=OFFERS[2], from_offer="here", expected_saving_usd=None, move_usd=None, forced=False, why="cheaper"
    )
    assert named(A, state={"migration": move}) == (
        JobPhase.MIGRATING,
        "migrate",
        f"here → {OFFERS[2].key}: cheaper",
    )


def test_a_wait_is_told_once_per_try() -> None:
    d = draft(epochs=[], job=spec(1, notify=NOTIFY), state={"attempts": 4})
    d.waiting = ("capacity", "none")
    lifecycle.name_phase(d)
    lifecycle.name_phase(d)
    (told,) = actions(d, act.Notify)
    assert (told.topic, told.text) == ("waiting:4", f"{JOB} waits: none")
    assert len(events(d, ev.JobPhaseChanged)) == 1
