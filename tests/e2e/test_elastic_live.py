"""A gang that grows and shrinks on the local cloud: real agents, real processes, real losses."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from arylcloud.launcher.state import JobState
from e2e.market import job, market, quiet, spot
from e2e.support import Home, wait_for
from e2e.truth import attempts, settled, steps_kept

NewHome = Callable[..., Home]


def world(state: JobState) -> list[str]:
    """Instance ids of the newest epoch with members, in order of rank; none while it is drained."""
    epoch = state.epoch
    return [state.leases[m.lease_id].instance_id or "" for m in epoch.members] if epoch else []


def trains(home: Home, job_id: str, size: int) -> list[str]:
    """Waits until an epoch of that size trains; its machines."""

    def so() -> list[str]:
        state = home.state(job_id)
        number = state.epoch.number if state.epoch is not None else 0
        begun = [t for t in state.trainings if t.epoch == number]
        return world(state) if len(world(state)) == size and len(begun) == size else []

    found: list[str] = wait_for(so, f"an epoch of {size}")
    return found


def elastic(steps: int, **changes: Any) -> dict[str, Any]:
    return job(steps=steps, step_s=0.05, save_every=10, nodes="1..3", objective="time", **changes)


def test_lost_shrunk_grown_back_and_scaled(new_home: NewHome) -> None:
    """One life: three machines, one dies, two go on, a third joins; a user wants two; all add up."""
    home = new_home(quiet(boot_s=4.0))
    job_id = home.submit(elastic(100_000))
    assert home.state(job_id).size == 3, "what was shown is what is asked for"
    home.serve(job_id)
    first = trains(home, job_id, 3)
    wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")
    home.kill_machine(first[0])
    second = trains(home, job_id, 2)
    assert second == first[1:], "survivors keep their machines; one of them is rank 0 now"
    third = trains(home, job_id, 3)
    assert third[:2] == second
    done = home.cli("scale", job_id, "2", "--json", code=0)
    assert done.json["nodes"] == done.json["present"] == 2
    shown = next(x for x in home.status()["jobs"] if x["job_id"] == job_id)
    assert (shown["nodes"]["wanted"], shown["nodes"]["min"], shown["nodes"]["max"]) == (2, 1, 3)
    refused = home.cli("scale", job_id, "4", "--json", code=2)
    assert json.loads(refused.out)["error"]["kind"] == "usage"
    fourth = trains(home, job_id, 2)
    assert fourth == third[:2]
    home.cli("stop", job_id, code=0)
    state = settled(home, job_id, phase="stopped")
    said = home.cli("events", job_id, code=0).out
    for text in ("is gone", "joins", "2 machines are wanted", "leaves"):
        assert text in said, text
    opened = [e for e in state.epochs if e.members]
    assert [len(e.members) for e in opened] == [3, 2, 3, 2]
    for before, after in pairwise(opened):
        own = [c.step for c in state.checkpoints if c.epoch == before.number]
        assert after.resume_step == max(own)


def test_a_notice_to_one_of_three(new_home: NewHome) -> None:
    """All ranks live: they save, one leaves, nothing is lost; the others go on."""
    home = new_home(market(spot("calm", 0.10), boot_s=2.0))
    job_id = home.submit(elastic(200, hold=150))
    launcher = home.serve(job_id)
    machines = trains(home, job_id, 3)
    before = len(attempts(home))
    home.give_notice(machines[0])
    wait_for(lambda: len(attempts(home)) > before, "an epoch without it")
    home.go()
    assert launcher.wait() == 0, launcher.err[-2000:]
    state = settled(home, job_id)
    assert state.interruptions == 1
    kept = [a for a in attempts(home) if a.ended]
    assert len(kept) == len(attempts(home)), "every command handed over or finished"
    steps_kept(home, job_id)
