"""Local checkpoints: found, written whole or not at all, pruned. Uploading them is the agent's work."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arylcloud.training.environment import info
from arylcloud.training.progress import saved

COMPLETE = "_COMPLETE"
SHARDED = "_SHARDED"
"""In a folder that holds one node's part of a checkpoint."""
_STEP = re.compile(r"step-(\d{1,18})")


class _Last:
    """When this process last saved, or first asked: what ``should_checkpoint`` counts from."""

    at: float | None = None
    heeded = False
    """It has saved since the cloud's warning."""
    going: set[Path] = set()  # noqa: RUF012 - the process's, like the rest
    """What is being removed beside the training."""


def completed(folder: Path | None = None) -> list[tuple[int, Path]]:
    """(step, path) of every complete checkpoint in ``folder`` (default: this job's), by step."""
    root = info().checkpoint_dir if folder is None else folder
    found = []
    for path in root.iterdir() if root.is_dir() else ():
        match = _STEP.fullmatch(path.name)
        if match and path.is_dir() and not path.is_symlink() and _is_complete(path):
            found.append((int(match[1]), path))
    return sorted(found)


def latest(folder: Path | None = None) -> Path | None:
    """The newest complete checkpoint, or None: start from the beginning."""
    found = completed(folder)
    return found[-1][1] if found else None


def _is_complete(path: Path) -> bool:
    if (path / COMPLETE).exists():
        return True
    # a rename changes a folder's ctime and not its mtime; creating files in it changes both alike
    status = path.stat()
    return status.st_ctime_ns > status.st_mtime_ns


def should_checkpoint(default_s: float = 600.0) -> bool:
    """Is it time to save? Every ``$ARYL_CHECKPOINT_INTERVAL_S`` seconds (without it, ``default_s``), counted
    from the end of the last ``save``, at first from the first call; and once, when the cloud warns that it
    may take the machine."""
    now = time.monotonic()
    if _Last.at is None:
        _Last.at = now
    if _warned() and not _Last.heeded:
        return True
    interval_s = info().checkpoint_interval_s
    return now - _Last.at >= (default_s if interval_s is None else interval_s)


def _warned() -> bool:
    file = info().warning_file
    return file is not None and file.exists()


@contextmanager
def save(step: int, *, keep: int = 2, sharded: bool = False) -> Iterator[Path]:
    """An empty folder to write checkpoint ``step`` into. If the block ends well, the folder becomes
    ``step-<step>`` by one rename (replacing an older one of that name), and of the earlier ones the last
    ``keep`` - 1 stay. If it raises, nothing changes.

    ``sharded``: every node has a part of this checkpoint, and it is whole when all of them have saved
    theirs; call it on every node, with the same ``step``, and give files names that differ between nodes.
    After a restart each node finds the files of all.

    Outside arylcloud every file is brought to the disk first (fsync). Under it none is, which is most of what
    a save costs: what counts there is the copy in the object store, and its digests.

    Killed anywhere, it leaves the earlier steps' checkpoints whole. Raises OSError when the disk is
    full. With several processes: call it in one process per node.
    """
    begun = time.monotonic()
    warned = _warned()
    durable = info().job_id is None
    root = info().checkpoint_dir
    root.mkdir(parents=True, exist_ok=True)
    for stale in root.glob(".step-*"):
        if stale not in _Last.going and not _alive(stale.suffix[1:]):
            shutil.rmtree(stale, ignore_errors=True)
    folder = root / f".step-{step}.{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
        if sharded:
            (folder / SHARDED).touch()
        (folder / COMPLETE).touch()
        if durable:
            _sync_tree(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    final = root / f"step-{step}"
    gone: list[Path] = []
    if final.exists():
        gone.append(final.rename(_aside(final)))
    folder.rename(final)
    if durable:
        _sync(root)
    gone += _prune(root, step, keep)
    if durable:
        _remove(gone)
    elif gone:
        # to free gigabytes takes a while: not the training's (what a process that ends leaves behind has a
        # name that counts for nothing, and goes with the next save)
        _Last.going.update(gone)
        threading.Thread(target=_remove, args=(gone,), name="aryl-prune", daemon=True).start()
    _Last.at = time.monotonic()
    _Last.heeded = _Last.heeded or warned
    saved(step, _Last.at - begun)


def _prune(root: Path, step: int, keep: int) -> list[Path]:
    """Of the checkpoints before ``step``, the last ``keep`` - 1 stay; what is to be removed of the others."""
    earlier = [path for number, path in completed(root) if number < step]
    # under another name: killed half-way, it must not leave half of a complete checkpoint
    return [path.rename(_aside(path)) for path in earlier[: max(0, len(earlier) - (keep - 1))]]


def _aside(path: Path) -> Path:
    """A name that counts for nothing, and that nothing has: an earlier one may still be on its way out."""
    return path.with_name(f".{path.name}.{time.time_ns()}.old")


def _remove(folders: list[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        _Last.going.discard(folder)


def _alive(pid: str) -> bool:
    """Does the process that writes this folder still live, and is another than this one?"""
    if not pid.isdigit() or int(pid) == os.getpid():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sync_tree(folder: Path) -> None:
    for where, _, names in os.walk(folder):
        for name in names:
            _sync(Path(where, name))
        _sync(Path(where))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
