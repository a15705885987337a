"""Local checkpoints in memory, where the job's file asks for it (``checkpoint: {in: memory}``): a save then
waits for no disk. They take memory that the training might want: as many as it keeps, the one that it is
writing, and one that is being sent and that it keeps no more.

The folder lies in ``/dev/shm``, outside the machine's own: it is removed when the agent ends, and what a
killed agent left behind by the next one on this host (a lock tells whose agent lives).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 - nobody else can make or enter the folder in it
PREFIX = "arylcloud-"
_LOCK = "lock"
_TRIES = 10


def folder_of(lease_id: str, memory: Path = MEMORY) -> Path | None:
    """None: this host has no such file system."""
    return memory / f"{PREFIX}{lease_id}" if memory.is_dir() and os.access(memory, os.W_OK) else None


class Held:
    """One agent's folder in memory, while it lives."""

    def __init__(self, folder: Path, *, log: Callable[[str], None]) -> None:
        """Raises OSError: it cannot be made, or is somebody else's, or of another agent that lives."""
        self._folder = folder
        self._lock = _own(folder)
        for other in folder.parent.glob(f"{PREFIX}*"):
            if other != folder and _abandoned(other):
                log(f"{other} was left behind by an agent that is gone: removed")
                shutil.rmtree(other, ignore_errors=True)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)


def _own(folder: Path) -> int:
    """The lock of ``folder``, made where it is missing. It has its name only once it is locked: an agent
    that starts at the same moment never finds one that looks abandoned."""
    for _ in range(_TRIES):
        if not folder.exists() and (made := _made(folder)) is not None:
            return made
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                raise PermissionError(f"{folder} is somebody else's")
            lock = _locked(folder)
        except FileNotFoundError:
            continue  # of a dead agent: another one has removed it just now
        if lock is None:
            raise BlockingIOError(f"{folder} is of an agent that lives")
        if _still(folder, lock):
            return lock
        os.close(lock)
    raise FileNotFoundError(f"{folder} is removed again and again")


def _made(folder: Path) -> int | None:
    """None: somebody has made it meanwhile."""
    fresh = Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=folder.parent))
    lock = _locked(fresh)
    assert lock is not None  # nobody else looks at such a name
    try:
        fresh.rename(folder)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        os.close(lock)
        if not folder.exists():
            raise
        return None
    return lock


def _still(folder: Path, lock: int) -> bool:
    """Is what was locked what lies there now?"""
    try:
        return os.path.samestat(os.fstat(lock), (folder / _LOCK).stat())
    except FileNotFoundError:
        return False


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
