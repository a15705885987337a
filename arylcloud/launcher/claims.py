"""One launcher per job and home: an advisory lock on a file, gone with its process."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from arylcloud.core.errors import ConflictError, LocalStateError


@contextlib.contextmanager
def claim(folder: Path, job_id: str) -> Iterator[None]:
    """Be the one launcher of ``job_id`` while the block runs. Raises ConflictError that names the holder,
    LocalStateError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / f"{job_id}.lock").open("a+b")
    except OSError as error:
        raise LocalStateError(f"cannot open a lock in {folder}: {error.strerror or error}") from error
    with handle:
        try:
            _lock(handle.fileno())
        except BlockingIOError as error:
            raise ConflictError(
                f"another launcher runs {job_id}: {_holder(handle.name)}",
                hint="`arylcloud status` shows it; stop that process to run the job here",
            ) from error
        try:
            handle.truncate(0)
            handle.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
            handle.flush()
        except OSError as error:
            raise LocalStateError(f"cannot write {handle.name}: {error.strerror or error}") from error
        yield


def claimed(folder: Path, job_id: str) -> bool:
    """Whether some process holds the claim now."""
    try:
        with (folder / f"{job_id}.lock").open("rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _lock(descriptor: int) -> None:
    """Raises BlockingIOError. Tried for a moment: who only looks (``claimed``) holds it that long."""
    for _ in range(20):
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(0.01)
    return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _holder(path: str) -> str:
    try:
        found = json.loads(Path(path).read_bytes())
        return f"process {found['pid']} on {found['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that has not yet written its name"
