"""Local checkpoints in memory, where the job's file asks for it (``checkpoint: {in: memory}``): a save then
waits for no disk. They take memory that the training might want: as many as it keeps, and one more.

The folder lies in ``/dev/shm``, outside the machine's own: it is removed when the agent ends, and what a
killed agent left behind by the next one on this host (a lock tells whose agent lives).
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 - nobody else can make or enter the folder in it
PREFIX = "arylcloud-"
_LOCK = "lock"


def folder_of(lease_id: str, memory: Path = MEMORY) -> Path | None:
    """None: this host has no such file system."""
    return memory / f"{PREFIX}{lease_id}" if memory.is_dir() and os.access(memory, os.W_OK) else None


class Held:
    """One agent's folder in memory, while it lives."""

    def __init__(self, folder: Path, *, log: Callable[[str], None]) -> None:
        """Raises OSError."""
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{folder} is somebody else's")
        self._lock = _locked(folder)
        for other in folder.parent.glob(f"{PREFIX}*"):
            if other != folder and _abandoned(other):
                log(f"{other} was left behind by an agent that is gone: removed")
                shutil.rmtree(other, ignore_errors=True)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)


def _abandoned(folder: Path) -> bool:
    try:
        lock = _locked(folder)
    except OSError:  # another user's, or gone meanwhile
        return False
    if lock is None:
        return False
    os.close(lock)
    return True


def _locked(folder: Path) -> int | None:
    """None: an agent has it. A file's descriptor holds the lock, and is not inherited."""
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle
