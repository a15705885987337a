"""Old checkpoints go while the job runs: the last few stay, and whatever an epoch resumed from."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from arylcloud.checkpoint.retention import one_per, prune
from arylcloud.core.errors import StoreError
from arylcloud.core.ports import ObjectStore
from arylcloud.launcher.state import JobState

log = logging.getLogger(__name__)
KEEP_AT_LEAST = 2
"""The newest one may turn out to be damaged: the one before it must still be there."""


@dataclass(slots=True)
class Housekeeper:
    store: ObjectStore
    every_s: float = 300.0
    _last_s: float | None = None
    _seen: int = 0

    def tidy(self, state: JobState, now_s: float) -> None:
        """At most every ``every_s`` (``now_s``: monotonic), not in the first such time of a launcher, and
        only if checkpoints have come since. A store that cannot be reached is tried again next time."""
        if self._last_s is None:
            self._last_s = now_s
        if now_s - self._last_s < self.every_s or len(state.checkpoints) == self._seen:
            return
        self._last_s = now_s
        pins = {epoch.resume_from for epoch in state.epochs[-3:] if epoch.resume_from is not None}
        if state.lineage is not None:
            pins.add(state.lineage.manifest)
        if (every := state.spec.checkpoint.keep_every_steps) is not None:
            # of those that were accepted: a stray machine's are none of the job's
            pins |= one_per(
                every, [(c.manifest, c.step) for c in state.checkpoints if c.manifest not in state.rejected]
            )
        try:
            gone = prune(
                self.store,
                keep=max(KEEP_AT_LEAST, state.spec.checkpoint.keep),
                pins=pins,
                rejected=state.rejected,
            )
        except StoreError as error:
            log.warning("old checkpoints are not removed yet: %s", error.message)
            return
        self._seen = len(state.checkpoints)
        if gone.manifests or gone.chunks:
            log.info(
                "removed %d old checkpoints and %d chunks (%d bytes)",
                len(gone.manifests),
                len(gone.chunks),
                gone.chunk_bytes,
            )
