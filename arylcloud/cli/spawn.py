"""A launcher in the background: its own session, its own log; it needs no terminal and no parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from arylcloud.cli.settings import Folders, ensure
from arylcloud.core import errors
from arylcloud.core.errors import ArylError, ConflictError, LocalStateError

if TYPE_CHECKING:
    from arylcloud.launcher.journal import Journal


HELD_S = 3.0
"""A launcher that has held its job for so long is at work, whatever it waits for."""
_HINT = "one launcher per job: leave it to the other, or `arylcloud adopt URI --force`"


def launcher_log(places: Folders, job_id: str) -> Path:
    return places.state / "launchers" / f"{job_id}.log"


def last_words(log: Path, *, after: int = 0) -> str:
    """Why a launcher ended, by its log (from byte ``after`` on): its error, or its last line."""
    try:
        said = log.read_bytes()[after:].decode(errors="replace")
        lines = [line for line in said.splitlines()[-50:] if line.strip()]
    except OSError:
        return "it left no log"
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or ["it said nothing"])[-1][:200]


def ensure_launcher(journal: Journal, job_id: str, places: Folders, *, wait_s: float = 60.0) -> bool:
    """Start one unless one is at work; returns whether one was started, once it has shown that it lives: by
    a record of its own, or by holding the job for a while (its mailbox may not answer yet). Raises
    ConflictError if a launcher of another home has the job; of one that has died, what it died of."""
    head, log = journal.head(job_id), launcher_log(places, job_id)
    said = log.stat().st_size if log.exists() else 0
    process = start_launcher(journal, job_id, places, wait_s=wait_s)
    if process is None:
        return False
    deadline = time.monotonic() + HELD_S
    while process.poll() is None and journal.head(job_id) == head and time.monotonic() < deadline:
        time.sleep(0.05)
    if process.poll() not in (None, 0) and not journal.claimed(job_id):
        raise error_of(process.returncode)(
            f"the launcher of {job_id} has died at once: {last_words(log, after=said)}",
            hint=f"its log is {log}; when that is mended, `arylcloud resume {job_id}` starts it again",
        )
    return True


def error_of(code: int | None) -> type[ArylError]:
    """The kind of error that ends with this exit code, where it is one of ours."""
    kinds: tuple[type[ArylError], ...] = (
        errors.UsageError,
        errors.InfeasibleError,
        errors.AccessError,
        errors.CloudError,
        errors.ConflictError,
        errors.IntegrityError,
    )
    return next((kind for kind in kinds if kind.exit_code == code), ArylError)


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
