"""Checkpoints on this machine's disk: which are complete, and that what an epoch does not resume from goes.

A checkpoint ``step-N`` is complete when it holds ``_COMPLETE``, or was renamed into place: the kernel
has said so (inotify), or the folder's ctime is later than its mtime (a rename changes only the
former). A folder written in place without ``_COMPLETE`` is never complete: nobody can know whether
it is whole.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

_STEP = re.compile(r"step-(\d{1,18})")
_GOING = ".aryl-going-"
"""What is being removed has this before its name: half of a checkpoint is none."""
SENDING = ".aryl-sending-"
"""What is on its way to the store has this before its name (``checkpoint/snapshot``)."""
COMPLETE = "_COMPLETE"
STALE_S = 60.0
"""A folder that has not become complete for this long is mentioned in the log."""
UNWATCHED = (
    "this machine cannot see that a folder was renamed right after it was written (Linux: raise "
    f"fs.inotify.max_user_instances): write a {COMPLETE} file into it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A complete checkpoint on this machine's disk."""

    step: int
    path: Path
    saved_at_s: float
    """When the training had finished writing it."""

    @property
    def key(self) -> tuple[str, float]:
        """Another one, written anew under the same name, has another."""
        return (self.path.name, self.saved_at_s)


def step_of(name: str) -> int | None:
    match = _STEP.fullmatch(name)
    return None if match is None else int(match[1])


def steps(folder: Path) -> list[tuple[int, Path]]:
    """Every ``step-N`` folder, complete or not, in order of N."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        step = step_of(path.name)
        if step is not None and path.is_dir() and not path.is_symlink():
            found.append((step, path))
    return sorted(found)


def complete(folder: Path, renamed: frozenset[str] = frozenset()) -> list[Saved]:
    """The complete ones, in order of step."""
    found = []
    for step, path in steps(folder):
        try:
            status = path.stat()
            mark = path / COMPLETE
            if mark.exists():
                at_s = mark.stat().st_mtime
            elif path.name in renamed or status.st_ctime_ns > status.st_mtime_ns:
                at_s = status.st_ctime
            else:
                continue
        except FileNotFoundError:
            continue  # the training prunes its old ones
        found.append(Saved(step=step, path=path, saved_at_s=at_s))
    return found


def stale(folder: Path, now_s: float, *, but: set[str]) -> list[str]:
    """Names of ``step-N`` folders, none of ``but``, in which nothing has changed for ``STALE_S``."""
    found = []
    for _, path in steps(folder):
        try:
            if path.name not in but and now_s - path.stat().st_mtime > STALE_S:
                found.append(path.name)
        except FileNotFoundError:
            continue
    return found


def keep_only(folder: Path, name: str | None) -> list[str]:
    """Remove every checkpoint but ``name``: what a command finds is what its epoch resumes from,
    on every rank the same. Returns what was removed. Cut off anywhere, it leaves no ``step-N`` that has
    lost some of its files, and the next call removes the rest."""
    removed = [path for _, path in steps(folder) if path.name != name]
    for rest in folder.glob(f"{_GOING}*"):  # of a call that was cut off
        shutil.rmtree(rest)
    for path in removed:
        shutil.rmtree(path.rename(path.with_name(_GOING + path.name)))
    return [path.name for path in removed]


def drop_sending(folder: Path) -> None:
    """What an agent before this one was sending when it ended."""
    for rest in folder.glob(f"{SENDING}*"):
        shutil.rmtree(rest, ignore_errors=True)
