"""The launcher killed at every place where it can leave two facts apart, and started again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from arylcloud.core.errors import NoSuchJob
from e2e.market import job, quiet, rough
from e2e.support import Home
from e2e.truth import settled, steps_kept

SPEC = job(steps=300, save_every=60)
NOTIFIED = job(steps=300, save_every=60, notify="http://127.0.0.1:9/nobody-listens")
DIED = -9
MOST = 500
"""Incarnations: more than that, and they get nowhere."""

EVERY_JOB_HAS = {
    f"{where} {kind}"
    for where in ("before journal", "mirrored, not committed")  # and is then imported: there is no "after"
    for kind in (
        "LauncherStarted", "LeaseIntended", "LeaseCreated", "LeasePhaseChanged", "LeaseEnding",
        "LeaseReleased", "EpochOpened", "TrainingStarted", "CheckpointCommitted", "TrainingStopped",
        "CommandEnded", "JobPhaseChanged", "Notified",
    )
} | {
    f"{where} {effect}"
    for where in ("before", "after")
    for effect in (
        "catching up", "create", "epoch document", "terminate", "notify", "secrets are removed", "tidying",
    )
}  # fmt: skip

NewHome = Callable[..., Home]


def test_every_kind_of_point_kills_a_launcher_once(new_home: NewHome, tmp_path: Path) -> None:
    """Each incarnation dies at the first kind of point at which none has died before."""
    home = new_home(rough())
    job_id = home.submit(NOTIFIED)
    died = tmp_path / "died"
    code = DIED
    for _ in range(MOST):
        code = home.serve(job_id, die_once=died).wait()
        if code != DIED:
            break
    assert code == 0
    points = died.read_text().splitlines()
    assert len(points) == len(set(points))
    assert set(points) >= EVERY_JOB_HAS, EVERY_JOB_HAS - set(points)
    settled(home, job_id)
    steps_kept(home, job_id)


@pytest.mark.slow
@pytest.mark.parametrize("k", [9, 10, 11, 12])
def test_no_incarnation_comes_far(new_home: NewHome, k: int) -> None:
    """Each dies at its ``k``-th point. The first five lead to the record that it has started; four more
    are an effect and the record of it: the least by which anybody can get on."""
    home = new_home(rough())
    job_id = home.submit(SPEC)
    incarnations = 0
    while (code := home.serve(job_id, crash_at=k).wait()) == DIED:
        incarnations += 1
        assert incarnations < MOST
    assert code == 0
    assert incarnations > 10
    settled(home, job_id)
    steps_kept(home, job_id)


CHUNKS = 32


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1, CHUNKS + 1))
def test_a_job_for_every_single_point(new_home: NewHome, first: int) -> None:
    """One crash per job, at point ``first``, ``first + CHUNKS``, … until there is no such point."""
    at = first
    while True:
        home = new_home(rough())
        job_id = home.submit(NOTIFIED)
        code = home.serve(job_id, crash_at=at).wait()
        assert code in (0, DIED)
        if code == DIED:
            home.serve_to_the_end(job_id)
        settled(home, job_id)
        steps_kept(home, job_id)
        home.close()
        if code == 0:
            break
        at += CHUNKS


def test_a_submission_killed_anywhere_costs_nothing(new_home: NewHome, tmp_path: Path) -> None:
    """``launch`` dies between its writes: either there is no job, or there is one that ``resume`` makes
    whole; no machine. No secret lies where no job is."""
    home = new_home(quiet())
    spec = job(steps=20, top={"secrets": {"TOKEN": "hush"}})
    path = home.job_file(spec)
    args = ("launch", str(path), "--infra", "local", "-y", "-d")
    known: set[str] = set()
    at = 0
    while True:
        at += 1
        child = home.start(*args, env={"ARYLCLOUD_CRASH_AT": str(at)}, no_launcher=True)
        code = child.wait()
        assert code in (0, DIED), child.err
        found = set(home.jobs()) - known
        assert len(found) <= 1
        known |= found
        secret = {path.parent.name for path in home.path.rglob("secrets.json")}
        assert secret <= known, "a secret that no command finds"
        assert all(home.state(job_id).phase == "pending" for job_id in found)
        if code == 0:
            break
    assert at >= 8
    left = home.cli("gc", "--json", code=0).json["cut_short"]
    assert {entry["submitted"] for entry in left} == {True, False}, "of a job that only its prefix knew, too"
    assert all(entry["deleted"] is not entry["submitted"] for entry in left)
    stored = {path.name for path in (home.state_dir / "store" / "jobs").iterdir() if any(path.iterdir())}
    assert stored == set(home.jobs()), "what lies in the store, some command finds"
    assert home.cli("gc", "--json", code=0).json["cut_short"] == []
    assert len(known) >= 2, "one that was killed after the submission, and one that was not"
    assert not [r for r in home.cloud_records() if r["kind"] == "launch"]
    assert home.cli("status", "no-such-job", "--json").code == NoSuchJob.exit_code
    first = home.jobs()[0]
    assert not (home.prefix(first) / "secrets.json").exists(), "its launch died right after the submission"
    home.cli("resume", first, "-d", env={"TOKEN": "hush"}, no_launcher=True, code=0)
    home.serve_to_the_end(first)
    settled(home, first)
