"""The machine dies, without a word, in every phase of its life: the job finishes, nothing leaks."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from arylcloud.core.codec import loads
from arylcloud.core.protocol import AgentPhase, Heartbeat, beat_key
from arylcloud.launcher.state import Lease
from arylcloud.providers.local import processes
from e2e.market import job, market, quiet, spot
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
    """It has begun to boot, and the launcher knows its name. (Before that it would be booted again, as the
    same machine.)"""
    lease = newest(home, job_id)
    name = lease.instance_id if lease is not None else None
    return name is not None and processes.was_started(home.cloud / "machines" / name)


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
    gate = home.path / "gate"
    setup = {"setup": f"while [ ! -e {gate} ]; do sleep 0.05; done"} if moment == "setup" else {}
    hold = None if moment == "exited" else 100
    job_id = home.submit(job(steps=160, step_s=0.02, hold=hold, envs={"E2E_KB": "512"}, top=setup))
    launcher = home.serve(job_id)
    if moment == "restoring":
        wait_for(lambda: running(home, job_id), "running")
        kill(home, job_id)
    wait_for(lambda: MOMENTS[moment](home, job_id) or home.state(job_id).phase.ended, moment)
    kill(home, job_id)
    gate.touch()
    home.go()
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


# ---------------------------------------------------------------- while it saves


def writing(home: Home, job_id: str) -> bool:
    """The command has been asked to stop, and half of its last checkpoint is on its disk. (In its own words:
    a half-written folder alone may be that of a routine save, which is whole a moment later.)"""
    lines = home.steps_log.read_text().splitlines() if home.steps_log.exists() else ()
    return any(line.split()[3:4] == ["saves"] for line in lines) and drained(home, job_id)


def uploading(home: Home, job_id: str) -> bool:
    """The command is gone, its last checkpoint is whole on its disk, and in part in the store."""
    beat = beat_of(home, job_id, first(home, job_id))
    return beat.phase is AgentPhase.SAVING and "wait for the store" in (beat.message or "")


def drained(home: Home, job_id: str) -> bool:
    epoch = home.state(job_id).epoch
    return epoch is not None and epoch.drain


def first(home: Home, job_id: str) -> Lease:
    return next(iter(home.state(job_id).leases.values()))


def beat_of(home: Home, job_id: str, lease: Lease) -> Heartbeat:
    data = home.mailbox(job_id).get(beat_key(lease.lease_id))
    assert data is not None
    return loads(Heartbeat, data)


def no_large_object(home: Home, lease: Lease) -> None:
    """From now on the machine's agent can write nothing longer than half a megabyte anywhere: its
    heartbeats reach the store, a chunk of a checkpoint does not. (A limit of the kernel on the process: the
    upload goes on failing, and is tried again, for as long as the test needs.)"""
    for pid in home.machine_processes("-m arylcloud.agent"):
        if (lease.instance_id or "?") in Path(f"/proc/{pid}/environ").read_text(errors="replace"):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (512 * 1024, 512 * 1024))
            return
    raise AssertionError("the agent is not found")


SAVING = {"the command writes": writing, "the agent uploads": uploading}


@pytest.mark.parametrize(
    ("why", "how"),
    [
        ("migrate", "the agent uploads"),
        ("stop", "the command writes"),
        pytest.param("migrate", "the command writes", marks=pytest.mark.slow),
        pytest.param("stop", "the agent uploads", marks=pytest.mark.slow),
    ],
)
def test_a_machine_that_dies_while_it_saves(new_home: NewHome, how: str, why: str) -> None:
    """Asked to hand over (for a move, for a stop), it is lost in the middle of its last save, without
    notice: nothing of that save is used, and no step is lost beyond the checkpoint before it."""
    home = new_home(market(spot("calm-a", 0.10), spot("calm-b", 0.12)))
    writes = how == "the command writes"
    envs = {"E2E_KB": "1024", "E2E_SAVE_S": "60" if writes else "0", "E2E_LATER_STEP_S": "0"}
    job_id = home.submit(job(steps=2500, step_s=0.02, save_every=40, envs=envs))
    launcher = home.serve(job_id)
    wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")
    old = first(home, job_id)
    if not writes:
        no_large_object(home, old)
    to = ["--to", "local/calm-b"] if why == "migrate" else []
    home.cli(why, job_id, *to, "-d", code=0)
    wait_for(lambda: SAVING[how](home, job_id), "a save that is under way")
    before = home.state(job_id)
    assert before.lineage is not None
    assert before.lineage.step < attempts(home)[0].last, "nothing was left to be saved"
    home.kill_machine(old.instance_id or "")
    assert launcher.wait() == 0, launcher.err[-2000:]
    if why == "stop":
        settled(home, job_id, phase="stopped")
        home.cli("resume", job_id, "-d", code=0, no_launcher=True)
        home.serve_to_the_end(job_id)
    after = settled(home, job_id)
    steps_kept(home, job_id, cut_off=None if writes else 1)
    one, two = attempts(home)
    assert before.lineage.step <= two.start < one.last, "what had been committed, and not more"
    assert len(after.leases) == 2, "the machine that had been brought up takes over"
    assert after.migrations_done == (1 if why == "migrate" else 0)
