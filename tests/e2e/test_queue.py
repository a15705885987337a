"""``serve --policy``: three jobs on two GPUs take turns, none is lost, and the capacity always holds."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from arylcloud.core.events import JobPhaseChanged, QueueDecided, RequestSeen
from arylcloud.core.phases import JobPhase
from arylcloud.launcher.queueview import made_way
from e2e.market import job, market, spot
from e2e.support import Home, wait_for
from e2e.truth import settled

NewHome = Callable[..., Home]


def queue(home: Home, name: str, steps: int) -> str:
    spec: dict[str, Any] = {**job(steps=steps, step_s=0.02, save_every=10, hold=150), "name": name}
    return home.submit(spec, "--queue")


def most_at_once(home: Home) -> int:
    """Machines of the local cloud that were there at the same moment, by its own log."""
    there: set[str] = set()
    most = 0
    for record in home.cloud_records():
        if record["kind"] == "launch":
            there.add(record["instance"]["instance_id"])
        if record["kind"] == "end":
            there.discard(record["instance_id"])
        most = max(most, len(there))
    return most


def test_three_jobs_on_two_gpus(new_home: NewHome) -> None:
    home = new_home(market(spot("calm", 0.10)))
    ids = [queue(home, name, 200) for name in ("a", "b", "c")]
    assert all(not home.state(i).leases for i in ids), "nothing runs before its turn"
    server = home.start(
        "serve", "--policy", "max_min_fairness", "--capacity", "T4=2", "--budget", "$1000", "--round", "3s"
    )

    def turned() -> bool:
        return all(any(isinstance(r.event, QueueDecided) for r in home.events(i)) for i in ids)

    wait_for(turned, "a turn of the third")
    home.go()

    def over() -> bool:
        return all(home.state(i).phase.ended and not made_way(home.state(i)) for i in ids)

    wait_for(over, "the end of all three", 150)
    server.send(signal.SIGINT)
    assert server.wait() == 0, server.err[-2000:]
    preempted = 0
    for job_id in ids:
        settled(home, job_id)
        events = [r.event for r in home.events(job_id)]
        turns = [e for e in events if isinstance(e, QueueDecided)]
        asked = [e for e in events if isinstance(e, RequestSeen) and e.verb == "stop"]
        ways = [e for e in events if isinstance(e, JobPhaseChanged) and e.phase is JobPhase.STOPPED]
        assert len(turns) == len(ways) + 1
        assert len(asked) >= len(ways), "one may finish while it is asked"
        assert all(e.args["queue"] for e in asked)
        assert all(e.gpu == "T4" and "max_min_fairness" in e.why for e in turns)
        preempted += len(ways)
    assert preempted >= 1, "the third had its turn before one of the others had ended"
    assert most_at_once(home) == 2
