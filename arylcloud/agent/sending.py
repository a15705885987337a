"""One complete checkpoint's chunks to the store, while the training goes on; and what to do when there is
little time left."""

from __future__ import annotations

import threading
from collections.abc import Callable

from arylcloud.agent.saved import SENDING, Saved
from arylcloud.checkpoint.drafts import Announcer
from arylcloud.checkpoint.manifest import list_manifests, read_manifest
from arylcloud.checkpoint.pressing import hopeless, switch
from arylcloud.checkpoint.snapshot import take
from arylcloud.checkpoint.upload import Uploader
from arylcloud.core.clock import Clock
from arylcloud.core.errors import IntegrityError, UsageError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import FileEntry, Manifest


class OvertakenError(Exception):
    """There is not enough time for this one and the newer one. Nothing is wrong with either."""


class Sender:
    """Used by one thread; ``hurry`` by any."""

    def __init__(
        self, store: ObjectStore, *, job_id: str, clock: Clock, newest: Callable[[], int | None]
    ) -> None:
        """``newest``: the step of the newest complete checkpoint, looked up now."""
        self._store = store
        self._job_id = job_id
        self._clock = clock
        self._newest = newest
        self._lock = threading.Lock()
        self._until_s: float | None = None
        self._best: float | None = None
        """Bytes per second of the fastest upload, while bytes were sent: to wait for other ranks' parts, or
        for a pruner, is not to be slow."""
        self._begun_s = 0.0
        self._vouched_for: str | None = None
        self._announcer: Announcer | None = None
        self.uploader = Uploader(store)

    def hurry(self, left_s: float) -> None:
        """The cloud takes this machine in ``left_s``."""
        with self._lock:
            self._until_s = self._clock.monotonic_s() + left_s

    def draining(self, epoch: int | None) -> None:
        """Since ``epoch``, somebody waits for what this machine saves (None: nobody does): it is told of
        each chunk that is in the store, and need not wait for the last."""
        with self._lock:
            known = self._announcer.epoch if self._announcer is not None else None
            if known != epoch:
                job_id = self._job_id
                self._announcer = (
                    Announcer(self._store, job_id=job_id, epoch=epoch) if epoch is not None else None
                )

    def vouch(self, manifest: Manifest | None) -> None:
        """This machine has restored, and so verified, ``manifest``."""
        self._vouched_for = None
        if manifest is not None:
            self.uploader.vouch(manifest)
            self._vouched_for = manifest.key

    def catch_up(self, epoch: int) -> int | None:
        """What ``epoch``'s newest manifest names is kept by whoever prunes, and need not be sent again.
        Its step; None: there is none yet, or none that can be read. Raises StoreError."""
        keys = [key for key in list_manifests(self._store) if f"/e{epoch:06d}-" in key]
        if not keys:
            return None
        try:
            manifest = read_manifest(self._store, keys[-1], job_id=self._job_id)
        except IntegrityError:
            return None
        if manifest.key != self._vouched_for:
            self.vouch(manifest)
        return manifest.step

    def send(self, saved: Saved, *, committed_step: int | None, whole: bool = True) -> tuple[FileEntry, ...]:
        """``whole``: it is all of a checkpoint, not one rank's part. Raises as ``Uploader.send`` and
        ``snapshot.take``; UsageError where there is no time for it; OvertakenError."""
        self._begun_s = self._clock.monotonic_s()
        snapshot = take(saved.path, saved.path.with_name(SENDING + saved.path.name))
        try:
            size = sum(file.size for file in snapshot.files)
            left_s = self.left_s()
            if left_s is not None and hopeless(size, left_s=left_s, best_bytes_per_s=self._best):
                back = "the beginning" if committed_step is None else f"step-{committed_step}"
                raise UsageError(
                    f"{size / 1e6:.0f} MB cannot be sent in the {left_s:.0f} s that this machine has left; "
                    f"it goes back to {back}"
                )
            with self._lock:
                announcer = self._announcer if whole else None
            files = self.uploader.send(
                snapshot.path,
                name=saved.path.name,
                clock=self._clock,
                progress=self._progress(saved, size),
                announcer=announcer,
            )
            snapshot.check()
            return files
        finally:
            snapshot.drop()

    def took_s(self) -> float:
        """Since the upload that was begun last: it is through now."""
        return self._clock.monotonic_s() - self._begun_s

    def left_s(self) -> float | None:
        with self._lock:
            return None if self._until_s is None else max(0.0, self._until_s - self._clock.monotonic_s())

    def _progress(self, saved: Saved, size: int) -> Callable[[int], None]:
        lock, sent = threading.Lock(), 0

        def progress(count: int) -> None:
            nonlocal sent
            took_s = self.took_s()
            with lock:
                sent += count
                done = sent
                if done == size and took_s > 0:
                    self._best = max(self._best or 0.0, size / took_s)
            left_s = self.left_s()
            newest = self._newest() if left_s is not None else None
            if left_s is None or newest is None or newest <= saved.step:
                return
            # the next is about as large as this one
            if switch(size - done, size, left_s=left_s, bytes_per_s=done / took_s if took_s > 0 else None):
                raise OvertakenError(saved.path.name)

        return progress
