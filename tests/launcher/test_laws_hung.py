"""What is taken for hung, idle or frozen, at its very bounds; and what is not."""

from __future__ import annotations

from typing import Any

import pytest
from support.harness import spec
from support.situation import (
    BEGUN_S,
    NOW_S,
    actions,
    beat,
    draft,
    ended,
    epoch,
    events,
    lease,
    machine,
    saved,
)

from arylcloud.core import events as ev
from arylcloud.core.job import HungSpec
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.ports import MachineState
from arylcloud.core.protocol import AgentPhase
from arylcloud.launcher import actions as act
from arylcloud.launcher.reconcile import hung
from arylcloud.launcher.reconcile.draft import Draft

NOTIFY = "https://example.com/…"
ONE, TWO = lease(0), lease(1)


def stalls(d: Draft) -> list[tuple[str, str, float]]:
    return [(e.kind, e.do, e.for_s) for e in events(d, ev.StallSeen)]


def command(
    *, do: str = "report", heard_s: float = 1.0, more: dict[str, Any] | None = None, **said: Any
) -> Draft:
    """One machine that says this of its command, and was heard so long ago."""
    limits = HungSpec(do=do, **(more or {}))  # type: ignore[arg-type]
    d = draft(
        ONE,
        job=spec(hung=limits, notify=NOTIFY),
        beats=[beat(ONE, **said)],
        observed={"heard_s_ago": {ONE.lease_id: heard_s}},
    )
    hung.judge(d)
    return d


# ---------------------------------------------------------------- by its steps


@pytest.mark.parametrize(
    ("age_s", "gap_s", "found"),
    [
        (1199.0, 60.0, True),  # twenty times what is usual, with the second since the beat
        (1198.0, 60.0, False),
        (599.0, 1.0, True),  # and ten minutes at least
        (598.0, 1.0, False),
        (1e6, None, False),  # what is usual is not known yet
    ],
)
def test_many_times_the_usual_step(age_s: float, gap_s: float | None, found: bool) -> None:
    d = command(step_age_s=age_s, step_gap_s=gap_s, step=1234)
    assert stalls(d) == ([("hung", "report", age_s + 1.0)] if found else [])
    if found:
        (told,) = actions(d, act.Notify)
        assert "since step 1,234" in told.text
        assert not ended(d)
        assert d.state.phase is JobPhase.RUNNING


@pytest.mark.parametrize(("age_s", "found"), [(599.0, True), (598.0, False)])
def test_so_many_seconds_where_nothing_else_is_asked_for(age_s: float, found: bool) -> None:
    d = command(step_age_s=age_s, step_gap_s=None, more={"times": None})
    assert bool(stalls(d)) is found


@pytest.mark.parametrize(
    ("quiet_s", "more", "found"),
    [
        (1799.0, {}, True),
        (1798.0, {}, False),
        (2999.0, {"least_s": 3000.0}, True),
        (2998.0, {"least_s": 3000.0}, False),
        (599.0, {"times": None}, True),
        (598.0, {"times": None}, False),
        (None, {}, False),
    ],
)
def test_a_command_without_steps_by_its_words(
    quiet_s: float | None, more: dict[str, Any], found: bool
) -> None:
    d = command(quiet_s=quiet_s, more=more)
    assert stalls(d) == ([("idle", "report", (quiet_s or 0.0) + 1.0)] if found else [])


HANGS: dict[str, Any] = {"step_age_s": 5000.0, "step_gap_s": 1.0, "step": 30}


def test_what_is_done_is_the_users_word() -> None:
    d = command(do="restart", **HANGS)
    (drain,) = actions(d, act.OpenEpoch)
    assert drain.members == ()
    assert d.state.phase is JobPhase.RUNNING
    d = command(do="stop", **HANGS)
    assert (d.state.phase, d.state.phase_code) == (JobPhase.STOPPING, "hung")
    assert not actions(d, act.OpenEpoch)


def test_said_once_per_epoch_and_kind() -> None:
    d = command(**HANGS)
    seen = events(d, ev.StallSeen)
    again = draft(ONE, job=d.state.spec, beats=[beat(ONE, **HANGS)], state={"stalls": tuple(seen)})
    hung.judge(again)
    assert not again.actions
    other = [ev.StallSeen(epoch=0, lease_id="", kind="hung", for_s=1.0, do="report", text="")]
    for earlier in (
        *other,
        *(ev.StallSeen(epoch=1, lease_id="", kind="idle", for_s=1.0, do="report", text=""),),
    ):
        again = draft(ONE, job=d.state.spec, beats=[beat(ONE, **HANGS)], state={"stalls": (earlier,)})
        hung.judge(again)
        assert len(stalls(again)) == 1


