"""When a command trains, where it stopped, and what it had committed by then; at the bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support.situation import (
    BEGUN_S,
    CLOCK,
    NOW_S,
    beat,
    draft,
    elastic,
    epoch,
    events,
    failure,
    lease,
    machine,
    saved,
    training,
)

from arylcloud.core import events as ev
from arylcloud.core.job import Constraints
from arylcloud.core.phases import LeasePhase
from arylcloud.core.ports import EndCause, MachineState
from arylcloud.core.protocol import AgentPhase
from arylcloud.launcher import actions as act
from arylcloud.launcher.reconcile import facts
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.reconcile.trainings import UNSEEN_S
from arylcloud.launcher.state import Lease

A, B = lease(0), lease(1)
SUSPECT, ENDING = LeasePhase.SUSPECT, LeasePhase.ENDING
LATE_S = CLOCK.market_s(NOW_S) - 7.0
"""After its launch."""


def noted(*of: Lease, **more: Any) -> Draft:
    d = draft(*of, **more)
    facts.note_facts(d)
    return d


def causes(d: Draft, kind: type) -> list[str | None]:
    return [a.cause_id for a in d.actions if isinstance(a, act.Note) and isinstance(a.event, kind)]


def test_a_command_that_shows_its_first_step() -> None:
    said = [beat(A, at_s=5000.0, first_step_s=4970.0), beat(B)]
    d = noted(A, B, beats=said, epochs=[epoch(1, A, B, resume_step=40)])
    (begun,) = events(d, ev.TrainingStarted)
    assert (begun.epoch, begun.lease_id, begun.at_s, begun.step) == (1, A.lease_id, 4970.0, 40)
    assert begun.ran_s == 31.0, "thirty by its own clock, and a second since that beat"
    assert causes(d, ev.TrainingStarted) == ["beat 7"]
    ahead = noted(A, beats=[beat(A, at_s=5000.0, first_step_s=5010.0)])
    assert events(ahead, ev.TrainingStarted)[0].ran_s == 1.0


def test_not_twice_and_not_of_another_epoch() -> None:
    said = [beat(A, epoch=3, first_step_s=BEGUN_S + 5.0)]
    two = [epoch(1, A), epoch(2), epoch(3, A)]
    own = training(A, 3, started_at_s=1.0)
    assert not events(noted(A, epochs=two, beats=said, state={"trainings": (own,)}), ev.TrainingStarted)
    before = training(A, 1, stopped_at_s=NOW_S)
    still = noted(A, epochs=two, beats=said, state={"trainings": (before,)})
    assert not events(still, ev.TrainingStarted), "the epoch before's, still on show"
    fresh = [beat(A, epoch=3, first_step_s=NOW_S)]
    assert events(noted(A, epochs=two, beats=fresh, state={"trainings": (before,)}), ev.TrainingStarted)
    old = [beat(A, epoch=1, first_step_s=NOW_S)]
    assert not events(noted(A, epochs=two, beats=old), ev.TrainingStarted)


def begun(said: Any, **more: Any) -> list[ev.TrainingStarted]:
    opened = replace(epoch(1, A, resume_step=4), opened_at_s=NOW_S - 3000.0)
    return events(noted(A, beats=[said], epochs=[opened], **more), ev.TrainingStarted)


def test_one_that_shows_no_step_for_long_trains_since_it_was_started() -> None:
    said = beat(A, at_s=5000.0, command_started_s=5001.0 - UNSEEN_S)
    (found,) = begun(said)
    assert (found.at_s, found.step, found.ran_s) == (5001.0 - UNSEEN_S, 4, UNSEEN_S)
    assert not begun(replace(said, command_started_s=5002.0 - UNSEEN_S)), "it may still be loading"
    assert not begun(replace(said, phase=AgentPhase.RESTORING))
    assert not begun(replace(said, command_started_s=5000.0 - 3001.0)), "of the epoch before, still on show"
    assert not begun(said, state={"trainings": (training(A),)}), "once"
    (found,) = begun(replace(said, first_step_s=4990.0))
    assert found.at_s == 4990.0, "a step tells more"


def test_a_step_that_comes_after_all_says_better_when_it_began() -> None:
    loads = beat(A, at_s=NOW_S - 1.0, command_started_s=NOW_S - 1240.0)
    (first,) = begun(loads)
    taken = training(A, started_at_s=first.at_s, began_at_s=NOW_S - first.ran_s, first_step=4)
    steps = replace(loads, first_step_s=NOW_S - 40.0)
    assert not begun(loads, state={"trainings": (taken,)})
    opened = replace(epoch(1, A, resume_step=4), opened_at_s=NOW_S - 3000.0)
    d = noted(A, beats=[steps], epochs=[opened], state={"trainings": (taken,)})
    (second,) = events(d, ev.TrainingStarted)
    assert (second.at_s, second.step, second.ran_s) == (NOW_S - 40.0, 4, 40.0)
    assert [(t.started_at_s, t.began_at_s) for t in d.state.trainings] == [(NOW_S - 40.0, NOW_S - 40.0)]
    assert not begun(steps, state={"trainings": d.state.trainings}), "once"
    by_checkpoint = replace(loads, first_step_s=loads.command_started_s)
    assert not begun(by_checkpoint, state={"trainings": (taken,)}), "that shows steps since the start"
    nearly = replace(loads, first_step_s=first.at_s + 1.0)
    assert not begun(nearly, state={"trainings": (taken,)})
    over = replace(taken, stopped_at_s=NOW_S - 30.0)
    assert not begun(steps, state={"trainings": (over,)})
    by_step = replace(taken, started_at_s=NOW_S - 900.0)
    assert not begun(steps, state={"trainings": (by_step,)}), "it had a first step"
    assert not begun(replace(steps, command_started_s=None), state={"trainings": (taken,)})


def test_what_an_epoch_before_began_is_not_begun_again() -> None:
    two = [epoch(1, A), epoch(2), epoch(3, A)]
    on_show = beat(A, epoch=3, first_step_s=BEGUN_S + 700.0, command_started_s=BEGUN_S, drained_epoch=2)
    by_its_start = training(A, 1, started_at_s=BEGUN_S, stopped_at_s=BEGUN_S + 2900.0)

    def again(said: Any, before: Any) -> list[ev.TrainingStarted]:
        d = noted(A, B, epochs=two, beats=[said], state={"trainings": (before,)})
        return events(d, ev.TrainingStarted)

    assert not again(on_show, by_its_start)
    assert not again(on_show, replace(by_its_start, stopped_at_s=None)), "it may run still"
    own = replace(on_show, first_step_s=BEGUN_S + 2900.0, command_started_s=BEGUN_S + 2900.0)
    assert again(own, by_its_start)
    assert again(on_show, replace(by_its_start, lease_id=B.lease_id)), "of another machine"


def test_a_limit_on_running_is_not_waited_past_for_a_step() -> None:
    limited = elastic(1, 1, constraints=Constraints(max_runtime_s=15.0 * CLOCK.scale))
    assert begun(beat(A, at_s=5000.0, command_started_s=4986.0), job=limited)
    assert not begun(beat(A, at_s=5000.0, command_started_s=4987.0), job=limited)


def test_one_that_has_ended_well_without_a_step_has_trained() -> None:
    said = beat(A, AgentPhase.EXITED, at_s=5000.0, command_started_s=4970.0, exit_code=0)
    (found,) = begun(said)
    assert (found.at_s, found.ran_s) == (4970.0, 31.0)
    assert not begun(replace(said, exit_code=1))
    assert not begun(replace(said, command_started_s=None))


RUNS = training(A, first_step=3)


def stopped(said: Any, *, of: Lease = A, epochs: Any = None, job: Any = None, **more: Any) -> Any:
    d = noted(
        of,
        job=job,
        epochs=epochs or [epoch(1, A, resume_step=3)],
        beats=[said] if said else [],
        state={"trainings": (RUNS,), **more.pop("state", {})},
        **more,
    )
    found = events(d, ev.TrainingStopped)
    assert len(found) <= 1
    return found[0] if found else None


def test_one_that_has_handed_over_has_stopped() -> None:
    found = stopped(beat(A, AgentPhase.DRAINED, drained_epoch=1, step=55))
    assert (found.epoch, found.lease_id, found.at_s, found.how) == (1, A.lease_id, NOW_S, "drained")
    assert (found.last_step, found.committed_step, found.committed_saved_at_s) == (55, 3, None)
    assert stopped(beat(A, step=55)) is None
    assert stopped(beat(A, AgentPhase.DRAINED, drained_epoch=1, committed="m")) is None, "not to be seen yet"
    assert stopped(None) is None
    assert stopped(beat(A, AgentPhase.BROKEN)) is None, "that it has not handed over its end will tell"
    done = replace(RUNS, stopped_at_s=1.0)
    again = beat(A, AgentPhase.DRAINED, drained_epoch=1)
    assert stopped(again, state={"trainings": (done,)}) is None
    assert stopped(again, of=replace(A, phase=ENDING)) is None


def test_how_far_it_had_come() -> None:
    said = beat(A, AgentPhase.DRAINED, 2, drained_epoch=2, step=55)
    saves = (saved("m", step=40), saved("n", step=50), saved("r", step=52), saved("o", 2, step=60))
    found = stopped(said, state={"checkpoints": saves, "rejected": frozenset({"r"})})
    assert (found.last_step, found.committed_step, found.committed_saved_at_s) == (55, 50, BEGUN_S + 50)
    found = stopped(replace(said, step=45), state={"checkpoints": saves[:2]})
    assert found.last_step == 50, "at least what it had committed"
    found = stopped(replace(said, step=None))
    assert found.last_step == 3, "at least what it began with"
    old = stopped(beat(A, AgentPhase.BROKEN, 0, step=99, drained_epoch=1))
    assert old.last_step == 3, "a step of another epoch says nothing"
    early = stopped(replace(said, at_s=1.0))
    assert early.at_s == RUNS.started_at_s, "never before it began"


def test_it_had_stopped_before_the_next_command_began() -> None:
    said = beat(A, epoch=3, drained_epoch=2, command_started_s=NOW_S - 50.0, first_step_s=NOW_S - 40.0)
    three = [epoch(1, A), epoch(2), epoch(3, A)]
    assert stopped(said, epochs=three).at_s == NOW_S - 50.0
    own = replace(said, command_started_s=RUNS.started_at_s)
    assert stopped(own, epochs=three).at_s == NOW_S, "its own command, still on show"
    assert stopped(replace(said, command_started_s=NOW_S + 1.0), epochs=three).at_s == NOW_S
    assert stopped(replace(said, epoch=1, drained_epoch=1)).at_s == NOW_S


def test_its_end_says_how_and_when() -> None:
    said = beat(A, AgentPhase.EXITED, drained_epoch=1, step=20)
    for changes, how in (
        ({}, "exited"),
        ({"signalled": True}, "drained"),
        ({"signalled": True, "finished": True}, "exited"),
    ):
        end = failure(A, at_s=NOW_S - 30.0, step=25, **changes)
        found = stopped(said, observed={"ends": (end,)})
        assert (found.how, found.at_s, found.last_step) == (how, NOW_S - 30.0, 25)
    end = failure(A, at_s=1.0, step=None)
    found = stopped(said, observed={"ends": (end,)})
    assert (found.at_s, found.last_step) == (RUNS.started_at_s, 20)
    for other in (failure(A, 1, at_s=5.0), failure(A, epoch=2)):
        assert stopped(said, observed={"ends": (other,)}).how == "drained"


def test_each_rank_by_its_own_end() -> None:
    ends = (failure(A, 0, at_s=NOW_S - 30.0, step=25), failure(B, 1, at_s=NOW_S - 20.0, step=35))
    said = [beat(x, AgentPhase.EXITED, drained_epoch=1) for x in (A, B)]
    d = noted(A, B, beats=said, observed={"ends": ends}, state={"trainings": (RUNS, training(B))})
    found = {e.lease_id: (e.at_s, e.last_step) for e in events(d, ev.TrainingStopped)}
    assert found == {A.lease_id: (NOW_S - 30.0, 25), B.lease_id: (NOW_S - 20.0, 35)}


def test_one_that_is_left_behind_has_stopped_as_far_as_it_counts() -> None:
    silent = replace(A, phase=SUSPECT)
    later = [epoch(1, A, B), epoch(2), epoch(3, B)]
    d = noted(
        silent,
        B,
        job=elastic(),
        epochs=later,
        beats=[beat(A, step=30), beat(B, epoch=3)],
        observed={"heard_s_ago": {A.lease_id: 60.0, B.lease_id: 1.0}},
        state={"trainings": (RUNS,)},
    )
    (found,) = events(d, ev.TrainingStopped)
    assert (found.how, found.last_step) == ("lost", 30)
    quiet = {"observed": {"heard_s_ago": {A.lease_id: 60.0}}}
    assert stopped(beat(A), of=silent, **quiet) is None, "its epoch is the newest"
    assert stopped(beat(A), epochs=[*later[:2], epoch(3, A)]) is None, "it is heard"


def test_with_its_machine_its_training_has_stopped() -> None:
    gone = machine(A, state=MachineState.GONE, ended_s=LATE_S, end_cause=EndCause.INTERRUPTED)
    found = stopped(beat(A, step=30), machines=[gone])
    assert (found.how, found.last_step) == ("lost", 30)
    assert stopped(None, machines=[gone]).at_s == RUNS.started_at_s
    other = replace(RUNS, lease_id=B.lease_id)
    d = noted(A, B, machines=[gone, machine(B)], state={"trainings": (other,)})
    assert not events(d, ev.TrainingStopped)
