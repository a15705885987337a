"""Turns of a queue against what users ask meanwhile, and against what cannot begin. No process, no cloud."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from launcher.test_queueview import a_way
from support.twohomes import JOB, SPEC, Shared

from arylcloud.checkpoint.store import open_store
from arylcloud.cli import compose
from arylcloud.cli import server as launchers
from arylcloud.cli.main import run
from arylcloud.cli.queueserver import QueueServer, queue_policy
from arylcloud.cli.request import write_request
from arylcloud.core import events as ev
from arylcloud.core.errors import InfeasibleError
from arylcloud.core.job import Constraints, JobSpec
from arylcloud.core.phases import JobPhase
from arylcloud.launcher.queueview import holds, made_way

OTHER = "other-0a1b2c3d"
BY_QUEUE = ev.RequestSeen(number=1, verb="stop", args={"queue": "its round is over"}, by="queue")


def a_launcher(*_: object) -> subprocess.Popen[bytes]:
    """One that has ended at once."""
    child = subprocess.Popen(["true"])
    child.wait()
    return child


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "a"))
    monkeypatch.setattr(launchers, "start_launcher", a_launcher)


def a_shared(root: Path, spec: JobSpec = SPEC) -> Shared:
    found = Shared(root, spec=spec, queued=True)
    found.submit("a")
    return found


def makes_way(shared: Shared) -> None:
    """Its turn, and the end of it."""
    shared.say("a", ev.QueueDecided(gpu="T4", why="", nodes=1, count=1))
    write_request(shared.store(), "stop", dict(BY_QUEUE.args))
    shared.say("a", BY_QUEUE)
    for phase in (JobPhase.STOPPING, JobPhase.STOPPED):
        shared.phase("a", phase, "stop_requested")


def a_server(shared: Shared, *planned: str) -> QueueServer:
    """With a plan for each of these jobs: one T4."""
    server = QueueServer(
        journal=shared.journal("a"),
        places=shared.home("a"),
        policy=queue_policy("max_min_fairness"),
        capacity={"T4": 1},
    )
    for job_id in planned:
        server._plans[job_id] = (time.monotonic(), {"T4": a_way("T4", 1)})
    return server


def test_a_user_stops_a_job_that_has_made_way(tmp_path: Path) -> None:
    shared = a_shared(tmp_path)
    makes_way(shared)
    assert made_way(shared.state("a"))
    assert run(["stop", JOB]) == 0
    state = shared.state("a")
    assert (state.phase, made_way(state)) == (JobPhase.STOPPED, False)
    a_server(shared, JOB).look()
    assert shared.state("a").phase is JobPhase.STOPPED


def test_without_a_user_it_has_its_turn_again(tmp_path: Path) -> None:
    """What the queue itself has asked for is overtaken, read or not."""
    shared = a_shared(tmp_path)
    makes_way(shared)
    write_request(shared.store(), "stop", dict(BY_QUEUE.args))
    a_server(shared, JOB).look()
    state = shared.state("a")
    assert holds(state)
    assert state.placed is not None
    assert (state.placed.gpu, state.placed.nodes, state.placed.count) == ("T4", 1, 1)
    assert (state.stop, state.requests_seen) == (None, 2)


def test_a_users_stop_that_nobody_has_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It came just as the job ended for the queue."""
    shared = a_shared(tmp_path)
    makes_way(shared)
    write_request(shared.store(), "stop", {})
    server = a_server(shared, JOB)
    server.look()
    state = shared.state("a")
    assert (state.phase, made_way(state)) == (JobPhase.STOPPED, False)
    assert f"{JOB} has been stopped by a user" in capsys.readouterr().err
    server.look()
    assert shared.state("a").phase is JobPhase.STOPPED


def test_one_whose_turn_cannot_begin_holds_up_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = a_shared(tmp_path, replace(SPEC, secret_names=("TOKEN",)))
    makes_way(shared)
    with shared.journal("a") as journal:
        store = open_store((tmp_path / "store" / "jobs" / OTHER).as_uri())
        event = ev.JobSubmitted(
            spec=SPEC, prefix_uri=store.uri, journal_id=journal.journal_id, market_origin_s=0.0,
            market_scale=1.0, queued=True,
        )  # fmt: skip
        journal.append(OTHER, time.time(), "cli-a", event, mirror=store)
    monkeypatch.delenv("TOKEN", raising=False)
    server = a_server(shared, JOB, OTHER)
    server.look()
    assert f"{JOB}: cannot have its turn: secrets are removed" in capsys.readouterr().err
    with shared.journal("a") as journal:
        assert holds(journal.state(OTHER)), "in the same look"
    assert not holds(shared.state("a"))
    not_before_s, pause_s = server._refused[JOB]
    monkeypatch.setenv("TOKEN", "t")
    server.capacity = {"T4": 2}
    server.look()
    assert not holds(shared.state("a")), "not yet"
    server._refused[JOB] = (not_before_s - 3600.0, pause_s)
    server.look()
    assert holds(shared.state("a"))


@pytest.mark.parametrize("limited", [True, False])
def test_a_limit_that_cannot_be_kept_any_more(
    limited: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job runs all the same, as it would without a queue: past its deadline in a hurry."""
    objectives: list[str] = []

    def plan(spec: JobSpec, *_: object, **__: object) -> Any:
        if spec.constraints.deadline_s is not None or not limited:
            raise InfeasibleError("nothing is left of its deadline")
        objectives.append(spec.objective.name)
        return type("Found", (), {"candidates": (a_way("T4", 1),)})

    monkeypatch.setattr(compose, "make_plan", plan)
    shared = a_shared(tmp_path, replace(SPEC, constraints=Constraints(deadline_s=60.0 if limited else None)))
    a_server(shared).look()
    assert holds(shared.state("a")) == limited
    assert objectives == ["time"] * limited
    assert ("waits: nothing is left" in capsys.readouterr().err) == (not limited)


@pytest.mark.parametrize("nodes", ["2", "auto"])
def test_a_turn_is_not_scaled(nodes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = a_shared(tmp_path, replace(SPEC, nodes_min=1, nodes_max=4))
    shared.say("a", ev.QueueDecided(gpu="T4", why="", nodes=1, count=1))
    assert run(["scale", JOB, nodes]) == 2
    assert f"error: {JOB} has its turn in a queue, which counts 1 of its machines" in capsys.readouterr().err
    assert not list(shared.store().list("requests/"))
