"""``serve`` for all jobs: one job that is damaged, or is somebody else's, is its own affair."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e.market import job, quiet
from e2e.support import Home, wait_for
from support.twohomes import JOB, SPEC, Shared

from arylcloud.cli import server as under_test
from arylcloud.cli.main import run
from arylcloud.cli.server import Server
from arylcloud.cli.settings import Folders
from arylcloud.core.errors import ConflictError, LocalStateError
from arylcloud.core.events import JobPhaseChanged
from arylcloud.core.phases import JobPhase
from arylcloud.launcher.journal import Journal

NewHome = Callable[..., Home]
STARTED = list[str]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> STARTED:
    """Which jobs a launcher was started for; each "launcher" is a real process that ends at once."""
    found: STARTED = []

    def start(_journal: Journal, job_id: str, _places: Folders) -> subprocess.Popen[bytes]:
        found.append(job_id)
        child = subprocess.Popen([sys.executable, "-c", ""])
        child.wait()
        return child

    monkeypatch.setattr(under_test, "start_launcher", start)
    monkeypatch.setattr(under_test, "FIRST_PAUSE_S", 0.0)
    return found


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    found = Shared(tmp_path)
    found.submit("a")
    return found


def a_server(shared: Shared) -> Server:
    return Server(journal=shared.journal("a"), places=shared.home("a"))


def another_job(shared: Shared, job_id: str) -> None:
    """A copy of the first record, under another id."""
    database = sqlite3.connect(shared.home("a").journal)
    with database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(records)")]
        picked = ", ".join("?" if name == "job_id" else name for name in columns)
        database.execute(f"INSERT INTO records SELECT {picked} FROM records WHERE job_id = ?", (job_id, JOB))
    database.close()


def test_a_damaged_job_does_not_keep_the_others_from_their_launchers(
    shared: Shared, started: STARTED, capsys: pytest.CaptureFixture[str]
) -> None:
    another_job(shared, "damaged-0a1b2c3d")  # its record says that it is another's
    server = a_server(shared)
    server.look()
    server.look()
    assert started == [JOB, JOB]
    said = capsys.readouterr().err
    assert said.count("damaged-0a1b2c3d: ") == 1, "said once"


def test_a_full_disk_does_not_end_it(
    shared: Shared, started: STARTED, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = a_server(shared)
    with monkeypatch.context() as away:

        def full(_self: Journal) -> tuple[str, ...]:
            raise LocalStateError("disk full")

        away.setattr(Journal, "jobs", full)
        server.look()
    assert started == []
    assert "disk full" in capsys.readouterr().err
    server.look()
    assert started == [JOB]


def test_a_job_of_another_home_is_left_to_it(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether its launcher says so before it has the claim, or after."""
    calls = []

    def start(_journal: Journal, job_id: str, _places: Folders) -> subprocess.Popen[bytes]:
        calls.append(job_id)
        child = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({ConflictError.exit_code})"])
        child.wait()
        return child

    monkeypatch.setattr(under_test, "start_launcher", start)
    monkeypatch.setattr(under_test, "FIRST_PAUSE_S", 0.0)
    server = a_server(shared)
    for _ in range(4):
        server.look()
    assert calls == [JOB]
    assert "another launcher has it" in capsys.readouterr().err


def test_a_job_that_was_another_homes_is_looked_at_again(
    shared: Shared, started: STARTED, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever had it may be dead: without a restart of this server, nobody would ever run it."""
    passed_s = [0.0]
    monkeypatch.setattr(under_test.time, "monotonic", lambda: passed_s[0])
    server = a_server(shared)
    with monkeypatch.context() as held:

        def conflict(*_args: object) -> subprocess.Popen[bytes]:
            raise ConflictError("held elsewhere")

        held.setattr(under_test, "start_launcher", conflict)
        server.look()
    for passed_s[0] in (1.0, under_test.ELSEWHERE_S - 1.0):
        server.look()
        assert started == []
    passed_s[0] = under_test.ELSEWHERE_S + 1.0
    server.look()
    assert started == [JOB]


def test_a_launcher_that_dies_again_and_again_is_started_less_and_less_often(
    shared: Shared, started: STARTED, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "FIRST_PAUSE_S", 3600.0)
    server = a_server(shared)
    for _ in range(4):
        server.look()
    assert started == [JOB]


def test_an_ended_job_is_read_once_and_seen_again_when_it_is_resumed(
    shared: Shared, started: STARTED, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.phase("a", JobPhase.STOPPED, "stop_requested")
    server = a_server(shared)
    server.look()
    with monkeypatch.context() as counted:
        counted.setattr(Journal, "records", lambda *_a, **_k: pytest.fail("read again"))
        server.look()
    assert started == []
    assert server.document() == [{"job_id": JOB, "phase": "stopped", "code": "stop_requested"}]
    shared.phase("a", JobPhase.PENDING, "resumed")
    server.look()
    assert started == [JOB]


def test_what_the_mailbox_lacks_of_an_ended_job_is_brought_there(shared: Shared, started: STARTED) -> None:
    with shared.journal("a") as journal:
        event = JobPhaseChanged(phase=JobPhase.STOPPED, code="x", text="x")
        journal.append(JOB, 2.0, "l-a", event, mirror=None, strict=False)
    server = a_server(shared)
    server.look()
    assert started == [JOB]


def test_serve_job_takes_a_name_and_makes_no_lock_of_what_is_none(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARYLCLOUD_HOME", str(shared.root / "a"))
    assert run(["serve", "--job", "../../../owned"]) == 102
    assert not list(shared.root.rglob("*owned*"))
    assert SPEC.name not in str(list(shared.root.rglob("*.lock")))


def test_ctrl_c_ends_its_launchers_and_the_machines_go_on(new_home: NewHome) -> None:
    home = new_home(quiet())
    job_id = home.submit(job(steps=100_000, save_every=1000))
    served = home.start("serve", "--json")
    wait_for(lambda: home.state(job_id).epochs, "a machine at work")
    machines = home.machine_processes()
    assert machines
    assert any("serve --job" in command for command in home.processes().values())
    served.send(signal.SIGINT)
    assert served.wait() == 0
    assert not any("serve --job" in command for command in home.processes().values())
    assert set(home.machine_processes()) & set(machines)
    document = json.loads(served.out)
    assert document["jobs"][0]["job_id"] == job_id
    assert document["launchers_ended"] == 1
    home.cli("stop", job_id, "-d", no_launcher=True, code=0)
    home.serve_to_the_end(job_id)
