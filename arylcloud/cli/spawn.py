"""A launcher in the background: its own session, its own log; it needs no terminal and no parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from arylcloud.cli.settings import Folders, ensure
from arylcloud.core.errors import ConflictError, LocalStateError

if TYPE_CHECKING:
    from arylcloud.launcher.journal import Journal


_HINT = "one launcher per job: leave it to the other, or `arylcloud adopt URI --force`"


def launcher_log(places: Folders, job_id: str) -> Path:
    return places.state / "launchers" / f"{job_id}.log"


def last_words(log: Path) -> str:
    """Why a launcher ended, by its log: its error, or its last line."""
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines()[-50:] if line.strip()]
    except OSError:
        return "it left no log"
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or ["it said nothing"])[-1][:200]


def ensure_launcher(journal: Journal, job_id: str, places: Folders, *, wait_s: float = 10.0) -> bool:
    """Start one unless one is at work; returns whether one was started. Raises ConflictError if a
    launcher of another home has the job."""
    return start_launcher(journal, job_id, places, wait_s=wait_s) is not None


def start_launcher(
    journal: Journal, job_id: str, places: Folders, *, wait_s: float = 10.0
) -> subprocess.Popen[bytes] | None:
    """The same for who keeps an eye on it: the process; None if one was at work already."""
    if journal.claimed(job_id):
        return None
    path = launcher_log(places, job_id)
    ensure(path.parent)
    try:
        with path.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "arylcloud", "serve", "--job", job_id],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=dict(os.environ),
                start_new_session=True,
            )
    except OSError as error:
        raise LocalStateError(f"cannot start the launcher: {error}") from error
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline and process.poll() is None:
        if journal.claimed(job_id):
            break
        time.sleep(0.05)
    if process.poll() == ConflictError.exit_code and not journal.claimed(job_id):
        raise ConflictError(f"another launcher runs {job_id}; see {path}", hint=_HINT)
    return process