def test_a_gang_hangs_when_all_its_ranks_do_and_as_long_as_who_moved_last() -> None:
    job = spec(2, hung=HungSpec(), notify=NOTIFY)
    still, moves = beat(ONE, **HANGS), beat(TWO, step_age_s=4000.0, step_gap_s=1.0, step=31)
    d = draft(ONE, TWO, job=job, beats=[still, moves])
    hung.judge(d)
    assert stalls(d) == [("hung", "report", 4001.0)]
    for other in (
        beat(TWO, step_age_s=3.0, step_gap_s=1.0),
        beat(TWO, AgentPhase.SAVING, **HANGS),
        beat(TWO, AgentPhase.RUNNING, 2, **HANGS),
    ):
        d = draft(ONE, TWO, job=job, beats=[still, other])
        hung.judge(d)
        assert not d.actions, other
    d = draft(ONE, TWO, job=job, beats=[still])
    hung.judge(d)
    assert not d.actions, "one is not heard"
    silent = lease(1, phase=LeasePhase.SUSPECT)
    d = draft(ONE, silent, job=job, beats=[still, beat(silent, **HANGS)])
    hung.judge(d)
    assert not stalls(d), "one is silent: another rule's"


def test_nothing_is_judged_by_a_mailbox_that_is_away_nor_while_it_drains_moves_or_stops() -> None:
    job = spec(hung=HungSpec(do="restart"))
    move = ev.MigrationStarted(
        to=ONE.offer, from_offer="x", expected_saving_usd=None, move_usd=None, forced=False, why=""
    )
    for observed, state, epochs in (
        ({"mailbox_ok": False}, {}, None),
        ({}, {"migration": move}, None),
        ({}, {"phase": JobPhase.STOPPING}, None),
        ({}, {}, [epoch(1, ONE), epoch(2)]),
    ):
        d = draft(ONE, job=job, beats=[beat(ONE, **HANGS)], observed=observed, state=state, epochs=epochs)
        hung.judge(d)
        assert not d.actions, (observed, state, epochs)


# ---------------------------------------------------------------- started again, but not for ever


def restarted(*epochs: int) -> tuple[ev.StallSeen, ...]:
    return tuple(
        ev.StallSeen(epoch=n, lease_id="", kind="hung", for_s=1.0, do="restart", text="") for n in epochs
    )


@pytest.mark.parametrize(
    ("times", "state", "stops"),
    [
        (3, {}, True),
        (2, {}, False),
        (3, {"checkpoints": (saved("m", 4, step=21),)}, False),  # one checkpoint more
        (3, {"checkpoints": (saved("m", 4, step=20),)}, True),  # of the same step
        (3, {"history_epoch": 1}, False),  # resumed since the first
    ],
)
def test_not_a_fourth_time_from_the_same_checkpoint(times: int, state: dict[str, Any], stops: bool) -> None:
    epochs = [epoch(n, ONE, resume_step=20) for n in range(1, times + 2)]
    d = draft(
        ONE,
        job=spec(hung=HungSpec(do="restart")),
        epochs=epochs,
        beats=[beat(ONE, epoch=times + 1, **HANGS)],
        state={"stalls": restarted(*range(1, times + 1)), **state},
    )
    hung.judge(d)
    assert [do for _, do, _ in stalls(d)] == ["stop" if stops else "restart"]
    assert (d.state.phase is JobPhase.STOPPING) is stops


def test_a_restart_that_a_crash_cut_short_is_done_and_counts_once() -> None:
    """Journaled as seen, and the launcher died before the drain: of three, two came before."""
    d = draft(
        ONE,
        job=spec(hung=HungSpec(do="restart")),
        epochs=[epoch(n, ONE, resume_step=20) for n in (1, 2, 3)],
        beats=[beat(ONE, epoch=3, **HANGS)],
        state={"stalls": restarted(1, 2, 3)},
    )
    hung.judge(d)
    assert not stalls(d), "said before"
    assert actions(d, act.OpenEpoch)
    assert d.state.phase is JobPhase.RUNNING


def test_what_is_only_reported_is_never_stopped() -> None:
    d = draft(
        ONE,
        job=spec(hung=HungSpec(do="report")),
        epochs=[epoch(n, ONE, resume_step=20) for n in (1, 2, 3, 4)],
        beats=[beat(ONE, epoch=4, **HANGS)],
        state={"stalls": restarted(1, 2, 3)},
    )
    hung.judge(d)
    assert [do for _, do, _ in stalls(d)] == ["report"]
    assert d.state.phase is JobPhase.RUNNING


def test_three_that_began_elsewhere_do_not_count() -> None:
    steps = (20, 10, 20, 20)
    epochs = [epoch(n, ONE, resume_step=step) for n, step in enumerate(steps, start=1)]
    d = draft(
        ONE,
        job=spec(hung=HungSpec(do="restart")),
        epochs=epochs,
        beats=[beat(ONE, epoch=4, **HANGS)],
        state={"stalls": restarted(1, 2, 3)},
    )
    hung.judge(d)
    assert [do for _, do, _ in stalls(d)] == ["restart"]


# ---------------------------------------------------------------- machines


