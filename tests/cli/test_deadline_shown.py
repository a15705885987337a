"""``status``: how long a job still has until its deadline, by the market's clock."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support.diary import JOB, Diary

from arylcloud.cli.main import run
from arylcloud.cli.settings import folders
from arylcloud.cli.status import deadline_text
from arylcloud.core import events as ev
from arylcloud.core.job import Constraints, JobSpec
from arylcloud.core.phases import JobPhase
from arylcloud.launcher.journal import Journal

H = 3600.0
FAST = "in 17.1 h (20 h from submission, in the local market's time)"


def due(limit_h: float | None, *, scale: float = 1.0, origin_s: float = 0.0) -> Diary:
    limits = Constraints(deadline_s=None if limit_h is None else limit_h * H)
    return Diary(spec=JobSpec(name="x", run="true", constraints=limits), scale=scale, origin_s=origin_s)


def ended(diary: Diary) -> Diary:
    return diary.write(
        60.0, ev.JobPhaseChanged(phase=JobPhase.STOPPED, code="stop_requested", text="stopped")
    )


@pytest.mark.parametrize(
    ("diary", "now_s", "said"),
    [
        (due(20.0), 2.9 * H, "in 17.1 h (20 h from submission)"),
        (due(20.0), 22 * H, "late by 2.0 h (20 h from submission)"),
        # an hour of the market is a minute on the wall
        (due(20.0, scale=60.0), 174.0, FAST),
        (due(20.0, scale=60.0, origin_s=-500.0), 174.0, FAST),
        (due(None), 10.0, None),
        (ended(due(20.0)), 60.0, None),
    ],
)  # fmt: skip
def test_the_deadline_in_words(diary: Diary, now_s: float, said: str | None) -> None:
    assert deadline_text(diary.state, now_s) == said


@pytest.mark.parametrize("scale", [1.0, 600.0])
def test_status_says_which_clock_is_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], scale: float
) -> None:
    """Machines are "ready for 8 s" by the wall's clock; cost and deadline are by the market's."""
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "home"))
    diary = due(20.0, scale=scale)
    text = "epoch 1 on 1 × aws/us-east-1/use1-az1:p3.2xlarge:spot"
    diary.write(60.0, ev.JobPhaseChanged(phase=JobPhase.RUNNING, code="running", text=text))
    with Journal(folders().journal) as journal:
        for record in diary.records:
            journal.append(
                JOB,
                at_s=record.at_s,
                writer="w",
                event=record.event,
                cause_id=None,
                mirror=None,
                strict=False,
            )
    assert run(["status"]) == 0
    out = capsys.readouterr().out
    assert ("a second here is 10 min there" in out) is (scale == 600.0)
    assert ("clock" in out) is (scale == 600.0)
    assert "epoch 1 on 1 × p3.2xlarge spot in aws/us-east-1/use1-az1" in out, "a place as everywhere"


@pytest.mark.parametrize(("since_h", "said"), [(2.9, "in 17.1 h"), (23.0, "late by 3.0 h")])
def test_status_shows_it_in_both_forms(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    since_h: float,
    said: str,
) -> None:
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "home"))
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s)
    folders().state.mkdir(parents=True)
    (record,) = due(20.0).records
    with Journal(folders().journal) as journal:
        journal.append(JOB, now_s - since_h * H, record.writer, record.event, None, mirror=None, strict=False)
    assert run(["status", JOB]) == 0
    assert f"  deadline  {said} (20 h from submission)\n" in capsys.readouterr().out
    assert run(["status", JOB, "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["jobs"]
    assert told["deadline_left_h"] == pytest.approx(20.0 - since_h)
