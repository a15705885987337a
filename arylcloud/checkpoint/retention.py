"""Which manifests and chunks may go: a pure decision, and its execution.

Why a chunk that somebody needs is never deleted, although agents commit while this runs:

1. chunks are listed *before* manifests: a manifest committed in between is seen, and kept;
2. a chunk younger than ``grace_s`` is kept: it may belong to an upload whose manifest is still to come;
3. an uploader skips a chunk only if it stands in the manifest that it committed last or restored
   (both kept: the newest, and a pin) and otherwise writes it again, which makes it young;
4. an uploader that has rewritten an *old* chunk waits ``SETTLE_S`` and looks whether it is still there
   before it commits; and here, each batch is decided afresh at most ``SETTLE_S / 2`` before it is
   deleted: a look that is too old to know of the rewriting is not acted on;
5. manifests go before chunks: a crash in between leaves chunks without a manifest, not the reverse.

``grace_s`` must exceed twice the longest upload plus the clocks' difference between store and caller; what
remains is a request to delete that a network holds back for longer than ``SETTLE_S / 2``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from arylcloud.checkpoint.manifest import list_manifests, parse_manifest
from arylcloud.core.clock import Clock, SystemClock
from arylcloud.core.errors import IntegrityError
from arylcloud.core.ports import ObjectInfo, ObjectStore
from arylcloud.core.protocol import CHUNKS_PREFIX, Manifest

GRACE_S = 3600.0
SETTLE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prune:
    """What may be deleted, in this order."""

    manifests: tuple[str, ...]
    chunks: tuple[str, ...]
    chunk_bytes: int
    held_back: str | None = None
    """Why no chunk is deleted although some might be; None = nothing was held back."""


def plan_prune(
    manifests: Mapping[str, Manifest | None],
    chunks: Iterable[ObjectInfo],
    *,
    keep: int,
    pins: Collection[str],
    now_s: float,
    grace_s: float = GRACE_S,
    rejected: Collection[str] = (),
    unreadable: Collection[str] = (),
) -> Prune:
    """Keep the last ``keep`` sound manifests (by epoch, then number) and every one in ``pins``.

    ``manifests``: by key; None = damaged: it can never be restored, so it counts for nothing and goes
    unless pinned. ``unreadable``: keys written by a newer arylcloud; what they name is unknown, so
    they stay and no chunk goes. ``rejected``: keys whose chunks did not hold at a restore: they do not
    count among the last ``keep`` either. ``keep`` ≥ 1. Pure.
    """
    if keep < 1:
        raise ValueError("keep at least one checkpoint")
    sound = sorted(key for key, manifest in manifests.items() if manifest is not None and key not in rejected)
    kept = {*sound[-keep:], *(key for key in manifests if key in pins)}
    gone = tuple(key for key in sorted(manifests) if key not in kept and key not in unreadable)
    if unreadable:
        why = f"{min(unreadable)} was written by a newer arylcloud"
        return Prune(manifests=gone, chunks=(), chunk_bytes=0, held_back=why)
    named = {
        chunk.sha256
        for key in kept
        if (manifest := manifests[key]) is not None
        for file in manifest.files
        for chunk in file.chunks
    }
    old = [
        info
        for info in chunks
        if info.key.rpartition("/")[2] not in named and info.modified_s < now_s - grace_s
    ]
    return Prune(
        manifests=gone,
        chunks=tuple(info.key for info in old),
        chunk_bytes=sum(info.size for info in old),
    )


def prune(
    store: ObjectStore,
    *,
    keep: int,
    pins: Collection[str],
    now_s: float,
    grace_s: float = GRACE_S,
    rejected: Collection[str] = (),
    clock: Clock | None = None,
) -> Prune:
    """Decide over the job's prefix and delete; returns what was deleted. Idempotent, restartable.

    ``pins``: at least the manifest that the newest epoch resumed from. Only whoever knows the lineage
    may call this: the launcher, or the agent of rank 0 of the newest epoch. ``clock`` measures how old a
    look is. Raises StoreError.
    """
    watch = clock if clock is not None else SystemClock()
    read: dict[str, Manifest | None] = {}
    unreadable: set[str] = set()

    def look(prefix: str) -> Prune:
        chunks = tuple(store.list(prefix))  # before the manifests: rule 1
        _read_manifests(store, read, unreadable)
        return plan_prune(
            read,
            chunks,
            keep=keep,
            pins=pins,
            now_s=now_s,
            grace_s=grace_s,
            rejected=rejected,
            unreadable=unreadable,
        )

    first = look(CHUNKS_PREFIX)
    store.delete(first.manifests)
    deleted: list[str] = []
    freed = 0
    for folder in sorted({key[: len(CHUNKS_PREFIX) + 3] for key in first.chunks}):
        begun_s = watch.now_s()
        again = look(folder)
        if not 0 <= watch.now_s() - begun_s <= SETTLE_S / 2:
            continue  # rule 4; the next run finds them
        store.delete(again.chunks)
        deleted += again.chunks
        freed += again.chunk_bytes
    return Prune(
        manifests=first.manifests, chunks=tuple(deleted), chunk_bytes=freed, held_back=first.held_back
    )


def _read_manifests(store: ObjectStore, read: dict[str, Manifest | None], unreadable: set[str]) -> None:
    """Bring ``read`` up to date: what is listed now, each one parsed once."""
    keys = list_manifests(store)
    for key in set(read) - set(keys):
        del read[key]
    for key in keys:
        if key in read or (data := store.get(key)) is None:  # None: somebody else pruned it just now
            continue
        try:
            read[key] = parse_manifest(data, key=key)
        except IntegrityError as error:
            read[key] = None
            if error.code == "schema":
                unreadable.add(key)
