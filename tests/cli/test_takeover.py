"""``resume`` and ``adopt`` look before they write: at the mailbox's newest record, at who is alive, at the
address that the job's own journal names. What they refuse, they have not touched.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.twohomes import JOB, SPEC, Shared

from arylcloud.cli import assemble, spawn
from arylcloud.cli.adopt import adopt
from arylcloud.cli.resume import resume
from arylcloud.core import protocol as mail
from arylcloud.core.codec import dumps
from arylcloud.core.errors import (
    ConflictError,
    IntegrityError,
    NoSuchJob,
    StoreError,
    UsageError,
)
from arylcloud.core.phases import JobPhase


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "ensure_launcher", lambda *_a, **_k: False)
    # these journals are written by hand: no cloud stands behind them (test_same_market, and e2e with two
    # homes, look at that question)
    monkeypatch.setattr(assemble, "check_same_market", lambda *_a: None)


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shared:
    """Home ``a`` has submitted, run and stopped a job; commands run in ``a``."""
    found = Shared(tmp_path, replace(SPEC, secret_names=("TOKEN",)))
    found.submit("a")
    found.started("a")
    found.phase("a", JobPhase.STOPPED, "stop_requested")
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "a"))
    monkeypatch.setenv("TOKEN", "hush")
    return found


def at(shared: Shared, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARYLCLOUD_HOME", str(shared.root / name))


def resumed() -> None:
    resume(job=JOB, detach=True, json_=False)


def adopted(uri: str, *, force: bool = False) -> None:
    adopt(uri=uri, force=force, detach=True, json_=False)


# ---------------------------------------------------------------- resume


def test_a_stopped_job_goes_on_with_its_secrets(shared: Shared) -> None:
    resumed()
    assert shared.state("a").phase is JobPhase.PENDING
    assert json.loads(shared.store().get(mail.SECRETS_KEY) or b"") == {"TOKEN": "hush"}


def test_what_another_home_runs_is_not_resumed_beside_it(shared: Shared) -> None:
    shared.phase("b", JobPhase.PENDING, "resumed")
    shared.started("b")
    shared.beat("b")
    records = shared.mirrored()
    with pytest.raises(ConflictError, match="another home"):
        resumed()
    assert shared.mirrored() == records, "nothing was appended: b is not fenced"
    assert shared.store().get(mail.SECRETS_KEY) is None


def test_what_a_dead_home_ran_is_taken_up_as_it_is(shared: Shared) -> None:
    shared.phase("b", JobPhase.PENDING, "resumed")
    shared.started("b")
    shared.beat("b", age_s=3600)
    records = shared.mirrored()
    resumed()
    assert shared.mirrored() == records, "it runs: it does not begin again"
    assert shared.store().get(mail.SECRETS_KEY) is not None


def test_what_another_home_finished_is_not_run_again(shared: Shared) -> None:
    shared.phase("b", JobPhase.PENDING, "resumed")
    shared.started("b")
    shared.phase("b", JobPhase.SUCCEEDED, "finished")
    with pytest.raises(UsageError, match="has finished"):
        resumed()
    assert shared.state("a").phase is JobPhase.SUCCEEDED
    assert shared.store().get(mail.SECRETS_KEY) is None


def test_without_its_secrets_nothing_is_written(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKEN")
    records = shared.mirrored()
    with pytest.raises(UsageError, match="TOKEN"):
        resumed()
    assert shared.mirrored() == records


def test_a_launch_cut_short_gets_its_secrets(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal's first record is there, the secrets are not."""
    other = Shared(shared.root / "other", shared.spec)
    other.submit("a")
    at(other, "a", monkeypatch)
    resumed()
    assert json.loads(other.store().get(mail.SECRETS_KEY) or b"") == {"TOKEN": "hush"}


# ---------------------------------------------------------------- adopt


def running(shared: Shared) -> str:
    shared.phase("a", JobPhase.PENDING, "resumed")
    return shared.folder.as_uri()


