"""Checkpoints of the running command to the store: what is complete is committed, the newest first.

A checkpoint ``step-N`` is complete when it holds ``_COMPLETE``, or was renamed into place: the kernel
has said so (inotify), or the folder's ctime is later than its mtime (a rename changes only the
former). A folder written in place without ``_COMPLETE`` is never committed: nobody can know whether
it is whole.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from arylcloud.agent.inotify import Renames
from arylcloud.agent.shipper import one_line
from arylcloud.checkpoint.restore import next_number
from arylcloud.checkpoint.upload import Uploader
from arylcloud.core.clock import Clock
from arylcloud.core.errors import ConflictError, IntegrityError, StoreError, UsageError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import Manifest

_STEP = re.compile(r"step-(\d{1,18})")
_GOING = ".aryl-going-"
"""What is being removed has this before its name: half of a checkpoint is none."""
COMPLETE = "_COMPLETE"
SCAN_S = 0.2
STALE_S = 60.0
"""A folder that has not become complete for this long is mentioned in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A complete checkpoint on this machine's disk."""

    step: int
    path: Path
    saved_at_s: float
    """When the training had finished writing it."""


def steps(folder: Path) -> list[tuple[int, Path]]:
    """Every ``step-N`` folder, complete or not, in order of N."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _STEP.fullmatch(path.name)
        if match is not None and path.is_dir() and not path.is_symlink():
            found.append((int(match[1]), path))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncStatus:
    committed: str | None = None
    committed_step: int | None = None
    upload_s: float | None = None
    saved_epoch: int = 0
    """Newest epoch whose final checkpoint is in (see ``finish``)."""
    problem: str | None = None
    """Why the newest commit has not gone through yet."""


class CheckpointSync(threading.Thread):
    """One background thread: scan, commit, repeat. A failed upload is tried again for ever, slower
    and slower; it never touches the command."""

    def __init__(
        self,
        store: ObjectStore,
        folder: Path,
        *,
        job_id: str,
        lease_id: str,
        clock: Clock,
        log: Callable[[str], None],
    ) -> None:
        super().__init__(name="sync", daemon=True)
        self._store = store
        self._folder = folder
        self._job_id = job_id
        self._lease_id = lease_id
        self._clock = clock
        self._log = log
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._halt = threading.Event()
        self._status = SyncStatus()
        self._epoch: int | None = None
        self._final: int | None = None
        self._number: int | None = None
        self._uploader = Uploader(store)
        self._passed_over: set[tuple[str, float]] = set()
        self._mentioned: set[str] = set()
        folder.mkdir(parents=True, exist_ok=True)
        self._renames = Renames(folder)

    @property
    def status(self) -> SyncStatus:
        with self._lock:
            return self._status

    def saved(self) -> list[Saved]:
        """The complete ones on this disk, in order of step. May be asked from another thread."""
        return complete(self._folder, self._renames.names())

    def resume(self, manifest: Manifest | None) -> None:
        """Before the command starts: what lies in the folder is this manifest (None: nothing)."""
        with self._lock:
            if manifest is not None:
                self._uploader.vouch(manifest)
            self._status = replace(
                self._status,
                committed=manifest.key if manifest is not None else None,
                committed_step=manifest.step if manifest is not None else None,
                problem=None,
            )

    def begin(self, epoch: int) -> None:
        """From now on, commit this epoch's checkpoints."""
        with self._lock:
            self._epoch, self._final, self._number = epoch, None, None
            self._passed_over.clear()

    def finish(self, epoch: int, *, commits: bool) -> None:
        """The command is gone: once its newest complete checkpoint is in, say ``saved_epoch``.
        ``commits``: this machine is the one that commits (rank 0)."""
        with self._lock:
            if commits:
                self._final = epoch
            else:
                self._status = replace(self._status, saved_epoch=epoch)
        self._wake.set()

    def stop(self) -> None:
        self._halt.set()
        self._wake.set()

    def run(self) -> None:
        wait_s = SCAN_S
        while not self._halt.is_set():
            try:
                wait_s = SCAN_S if self._turn() else min(10.0, max(0.5, wait_s * 2))
            except Exception as error:  # noqa: BLE001 - an error here must not end the thread, nor the job
                self._fail(f"checkpoints are not being committed: {one_line(error)}")
                wait_s = min(10.0, max(0.5, wait_s * 2))
            self._wake.wait(wait_s)
            self._wake.clear()

    def _turn(self) -> bool:
        """Commit the newest complete checkpoint, if it is new. False = it did not go through."""
        with self._lock:
            epoch, final = self._epoch, self._final
        if epoch is None:
            return True
        saved = self._newest()
        if saved is not None and not self._commit(saved, epoch):
            return False
        if saved is None:
            self._mention_incomplete()
        with self._lock:
            # what became complete while the last upload ran is seen by a scan after ``finish``
            if saved is None and final is not None and final == self._final:
                self._status = replace(self._status, saved_epoch=final)
                self._epoch = self._final = None
        if saved is not None:
            self._wake.set()  # look again at once
        return True

    def _newest(self) -> Saved | None:
        committed = self.status.committed_step
        fresh = [
            saved
            for saved in self.saved()
            if (committed is None or saved.step > committed)
            and (saved.path.name, saved.saved_at_s) not in self._passed_over
        ]
        return fresh[-1] if fresh else None

    def _commit(self, saved: Saved, epoch: int) -> bool:
        begun_s = self._clock.monotonic_s()
        try:
            if self._number is None:
                self._number = next_number(self._store, epoch)
            manifest = self._uploader.commit(
                saved.path,
                job_id=self._job_id,
                lease_id=self._lease_id,
                epoch=epoch,
                number=self._number,
                step=saved.step,
                saved_at_s=saved.saved_at_s,
                clock=self._clock,
            )
        except StoreError as error:
            self._fail(f"{saved.path.name} waits for the store: {error.message}")
            return False
        except ConflictError as error:
            self._number = None  # somebody else's number, or our own lost answer: look again
            self._fail(error.message)
            return False
        except (IntegrityError, UsageError) as error:
            if not saved.path.exists():
                return True  # the training has pruned it: the next scan finds its successor
            # it will not get better by itself: passed over until it is written anew
            self._passed_over.add((saved.path.name, saved.saved_at_s))
            self._fail(f"{saved.path.name} cannot be committed: {error.message}")
            return True
        upload_s = self._clock.monotonic_s() - begun_s
        self._number += 1
        with self._lock:
            self._status = replace(
                self._status,
                committed=manifest.key,
                committed_step=manifest.step,
                upload_s=upload_s,
                problem=None,
            )
        size_mb = manifest.total_bytes / 1e6
        self._log(f"committed {saved.path.name} as {manifest.key} ({size_mb:.1f} MB in {upload_s:.2f} s)")
        return True

    def _mention_incomplete(self) -> None:
        for _, path in steps(self._folder):
            if path.name in self._mentioned:
                continue
            try:
                age_s = self._clock.now_s() - path.stat().st_mtime
            except FileNotFoundError:
                continue
            done = {saved.path.name for saved in self.saved()}
            if age_s > STALE_S and path.name not in done:
                self._mentioned.add(path.name)
                self._log(
                    f"{path.name} is not committed: it was neither renamed into place nor has it "
                    f"a {COMPLETE} file, so that nobody can know whether it is whole"
                )

    def _fail(self, problem: str) -> None:
        with self._lock:
            known = self._status.problem
            self._status = replace(self._status, problem=problem)
        if problem != known:
            self._log(problem)
