"""The object store goes read-only, or full, while a job runs: nothing is lost, and the job goes on."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.market import job, market, quiet, rough, spot
from e2e.support import WAIT_S, Home, wait_for
from e2e.truth import attempts, settled, steps_kept

NewHome = Callable[..., Home]
AWAY_S = 2.0
SPEC = job(steps=500, save_every=30, hold=450)


@contextmanager
def disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A small disk of its own. Skips where only the administrator could make one."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip("a disk of its own cannot be mounted here (needs root)")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, how: str) -> None:
    """Busy for as long as somebody has a file open for writing."""

    def done() -> bool:
        command = ["mount", "-o", f"remount,{how}", str(folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    wait_for(done, f"remounting {how}")


def begun(home: Home, job_id: str) -> None:
    wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")


def test_the_store_is_read_only_for_a_while(new_home: NewHome, tmp_path: Path) -> None:
    """A launcher that runs, and one that starts meanwhile, wait for it."""
    home = new_home(rough(notice_s=WAIT_S))
    with disk(tmp_path / "store", 256) as store:
        job_id = home.submit(SPEC, "--store", store.as_uri())
        child = home.serve(job_id)
        begun(home, job_id)
        remount(store, "ro")
        time.sleep(AWAY_S / 2)
        assert child.running, child.err[-3000:]
        child.kill()
        child = home.serve(job_id)
        wait_for(lambda: "cannot start yet" in child.err, "a launcher that waits")
        time.sleep(AWAY_S / 2)
        assert child.running, child.err[-3000:]
        remount(store, "rw")
        home.go()
        assert child.wait() == 0, child.err[-3000:]
        settled(home, job_id)
        steps_kept(home, job_id)


def test_a_notice_while_the_store_is_away_loses_nothing(new_home: NewHome, tmp_path: Path) -> None:
    """The machine that is to go has saved, and waits with its save until it can be sent, or until it goes."""
    home = new_home(market(spot("calm-a", 0.10), spot("calm-b", 0.12)))
    with disk(tmp_path / "store", 256) as store:
        job_id = home.submit(SPEC, "--store", store.as_uri())
        child = home.serve(job_id)
        begun(home, job_id)
        remount(store, "ro")
        (machine,) = home.state(job_id).open_leases
        home.give_notice(machine.instance_id or "")
        wait_for(lambda: attempts(home)[-1].ended, "a training that has handed over")
        time.sleep(AWAY_S / 2)
        remount(store, "rw")
        home.go()
        assert child.wait() == 0, child.err[-3000:]
        settled(home, job_id)
        steps_kept(home, job_id)
        assert [attempt.ended for attempt in attempts(home)] == [True, True]


def test_the_store_is_full_for_a_while(new_home: NewHome, tmp_path: Path) -> None:
    home = new_home(quiet())
    with disk(tmp_path / "store", 256) as store:
        job_id = home.submit(SPEC, "--store", store.as_uri())
        child = home.serve(job_id)
        begun(home, job_id)
        ballast = store / "ballast"
        until_s = time.monotonic() + WAIT_S
        # again and again: deleted objects make room
        while "No space left" not in child.err and time.monotonic() < until_s:
            with ballast.open("ab", buffering=0) as file:
                try:
                    while True:
                        file.write(b"\0" * 4096)
                except OSError:
                    os.fsync(file.fileno())
            time.sleep(0.01)
        assert child.running, child.err[-3000:]
        assert "No space left" in child.err
        ballast.unlink()
        home.go()
        assert child.wait() == 0, child.err[-3000:]
        settled(home, job_id)
        steps_kept(home, job_id)
