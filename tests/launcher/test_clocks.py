"""Clocks that differ from machine to machine, and clocks that are set while a job runs: neither silences a
machine, nor hurries or stops anything that is measured in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.harness import TIMING, Harness, spec
from support.scenarios import finish

from arylcloud.core import events as ev
from arylcloud.core import protocol as mail
from arylcloud.core.codec import loads
from arylcloud.core.job import Constraints
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.launcher import actions as act
from arylcloud.launcher.journaltime import LATE_S, journal_now_s

RUNNING = JobPhase.RUNNING
HOUR_S = 3600.0
SKEWS = [-HOUR_S, -600.0, -TIMING.silent_s - 1, -TIMING.silent_s, TIMING.silent_s, 600.0, HOUR_S]


# ---------------------------------------------------------------- differing clocks


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("ahead_s", SKEWS)
def test_whatever_a_machine_thinks_what_time_it_is(tmp_path: Path, ahead_s: float, nodes: int) -> None:
    h = Harness(tmp_path, spec=spec(nodes))
    h.agents.clock_ahead_s = ahead_s
    finish(h)
    assert h.world.creates == nodes
    phases = [e.phase for e in h.of(ev.LeasePhaseChanged)]  # type: ignore[attr-defined]
    assert LeasePhase.SUSPECT not in phases, "it was heard every second"
    assert phases.count(LeasePhase.READY) == nodes


@pytest.mark.parametrize("ahead_s", [-600.0, 0.0, 600.0])
def test_a_machine_that_falls_silent_is_suspect_in_time(tmp_path: Path, ahead_s: float) -> None:
    h = Harness(tmp_path)
    h.agents.clock_ahead_s = ahead_s
    h.agents.total_steps = 200
    h.until(RUNNING)
    h.tick(5)
    h.agents.silence(h.running[0].instance_id, 60)
    h.tick(int(TIMING.silent_s) - 1)
    (lease,) = h.state.open_leases
    assert lease.phase is LeasePhase.READY
    h.tick(3)
    assert h.state.leases[lease.lease_id].phase is LeasePhase.SUSPECT
    h.tick(60)
    assert h.state.leases[lease.lease_id].phase is LeasePhase.READY
    finish(h, within=400)


def test_an_old_heartbeat_is_no_sign_of_life_to_a_new_launcher(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.agents.total_steps = 300
    h.until(RUNNING)
    h.tick(5)
    h.agents.silence(h.running[0].instance_id, 100)
    h.tick(int(TIMING.silent_s) + 2)
    (lease,) = h.state.open_leases
    assert lease.phase is LeasePhase.SUSPECT
    h.restart()
    for _ in range(10):
        h.tick()
        assert h.state.leases[lease.lease_id].phase is LeasePhase.SUSPECT
    h.tick(90)
    assert h.state.leases[lease.lease_id].phase is LeasePhase.READY
    finish(h, within=400)


@pytest.mark.parametrize("ahead_s", [-600.0, 600.0])
def test_a_failure_is_the_users_whatever_the_peers_clocks_say(tmp_path: Path, ahead_s: float) -> None:
    h = Harness(tmp_path, spec=spec(2))
    h.until(RUNNING)
    h.tick(5)
    h.agents.by_instance["i-0002"].clock_ahead_s = ahead_s
    h.tick(2)
    h.agents.exit_code = 7
    finish(h, JobPhase.FAILED)
    assert (h.state.phase_code, h.state.exit_code, h.world.creates) == ("user_command", 7, 2)


@pytest.mark.parametrize("ahead_s", [-600.0, 600.0])
def test_a_lost_peers_clock_makes_no_failure_of_its_loss(tmp_path: Path, ahead_s: float) -> None:
    """One of two is gone without a word; the other's command dies of it."""
    h = Harness(tmp_path, spec=spec(2))
    h.until(RUNNING)
    h.tick(12)
    h.agents.by_instance["i-0001"].clock_ahead_s = ahead_s
    h.tick(2)
    h.world.interrupt("i-0001")
    h.agents.exit_code = 1
    h.pass_time(2)
    h.agents.exit_code = None
    finish(h)


@pytest.mark.parametrize("ahead_s", [-HOUR_S, 0.0, HOUR_S])
def test_a_failure_that_nobody_watched_is_the_users(tmp_path: Path, ahead_s: float) -> None:
    """All machines were well long after it: the store's clock has seen them write."""
    h = Harness(tmp_path, spec=spec(2))
    h.until(RUNNING)
    h.tick(5)
    h.agents.by_instance["i-0002"].clock_ahead_s = ahead_s
    h.tick(2)
    h.agents.exit_code = 7
    h.pass_time(20)
    h.restart()
    h.tick(1)
    assert (h.state.phase, h.state.phase_code) == (JobPhase.STOPPING, "user_command")
    finish(h, JobPhase.FAILED)
    assert h.state.exit_code == 7


