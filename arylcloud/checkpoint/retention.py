"""Which manifests and chunks may go: a pure decision, and its execution.

Why a chunk that somebody needs is never deleted, although agents commit while this runs:

1. chunks are listed *before* manifests: a manifest committed in between is seen, and kept;
2. a chunk younger than ``grace_s`` is kept: it may belong to an upload whose manifest is still to come;
3. an uploader skips a chunk only if it stands in the manifest that it committed last or restored
   (both kept: the newest, and a pin) and otherwise writes it again, which makes it young;
4. manifests go before chunks: a crash in between leaves chunks without a manifest, not the reverse.

``grace_s`` must exceed the longest upload plus the clocks' difference between store and caller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from arylcloud.checkpoint.manifest import list_manifests, parse_manifest
from arylcloud.core.errors import IntegrityError
from arylcloud.core.ports import ObjectInfo, ObjectStore
from arylcloud.core.protocol import CHUNKS_PREFIX, Manifest

GRACE_S = 3600.0


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
) -> Prune:
    """Decide over the job's prefix and delete; returns what was deleted. Idempotent, restartable.

    ``pins``: at least the manifest that the newest epoch resumed from. Only whoever knows the lineage
    may call this: the launcher, or the agent of rank 0 of the newest epoch. Raises StoreError.
    """
    chunks = tuple(store.list(CHUNKS_PREFIX))  # before the manifests: rule 1
    manifests: dict[str, Manifest | None] = {}
    unreadable: set[str] = set()
    for key in list_manifests(store):
        data = store.get(key)
        if data is None:
            continue  # somebody else pruned it just now
        try:
            manifests[key] = parse_manifest(data, key=key)
        except IntegrityError as error:
            manifests[key] = None
            if error.code == "schema":
                unreadable.add(key)
    plan = plan_prune(
        manifests,
        chunks,
        keep=keep,
        pins=pins,
        now_s=now_s,
        grace_s=grace_s,
        rejected=rejected,
        unreadable=unreadable,
    )
    store.delete(plan.manifests)
    for start in range(0, len(plan.chunks), 1000):
        store.delete(plan.chunks[start : start + 1000])
    return plan
