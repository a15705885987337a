"""A launch that is killed before there is a job leaves a trace: `gc` finds what lies in the store by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.harness import offer

from arylcloud.checkpoint.store import file_path, open_store
from arylcloud.cli import gclaunches
from arylcloud.core import protocol as mail
from arylcloud.core.clock import ManualClock, MarketClock
from arylcloud.core.events import BaselineQuoted
from arylcloud.core.job import JobSpec
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.pending import FOLDER, Pending, found, pending
from arylcloud.launcher.submit import Submission, submit

JOB = "gpt-0a1b2c3d"


class Crash(BaseException):
    """The process is no more."""


class Launch:
    """Submitted from ``home``; dies at the ``dies_at``-th point."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.runtime = folder / "runtime.zip"
        self.runtime.write_bytes(b"zip")
        self.root = open_store((folder / "store").as_uri())
        self.prefix = open_store(f"{self.root.uri}/jobs/{JOB}")
        self.journal = Journal(self.home / "journal.db")

    def submit(self, dies_at: int) -> bool:
        left = [dies_at]

        def probe(_point: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Crash

        self.journal.probe = probe
        submission = Submission(
            job_id=JOB,
            spec=JobSpec(name="gpt", run="true"),
            secrets={},
            workdir=None,
            runtime=self.runtime,
            runtime_sha256="0" * 64,
            market_clock=MarketClock(),
            quotes=(BaselineQuoted(name="fixed_zone", offer=offer(), speed=1.0),),
        )
        try:
            with pending(self.home, JOB, self.prefix.uri):
                submit(
                    submission,
                    root=self.root, prefix=self.prefix, journal=self.journal,
                    clock=ManualClock(1.0), writer="cli", probe=probe,
                )  # fmt: skip
        except Crash:
            return False
        return True

    def clear(self, *, dryrun: bool = False) -> list[gclaunches.Left]:
        lefts = (gclaunches.clear(self.journal, p, self.home, dryrun=dryrun) for p in found(self.home))
        return [left for left in lefts if left is not None]


def test_killed_anywhere_it_is_found_or_it_is_a_job(tmp_path: Path) -> None:
    outcomes = []
    for dies_at in range(100):
        launch = Launch(tmp_path / f"{dies_at}")
        done = launch.submit(dies_at)
        lay = len(list(launch.prefix.list("")))
        looked = launch.clear(dryrun=True)
        assert len(list(launch.prefix.list(""))) == lay, "--dryrun deletes nothing"
        lefts = launch.clear()
        assert [left.document["job_id"] for left in lefts] == [left.document["job_id"] for left in looked]
        assert found(launch.home) == ()
        if launch.journal.head(JOB):
            outcomes.append("job")
            state = launch.journal.state(JOB)
            assert [q.name for q in state.baselines] == ["fixed_zone"], "with all that its report needs"
        else:
            outcomes.append("cleared" if lefts else "nothing")
            assert not file_path(launch.prefix.uri).exists() or not lay
        launch.journal.close()
        if done:
            break
    assert outcomes[0] == "nothing"
    assert outcomes[-1] == "job"
    assert "cleared" in outcomes
    assert outcomes == sorted(outcomes, key=["nothing", "cleared", "job"].index)


def test_cut_off_between_the_two_copies_of_its_first_record_the_job_is_taken_in(tmp_path: Path) -> None:
    launch = Launch(tmp_path)
    dies_at = 0
    while not launch.prefix.get(mail.journal_key(1)):
        launch.journal.close()
        launch = Launch(tmp_path / f"{dies_at}")
        launch.submit(dies_at)
        dies_at += 1
    assert launch.journal.head(JOB) == 0
    (left,) = launch.clear()
    assert left.document["submitted"] is True
    assert f"arylcloud resume {JOB}" in left.text
    assert launch.journal.head(JOB) == 1


def test_a_launch_under_way_is_left_alone(tmp_path: Path) -> None:
    launch = Launch(tmp_path)
    launch.submit(2)
    with launch.journal.claim(JOB):
        assert launch.clear() == []
    assert len(launch.clear()) == 1


@pytest.mark.parametrize(
    "text", ["", "{", "[]", json.dumps({"job_id": "../../etc", "prefix_uri": "file:///"})]
)
def test_a_trace_that_is_none_harms_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "x.json").write_text(text)
    assert found(tmp_path) == ()
    assert found(tmp_path / "nowhere") == ()
    (tmp_path / FOLDER / f"{JOB}.json").write_text(
        json.dumps({"job_id": JOB, "prefix_uri": f"file:///a/{JOB}"})
    )
    assert found(tmp_path) == (Pending(job_id=JOB, prefix_uri=f"file:///a/{JOB}"),)
