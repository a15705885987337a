"""The checkpoint that an epoch resumes from, onto this machine: for the command that starts."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from arylcloud.agent.ahead import Ahead
from arylcloud.agent.decide import Outcome
from arylcloud.agent.shipper import one_line
from arylcloud.agent.sync import CheckpointSync, keep_only
from arylcloud.checkpoint.restore import read_manifest, restore
from arylcloud.core.errors import IntegrityError, LocalStateError, StoreError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import EpochDoc, Manifest

NO_SPACE_TRIES = 5
"""A full disk may be emptied by somebody; not for ever."""


class Restorer(threading.Thread):
    """One thing at a time: the newest epoch's restore; while nothing is to be restored and
    ``prefetching`` is set, what may be wanted next is brought near (``agent/ahead``)."""

    def __init__(
        self,
        store: ObjectStore,
        sync: CheckpointSync,
        *,
        checkpoints: Path,
        cache: Path,
        job_id: str,
        log: Callable[[str], None],
        pace: float = 1.0,
    ) -> None:
        super().__init__(name="restore", daemon=True)
        self._store = store
        self._sync = sync
        self._checkpoints = checkpoints
        self._job_id = job_id
        self._log = log
        self._queue: queue.SimpleQueue[EpochDoc | None] = queue.SimpleQueue()
        self._halt = threading.Event()
        self.prefetching = threading.Event()
        self._lock = threading.Lock()
        self._outcome: Outcome | None = None
        self._resume_from: str | None = None
        self._wanted = 0
        self.ahead = Ahead(
            store,
            cache=cache,
            job_id=job_id,
            log=log,
            pace=pace,
            committed=lambda: sync.status.committed,
            wanted=self._goes_on,
        )

    @property
    def outcome(self) -> Outcome | None:
        with self._lock:
            return self._outcome

    @property
    def prefetched(self) -> str | None:
        return self.ahead.prefetched

    def ask(self, epoch: EpochDoc) -> None:
        with self._lock:
            self._wanted, self._resume_from = epoch.number, epoch.resume_from
        self.prefetching.clear()
        self._queue.put(epoch)

    def draining(self, epoch: int | None) -> None:
        """The old machines are asked to save and go, by ``epoch`` (None: they are not)."""
        if self.ahead.draining(epoch):
            self._queue.put(None)  # it may be between two looks that are far apart

    def stop(self) -> None:
        self._halt.set()
        self._queue.put(None)

    def run(self) -> None:
        failing_s = 0.0
        while not self._halt.is_set():
            hasty = self.ahead.hasty() and not failing_s
            try:
                epoch = self._queue.get(timeout=failing_s or self.ahead.pause_s(hasty=hasty))
            except queue.Empty:
                epoch = None
            if epoch is not None:
                self.serve(epoch)
            elif self.prefetching.is_set():
                try:
                    self.ahead.turn(hasty=hasty)
                    failing_s = 0.0
                except Exception as error:  # noqa: BLE001 - ahead of time: no harm if it fails
                    self._log(f"pre-fetching failed: {one_line(error)}")
                    failing_s = min(30.0, 2 * (failing_s or self.ahead.poll_s))

    def _goes_on(self, manifest: str | None) -> bool:
        """With bringing near what is named, or whatever comes; what an epoch resumes from is."""
        if self._halt.is_set():
            return False
        return self.prefetching.is_set() if manifest is None else self._resume_from in (None, manifest)

    def serve(self, epoch: EpochDoc) -> None:
        """Restore what ``epoch`` resumes from, and say how that went. This thread's own, where it runs."""
        outcome = self._restore(epoch)
        with self._lock:
            self._outcome = outcome
            if self._wanted == epoch.number:
                self._resume_from = None
        self.ahead.served = epoch.number
        if outcome.problem is None:  # the command starts meanwhile
            self.ahead.forget()

    def _restore(self, epoch: EpochDoc) -> Outcome:
        """Store errors are waited out as long as the epoch is the newest one asked for."""
        wait_s = 0.5
        no_space = 0
        while not self._halt.is_set() and self._wanted == epoch.number:
            try:
                self._restore_once(epoch)
                return Outcome(epoch=epoch.number)
            except StoreError as error:
                no_space += isinstance(error, LocalStateError)
                if no_space >= NO_SPACE_TRIES:
                    problem = _this_machine(epoch, error.message)
                    self._log(problem)
                    return Outcome(epoch=epoch.number, problem=problem)
                self._log(f"waiting to restore: {error.message}")
                self._halt.wait(wait_s)
                wait_s = min(10.0, wait_s * 2)
            except IntegrityError as error:
                # naming the manifest makes the launcher reject it: only where the manifest is at fault
                problem = f"cannot restore {epoch.resume_from}: {error.message}"
                self._log(problem)
                return Outcome(epoch=epoch.number, problem=problem)
            except Exception as error:  # noqa: BLE001 - a full disk, a bug: another machine may do
                problem = _this_machine(epoch, one_line(error))
                self._log(problem)
                return Outcome(epoch=epoch.number, problem=problem)
        return Outcome(epoch=epoch.number, problem="overtaken by a newer epoch")

    def _restore_once(self, epoch: EpochDoc) -> None:
        manifest: Manifest | None = None
        if epoch.resume_from is not None:
            manifest = read_manifest(self._store, epoch.resume_from, job_id=self._job_id)
            try:
                if manifest.key != self._sync.status.committed:  # else it lies here already
                    # a chunk that cannot be had there may be had elsewhere; if not, restore says so
                    with contextlib.suppress(IntegrityError):
                        self.ahead.complete(manifest)
                restore(self._store, manifest, self._checkpoints, near=self.ahead.nearest())
            except LocalStateError:
                self._make_room(manifest.directory)
                raise
            self._log(f"resuming from {manifest.key} (step {manifest.step})")
        removed = keep_only(self._checkpoints, manifest.directory if manifest is not None else None)
        if removed:
            self._log(f"removed {', '.join(removed)}: not what this epoch resumes from")
        self._sync.resume(manifest)
        self.ahead.restored()

    def _make_room(self, directory: str) -> None:
        """For the next try: what was brought near, and checkpoints that this epoch does not resume from."""
        self.ahead.forget()
        keep_only(self._checkpoints, directory)


def _this_machine(epoch: EpochDoc, why: str) -> str:
    """Never with the checkpoint's name: the launcher would give it up, and every other one after it."""
    if epoch.resume_from:
        why = why.replace(epoch.resume_from, "the checkpoint")
    return f"this machine cannot restore a checkpoint: {why}"
