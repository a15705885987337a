"""Old checkpoints go while the job runs: the last few stay, and whatever an epoch resumed from."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import zip_longest

from arylcloud.checkpoint.retention import one_per, prune
from arylcloud.core.errors import StoreError
from arylcloud.core.events import CheckpointCommitted
from arylcloud.core.ports import ObjectStore
from arylcloud.launcher.state import JobState

log = logging.getLogger(__name__)
KEEP_AT_LEAST = 2
"""The newest one may turn out to be damaged: the one before it must still be there."""

PINNED_EPOCHS = 3
"""What so many of the newest epochs resumed from stays."""


def kept_until(state: JobState, now_s: float) -> tuple[tuple[CheckpointCommitted, float], ...]:
    """Every checkpoint that can be restored, and until when it stood in the store (wall seconds; ``now_s``:
    it still does), as :class:`Housekeeper` goes about it: its pauses count for nothing."""
    sound = _sound(state)
    keep, good = _newest_kept(state), _for_good(state)
    pinned_s: dict[str, float] = {}
    for epoch, let_go in zip_longest(state.epochs, state.epochs[PINNED_EPOCHS:]):
        if epoch.resume_from is not None:
            pinned_s[epoch.resume_from] = now_s if let_go is None else let_go.opened_at_s
    found = []
    for saved, pushed_out in zip_longest(sound, sound[keep:]):
        until_s = now_s if pushed_out is None or saved.manifest in good else pushed_out.saved_at_s
        found.append((saved, min(now_s, max(until_s, pinned_s.get(saved.manifest, until_s)))))
    return tuple(found)


def _newest_kept(state: JobState) -> int:
    return max(KEEP_AT_LEAST, state.spec.checkpoint.keep)


def _for_good(state: JobState) -> frozenset[str]:
    """Of those that were accepted: a stray machine's are none of the job's."""
    every = state.spec.checkpoint.keep_every_steps
    if every is None:
        return frozenset()
    return one_per(every, [(c.manifest, c.step) for c in _sound(state)])


def _sound(state: JobState) -> list[CheckpointCommitted]:
    return [c for c in state.checkpoints if c.manifest not in state.rejected]


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
        pins = {e.resume_from for e in state.epochs[-PINNED_EPOCHS:] if e.resume_from is not None}
        if state.lineage is not None:
            pins.add(state.lineage.manifest)
        pins |= _for_good(state)
        try:
            gone = prune(
                self.store,
                keep=_newest_kept(state),
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
