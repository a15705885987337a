"""In which order a job comes into being: no secret lies where no journal leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.core import protocol as mail
from arylcloud.core.clock import ManualClock, MarketClock
from arylcloud.core.codec import loads
from arylcloud.core.errors import ConflictError
from arylcloud.core.job import JobSpec
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.submit import Submission, submit

JOB = "gpt-0a1b2c3d"
ADDRESS = "https://hooks.example.com/T0K3N"
SECRET_KEYS = (mail.SECRETS_KEY, mail.LAUNCHER_SECRETS_KEY)


class Crash(BaseException):
    """The process is no more."""


def a_submission(tmp_path: Path) -> Submission:
    runtime = tmp_path / "runtime.zip"
    runtime.write_bytes(b"zip")
    return Submission(
        job_id=JOB,
        spec=JobSpec(name="gpt", run="true", secret_names=("KEY",), notify="https://hooks.example.com/…"),
        secrets={"KEY": "hush"},
        notify=ADDRESS,
        workdir=None,
        runtime=runtime,
        runtime_sha256="0" * 64,
        market_clock=MarketClock(),
    )


def test_killed_anywhere_it_leaves_no_secret_without_a_job(tmp_path: Path) -> None:
    crashes = 0
    while True:
        root, prefix = MemoryStore("memory://"), MemoryStore(f"memory://jobs/{JOB}")
        left = [crashes]

        def probe(_point: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Crash

        with Journal(tmp_path / f"journal-{crashes}.db") as journal:
            clock = ManualClock(1.0)
            try:
                submit(
                    a_submission(tmp_path),
                    root=root, prefix=prefix, journal=journal, clock=clock, writer="cli", probe=probe,
                )  # fmt: skip
                done = True
            except Crash:
                done = False
            if not journal.head(JOB):
                assert [key for key in SECRET_KEYS if prefix.get(key) is not None] == []
        if done:
            break
        crashes += 1
    assert crashes >= 4
    assert loads(mail.LauncherSecrets, prefix.get(mail.LAUNCHER_SECRETS_KEY) or b"").notify == ADDRESS
    for info in prefix.list(""):
        if info.key not in SECRET_KEYS:
            assert b"T0K3N" not in (prefix.get(info.key) or b"")
            assert b"hush" not in (prefix.get(info.key) or b"")


def test_a_prefix_that_is_a_jobs_already_gets_no_secret(tmp_path: Path) -> None:
    root, prefix = MemoryStore("memory://"), MemoryStore(f"memory://jobs/{JOB}")
    prefix.put(mail.JOB_KEY, b"{}")
    with Journal(tmp_path / "journal.db") as journal, pytest.raises(ConflictError):
        submit(
            a_submission(tmp_path),
            root=root, prefix=prefix, journal=journal, clock=ManualClock(1.0), writer="cli",
        )  # fmt: skip
    assert [key for key in SECRET_KEYS if prefix.get(key) is not None] == []
