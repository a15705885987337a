"""``stop`` where the job cannot be asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.harness import offer
from support.twohomes import JOB, SPEC, Shared

from arylcloud.checkpoint.store import open_store
from arylcloud.cli import already
from arylcloud.cli.jobs import resolve_running
from arylcloud.cli.main import run
from arylcloud.core import events as ev
from arylcloud.core.phases import JobPhase
from arylcloud.core.ports import Billing


@pytest.mark.parametrize("machines", [0, 1, 2])
def test_without_a_mailbox_it_says_what_to_do(
    tmp_path: Path, machines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and a hint that names what may be costing."""
    shared = Shared(tmp_path)
    shared.submit("a")
    for n in range(machines):
        lease = {"lease_id": f"{JOB}-n{n}-a{n + 1}"}
        shared.say(
            "a",
            ev.LeaseIntended(
                **lease, token=f"t{n}", offer=offer(), index=n, attempt=n + 1, purpose="start",
                until_s=1e9, why="test",
            ),
            ev.LeaseCreated(
                **lease, instance_id=f"i-{n}", launched_s=1.0, usd_per_hour=1.0, address=None,
                billing=Billing(),
            ),
        )  # fmt: skip
    shared.folder.rename(tmp_path / "unmounted")
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "a"))
    assert run(["stop", JOB]) == 5
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith(f"error: {JOB} was not asked to stop, its mailbox cannot be reached: ")
    assert f"arylcloud stop {JOB}" in hint
    for n in range(machines):
        assert f"aws i-{n}" in hint
    assert not shared.folder.exists(), "nothing was made where it should be"


def test_what_still_runs_is_said_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two jobs the newer has ended: a stop without an id is of the other one, never of it."""
    shared = Shared(tmp_path)
    shared.submit("a")
    shared.phase("a", JobPhase.SUCCEEDED)
    lease = {"lease_id": "other-1-n0-a1"}
    elsewhere = open_store(f"{shared.folder.parent.as_uri()}/other-1")
    with shared.journal("a") as journal:
        submitted = ev.JobSubmitted(
            spec=replace(SPEC, name="other"), prefix_uri=elsewhere.uri,
            journal_id=journal.journal_id, market_origin_s=0.0, market_scale=1.0,
        )  # fmt: skip
        journal.append("other-1", 0.5, "w", submitted, mirror=elsewhere)
        intended = ev.LeaseIntended(
            **lease, token="t", offer=offer(), index=0, attempt=1, purpose="start", until_s=1e9, why="test"
        )
        journal.append("other-1", 0.6, "w", intended, mirror=elsewhere)
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "a"))
    assert run(["stop", JOB]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "still running: other-1, $1.0000/h"
    with shared.journal("a") as journal:
        assert resolve_running(journal, None) == "other-1"


def test_a_damaged_job_is_in_the_way_of_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = Shared(tmp_path)
    shared.submit("a")
    shared.phase("a", JobPhase.STOPPED)
    elsewhere = open_store(f"{shared.folder.parent.as_uri()}/gpt-1")
    with shared.journal("a") as journal:
        submitted = ev.JobSubmitted(
            spec=SPEC, prefix_uri=elsewhere.uri, journal_id=journal.journal_id,
            market_origin_s=0.0, market_scale=1.0,
        )  # fmt: skip
        away = ev.LeaseEnding(lease_id="unknown", code="x", why="x")  # no fold takes this
        for event in (submitted, away):
            journal.append("gpt-1", 0.5, "w", event, mirror=elsewhere)
        assert already.same(journal, SPEC) == []
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "a"))
    assert run(["stop", JOB, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["phase"] == "stopped"
