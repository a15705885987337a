"""Checkpoints from the store to this machine: for the command that starts, and ahead of time."""

from __future__ import annotations

import queue
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from arylcloud.agent.decide import Outcome
from arylcloud.agent.shipper import one_line
from arylcloud.agent.sync import CheckpointSync, keep_only
from arylcloud.checkpoint.restore import list_manifests, prefetch, read_manifest, restore
from arylcloud.core.errors import IntegrityError, LocalStateError, StoreError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import EpochDoc, Manifest

PREFETCH_S = 1.0
NO_SPACE_TRIES = 5
"""A full disk may be emptied by somebody; not for ever."""


class Restorer(threading.Thread):
    """One thing at a time: the newest epoch's restore; while nothing is to be restored and
    ``prefetching`` is set, the newest manifest's chunks into a cache."""

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
        self._cache = cache
        self._job_id = job_id
        self._log = log
        self._poll_s = PREFETCH_S * pace
        self._queue: queue.SimpleQueue[EpochDoc | None] = queue.SimpleQueue()
        self._halt = threading.Event()
        self.prefetching = threading.Event()
        self._lock = threading.Lock()
        self._outcome: Outcome | None = None
        self._prefetched: str | None = None
        self._seen = ""
        self._wanted = 0

    @property
    def outcome(self) -> Outcome | None:
        with self._lock:
            return self._outcome

    @property
    def prefetched(self) -> str | None:
        with self._lock:
            return self._prefetched

    def ask(self, epoch: EpochDoc) -> None:
        with self._lock:
            self._wanted = epoch.number
        self.prefetching.clear()
        self._queue.put(epoch)

    def stop(self) -> None:
        self._halt.set()
        self._queue.put(None)

    def run(self) -> None:
        wait_s = self._poll_s
        while not self._halt.is_set():
            try:
                epoch = self._queue.get(timeout=wait_s)
            except queue.Empty:
                epoch = None
            if epoch is not None:
                outcome = self._restore(epoch)
                with self._lock:
                    self._outcome = outcome
            elif self.prefetching.is_set():
                try:
                    self._prefetch()
                    wait_s = self._poll_s
                except Exception as error:  # noqa: BLE001 - ahead of time: no harm if it fails
                    self._log(f"pre-fetching failed: {one_line(error)}")
                    wait_s = min(30.0, wait_s * 2)

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
                    problem = f"this machine cannot restore a checkpoint: {error.message}"
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
                problem = f"this machine cannot restore a checkpoint: {one_line(error)}"
                self._log(problem)
                return Outcome(epoch=epoch.number, problem=problem)
        return Outcome(epoch=epoch.number, problem="overtaken by a newer epoch")

    def _restore_once(self, epoch: EpochDoc) -> None:
        manifest: Manifest | None = None
        if epoch.resume_from is not None:
            manifest = read_manifest(self._store, epoch.resume_from, job_id=self._job_id)
            restore(self._store, manifest, self._checkpoints, cache=self._cache)
            self._log(f"resuming from {manifest.key} (step {manifest.step})")
        removed = keep_only(self._checkpoints, manifest.directory if manifest is not None else None)
        if removed:
            self._log(f"removed {', '.join(removed)}: not what this epoch resumes from")
        self._sync.resume(manifest)
        shutil.rmtree(self._cache, ignore_errors=True)
        with self._lock:
            self._prefetched, self._seen = None, ""

    def _prefetch(self) -> None:
        keys = list_manifests(self._store, after=self._seen)
        if not keys:
            return
        key = keys[-1]
        if key != self._sync.status.committed:  # else it lies here already
            try:
                manifest = read_manifest(self._store, key, job_id=self._job_id)
                prefetch(self._store, manifest, self._cache)
            except IntegrityError as error:
                self._log(f"pre-fetching passes over {key}: {error.message}")
                self._seen = key
                return
        with self._lock:
            self._seen = self._prefetched = key
