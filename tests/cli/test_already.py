"""A second launch of what runs already is said, and asked on a terminal: it would be paid for twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.twohomes import JOB, SPEC, Shared

from arylcloud.cli import already
from arylcloud.core import events as ev
from arylcloud.core.errors import Cancelled
from arylcloud.core.job import JobSpec, Resources, Work
from arylcloud.core.phases import JobPhase


class Terminal:
    def isatty(self) -> bool:
        return True


def test_what_runs_already_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = replace(SPEC, work=Work(amount=1200.0, unit="steps"))
    shared = Shared(tmp_path, spec=spec)
    shared.submit("a")
    shared.say(
        "a",
        ev.EpochOpened(number=1, attempt=1, members=(), resume_from=None, resume_step=0, reason="start"),
        ev.CheckpointCommitted(manifest="m", epoch=1, step=500, saved_at_s=1.0, total_bytes=1),
    )
    elsewhere = replace(spec, resources=Resources(clouds=("aws",)))
    with shared.journal("a") as journal:
        for other in (replace(spec, run="false"), replace(spec, envs={"LR": "1"}), replace(spec, name="x")):
            assert already.same(journal, other) == []
            already.ask(journal, other, yes=False)
        assert capsys.readouterr().err == ""

        already.ask(journal, elsewhere, yes=True)
        said = f"the same job runs already: {JOB} (500 of 1,200 steps)"
        assert capsys.readouterr().err == f"warning: {said}; this is another copy, and is paid for, too\n"

        monkeypatch.setattr(already.sys, "stdin", Terminal())
        monkeypatch.setattr("typer.confirm", lambda *_args, default, **_named: default)
        with pytest.raises(Cancelled, match="not launched"):
            already.ask(journal, elsewhere, yes=False)
        assert capsys.readouterr().err == f"{said}\n"
        monkeypatch.setattr("typer.confirm", lambda *_args, **_named: True)
        already.ask(journal, elsewhere, yes=False)

    shared.phase("a", JobPhase.SUCCEEDED)
    with shared.journal("a") as journal:
        assert not already.same(journal, _spec_of(shared))


def _spec_of(shared: Shared) -> JobSpec:
    return shared.state("a").spec
