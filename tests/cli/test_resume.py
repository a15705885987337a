"""``resume``: limits that are used up, new ones, the files it runs on, and the question before the money."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
from support.twohomes import JOB, SPEC, Shared

from arylcloud.cli import launch, resumeterms
from arylcloud.cli.main import run
from arylcloud.cli.resume import begin_again
from arylcloud.cli.resumeterms import NewLimits, ask, files_text, new_limits
from arylcloud.cli.secretfiles import holds_secrets
from arylcloud.core import events as ev
from arylcloud.core import protocol as mail
from arylcloud.core.codec import loads
from arylcloud.core.errors import Cancelled, ConflictError, InfeasibleError
from arylcloud.core.job import Constraints
from arylcloud.core.phases import JobPhase
from arylcloud.launcher import resuming
from arylcloud.launcher.bundle import pack

LIMITS = Constraints(deadline_s=36_000.0, budget_usd=10.0, max_runtime_s=3600.0, max_usd_per_hour=3.0)


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shared:
    """A job that has used up what it may spend. Nobody is launched."""
    shared = Shared(tmp_path, spec=replace(SPEC, constraints=LIMITS))
    shared.submit("a")
    shared.say("a", ev.Charged(what="egress", usd=9.9, gb=1.0, text="to there"))
    shared.phase("a", JobPhase.FAILED, "over_budget")
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "a"))
    monkeypatch.setattr(launch, "finish", lambda *_args, **_named: 0)
    return shared


def test_a_budget_that_is_spent_is_raised_first(ended: Shared, capsys: pytest.CaptureFixture[str]) -> None:
    before = ended.mirrored()
    assert run(["resume", JOB]) == 104
    error, hint = capsys.readouterr().err.splitlines()
    assert error == f"error: {JOB} has spent $9.90 of a budget of $10.00"
    assert f"`arylcloud resume {JOB} --budget USD`" in hint
    assert run(["resume", JOB, "--budget", "$10.05"]) == 104, "nor is that enough"
    assert run(["resume", JOB, "--max-runtime", "9h"]) == 104
    assert run(["resume", JOB, "--budget", "none"]) == 2
    assert ended.mirrored() == before, "nothing was written"

    assert run(["resume", JOB, "--budget", "$20", "--max-runtime", "2h"]) == 0
    state = ended.state("a")
    assert state.phase is JobPhase.PENDING
    assert state.spec == replace(SPEC, constraints=replace(LIMITS, budget_usd=20.0, max_runtime_s=7200.0)), (
        "the other limits stay, and all else"
    )
    capsys.readouterr()
    assert run(["events", JOB]) == 0
    told = capsys.readouterr().out
    assert "new limits: budget $20.00, deadline 10.0 h after its submission, max_runtime 2.0 h" in told
    assert run(["resume", JOB, "--budget", "$30"]) == 2, "of one that runs they are not changed"
    assert "its limits are changed when it has ended" in capsys.readouterr().err


def test_a_runtime_that_is_used_up_is_raised_first(ended: Shared, capsys: pytest.CaptureFixture[str]) -> None:
    ended.say(
        "a",
        ev.TrainingStarted(epoch=1, lease_id="l", at_s=100.0, step=1),
        ev.TrainingStopped(
            epoch=1,
            lease_id="l",
            at_s=3700.0,
            last_step=9,
            committed_step=9,
            committed_saved_at_s=3700.0,
            how="exited",
        ),
    )
    assert run(["resume", JOB, "--budget", "$99"]) == 104
    error, hint = capsys.readouterr().err.splitlines()
    assert error == f"error: {JOB} has run for 1.0 h, max_runtime is 1.0 h"
    assert f"`arylcloud resume {JOB} --max-runtime TIME`" in hint


def test_limits_are_judged_by_what_another_home_has_set_since(ended: Shared) -> None:
    """Home ``b`` has resumed the job with a larger budget, and stopped it: ``a`` has seen nothing of it."""
    larger = replace(LIMITS, budget_usd=20.0, max_runtime_s=7200.0)
    ended.say("b", ev.LimitsChanged(budget_usd=20.0, deadline_s=36_000.0, max_runtime_s=7200.0))
    ended.phase("b", JobPhase.PENDING, "resumed")
    ended.started("b")
    assert run(["resume", JOB, "--budget", "$30"]) == 2, "it goes on over there"
    assert ended.state("a").spec.constraints == larger
    ended.phase("b", JobPhase.STOPPED, "stop_requested")

    assert run(["resume", JOB, "--budget", "$9"]) == 104, "more is spent than that"
    assert run(["resume", JOB, "--max-runtime", "11h"]) == 0
    state = ended.state("a")
    assert state.phase is JobPhase.PENDING
    assert state.spec.constraints == replace(larger, max_runtime_s=39_600.0), "b's budget stays"


def test_what_was_stopped_elsewhere_is_resumed_with_new_limits(ended: Shared) -> None:
    """``a`` takes it for running, and nobody runs it here."""
    ended.phase("a", JobPhase.PENDING, "resumed")
    ended.phase("b", JobPhase.STOPPED, "stop_requested")
    assert run(["resume", JOB, "--budget", "$30"]) == 0
    assert ended.state("a").spec.constraints.budget_usd == 30.0


def test_what_it_costs_is_asked_of_where_its_checkpoints_lie(
    ended: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def plan(*_args: object, **named: object) -> None:
        asked.append(named.get("store_place"))
        raise InfeasibleError("no")

    monkeypatch.setattr("arylcloud.cli.compose.make_plan", plan)
    monkeypatch.setattr("typer.confirm", lambda *_args, **_named: True)
    monkeypatch.setattr(resumeterms.sys, "stdin", _Terminal())
    state = replace(ended.state("a"), store_place="aws/us-east-1")
    ask(state, state.spec, ended.home("a"), yes=False)
    assert asked == ["aws/us-east-1"]


def test_a_new_deadline_is_from_now_on(ended: Shared) -> None:
    state = ended.state("a")
    found = new_limits(state, NewLimits(deadline="2h"), state.submitted_at_s + 50_000.0)
    assert found is not None
    assert found.deadline_s == 57_200.0
    assert (found.budget_usd, found.max_runtime_s) == (10.0, 3600.0)
    assert new_limits(state, NewLimits(), 0.0) is None


def test_it_says_which_files_it_runs_on(ended: Shared, tmp_path: Path) -> None:
    state = ended.state("a")
    assert files_text(state) is None, "it has none"
    workdir = tmp_path / "work"
    workdir.mkdir()
    for name, mtime in (("old.py", 0.5), ("new.py", 2.0), ("x.pyc", 2.0), ("also.py", 2.0)):
        (workdir / name).write_text("")
        os.utime(workdir / name, (mtime, mtime))
    at = replace(state, spec=replace(state.spec, workdir=str(workdir)), submitted_at_s=1.0)
    text = files_text(at)
    assert text is not None
    assert text.startswith("it runs the files of its launch at ")
    assert text.endswith(f"; in {workdir} 2 files are newer (`--workdir {workdir}` sends those)")
    again = replace(at, files_at_s=3.0)
    text = files_text(again)
    assert text is not None
    assert text.startswith("it runs the files of a resume at ")
    assert "newer" not in text
    failed = files_text(replace(again, phase_code="user_command"))
    assert failed == f"{text}: the very files on which its command failed"
    gone = replace(at, spec=replace(at.spec, workdir=str(tmp_path / "moved")))
    assert "newer" not in (files_text(gone) or "newer")


def document(shared: Shared) -> mail.JobDoc:
    return loads(mail.JobDoc, shared.store().get(mail.JOB_KEY) or b"", what="job")


@pytest.fixture
def mended(tmp_path: Path) -> Path:
    folder = tmp_path / "mended"
    folder.mkdir()
    (folder / "train.py").write_text("print('it works now')")
    (folder / "job.yaml").write_text("run: python3 train.py\nsecrets: {TOKEN: hush}\n")
    return folder


def test_other_files_can_be_sent_with_a_resume(
    ended: Shared, mended: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["resume", JOB, "--workdir", str(mended)]) == 104, "its limits hold as ever"
    assert document(ended).workdir_sha256 is None
    assert run(["resume", JOB, "--budget", "$20", "--workdir", str(mended / "nothing")]) == 2
    before = document(ended)
    capsys.readouterr()
    assert run(["resume", JOB, "--budget", "$20", "--workdir", str(mended)]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert f"it runs 1 file of {mended}, as they are now" in said
    assert "secret values stand in job.yaml: it is not sent to machines" in said
    after = document(ended)
    assert after.workdir_sha256 is not None
    spec = replace(before.spec, workdir=str(mended))
    assert after == replace(before, spec=spec, workdir_sha256=after.workdir_sha256), "and nothing else"
    data = ended.store().get(f"workdir-{after.workdir_sha256}.tar.gz")
    assert data is not None
    assert hashlib.sha256(data).hexdigest() == after.workdir_sha256
    state = ended.state("a")
    assert (state.phase, state.files_sha256) == (JobPhase.PENDING, after.workdir_sha256)
    assert state.spec.workdir == str(mended)
    assert run(["events", JOB]) == 0
    assert f"it runs 1 file of {mended} from here on" in " ".join(capsys.readouterr().out.split())
    assert run(["resume", JOB, "--workdir", str(mended)]) == 2, "not while it runs"
    assert "and so are its files" in capsys.readouterr().err


def test_files_that_were_journaled_are_what_a_later_resume_runs(ended: Shared, mended: Path) -> None:
    """Whoever sent them died before the document named them; another home resumes the job."""
    store = ended.store()
    with ended.journal("a") as journal:
        archive = pack(mended, holds_secrets)
        resuming.send_files(journal, JOB, store, archive, str(mended), writer="cli-a", wall_s=lambda: 9.0)
    assert document(ended).workdir_sha256 is None
    ended.say("b", ev.LimitsChanged(budget_usd=20.0, deadline_s=None, max_runtime_s=None))
    with ended.journal("b") as journal:
        assert begin_again(journal, JOB, store)
    assert document(ended).workdir_sha256 == archive.sha256


def test_files_of_one_whom_another_home_overtook_are_not_named(ended: Shared, mended: Path) -> None:
    store = ended.store()
    with ended.journal("a") as journal:
        resuming.send_files(journal, JOB, store, pack(mended), str(mended), writer="a", wall_s=lambda: 9.0)
        ended.phase("b", JobPhase.PENDING, "resumed")
        with pytest.raises(ConflictError):
            resuming.settle_files(journal, JOB, store, writer="a")
    assert document(ended).workdir_sha256 is None


def test_it_asks_on_a_terminal_alone(ended: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    state, home = ended.state("a"), ended.home("a")
    monkeypatch.setattr("typer.confirm", lambda *_args, **_named: False)
    ask(state, state.spec, home, yes=False)  # no terminal: as scripts have always done
    monkeypatch.setattr(resumeterms.sys, "stdin", _Terminal())
    ask(state, state.spec, home, yes=True)
    with pytest.raises(Cancelled, match="not resumed"):
        ask(state, state.spec, home, yes=False)


class _Terminal:
    def isatty(self) -> bool:
        return True
