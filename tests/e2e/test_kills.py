"""SIGKILL at random moments: of the launcher, of the cloud's daemon, of agents, of the user's command."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

import pytest

from arylcloud.core.errors import UserCommandFailed
from e2e.market import job, market, quiet, rough, spot
from e2e.support import Child, Home, wait_for
from e2e.truth import attempts, settled, steps_kept

NewHome = Callable[..., Home]
SPEC = job(steps=300, save_every=40)
HELD = job(steps=300, save_every=40, hold=250)


def killed_after(child: Child, delay_s: float) -> bool:
    """Whether it was still running when the blow came."""
    give_up_s = time.monotonic() + delay_s
    while child.running and time.monotonic() < give_up_s:
        time.sleep(0.005)
    return child.kill() == -signal.SIGKILL


def restarted_at_home(home: Home, rng: random.Random, kills: int) -> None:
    job_id = home.submit(SPEC)
    for _ in range(kills):
        killed_after(home.serve(job_id), rng.uniform(0.02, 3.0))
    home.serve_to_the_end(job_id)
    settled(home, job_id)
    steps_kept(home, job_id)


def adopted_from_empty_homes(new_home: NewHome, rng: random.Random, kills: int) -> None:
    """Each launcher is lost with its home; the next has nothing but the job's prefix."""
    home = new_home(rough())
    first = home
    job_id = home.submit(SPEC)
    uri = home.state(job_id).prefix_uri
    for _ in range(kills):
        lost = killed_after(home.serve(job_id), rng.uniform(0.5, 3.0))
        home = new_home(cloud_of=first)
        home.cli("adopt", uri, *(["--force"] if lost else []), "-d", no_launcher=True, code=0)
        assert home.jobs() == (job_id,)
    home.serve_to_the_end(job_id)
    settled(home, job_id)
    steps_kept(home, job_id)


def test_the_launcher_is_lost_with_its_home(new_home: NewHome) -> None:
    adopted_from_empty_homes(new_home, random.Random(3), kills=2)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(10, 20))
def test_fifty_random_moments(new_home: NewHome, seed: int) -> None:
    restarted_at_home(new_home(rough()), random.Random(seed), kills=5)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(20, 30))
def test_fifty_lost_homes(new_home: NewHome, seed: int) -> None:
    adopted_from_empty_homes(new_home, random.Random(seed), kills=5)


@pytest.mark.parametrize("seed", [4])
def test_the_clouds_daemon_is_killed_again_and_again(new_home: NewHome, seed: int) -> None:
    """Machines go on, the next call starts it again, and no bill is lost."""
    home = new_home(rough())
    rng = random.Random(seed)
    job_id = home.submit(HELD)
    child = home.serve(job_id)
    for _ in range(5):
        pid = wait_for(home.daemon_pid, "the daemon, started by the next call")
        time.sleep(rng.uniform(0.0, 1.0))  # any moment will do
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda pid=pid: home.daemon_pid() != pid, "its end")
        assert child.running, child.err[-3000:]
    home.go()
    assert child.wait() == 0, child.err[-3000:]
    assert sum(r["kind"] == "daemon" for r in home.cloud_records()) > 1
    settled(home, job_id)
    steps_kept(home, job_id)


def test_an_agent_is_killed(new_home: NewHome) -> None:
    """Its machine ends, with everything on it; another goes on from the last checkpoint."""
    home = new_home(quiet())
    job_id = home.submit(HELD)
    child = home.serve(job_id)
    wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")
    agents = home.machine_processes("-m arylcloud.agent")
    assert len(agents) == 1
    os.kill(next(iter(agents)), signal.SIGKILL)
    wait_for(lambda: len(attempts(home)) == 2, "the second attempt")  # until it is gone, the first one holds
    home.go()
    assert child.wait() == 0, child.err[-3000:]
    settled(home, job_id)
    steps_kept(home, job_id)
    assert len(attempts(home)) == 2


def test_the_users_command_is_killed(new_home: NewHome) -> None:
    """By a signal that we did not send, on a machine that lives: the user's failure, said as such."""
    home = new_home(quiet())
    path = home.job_file(job(steps=100_000, save_every=50))
    child = home.start("launch", str(path), "--infra", "local", "-y")
    wait_for(lambda: attempts(home) and attempts(home)[0].steps, "its first step")
    (pid,) = (p for p, command in home.machine_processes("train.py").items() if "supervise" not in command)
    os.kill(pid, signal.SIGKILL)
    assert child.wait() == UserCommandFailed.exit_code, child.err[-3000:]
    (job_id,) = home.jobs()
    state = settled(home, job_id, phase="failed")
    assert (state.phase_code, state.exit_code) == ("user_command", 137)
    assert home.report(job_id)["exit_code"] == 137
    assert "137" in child.err
    assert len(attempts(home)) == 1


@pytest.mark.slow
def test_the_daemon_and_the_launcher_together(new_home: NewHome) -> None:
    """The whole machine that they run on goes down, say; the cloud's machines do not."""
    home = new_home(market(spot("calm", 0.1)))
    job_id = home.submit(HELD)
    child = home.serve(job_id)
    wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")
    pid = home.daemon_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert child.kill() == -signal.SIGKILL
    home.go()
    home.serve_to_the_end(job_id)
    state = settled(home, job_id)
    steps_kept(home, job_id)
    assert len(state.leases) == 1, "it was never in danger"