def test_adopt_takes_a_job_over(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = running(shared)
    at(shared, "b", monkeypatch)
    adopted(uri + "/")
    state = shared.state("b")
    assert state.launcher is not None
    assert state.launcher.adopted


def test_an_alias_of_the_same_folder_is_the_same_place(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(shared)
    alias = shared.root / "alias"
    alias.symlink_to(shared.root / "store")
    at(shared, "b", monkeypatch)
    adopted((alias / "jobs" / JOB).as_uri())
    assert shared.state("b").prefix_uri == shared.folder.as_uri()


def test_a_copy_elsewhere_fences_nobody(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fence is where machines and launchers look: at the address in the journal."""
    running(shared)
    copy = shared.root / "mounted" / "jobs" / JOB
    copy.parent.mkdir(parents=True)
    shared.folder.rename(copy)
    before = sorted(path.name for path in copy.rglob("*"))
    at(shared, "b", monkeypatch)
    with pytest.raises(UsageError, match="lies at"):
        adopted(copy.as_uri())
    assert sorted(path.name for path in copy.rglob("*")) == before
    assert not shared.folder.exists(), "no empty folder was made where the job is not"


@pytest.mark.parametrize("job_id", ["../../../tmp/owned-0a1b2c3d", "x", "gpt-0a1b2c3e", "", "a\0b-0a1b2c3d"])
def test_an_id_that_somebody_else_wrote_names_no_file(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, job_id: str
) -> None:
    running(shared)
    document = mail.JobDoc(job_id=job_id, journal_id="j", spec=shared.spec, submitted_s=1.0)
    shared.store().put(mail.JOB_KEY, dumps(document))
    at(shared, "b", monkeypatch)
    with pytest.raises(IntegrityError, match="another job"):
        adopted(shared.folder.as_uri())
    assert not (shared.root / "b").exists()


def test_a_launch_that_was_cut_short_is_no_job(shared: Shared) -> None:
    folder = shared.root / "s2" / "jobs" / JOB
    folder.mkdir(parents=True)
    (folder / mail.JOB_KEY).write_bytes((shared.folder / mail.JOB_KEY).read_bytes())
    with pytest.raises(NoSuchJob, match="cut short"):
        adopted(folder.as_uri())


# ---------------------------------------------------------------- a disk that is not mounted


def test_no_command_makes_a_folder_where_the_mailbox_was(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from arylcloud.cli.main import run

    (shared.root / "store").rename(shared.root / "unmounted")
    with pytest.raises(StoreError, match="no object store"):
        resumed()
    for command in (["resume", JOB], ["logs", JOB], ["adopt", shared.folder.as_uri()]):
        assert run(command) == StoreError.exit_code, command
    running_elsewhere = Shared(shared.root / "x", SPEC)
    running_elsewhere.submit("a")
    at(running_elsewhere, "a", monkeypatch)
    (running_elsewhere.root / "store").rename(running_elsewhere.root / "away")
    for command in (["stop", JOB], ["migrate", JOB], ["logs", JOB]):
        assert run(command) == StoreError.exit_code, command
    assert run(["status", JOB]) == 0
    assert "no object store" in " ".join(capsys.readouterr().out.split())
    assert not (shared.root / "store").exists()
    assert not (running_elsewhere.root / "store").exists()


def test_status_lists_the_same_jobs_in_text_and_json(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that has ended is listed where it is named, and with --all; else it is only counted."""

    from arylcloud.cli.main import run

    def told(*args: str) -> tuple[str, dict[str, Any]]:
        assert run(["status", *args]) == 0
        said = "".join(capsys.readouterr())
        assert run(["status", *args, "--json"]) == 0
        return said, json.loads(capsys.readouterr().out)

    for args, listed in (([], False), (["--all"], True), ([JOB], True)):
        said, document = told(*args)
        assert (JOB in said) is listed
        assert [one["job_id"] for one in document["jobs"]] == ([JOB] if listed else [])
        assert document["ended_not_shown"] == (0 if listed else 1)
    assert "1 ended: `arylcloud status --all`" in told()[0]
    running(shared)
    said, document = told()
    assert JOB in said
    assert [one["phase"] for one in document["jobs"]] == ["pending"]
    assert document["ended_not_shown"] == 0


@pytest.mark.parametrize("given", [None, "https://hooks.example.com/T0K3N"])
def test_a_resume_says_when_nobody_will_be_told(
    shared: Shared, given: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The address is a secret, as a token may stand in it: it is not kept beyond the job's end, nor in the
    journal. Whoever resumes gives it again, or is told that nobody will be told."""
    told = Shared(shared.root / "told", replace(SPEC, notify="https://hooks.example.com/…"))
    told.submit("a")
    told.phase("a", JobPhase.STOPPED, "stop_requested")
    monkeypatch.setenv("ARYLCLOUD_HOME", str(told.root / "a"))
    if given is None:
        monkeypatch.delenv("ARYL_NOTIFY", raising=False)
    else:
        monkeypatch.setenv("ARYL_NOTIFY", given)
    resumed()
    said = capsys.readouterr().err
    assert ("https://hooks.example.com/… will not be told" in said) == (given is None)
    assert ("export ARYL_NOTIFY=…" in said) == (given is None)
    assert (told.store().get(mail.LAUNCHER_SECRETS_KEY) is not None) == (given is not None)
    assert "T0K3N" not in said
    assert all(
        b"T0K3N" not in (told.store().get(i.key) or b"") for i in told.store().list(mail.JOURNAL_PREFIX)
    )
