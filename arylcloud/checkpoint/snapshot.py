"""A finished checkpoint held fast while it is sent: hard links, so that the training may prune as it likes.

Without it, a training that saves faster than its checkpoints can be sent, and keeps the last two, takes each
one away before its upload is through: nothing would ever be committed. Links cost no copy and no time of
the training's; the disk holds at most one checkpoint more than the training keeps.
"""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from arylcloud.checkpoint.chunks import SourceFile, changed, scan
from arylcloud.checkpoint.store import unreadable

_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""File systems without hard links; links that lead to another one; files of another user's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """``path`` holds the files of ``origin`` as they were; where the file system has no hard links, it *is*
    ``origin``."""

    path: Path
    origin: Path
    directory: tuple[int, int]
    """Device and inode of ``origin``."""
    files: tuple[SourceFile, ...]

    @property
    def linked(self) -> bool:
        return self.path != self.origin

    def check(self) -> None:
        """``origin`` may lose files, all of them too: it is being pruned. One that has been added or
        written anew is an IntegrityError: what was finished was not finished."""
        if not self.linked or _directory(self.origin) != self.directory:
            return
        taken = {file.name: file for file in self.files}
        try:
            now = scan(self.origin)
        except FileNotFoundError:
            return
        for file in now:
            if file.name not in taken or taken[file.name].seen != file.seen:
                raise changed(f"{self.origin.name}/{file.name}")

    def drop(self) -> None:
        """Let the files go. Idempotent."""
        if self.linked:
            shutil.rmtree(self.path, ignore_errors=True)


def take(origin: Path, into: Path) -> Snapshot:
    """Links to every file of ``origin`` in the folder ``into`` (of the same file system; what lies there
    goes). Raises IntegrityError if ``origin`` changes meanwhile, what ``chunks.scan`` raises, and
    LocalStateError for a disk that is full or read-only."""
    try:
        directory = _directory(origin)
        if directory is None:
            raise changed(origin.name)
        before = scan(origin)
        shutil.rmtree(into, ignore_errors=True)
        try:
            _link(before, into)
        except OSError as error:
            shutil.rmtree(into, ignore_errors=True)
            if error.errno not in _NO_LINKS:
                raise
            return Snapshot(path=origin, origin=origin, directory=directory, files=before)
        after = scan(origin)
    except FileNotFoundError as error:  # pruned by the training, or by somebody else
        shutil.rmtree(into, ignore_errors=True)
        raise changed(origin.name) from error
    except OSError as error:
        raise unreadable(error, f"cannot read the checkpoint {origin}") from error
    found = Snapshot(path=into, origin=origin, directory=directory, files=after)
    # compared by content: links have changed every ctime
    if [(f.name, f.seen) for f in before] != [(f.name, f.seen) for f in after]:
        found.drop()
        raise changed(origin.name)
    return found


def _link(files: tuple[SourceFile, ...], into: Path) -> None:
    into.mkdir(parents=True)
    for file in files:
        path = into / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(file.path, path)


def _directory(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return (status.st_dev, status.st_ino)
