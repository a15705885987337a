"""Lent and taken back, live: an inference service's load rises, its machines return in the stated time, the
elastic job that had them shrinks and loses nothing; the load falls, and it grows again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from e2e.market import job, quiet
from e2e.support import Home, wait_for
from e2e.truth import attempts, steps_kept

from arylcloud.core.phases import JobPhase
from pool.test_pool_commands import machines, new_home, pool, warm

__all__ = ["new_home", "warm"]

NewHome = Callable[..., Home]
WITHIN_S = 60


def test_an_inference_load_rises_and_falls(new_home: NewHome) -> None:
    home = new_home(quiet())
    pool(home, "a", "b", "c")
    needed = home.path.parent / "needed"

    def tend(load: float) -> dict[str, Any]:
        needed.write_text(f"{load}\n")
        flags = ("--signal", f"cat {needed}", "--headroom", "0%", "--within", f"{WITHIN_S}s", "--once")
        (only,) = home.cli("pool", "tend", *flags, "--json", code=0).json["rounds"]
        assert isinstance(only, dict)
        return only

    spec = job(steps=100_000, step_s=0.02, save_every=50, nodes="1..3", objective="time")
    done = home.cli("launch", str(home.job_file(spec)), "--infra", "pool", "-y", "-d", "--json", code=0)
    job_id = str(done.json["job_id"])

    def at_work(count: int) -> bool:
        state = home.state(job_id)
        number = 0 if state.epoch is None else state.epoch.number
        mine = [t for t in state.trainings if t.epoch == number]
        return state.epoch is not None and len(state.epoch.members) == len(mine) == count

    wait_for(lambda: at_work(3), "the whole pool at work")
    wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")

    # the load rises: two machines come back, in time, and one goes on
    asked_s = time.time()
    risen = tend(2)
    assert len(risen["reclaim"]) == 2
    assert (risen["shrunk"], risen["stopped"]) == ([job_id], [])
    assert (risen["before"]["at_work"], risen["before"]["share"]) == (3, 1.0)
    wait_for(lambda: not any(machines(home)[name]["job_id"] for name in risen["reclaim"]), "their return")
    ended = [lease for lease in home.state(job_id).leases.values() if lease.ended_s is not None]
    assert all(lease.ended_s - asked_s <= WITHIN_S + 5 for lease in ended if lease.ended_s is not None)
    wait_for(lambda: at_work(1), "one that goes on")
    quiet_again = tend(2)
    assert (quiet_again["reclaim"], quiet_again["lend"]) == ([], [])
    assert (quiet_again["after"]["at_work"], quiet_again["after"]["lent"]) == (1, 1)

    # the load falls: they are lent again, and the job grows onto them
    fallen = tend(0)
    assert sorted(fallen["lend"]) == sorted(risen["reclaim"])
    wait_for(lambda: at_work(3), "the whole pool again")
    assert tend(0)["after"]["share"] == 1.0

    home.cli("stop", job_id, code=0)
    state = home.state(job_id)
    assert state.phase is JobPhase.STOPPED
    assert all(attempt.ended for attempt in attempts(home)), "each was asked, and handed over"
    steps_kept(home, job_id)
    assert not any(m["job_id"] for m in machines(home).values())
