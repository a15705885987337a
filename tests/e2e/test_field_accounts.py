"""What people report of today's tools, and what happens here instead: cost, limits, last words."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import pytest

from arylcloud.core import events as ev
from arylcloud.core.phases import JobPhase
from arylcloud.launcher.limits import trained_market_s
from e2e.market import fault, job, market, on_demand, quiet, spot
from e2e.support import Home, wait_for
from e2e.truth import attempts, settled

NewHome = Callable[..., Home]


def interrupted(home: Home, *losses: int, **options: object) -> str:
    """A job that loses its machine after its n-th checkpoint, for each n in ``losses``; its id."""
    job_id = home.submit(job(steps=300, step_s=0.02, hold=20, **options))  # type: ignore[arg-type]
    launcher = home.serve(job_id)
    for count in range(1, max(losses) + 1):
        wait_for(lambda count=count: len(home.state(job_id).checkpoints) >= count, f"checkpoint {count}")
        home.go(20 * (count + 1) + 5)  # one by one, so that none is overtaken
        if count not in losses:
            continue
        step = 20 * (count + 1)
        wait_for(lambda step=step: attempts(home)[-1].last > step, "steps that will be lost")
        home.kill_machine(home.state(job_id).open_leases[-1].instance_id or "")
    home.go()
    assert launcher.wait() == 0, launcher.err[-2000:]
    settled(home, job_id)
    return job_id


def test_47_49_a_report_stays_what_it_was(new_home: NewHome) -> None:
    """Total over every attempt, split without a rest; and not a figure of it changes when catalogue,
    profiles and the very cloud are other ones. What was seen on the way is a trace to replay on."""
    moving = spot("a", 0.10, steps=[[900, 0.13, 4], [2400, 0.09, 4]])
    home = new_home(market(moving, spot("b", 0.12), on_demand("a", 0.5), on_demand("b", 0.5)))
    job_id = interrupted(home, 2, 6)
    before = home.report(job_id)
    assert before["attempts"] == 3
    assert len(before["leases"]) == 3
    assert abs(sum(lease["usd"] for lease in before["leases"]) - before["usd"]["compute"]) < 1e-9
    assert before["usd"]["waste"]["lost_work"] > 0
    screen = home.cli("report", job_id, code=0).out
    quick = ("--work-h", "0.1", "--deadline-h", "0.3", "--tick-s", "30", "--overhead-s", "5", "--try-s", "5")
    replayed = home.cli("backtest", "--trace", "own", *quick, "--starts", "2", "--json", code=0).json
    assert (replayed["instance_type"], replayed["policies"]["default"]["misses"]) == ("g.small", 0)
    assert 0.0 < replayed["policies"]["default"]["cost_mean"] < 0.5 * 0.3

    home.stop_cloud()
    shutil.rmtree(home.cloud)
    home.market_file.write_text(json.dumps(market(spot("elsewhere", 99.0))))
    config = home.path / "config"
    config.mkdir(exist_ok=True)
    (config / "offers.csv").write_text("not,a,catalogue\n")
    assert home.report(job_id) == before
    assert home.cli("report", job_id, code=0).out == screen


@pytest.mark.parametrize("how", ["finished", "failed", "stopped"])
def test_54_every_job_ends_with_what_it_cost(new_home: NewHome, how: str) -> None:
    home = new_home(quiet())
    spec = {
        "finished": job(steps=30),
        "failed": job(run="sleep 1; exit 4"),
        "stopped": job(steps=2000, hold=1000),
    }[how]
    viewer = home.start("launch", str(home.job_file(spec)), "--infra", "local", "-y")
    if how == "stopped":
        wait_for(lambda: "training at step" in viewer.err, "training")
        home.cli("stop", "-d", code=0)
    viewer.wait()
    (job_id,) = home.jobs()
    last = next(
        line for line in reversed(viewer.err.splitlines()) if "cost" in line and "what it cost" not in line
    )
    total = home.report(job_id)["usd"]["total"]
    assert f"chain {how}" in last
    assert f"${total:.2f}" in last or (total < 0.005 and "< $0.01" in last)


def test_79_max_runtime_counts_running_alone(new_home: NewHome) -> None:
    """Nothing is to be had for 150 minutes of the market, longer than the whole ``max_runtime``: they do
    not count. The deadline counts them. (It runs from its first step to its fifth.)"""
    # each "no" keeps it from being asked again for ten minutes, then twenty, …
    home = new_home(market(spot("late", 0.10), faults=(fault("create", "capacity", times=4),)))
    spec = job(steps=5, save_every=5, max_runtime="140m", deadline="141m")
    done = home.launch(spec, code=105)
    (job_id,) = home.jobs()
    state = settled(home, job_id)
    assert state.phase_code == "missed_deadline"
    assert "after its deadline" in done.err
    ran_s = trained_market_s(state, 0.0)
    waited_s = state.trainings[0].started_at_s * 600 - state.submitted_at_s * 600
    assert 0 <= ran_s < 140 * 60 < waited_s + ran_s  # (five steps may be over between two looks)
    assert JobPhase.WAITING in [
        r.event.phase for r in home.events(job_id) if isinstance(r.event, ev.JobPhaseChanged)
    ]


def test_79_max_runtime_ends_what_runs_longer(new_home: NewHome) -> None:
    """It waits after its third step for what does not come. A longer one goes on from there."""
    home = new_home(quiet(boot_s=2.0))  # 20 minutes of the market: not running
    spec = job(steps=9, save_every=1, hold=3, max_runtime="50m", work="100 steps")
    done = home.launch(spec, code=104)
    (job_id,) = home.jobs()
    state = settled(home, job_id, phase="failed")
    assert state.phase_code == "max_runtime"
    assert "it has run for" in done.err
    assert trained_market_s(state, 0.0) >= 50 * 60
    assert state.checkpoints, "it was saved before it ended"
    home.go()
    assert "max_runtime is 50 min" in home.cli("resume", job_id, code=104).err
    home.cli("resume", job_id, "--max-runtime", "200h", code=0)
    done_state = settled(home, job_id)
    assert done_state.spec.constraints.max_runtime_s == 200 * 3600
    assert done_state.epochs[-1].resume_step >= 3, "from its checkpoint, by the new limit"


def test_79_max_runtime_ends_what_never_tells_of_a_step(new_home: NewHome) -> None:
    home = new_home(quiet(boot_s=2.0))
    done = home.launch(job(run="sleep 3600", max_runtime="50m", work="100 steps"), code=104)
    (job_id,) = home.jobs()
    state = settled(home, job_id, phase="failed")
    assert state.phase_code == "max_runtime"
    assert "it has run for" in done.err
    assert trained_market_s(state, 0.0) >= 50 * 60


def test_76_a_wait_says_for_what(new_home: NewHome) -> None:
    """Not only ends have reasons: a job that waits says for what, on the default screens."""
    full = fault("create", "capacity")  # it is sold out by the time that the launcher asks
    home = new_home(market(spot("full", 0.10), spot("fuller", 0.11), faults=(full,)))
    job_id = home.submit(job())
    launcher = home.serve(job_id)
    wait_for(lambda: home.state(job_id).phase is JobPhase.WAITING, "WAITING")
    said = " ".join(home.cli("status", job_id, code=0).out.split())
    assert "waiting" in said
    assert "capacity" in said
    home.cli("stop", job_id, "-d", code=0)
    assert launcher.wait() == 0
    settled(home, job_id, phase="stopped")


def test_76_quota_is_not_called_capacity(new_home: NewHome) -> None:
    home = new_home(quiet(faults=(fault("create", "quota"),)))
    job_id = home.submit(job())
    launcher = home.serve(job_id)
    wait_for(lambda: home.state(job_id).phase is JobPhase.WAITING, "WAITING")
    assert "quota" in home.cli("status", job_id, code=0).out
    home.cli("stop", job_id, "-d", code=0)
    assert launcher.wait() == 0
