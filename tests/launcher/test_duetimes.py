"""What a live deadline leaves time for besides work: starts, losses, the time from a last step to the end.
And money: what a budget leaves of its moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest

from arylcloud.core import events as ev
from arylcloud.core.job import CheckpointSpec, Constraints, InlineRate, JobSpec, ProfileRef, Work
from arylcloud.core.offer import Market, Offer
from arylcloud.core.phases import LeasePhase
from arylcloud.core.plan import Plan
from arylcloud.core.protocol import AgentPhase, Heartbeat
from arylcloud.launcher.actions import MoveAdvice, Observed, Timing
from arylcloud.launcher.duepolicy import asked, left_usd
from arylcloud.launcher.duetimes import MEASURED, begin_h, closing_h, lost_h
from arylcloud.launcher.dueview import Due, due_of
from arylcloud.launcher.state import JobState
from arylcloud.planner.deadline.registry import POLICIES
from arylcloud.planner.single import plan_job
from arylcloud.pricing.table import from_offers
from tests.support.diary import Diary, offer

TIMING = Timing(tick_s=1.0, silent_s=60.0)
SPOT = offer()
DEMAND = replace(offer(usd_per_hour=7.0), market=Market.ON_DEMAND)
JOB = JobSpec(
    name="digits",
    run="x",
    profile=ProfileRef(rates=(InlineRate(gpu="V100", count=1, rate=1.0),), unit="steps/s"),
    work=Work(amount=36_000, unit="steps"),
    constraints=Constraints(deadline_s=60_000.0),
    checkpoint=CheckpointSpec(interval_s=600.0),
)


def observed(*beats: Heartbeat) -> Observed:
    return Observed(
        machines=(),
        listed=frozenset(),
        beats={beat.lease_id: beat for beat in beats},
        ends=(),
        checkpoints=(),
        damaged={},
        requests=(),
        published_epoch=0,
    )


def at_work(spec: JobSpec = JOB, at: Offer = SPOT) -> Diary:
    """It took 100 s to begin."""
    d = Diary(spec=spec).lease("a", 0.0, at=at, usd_per_hour=at.usd_per_hour)
    d.write(90.0, ev.LeasePhaseChanged(lease_id="a", phase=LeasePhase.READY, text="x"))
    return d.epoch(90.0, "a").train(1, "a", 100.0)


def plan_of(state: JobState) -> Plan:
    free = replace(state.spec, constraints=Constraints())
    return plan_job(free, from_offers((SPOT, DEMAND)), also=(SPOT, DEMAND), limit=50)


def shown(state: JobState, *beats: Heartbeat, now_s: float = 200.0) -> Due:
    plan = plan_of(state)
    found = due_of(
        state,
        observed(*beats),
        plan,
        now_s,
        policy=POLICIES["default"],
        timing=TIMING,
        handover_s=1.0,
        seen=lambda _: True,
    )
    assert found is not None
    return found


def beat(**changes: float) -> Heartbeat:
    return replace(
        Heartbeat(lease_id="a", seq=1, at_s=200.0, phase=AgentPhase.RUNNING, epoch=1, step=90), **changes
    )  # type: ignore[arg-type]


def test_a_last_save_and_its_upload_come_after_the_last_step() -> None:
    """A deadline is kept by what is done before it: the result has to be in the store."""
    state = at_work().state
    brief, long = shown(state, beat()), shown(state, beat(save_s=40.0, upload_s=160.0))
    assert (brief.view.left_h - long.view.left_h)[0] * 3600 == pytest.approx(200.0)
    assert (brief.worst.slack_h - long.worst.slack_h)[0] * 3600 == pytest.approx(200.0)
    assert brief.view.left_h[0] * 3600 == pytest.approx(60_000.0 - 200.0 - 3.0), "and three passes"


def test_before_any_upload_was_seen_it_goes_by_the_size_in_the_job_file() -> None:
    spec = replace(JOB, checkpoint=CheckpointSpec(interval_s=600.0, size_gb=50.0))
    assert closing_h(Diary(spec=spec).state, observed(), TIMING) * 3600 == pytest.approx(100.0 + 3.0)
    assert closing_h(Diary(spec=JOB).state, observed(), TIMING) * 3600 == pytest.approx(3.0)


def test_between_machines_the_last_upload_takes_as_long_as_on_the_one_before() -> None:
    d = at_work()
    told = observed(beat(save_s=40.0, upload_s=900.0))
    working = closing_h(d.state, told, TIMING)
    d.halt(1, "a", 300.0, how="lost", last=150, committed=0, saved_s=None).end(
        "a", 300.0, cause="interrupted"
    )
    assert not d.state.open_leases
    assert closing_h(d.state, told, TIMING) == working > 900.0 / 3600


def test_of_two_starts_without_a_machine_only_one_can_lose_work() -> None:
    """Of a start on spot and one on demand after it: the guard asks for both, and for one interval."""
    d = at_work()
    working = shown(d.state, beat()).view.market.startup_h * 3600
    d.halt(1, "a", 300.0, how="lost", last=150, committed=0, saved_s=None).end(
        "a", 300.0, cause="interrupted"
    )
    idle = shown(d.state, now_s=300.0)
    assert idle.view.idle[0]
    assert working == pytest.approx(MEASURED * 100.0 + 1.0 + 600.0)
    assert 2 * idle.view.market.startup_h * 3600 == pytest.approx(2 * (MEASURED * 100.0 + 1.0) + 600.0)


@pytest.mark.parametrize(
    ("told_s", "late_s"), [(300.0, 1.0), (345.0, 45.0), (9_000.0, 61.0)], ids=["at once", "late", "away"]
)
def test_a_loss_is_seen_late(told_s: float, late_s: float) -> None:
    """Its cloud took its time to say so. (That no launcher was there for hours is no sign of the next.)"""
    d = at_work()
    d.write(told_s, ev.LeaseReleased(lease_id="a", ended_s=300.0, cause="interrupted"))
    assert begin_h(d.state, 0.1, TIMING) * 3600 == pytest.approx(MEASURED * 100.0 + late_s)


def test_what_is_saved_but_not_yet_sent_is_lost_with_the_machine() -> None:
    d = at_work()
    assert lost_h(d.state, observed(beat(upload_s=300.0)), 0.0) * 3600 == pytest.approx(600.0 + 300.0)


def test_a_job_that_has_run_for_long_loses_no_more_than_one_that_has_not() -> None:
    """Between two saves lies what lies between them, however long ago the epoch began."""
    d = Diary().lease("a", 0.0).epoch(0.0, "a").train(1, "a", 100.0)
    for number in range(1, 4):
        d.save(1, number, 100.0 + 300.0 * number, 10 * number)
    assert lost_h(d.state, observed(), 0.0) * 3600 == pytest.approx(300.0)
    for number in range(4, 200):
        d.save(1, number, 100.0 + 300.0 * number, 10 * number)
    assert lost_h(d.state, observed(), 0.0) * 3600 == pytest.approx(300.0)
    assert lost_h(d.state, observed(), 0.5) == 0.5, "more than usual is not saved now"


def advised(budget_usd: float | None) -> tuple[JobState, MoveAdvice | None]:
    """On demand at $7, with spot at half of that and time enough for it."""
    job = replace(JOB, constraints=Constraints(deadline_s=60_000.0, budget_usd=budget_usd))
    state = at_work(job, DEMAND).state
    said = asked(
        state,
        observed(beat()),
        plan_of(state),
        200.0,
        timing=TIMING,
        handover_s=1.0,
        seen=lambda _: True,
    )
    assert said is not None
    return state, said[1]


@pytest.mark.parametrize(
    ("left", "moves"),
    [
        (lambda here, there, move: here + move + 0.01, True),
        (lambda here, there, move: here + move - 0.01, False),
        (lambda here, there, move: here + 0.01, False),
        (lambda here, there, move: here - 0.01, True),
        (lambda here, there, move: there + move + 0.01, True),
        (lambda here, there, move: there + move - 0.01, False),
        (lambda here, there, move: 0.5, False),
    ],
    ids=["both", "no failed move", "just here", "only there", "just there", "too little", "next to nothing"],
)
def test_a_move_leaves_of_a_budget_what_the_rest_costs(
    left: Callable[[float, float, float], float], moves: bool
) -> None:
    """A move that fails is paid for as well, and a budget that is used up ends the job."""
    state, move = advised(None)
    assert move is not None
    assert move.to.key == SPOT.key
    assert move.move_usd is not None
    due = shown(state, beat())
    work_h = float(due.worst.work_h[0])
    here, there = 7.0 * work_h, 3.6 * work_h
    spent = 100.0 - (left_usd(advised(100.0)[0], 200.0) or 0.0)
    assert spent == pytest.approx(7.0 * 200 / 3600, rel=0.01)
    _, found = advised(spent + left(here, there, move.move_usd))
    assert (found is not None) is moves


# ---------------------------------------------------------------- how fast it is


def hours_per_step(state: JobState, *beats: Heartbeat, now_s: float) -> float:
    found = shown(state, *beats, now_s=now_s)
    return float(found.view.total_h[0]) / 36_000


def test_its_first_steps_are_not_for_nothing() -> None:
    """A training begins when its first steps are done, here ten of ten seconds each: 60 steps in 500 s are
    no 8.3 s a step. (Of slack, that would be a sixth of all that is left to do.)"""
    state = at_work().state
    told = beat(step=60, first_step_s=100.0, command_started_s=0.0, step_gap_s=100.0, step_age_s=0.0)
    assert hours_per_step(state, told, now_s=600.0) * 3600 == pytest.approx(10.0)
    few = beat(step=60, first_step_s=100.0, command_started_s=0.0, step_age_s=0.0)
    planned = hours_per_step(state, few, now_s=600.0)
    assert planned * 3600 == pytest.approx(1.0, rel=0.1), "too few were seen: as planned"
    by_saves = beat(step=50, first_step_s=100.0, command_started_s=100.0, step_gap_s=100.0, step_age_s=0.0)
    assert hours_per_step(state, by_saves, now_s=600.0) * 3600 == pytest.approx(10.0)


def test_of_a_training_that_was_stopped_neither_first_step_nor_end_counts() -> None:
    """Ten seconds a step; asked to stop, it took a minute over its last save."""
    d = at_work()
    for number, step in enumerate((30, 60, 90), start=1):
        d.save(1, number, 90.0 + 10.0 * step, step)
    d.save(1, 4, 1_110.0, 96)
    d.halt(1, "a", 1_110.0, how="drained", last=96, committed=96, saved_s=1_110.0)
    assert hours_per_step(d.state, now_s=1_200.0) * 3600 == pytest.approx(10.0)


@pytest.mark.parametrize(("how", "step_s"), [("lost", 10.0), ("exited", 590 / 60)])
def test_of_one_that_saved_too_little_it_is_told_from_its_whole_run(
    how: Literal["lost", "exited"], step_s: float
) -> None:
    d = at_work()
    d.halt(1, "a", 690.0, how=how, last=60, committed=0, saved_s=None)
    assert hours_per_step(d.state, now_s=700.0) * 3600 == pytest.approx(step_s)
