"""Checkpoints brought near before an epoch asks for them: the newest that is committed, and during a drain
what the old machines are sending at that moment.

Nothing depends on it. Whoever restores reads the manifest that its epoch names, and takes from here what is
the same.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from arylcloud.agent.shipper import one_line
from arylcloud.agent.waiting import HASTE_S, pause_s
from arylcloud.checkpoint.drafts import Copy
from arylcloud.checkpoint.restore import Near, list_manifests, read_manifest, restore
from arylcloud.checkpoint.store import map_error
from arylcloud.core.errors import IntegrityError, StoreError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import Manifest

PREFETCH_S = 1.0
PREFETCH_MOST_S = 10.0
"""Where no checkpoint has come for long: a list is the dearest look."""
DRAIN_POLL_S = 0.1
"""While the old machines save, of what they have sent so far: a small read."""
DRAIN_LIST_S = 0.3
TRUST_S = 60.0
"""What was verified so recently is not read again."""


class _NotThisOneError(Exception):
    """Another checkpoint is wanted now."""


class Ahead:
    """One machine's. Of one thread; ``draining`` and ``prefetched`` are for any."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        cache: Path,
        job_id: str,
        log: Callable[[str], None],
        pace: float,
        committed: Callable[[], str | None],
        wanted: Callable[[str | None], bool],
    ) -> None:
        """``committed``: the manifest of what this machine has sent or restored: that lies here already.
        ``wanted``: whether to go on with a manifest, or (None) with whatever may come; asked all the time."""
        self._store = store
        self._cache = cache
        self._job_id = job_id
        self._log = log
        self._pace = pace
        self.poll_s = PREFETCH_S * pace
        self._committed = committed
        self._wanted = wanted
        self.prefetched: str | None = None
        """The manifest that is near, whole."""
        self.served: int | None = None
        """The epoch that this machine restored for last."""
        self._near: tuple[Near, float] | None = None
        """What was pre-fetched, and when (monotonic) that was verified."""
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

    def draining(self, epoch: int | None) -> bool:
        """The old machines are asked to save and go, by ``epoch`` (None: they are not). True = it is news."""
        if epoch == self._drain:
            return False
        self._drain, self._stirred_s = epoch, time.monotonic()
        return True

    def hasty(self) -> bool:
        waits = self._drain is not None and self._wanted(None)
        return waits and time.monotonic() - self._stirred_s < HASTE_S * self._pace

    def pause_s(self, *, hasty: bool) -> float:
        """Seconds to the next ``turn``."""
        now_s = time.monotonic()
        if hasty:
            return DRAIN_POLL_S * self._pace
        if not self._wanted(None):  # nobody is asked: the next look is the first
            self._news_s = now_s
            return self.poll_s
        most_s = PREFETCH_MOST_S * min(1.0, self._pace)
        return pause_s(self.poll_s, now_s - self._news_s, most_s=most_s, haste_s=HASTE_S * self._pace)

    def turn(self, *, hasty: bool) -> None:
        """Fetch what there is now. Raises as ``prefetch``."""
        while self._wanted(None) and self._follow():
            self._listed_s = self._stirred_s = time.monotonic()  # the manifest comes last
        now_s = time.monotonic()
        if not hasty or now_s - self._listed_s >= DRAIN_LIST_S * self._pace:
            self._listed_s = now_s
            self.prefetch()

    def nearest(self) -> Near | None:
        if self._near is None:
            return None
        near, verified_s = self._near
        return near if time.monotonic() - verified_s < TRUST_S else replace(near, trusted=False)

    def forget(self) -> None:
        """What was brought near: it is in use, or its room is needed."""
        self._near = self._copy = None
        shutil.rmtree(self._cache, ignore_errors=True)

    def restored(self) -> None:
        """An epoch has what it resumes from: look for newer ones, and for all of them."""
        self.prefetched, self._seen = None, ""

    # ------------------------------------------------------------ what is being sent

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
            if not self._wanted(None):  # the rest is asked for by name
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
        committed = self._committed()
        return self.served is not None and committed is not None and f"/e{self.served:06d}-" in committed

    def complete(self, manifest: Manifest, progress: Callable[[int], None] | None = None) -> bool:
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

    # ------------------------------------------------------------ what is committed

    def prefetch(self) -> None:
        """The newest manifest's chunks, if there is a newer one. Raises StoreError, LocalStateError."""
        keys = list_manifests(self._store, after=self._seen)
        if not keys:
            return
        key = keys[-1]
        if key != self._committed():  # else it lies here already
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
        self._seen = self.prefetched = key

    def _bring_near(self, manifest: Manifest) -> None:
        """The whole checkpoint into a folder of ours; what an earlier one has in common with it stays. An
        epoch that resumes from another is not kept waiting."""

        def progress(_: int) -> None:
            if not self._wanted(manifest.key):
                raise _NotThisOneError

        if self.complete(manifest, progress):
            return  # what is older goes when the command has started: time counts now
        before = self.nearest()
        # by the manifest's key: two of one step may differ
        folder = self._cache / manifest.key.rpartition("/")[2]
        path = restore(self._store, manifest, folder, near=before, progress=progress)
        near = Near(manifest=manifest, folder=path, trusted=True)
        self._near = (near, time.monotonic())
        for other in self._cache.iterdir():
            if other != folder and (self._copy is None or other != self._copy.folder):
                shutil.rmtree(other, ignore_errors=True)
