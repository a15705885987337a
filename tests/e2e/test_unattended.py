"""The launcher is gone for good: what the machines do by themselves, and who finishes the job."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from e2e.market import job, quiet
from e2e.support import Home, wait_for
from e2e.truth import attempts, settled, steps_kept

NewHome = Callable[..., Home]


def ends(home: Home) -> list[str]:
    """Causes of the machines' ends, by the cloud's own log."""
    return [str(record["cause"]) for record in home.cloud_records() if record["kind"] == "end"]


def finished_elsewhere(home: Home, new_home: NewHome, job_id: str) -> Home:
    """``adopt`` from a home that has nothing but the job's prefix."""
    other = new_home(cloud_of=home)
    other.cli("adopt", home.state(job_id).prefix_uri, "--force", "-d", no_launcher=True, code=0)
    other.serve_to_the_end(job_id)
    settled(other, job_id)
    return other


def test_it_finishes_uploads_and_its_machine_ends_itself(new_home: NewHome) -> None:
    home = new_home(quiet())
    job_id = home.submit(job(steps=150, step_s=0.02, hold=100, unattended="20s"))
    launcher = home.serve(job_id)
    wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")
    launcher.kill()
    home.go()
    wait_for(lambda: ends(home), "the machine's own end")
    assert ends(home) == ["self"]
    assert list((home.prefix(job_id) / "ends").glob("*.json")), "it has said how its command ended"
    other = finished_elsewhere(home, new_home, job_id)
    assert len(other.state(job_id).leases) == 1, "nothing had to be done again"
    assert len(attempts(home)) == 1


def test_a_loss_meanwhile_waits_saved_until_somebody_adopts_it(new_home: NewHome) -> None:
    """Its agent is killed, with nobody there: the machine ends itself, long before its lease does, and what
    it had committed is what the next one begins with."""
    home = new_home(quiet())
    job_id = home.submit(job(steps=150, step_s=0.02, hold=100, save_every=20))
    launcher = home.serve(job_id)
    wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")
    launcher.kill()
    (agent,) = home.machine_processes("-m arylcloud.agent")
    os.kill(agent, signal.SIGKILL)
    wait_for(lambda: ends(home), "the machine's own end")
    assert ends(home) == ["self"]
    assert not home.machine_processes()
    home.go()
    other = finished_elsewhere(home, new_home, job_id)
    assert len(attempts(home)) == 2
    assert attempts(home)[1].start > 0, "from the last checkpoint"
    steps_kept(other, job_id)
