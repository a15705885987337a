"""The disk of the launcher's own home fills up while a job runs: said in one line, nothing is lost or leaked,
and the job goes on once there is room. The disk is a real one, small and full to its last page (tmpfs)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from arylcloud.core.errors import LocalStateError
from e2e.market import job, quiet
from e2e.support import WAIT_S, Child, Home, wait_for
from e2e.test_field_leaks import running
from e2e.test_store_away import disk
from e2e.truth import settled, steps_kept

NewHome = Callable[..., Home]
SPEC = job(steps=1500, save_every=50, hold=1400)
FULL = LocalStateError.exit_code


def fill(folder: Path) -> Path:
    """To the last byte."""
    ballast = folder / "ballast"
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    return ballast


def ends_full(child: Child, folder: Path) -> int:
    """Its exit code, on a disk that is filled again and again: what is deleted makes room."""

    def ended() -> bool:
        fill(folder)
        return not child.running

    wait_for(ended, "its end", WAIT_S)
    return child.wait()


def one_line(child: Child) -> str:
    (error,) = (line for line in child.err.splitlines() if line.startswith("error: "))
    assert "Traceback" not in child.err
    return error


@pytest.mark.parametrize("store", [pytest.param("elsewhere", marks=pytest.mark.slow), "on the same disk"])
def test_a_launchers_disk_fills_up(new_home: NewHome, tmp_path: Path, store: str) -> None:
    """Of ``serve``: it ends; the machine goes on; nothing of it is unknown; another launcher finishes."""
    cloud = new_home(quiet())
    home = new_home(cloud_of=cloud)
    with disk(home.state_dir, 24) as folder:
        flags = ["--store", (tmp_path / "store").as_uri()] if store == "elsewhere" else []
        job_id = home.submit(SPEC, *flags)
        child = home.serve(job_id)
        wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")
        assert ends_full(child, folder) == FULL, child.err[-3000:]
        assert "the disk is full" in one_line(child)
        (machine,) = running(home)
        again = home.serve(job_id)
        assert ends_full(again, folder) == FULL, "there is no room yet"
        (folder / "ballast").unlink()
        seen = home.cli("gc", "--dryrun", "--json", code=0).json
        assert seen["found"] == [], "no machine is unknown"
        assert running(home) == [machine]
        home.go()
        home.serve_to_the_end(job_id)
        state = settled(home, job_id)
        steps_kept(home, job_id)
        assert len(state.leases) == 1, "it went on all the time"


def test_whoever_watches_is_told_why(new_home: NewHome, tmp_path: Path) -> None:
    """Of an attached ``launch``, whose launcher's own log lies on the full disk, too."""
    cloud = new_home(quiet())
    home = new_home(cloud_of=cloud)
    with disk(home.state_dir, 24) as folder:
        path = home.job_file(SPEC)
        store = (tmp_path / "store").as_uri()
        child = home.start("launch", str(path), "--infra", "local", "-y", "--store", store)
        wait_for(lambda: (home.state_dir / "journal.db").exists() and home.jobs(), "the job")
        (job_id,) = home.jobs()
        wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")
        assert ends_full(child, folder) == FULL, child.err[-3000:]
        assert "the disk is full" in one_line(child)
        assert f"arylcloud resume {job_id}" in child.err.splitlines()[-1]
        (folder / "ballast").unlink()
        home.go()
        home.cli("resume", job_id, code=0)
        settled(home, job_id)
        steps_kept(home, job_id)
