"""Which manifests and chunks may go: a pure decision, and its execution.

Why a chunk that somebody needs is never deleted, although agents commit while this runs:

1. chunks are listed *before* manifests: a manifest committed in between is seen, and kept;
2. a chunk younger than ``grace_s``, or than the newest manifest, is kept: it may belong to an upload whose
   manifest is still to come, and the upload after a commit begins after it, however long it takes;
3. an uploader skips a chunk only if it stands in the manifest that it committed last or restored
   (both kept: the newest, and a pin), or if it has written it itself since, at most ``grace_s / 2`` ago, for
   an upload that failed (and if by the end it is older than that, and than a manifest, writes it again);
   otherwise it writes it again, which makes it young;
4. before it commits, an uploader looks once more for every chunk that it names, and writes again what is
   not there; after such a one, and after an *old* chunk that it has rewritten, it waits ``SETTLE_S`` and
   looks again; and here, each batch is decided afresh at most ``SETTLE_S / 2`` before it is
   deleted: a look that is too old to know of the rewriting is not acted on;
5. manifests go before chunks: a crash in between leaves chunks without a manifest, not the reverse.

Ages are told by the store's own clock alone (``store_now_s``): a caller whose clock is wrong deletes
nothing too early. The grace is ``grace_s`` or three times the longest time from saved to committed among
the manifests, whichever is more. What remains is a request to delete that a network holds back for
longer than ``SETTLE_S / 2``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from arylcloud.checkpoint.manifest import listed_manifests, parse_manifest
from arylcloud.checkpoint.storetime import store_now_s
from arylcloud.core.clock import Clock, SystemClock
from arylcloud.core.errors import IntegrityError
from arylcloud.core.ports import ObjectInfo, ObjectStore
from arylcloud.core.protocol import CHUNKS_PREFIX, PARTS_PREFIX, Manifest

GRACE_S = 3600.0
SETTLE_S = 10.0
BATCH = 100
"""Chunks per request to delete: where a store takes them one by one, a second or two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prune:
    """What may be deleted, in this order."""

    manifests: tuple[str, ...]
    chunks: tuple[str, ...]
    chunk_bytes: int
    held_back: str | None = None
    """Why no chunk is deleted although some might be; None = nothing was held back."""
    parts: tuple[str, ...] = ()
    """Ranks' parts of sharded checkpoints that were committed, or given up, long ago."""


def one_per(every_steps: int, committed: Iterable[tuple[str, int]]) -> frozenset[str]:
    """Of ``committed`` (manifest, step), the first at or after each multiple of ``every_steps``: those that
    are kept for good. Of several of one step, the one named last. Once chosen, it stays chosen
    whatever is committed later, unless an epoch goes back and commits nearer to the multiple.

    >>> sorted(one_per(100, [("a", 40), ("b", 100), ("c", 150), ("d", 210), ("e", 290)]))
    ['b', 'd']
    """
    if every_steps < 1:
        raise ValueError("every so many steps: at least one")
    first: dict[int, tuple[int, str]] = {}
    for key, step in committed:
        multiple = step // every_steps
        if multiple >= 1 and (multiple not in first or step <= first[multiple][0]):
            first[multiple] = (step, key)
    return frozenset(key for _, key in first.values())