def frozen(silent_s: float, do: str = "report", now: dict[str, Any] | None = None, **job: Any) -> Draft:
    suspect = lease(0, phase=LeasePhase.SUSPECT)
    how: dict[str, Any] = {"machines": [machine(suspect)], "listed": frozenset({"aws"}), **(now or {})}
    d = draft(
        suspect,
        job=spec(hung=HungSpec(do=do), notify=NOTIFY, **job),  # type: ignore[arg-type]
        machines=how.pop("machines"),
        observed={"heard_s_ago": {suspect.lease_id: silent_s}, **how},
    )
    hung.judge(d)
    return d


def test_a_machine_that_is_silent_for_an_hour_while_its_cloud_runs_it() -> None:
    assert not frozen(3599.0, "restart").actions
    d = frozen(3600.0)
    assert stalls(d) == [("frozen", "report", 3600.0)]
    (told,) = events(d, ev.StallSeen)
    assert (told.epoch, told.lease_id) == (0, ONE.lease_id)
    assert "at $1.0000/h" in told.text
    assert not ended(d)
    assert ended(frozen(3600.0, "restart")) == {ONE.lease_id: "frozen"}
    d = frozen(3600.0, "stop")
    assert (d.state.phase, d.state.phase_code) == (JobPhase.STOPPING, "hung")
    assert not ended(d), "what it ends is the stop's"


def test_nothing_of_that_where_its_cloud_does_not_say_that_it_runs() -> None:
    suspect = lease(0, phase=LeasePhase.SUSPECT)
    stopping = machine(suspect, state=MachineState.STOPPING)
    changes: list[dict[str, Any]] = [{"listed": frozenset()}, {"machines": []}, {"machines": [stopping]}]
    for now in changes:
        assert not frozen(3600.0, "restart", now).actions, now


@pytest.mark.parametrize(("silent_s", "gone"), [(2625.0, True), (2624.0, False)])
def test_the_end_of_its_lease_holds_whatever_is_asked_for(silent_s: float, gone: bool) -> None:
    """``unattended`` 2000 s, grace 25 s, and ten minutes to save in."""
    d = frozen(silent_s, unattended_s=2000.0)
    assert ended(d) == ({ONE.lease_id: "frozen"} if gone else {})


@pytest.mark.parametrize("phase", [AgentPhase.READY, AgentPhase.DRAINED])
@pytest.mark.parametrize(
    ("since_s", "opened_s", "found"),
    [(1800.0, 1800.0, True), (1799.0, 5000.0, False), (5000.0, 1799.0, False), (5000.0, 1800.0, True)],
)
def test_a_machine_that_waits_for_the_others(
    phase: AgentPhase, since_s: float, opened_s: float, found: bool
) -> None:
    waits = lease(0, since_s=NOW_S - since_s)
    for job_phase, counts in ((JobPhase.WAITING, True), (JobPhase.RUNNING, False)):
        d = draft(
            waits,
            job=spec(2, notify=NOTIFY),
            epochs=[epoch(1, waits, opened_at_s=NOW_S - opened_s)],
            beats=[beat(waits, phase)],
            state={"phase": job_phase},
        )
        hung.judge(d)
        assert bool(stalls(d)) is (found and counts)
        if found and counts:
            ((kind, do, for_s),) = stalls(d)
            assert (kind, do, for_s) == ("idle", "report", min(since_s, opened_s))
            (told,) = events(d, ev.StallSeen)
            assert (told.epoch, told.lease_id) == (1, waits.lease_id)
            assert not ended(d)


def test_who_works_does_not_wait_and_who_has_no_epoch_waits_since_it_was_ready() -> None:
    waits = lease(0, since_s=NOW_S - 1800.0)
    for phase in (JobPhase.PROVISIONING, JobPhase.RECOVERING):
        d = draft(waits, epochs=[], beats=[beat(waits, AgentPhase.READY)], state={"phase": phase})
        hung.judge(d)
        assert [(e.epoch, e.kind) for e in events(d, ev.StallSeen)] == [(0, "idle")]
    for beats in ([beat(waits, AgentPhase.RESTORING)], []):
        d = draft(waits, epochs=[], beats=beats, state={"phase": JobPhase.PROVISIONING})
        hung.judge(d)
        assert not d.actions
    booting = lease(0, since_s=BEGUN_S, phase=LeasePhase.PENDING)
    d = draft(booting, epochs=[], beats=[beat(waits, AgentPhase.READY)], state={"phase": JobPhase.WAITING})
    hung.judge(d)
    assert not d.actions


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.42, "0.42 s"),
        (9.94, "9.9 s"),
        (10.0, "10 s"),
        (99.0, "99 s"),
        (100.0, "2 min"),
        (5999.0, "100 min"),
        (6000.0, "1.7 h"),
        (36000.0, "10.0 h"),
    ],
)
def test_spans_are_said_as_people_do(seconds: float, text: str) -> None:
    assert hung._span(seconds) == text