@pytest.mark.parametrize("ahead_s", [-HOUR_S, 0.0, HOUR_S])
def test_a_loss_that_nobody_watched_is_no_failure(tmp_path: Path, ahead_s: float) -> None:
    h = Harness(tmp_path, spec=spec(2))
    h.until(RUNNING)
    h.tick(12)
    h.agents.by_instance["i-0001"].clock_ahead_s = ahead_s
    h.tick(2)
    h.world.interrupt("i-0001")
    h.agents.exit_code = 1
    h.pass_time(20)
    h.agents.exit_code = None
    h.restart()
    finish(h)


@pytest.mark.parametrize("ahead_s", [-HOUR_S, HOUR_S])
def test_max_runtime_is_of_one_clock(tmp_path: Path, ahead_s: float) -> None:
    h = Harness(tmp_path, spec=spec(constraints=Constraints(max_runtime_s=20.0)))
    h.agents.clock_ahead_s = ahead_s
    h.until(RUNNING)
    began_s = h.clock.at_s
    h.until(JobPhase.STOPPING)
    assert h.state.phase_code == "max_runtime"
    assert h.clock.at_s - began_s == pytest.approx(20.0, abs=3.0)
    finish(h, JobPhase.FAILED)


@pytest.mark.parametrize("ahead_s", [-HOUR_S, HOUR_S])
def test_a_notice_in_a_launcher_with_a_wrong_clock(tmp_path: Path, ahead_s: float) -> None:
    """Nobody is ended before it has handed over."""
    h = Harness(tmp_path)
    h.watch.ahead_s = ahead_s
    h.restart()
    h.until(RUNNING)
    h.tick(16)
    h.world.notice(h.running[0].instance_id, 20)
    finish(h)
    drained = h.state.trainings[0]
    assert drained.how == "drained"
    assert drained.committed_step == drained.last_step


# ---------------------------------------------------------------- clocks that are set


STEPS = [-HOUR_S, -60.0, 60.0, HOUR_S]


@pytest.mark.parametrize("step_s", STEPS)
def test_the_launcher_beats_on(tmp_path: Path, step_s: float) -> None:
    h = Harness(tmp_path)
    h.until(RUNNING)
    h.watch.ahead_s += step_s
    h.tick(4)
    beat = loads(mail.LauncherBeat, h.store.get(mail.LAUNCHER_KEY) or b"")
    assert h.watch.now_s() - 3 <= beat.at_s <= h.watch.now_s(), "documents have the wall's time"


@pytest.mark.parametrize("step_s", STEPS)
def test_a_set_clock_changes_no_story(tmp_path: Path, step_s: float) -> None:
    """Boot, run, notice, replacement, loss, end: with the clock set at each moment of it."""
    for moment in (1, 3, 8, 18, 22, 26):
        h = Harness(tmp_path / f"{moment}")
        for second in range(150):
            if second == moment:
                h.watch.ahead_s += step_s
            if second == 16:
                h.world.notice(h.running[0].instance_id, 8)
            h.tick()
            h.check()
            if h.state.phase.ended:
                break
        assert h.state.phase is JobPhase.SUCCEEDED, (moment, h.state.phase_text)
        assert h.world.creates == 2
        h.check_ended()


@pytest.mark.parametrize("step_s", STEPS)
def test_ends_are_repeated_and_boots_given_their_time(tmp_path: Path, step_s: float) -> None:
    h = Harness(tmp_path)
    h.agents.duds = 1
    h.tick(3)
    h.watch.ahead_s += step_s
    began_s = h.clock.at_s
    while not h.state.leases or next(iter(h.state.leases.values())).phase is not LeasePhase.ENDING:
        h.world.ends_fail = True
        h.tick()
        assert h.clock.at_s < began_s + 100, "never given up"
    assert h.clock.at_s - began_s >= TIMING.boot_timeout_s - 5
    h.watch.ahead_s += step_s
    h.world.ends_fail = False
    h.tick(int(TIMING.end_retry_s) + 4)
    assert not [m for m in h.running if m.instance_id == "i-0001"], "its end is asked for again"
    finish(h)


@pytest.mark.parametrize("step_s", STEPS)
def test_what_may_land_is_waited_for(tmp_path: Path, step_s: float) -> None:
    h = Harness(tmp_path)
    h.world.troubles.append("lost_answer")
    h.world.landing_s = TIMING.landing_s - 1
    h.world.list_lag_s = TIMING.list_lag_s - 1
    h.tick(3)
    h.request("stop")
    h.tick(2)
    h.watch.ahead_s += step_s
    finish(h, JobPhase.STOPPED, within=60)
    h.pass_time(40)
    h.check_ended()


