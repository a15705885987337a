"""Checkpoints from the store to this machine: for the command that starts, and ahead of time."""

from __future__ import annotations

import contextlib
import queue
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from arylcloud.agent.decide import Outcome
from arylcloud.agent.shipper import one_line
from arylcloud.agent.sync import CheckpointSync, keep_only
from arylcloud.agent.waiting import HASTE_S, pause_s
from arylcloud.checkpoint.drafts import Copy
from arylcloud.checkpoint.restore import Near, list_manifests, read_manifest, restore
from arylcloud.checkpoint.store import map_error
from arylcloud.core.errors import IntegrityError, LocalStateError, StoreError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import EpochDoc, Manifest

PREFETCH_S = 1.0
PREFETCH_MOST_S = 10.0
"""Where no checkpoint has come for long: a list is the dearest look."""
DRAIN_POLL_S = 0.1
"""While the old machines save, of what they have sent so far: a small read."""
DRAIN_LIST_S = 0.3
TRUST_S = 60.0
"""What was verified so recently is not read again."""
NO_SPACE_TRIES = 5
"""A full disk may be emptied by somebody; not for ever."""


class _NotThisOneError(Exception):
    """Another checkpoint is wanted now."""


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
        self._pace = pace
        self._poll_s = PREFETCH_S * pace
        self._queue: queue.SimpleQueue[EpochDoc | None] = queue.SimpleQueue()
        self._halt = threading.Event()
        self.prefetching = threading.Event()
        self._lock = threading.Lock()
        self._outcome: Outcome | None = None
        self._prefetched: str | None = None
        self._near: tuple[Near, float] | None = None
        """What was pre-fetched, and when (monotonic) that was verified."""
        self._resume_from: str | None = None
        self._drain: int | None = None
        self._copy: Copy | None = None
        """What has come near of a checkpoint that is still being sent."""
        self._seen = ""
        self._listed_s = float("-inf")
        self._stirred_s = float("-inf")
        """When (monotonic) the drain was heard of, or a draft of it found."""
        self._news_s = float("-inf")
        """When (monotonic) it began to look for checkpoints, or one came."""
        self._failed: str | None = None
        """What has been said of following, and not become better."""
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
            self._wanted, self._resume_from = epoch.number, epoch.resume_from
        self.prefetching.clear()
        self._queue.put(epoch)

    def draining(self, epoch: int | None) -> None:
        """The old machines are asked to save and go, by ``epoch`` (None: they are not)."""
        if epoch != self._drain:
            self._drain, self._stirred_s = epoch, time.monotonic()
            self._queue.put(None)  # it may be between two looks that are far apart

    def stop(self) -> None:
        self._halt.set()
        self._queue.put(None)

    def run(self) -> None:
        failing_s = 0.0
        while not self._halt.is_set():
            hasty = self._hasty() and not failing_s
            try:
                epoch = self._queue.get(timeout=failing_s or self._pause_s(hasty=hasty))
            except queue.Empty:
                epoch = None
            if epoch is not None:
                self.serve(epoch)
            elif self.prefetching.is_set():
                try:
                    while self.prefetching.is_set() and self._follow():
                        self._listed_s = self._stirred_s = time.monotonic()  # the manifest comes last
                    now_s = time.monotonic()
                    if not hasty or now_s - self._listed_s >= DRAIN_LIST_S * self._pace:
                        self._listed_s = now_s
                        self._prefetch()
                    failing_s = 0.0
                except Exception as error:  # noqa: BLE001 - ahead of time: no harm if it fails
                    self._log(f"pre-fetching failed: {one_line(error)}")
                    failing_s = min(30.0, 2 * (failing_s or self._poll_s))

    def _pause_s(self, *, hasty: bool) -> float:
        now_s = time.monotonic()
        if hasty:
            return DRAIN_POLL_S * self._pace
        if not self.prefetching.is_set():  # nobody is asked: the next look is the first
            self._news_s = now_s
            return self._poll_s
        most_s, haste_s = PREFETCH_MOST_S * self._pace, HASTE_S * self._pace
        return pause_s(
            self._poll_s, now_s - self._news_s, most_s=min(most_s, PREFETCH_MOST_S), haste_s=haste_s
        )

    def _hasty(self) -> bool:
        waits = self._drain is not None and self.prefetching.is_set()
        return waits and time.monotonic() - self._stirred_s < HASTE_S * self._pace

    def serve(self, epoch: EpochDoc) -> None:
        """Restore what ``epoch`` resumes from, and say how that went. This thread's own, where it runs."""
        outcome = self._restore(epoch)
        with self._lock:
            self._outcome = outcome
            if self._wanted == epoch.number:
                self._resume_from = None
        if outcome.problem is None:  # the command starts meanwhile
            self._near = self._copy = None
            shutil.rmtree(self._cache, ignore_errors=True)

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
                        self._complete(manifest)
                restore(self._store, manifest, self._checkpoints, near=self._nearest())
            except LocalStateError:
                self._make_room(manifest.directory)
                raise
            self._log(f"resuming from {manifest.key} (step {manifest.step})")
        removed = keep_only(self._checkpoints, manifest.directory if manifest is not None else None)
        if removed:
            self._log(f"removed {', '.join(removed)}: not what this epoch resumes from")
        self._sync.resume(manifest)
        with self._lock:
            self._prefetched, self._seen = None, ""

    def _make_room(self, directory: str) -> None:
        """For the next try: what was brought near, and checkpoints that this epoch does not resume from."""
        self._near = self._copy = None
        shutil.rmtree(self._cache, ignore_errors=True)
        keep_only(self._checkpoints, directory)

    def _follow(self) -> bool:
        """Fetch what the old machines have just sent; False = nothing new. It never raises: there is always
        the manifest."""
        drain = self._drain
        if drain is None or self._sends_itself():
            return False
        if self._copy is None or self._copy.epoch != drain:
            folder = self._cache / f"drain-{drain:06d}"
            self._copy = Copy(self._store, folder, job_id=self._job_id, epoch=drain)

        def progress(_: int) -> None:
            if self._halt.is_set() or not self.prefetching.is_set():  # the rest is asked for by name
                raise _NotThisOneError

        try:
            found = self._copy.look(progress, self._near[0] if self._near is not None else None)
        except _NotThisOneError:
            return False
        except Exception as error:  # noqa: BLE001 - ahead of time: no harm if it fails
            problem = one_line(error)
            if problem != self._failed:
                self._log(f"what is being sent cannot be followed: {problem}")
            self._failed = problem
            if not isinstance(error, StoreError):
                self._copy.give_up()
            return False
        self._failed = None
        return found

    def _sends_itself(self) -> bool:
        """It was rank 0, and what it has sent lies here."""
        outcome, committed = self.outcome, self._sync.status.committed
        return outcome is not None and committed is not None and f"/e{outcome.epoch:06d}-" in committed

    def _complete(self, manifest: Manifest, progress: Callable[[int], None] | None = None) -> bool:
        """Where ``manifest`` is of what came near while it was sent: fetch what is missing. Raises as
        ``restore`` does."""
        if self._copy is None:
            return False
        begun_s = self._copy.begun_s
        try:
            near = self._copy.complete(manifest, progress, self._near[0] if self._near is not None else None)
        except OSError as error:
            raise map_error(error, f"cannot restore into {self._cache}") from error
        if near is None:
            return False
        early, late = self._copy.early, self._copy.late
        self._log(f"{early} chunks of {manifest.directory} came while it was being sent, {late} after that")
        self._near = (near, begun_s)
        return True

    def _prefetch(self) -> None:
        keys = list_manifests(self._store, after=self._seen)
        if not keys:
            return
        key = keys[-1]
        if key != self._sync.status.committed:  # else it lies here already
            try:
                manifest = read_manifest(self._store, key, job_id=self._job_id)
                self._bring_near(manifest)
            except _NotThisOneError:
                return
            except IntegrityError as error:
                self._log(f"pre-fetching passes over {key}: {error.message}")
                self._seen = key
                return
        self._news_s = time.monotonic()
        with self._lock:
            self._seen = self._prefetched = key

    def _bring_near(self, manifest: Manifest) -> None:
        """The whole checkpoint into a folder of ours; what an earlier one has in common with it stays. An
        epoch that resumes from another is not kept waiting."""

        def progress(_: int) -> None:
            if self._halt.is_set() or self._resume_from not in (None, manifest.key):
                raise _NotThisOneError

        if self._complete(manifest, progress):
            return  # what is older goes when the command has started: time counts now
        before = self._nearest()
        # by the manifest's key: two of one step may differ
        folder = self._cache / manifest.key.rpartition("/")[2]
        path = restore(self._store, manifest, folder, near=before, progress=progress)
        near = Near(manifest=manifest, folder=path, trusted=True)
        self._near = (near, time.monotonic())
        for other in self._cache.iterdir():
            if other != folder and (self._copy is None or other != self._copy.folder):
                shutil.rmtree(other, ignore_errors=True)

    def _nearest(self) -> Near | None:
        if self._near is None:
            return None
        near, verified_s = self._near
        return near if time.monotonic() - verified_s < TRUST_S else replace(near, trusted=False)


def _this_machine(epoch: EpochDoc, why: str) -> str:
    """Never with the checkpoint's name: the launcher would give it up, and every other one after it."""
    if epoch.resume_from:
        why = why.replace(epoch.resume_from, "the checkpoint")
    return f"this machine cannot restore a checkpoint: {why}"