def plan_prune(
    manifests: Mapping[str, Manifest | None],
    chunks: Iterable[ObjectInfo],
    *,
    keep: int,
    pins: Collection[str],
    now_s: float,
    grace_s: float = GRACE_S,
    newest_s: float | None = None,
    rejected: Collection[str] = (),
    unreadable: Collection[str] = (),
) -> Prune:
    """Keep the last ``keep`` sound manifests (by epoch, then number) and every one in ``pins``.

    ``now_s``, ``newest_s``: by the store's clock, as the chunks' ages are; the latter is when the newest
    manifest was written (None: there is none).

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
    before_s = now_s - _longest(manifests, grace_s)
    if newest_s is not None:
        before_s = min(before_s, newest_s)
    old = [info for info in chunks if info.key.rpartition("/")[2] not in named and info.modified_s < before_s]
    return Prune(
        manifests=gone,
        chunks=tuple(info.key for info in old),
        chunk_bytes=sum(info.size for info in old),
    )


def _longest(manifests: Mapping[str, Manifest | None], grace_s: float) -> float:
    """``grace_s``, or three times the longest that a commit has taken (each by one machine's clock)."""
    took = (m.committed_at_s - m.saved_at_s for m in manifests.values() if m is not None)
    return max([grace_s, *(3.0 * s for s in took)])


def prune(
    store: ObjectStore,
    *,
    keep: int,
    pins: Collection[str],
    grace_s: float = GRACE_S,
    rejected: Collection[str] = (),
    clock: Clock | None = None,
) -> Prune:
    """Decide over the job's prefix and delete; returns what was deleted. Idempotent, restartable.

    ``pins``: at least the manifest that the newest epoch resumed from. Only whoever knows the lineage
    may call this: the launcher, or the agent of rank 0 of the newest epoch. ``clock`` measures how old a
    look is, and nothing else. Raises StoreError.
    """
    watch = clock if clock is not None else SystemClock()
    now_s = store_now_s(store)
    read: dict[str, Manifest | None] = {}
    unreadable: set[str] = set()
    sizes: dict[str, int] = {}

    def look(prefix: str) -> Prune:
        chunks = tuple(store.list(prefix))  # before the manifests: rule 1
        sizes.update({info.key: info.size for info in chunks})
        newest_s = _read_manifests(store, read, unreadable)
        if newest_s is None:  # whatever there is belongs to the first upload, or to nobody: no hurry
            newest_s = float("-inf")
        return plan_prune(
            read,
            chunks,
            keep=keep,
            pins=pins,
            now_s=now_s,
            grace_s=grace_s,
            newest_s=newest_s,
            rejected=rejected,
            unreadable=unreadable,
        )

    parts = tuple(store.list(PARTS_PREFIX))  # before the manifests, as chunks are
    begun_s = watch.monotonic_s()
    first = look(CHUNKS_PREFIX)
    # one look at everything serves for as many deletions as can be made while it is young (rule 4)
    at_once = 0 <= watch.monotonic_s() - begun_s <= SETTLE_S / 4
    store.delete(first.manifests)
    spent = _spent(parts, read, first, now_s, grace_s)
    store.delete(spent)
    folders = {CHUNKS_PREFIX} if at_once else {key[: len(CHUNKS_PREFIX) + 3] for key in first.chunks}
    deleted: list[str] = []
    for folder in sorted(folders) if first.chunks else ():
        left = True
        while left:
            begun_s, known = watch.monotonic_s(), set(deleted)
            again = [key for key in look(folder).chunks if key not in known]
            for at in range(0, len(again), BATCH):
                if not 0 <= watch.monotonic_s() - begun_s <= SETTLE_S / 2:
                    break
                store.delete(again[at : at + BATCH])
                deleted += again[at : at + BATCH]
            # a store too slow for even one batch is left to the next run
            left = 0 < len(deleted) - len(known) < len(again)
    return Prune(
        manifests=first.manifests,
        chunks=tuple(deleted),
        chunk_bytes=sum(sizes[key] for key in deleted),
        held_back=first.held_back,
        parts=spent,
    )


def _spent(
    parts: Iterable[ObjectInfo],
    manifests: Mapping[str, Manifest | None],
    decided: Prune,
    now_s: float,
    grace_s: float,
) -> tuple[str, ...]:
    """A part is read by rank 0 of its own epoch, within one commit: an old one of an epoch that is over."""
    if decided.held_back is not None or not manifests:
        return ()
    newest = max(manifests).rpartition("/")[2].partition("-")[0]  # e000007
    before_s = now_s - _longest(manifests, grace_s)
    return tuple(
        info.key
        for info in parts
        if info.key.removeprefix(PARTS_PREFIX).partition("/")[0] < newest and info.modified_s < before_s
    )


def _read_manifests(
    store: ObjectStore, read: dict[str, Manifest | None], unreadable: set[str]
) -> float | None:
    """Bring ``read`` up to date: what is listed now, each one parsed once. When the newest (by epoch, then
    number) was written, by the store's clock; None = there is none."""
    listed = listed_manifests(store)
    keys = [info.key for info in listed]
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
    return listed[-1].modified_s if listed else None
