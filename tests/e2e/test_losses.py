"""The machine dies, without a word, in every phase of its life: the job finishes, nothing leaks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from arylcloud.core.codec import loads
from arylcloud.core.phases import LeasePhase
from arylcloud.core.protocol import AgentPhase, Heartbeat, beat_key
from arylcloud.launcher.state import Lease
from e2e.market import job, quiet
from e2e.support import Home, wait_for
from e2e.truth import attempts, settled, steps_kept

NewHome = Callable[..., Home]


def agent_phase(home: Home, job_id: str) -> AgentPhase | None:
    lease = newest(home, job_id)
    data = None if lease is None else home.mailbox(job_id).get(beat_key(lease.lease_id))
    return None if data is None else loads(Heartbeat, data).phase


def newest(home: Home, job_id: str) -> Lease | None:
    leases = tuple(home.state(job_id).leases.values())
    return leases[-1] if leases else None


def booting(home: Home, job_id: str) -> bool:
    lease = newest(home, job_id)
    return lease is not None and lease.phase is LeasePhase.PENDING and bool(home.machine_processes())


def saying(phase: AgentPhase) -> Callable[[Home, str], bool]:
    return lambda home, job_id: agent_phase(home, job_id) is phase


def running(home: Home, job_id: str) -> bool:
    return bool(home.state(job_id).checkpoints)


def restoring(home: Home, job_id: str) -> bool:
    """A second epoch has been opened: its checkpoint is being fetched, or has just been."""
    state = home.state(job_id)
    return sum(bool(e.members) for e in state.epochs) == 2


def exited(home: Home, job_id: str) -> bool:
    return (
        bool(list((home.prefix(job_id) / "ends").glob("*")))
        if (home.prefix(job_id) / "ends").exists()
        else False
    )


MOMENTS: dict[str, Callable[[Home, str], bool]] = {
    "booting": booting,
    "setup": saying(AgentPhase.SETUP),
    "running": running,
    "restoring": restoring,
    "exited": exited,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_machine_that_dies(new_home: NewHome, moment: str) -> None:
    home = new_home(quiet(boot_s=0.5))
    setup = {"setup": "sleep 1.5"} if moment == "setup" else {}
    job_id = home.submit(job(steps=160, step_s=0.02, envs={"E2E_KB": "512"}, top=setup))
    launcher = home.serve(job_id)
    if moment == "restoring":
        wait_for(lambda: running(home, job_id), "running")
        kill(home, job_id)
    wait_for(lambda: MOMENTS[moment](home, job_id) or home.state(job_id).phase.ended, moment)
    kill(home, job_id)
    assert launcher.wait() == 0, launcher.err[-2000:]
    state = settled(home, job_id)
    assert state.interruptions == 0 or state.losses
    steps_kept(home, job_id)
    if moment != "exited":
        assert len(state.leases) == (3 if moment == "restoring" else 2)
    if moment == "restoring":
        assert all(a.start > 0 for a in attempts(home)[1:])


def kill(home: Home, job_id: str) -> None:
    lease = newest(home, job_id)
    assert lease is not None
    home.kill_machine(lease.instance_id or "")