@pytest.mark.parametrize("step_s", STEPS)
def test_a_cloud_that_cannot_be_asked_is_given_its_time(tmp_path: Path, step_s: float) -> None:
    h = Harness(tmp_path)
    h.agents.total_steps = 200
    h.until(RUNNING)
    h.tick(12)
    h.agents.silence(h.running[0].instance_id, 10_000)
    h.world.lists_fail = True
    h.tick(10)
    h.watch.ahead_s += step_s
    h.tick(int(TIMING.lost_s) - 14)
    assert len(h.state.leases) == 1, "too early"
    h.tick(16)
    assert len(h.state.leases) == 2, "too late"
    h.world.lists_fail = False
    finish(h, within=400)


def test_the_loop_sleeps_a_tick_and_no_hour(tmp_path: Path) -> None:
    """The clock is set back within a tick, and forwards while it sleeps."""
    h = Harness(tmp_path)
    slept: list[float] = []
    desire = h.launcher.desire

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        h.watch.ahead_s += HOUR_S
        h.pass_time()

    def set_back(*asked: Any) -> act.Desired:
        h.watch.ahead_s -= HOUR_S
        return desire(*asked)

    h.watch.sleep = sleep  # type: ignore[method-assign]
    h.launcher.desire = set_back
    assert h.launcher.run().phase is JobPhase.SUCCEEDED
    assert len(slept) > 50
    assert max(slept) <= h.timing.tick_s


# ---------------------------------------------------------------- from launcher to launcher


@pytest.mark.parametrize("set_s", [-HOUR_S, -20.0, 0.0, 20.0, HOUR_S])
def test_the_next_launcher_goes_on_with_the_journals_time(tmp_path: Path, set_s: float) -> None:
    """Its machine's clock may be another one's, or has been set: what has passed is the store's to say."""
    h = Harness(tmp_path)
    h.agents.total_steps = 1000
    h.until(RUNNING)
    h.tick(10)
    before = h.journal.records(h.state.job_id)[-1]
    written_s = h.store._objects[mail.journal_key(before.seq)][1]
    h.watch.ahead_s += set_s
    h.pass_time(200)
    h.restart()
    started = h.journal.records(h.state.job_id)[-1]
    assert isinstance(started.event, ev.LauncherStarted)
    passed_s = h.clock.at_s - written_s
    assert started.at_s - before.at_s == pytest.approx(passed_s, abs=LATE_S + 0.03 * passed_s)
    h.tick(20)
    moments = [r.at_s for r in h.journal.records(h.state.job_id)]
    assert moments == sorted(moments)


def test_records_that_came_late_to_the_store_hide_no_time(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.agents.total_steps = 5000
    h.until(RUNNING)
    h.tick(15)
    began_s, first = h.clock.at_s, h.journal.records(h.state.job_id)[-1]
    h.store.down = True
    h.tick(2)
    h.world.interrupt(h.running[0].instance_id)
    h.tick(600)  # what it journals of the loss has to wait
    h.store.down = False
    h.journal.flush(h.state.job_id, h.store)
    now_s = journal_now_s(h.journal, h.state.job_id, h.store, wall_s=0.0)
    assert now_s - first.at_s == pytest.approx(h.clock.at_s - began_s, rel=0.03, abs=LATE_S)


@pytest.mark.parametrize("ahead_s", [-HOUR_S, 0.0, HOUR_S])
def test_a_resume_overtakes_what_was_asked_before_it_whatever_the_askers_clock(
    tmp_path: Path, ahead_s: float
) -> None:
    h = Harness(tmp_path)
    h.until(RUNNING)
    h.request("stop")
    h.until(JobPhase.STOPPED)
    h.request("stop", clock_ahead_s=ahead_s)  # of a job that has ended already
    h.resume()
    h.until(RUNNING)
    h.request("stop", clock_ahead_s=-ahead_s)  # and this one counts
    finish(h, JobPhase.STOPPED)
    assert [e.args.get("stale", False) for e in h.of(ev.RequestSeen)] == [False, True, False]  # type: ignore[attr-defined]


@pytest.mark.parametrize("ahead_s", [-HOUR_S, HOUR_S])
def test_a_notice_is_never_further_away_than_its_cloud_gives_notice(tmp_path: Path, ahead_s: float) -> None:
    h = Harness(tmp_path)
    h.agents.clock_ahead_s = ahead_s
    h.agents.total_steps = 1000
    h.until(RUNNING)
    h.tick(5)
    h.world.notice(h.running[0].instance_id, 20.0)
    acts_s = h.running[0].acts_at_s
    h.tick(3)
    (lease,) = (x for x in h.state.leases.values() if x.notice_acts_at_s is not None)
    assert lease.since_s <= (lease.notice_acts_at_s or 0.0) <= (acts_s or 0.0) + 2.0
