"""What may go and what must stay, one law at a time: small examples beside ``test_retention``'s searches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from support import manifests

from arylcloud.checkpoint.digests import sha256
from arylcloud.checkpoint.manifest import list_manifests, manifest_bytes
from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.checkpoint.retention import GRACE_S, SETTLE_S, Prune, one_per, plan_prune, prune
from arylcloud.core.clock import ManualClock
from arylcloud.core.ports import ObjectInfo
from arylcloud.core.protocol import CHUNKS_PREFIX, MANIFESTS_PREFIX, Manifest, chunk_key

GRACE = 100.0
NOW_S = 10_000.0
A, B, C, D = (letter * 64 for letter in "abcd")


def manifest(number: int, *digests: str, epoch: int = 1, took_s: float = 0.0) -> Manifest:
    return manifests.manifest(epoch, number, digests, took_s=took_s)


def plan(manifests: Sequence[Manifest], ages: dict[str, float], **changes: Any) -> Prune:
    """Of ``manifests``, and chunks so many seconds old."""
    chunks = [ObjectInfo(key=chunk_key(d), size=7, modified_s=NOW_S - age) for d, age in ages.items()]
    options = {"keep": 1, "pins": (), "now_s": NOW_S, "grace_s": GRACE, **changes}
    return plan_prune({m.key: m for m in manifests}, chunks, **options)


ONE, TWO, THREE = manifest(1, A), manifest(2, B), manifest(3, C)
OLD = {A: 1000.0, B: 1000.0, C: 1000.0, D: 1000.0}


def keys(*digests: str) -> tuple[str, ...]:
    return tuple(chunk_key(d) for d in digests)


def test_the_newest_are_kept() -> None:
    assert plan([ONE, TWO, THREE], OLD, keep=2).manifests == (ONE.key,)
    assert plan([ONE, TWO, THREE], OLD, keep=1).manifests == (ONE.key, TWO.key)
    assert plan([ONE, TWO, THREE], OLD, keep=9).manifests == ()
    later = manifest(1, D, epoch=2)
    assert plan([THREE, later], OLD).manifests == (THREE.key,), "by epoch, then number"


def test_chunks_go_that_nobody_names() -> None:
    found = plan([ONE, TWO, THREE], OLD, keep=2)
    assert (found.chunks, found.chunk_bytes) == (keys(A, D), 14)
    assert plan([ONE, manifest(2, A, B)], OLD).chunks == keys(C, D), "shared with one that goes"


def test_a_pin_is_kept_with_its_chunks() -> None:
    found = plan([ONE, TWO, THREE], OLD, pins={ONE.key})
    assert (found.manifests, found.chunks) == ((TWO.key,), keys(B, D))


def test_a_rejected_one_is_none_of_the_last() -> None:
    found = plan([ONE, TWO, THREE], OLD, rejected={THREE.key})
    assert (found.manifests, found.chunks) == ((ONE.key, THREE.key), keys(A, C, D))


def test_a_damaged_one_counts_for_nothing() -> None:
    found = plan_prune({ONE.key: ONE, TWO.key: None}, [], keep=1, pins=(), now_s=NOW_S)
    assert found.manifests == (TWO.key,)
    pinned = plan_prune({ONE.key: ONE, TWO.key: None}, [], keep=1, pins={TWO.key}, now_s=NOW_S)
    assert pinned.manifests == ()


def test_what_cannot_be_read_holds_all_chunks_back() -> None:
    found = plan([ONE, TWO], OLD, unreadable={ONE.key})
    assert (found.manifests, found.chunks, found.chunk_bytes) == ((), (), 0)
    assert found.held_back is not None
    assert ONE.key in found.held_back


def test_the_age_at_which_a_chunk_may_go() -> None:
    ages = {A: GRACE - 1.0, B: GRACE, D: GRACE + 1.0}
    assert plan([THREE], ages).chunks == keys(D), "younger, just as old, older"
    for age, gone in ((GRACE_S - 0.5, ()), (GRACE_S + 0.5, keys(D))):  # by default
        chunk = ObjectInfo(key=chunk_key(D), size=1, modified_s=NOW_S - age)
        assert plan_prune({THREE.key: THREE}, [chunk], keep=1, pins=(), now_s=NOW_S).chunks == gone
    assert GRACE_S == 3600.0, "the default, of which docs speak"


def test_none_is_older_than_the_newest_manifest() -> None:
    """An upload after that commit began after it, however long it takes."""
    ages = {A: 500.0, B: 499.0, D: 501.0}
    assert plan([THREE], ages, newest_s=NOW_S - 500.0).chunks == keys(D)
    assert plan([THREE], ages, newest_s=NOW_S).chunks == keys(A, B, D), "the grace, where that is longer"
    assert plan([THREE], ages, newest_s=None).chunks == keys(A, B, D)


def test_slow_commits_lengthen_the_grace() -> None:
    slow = manifest(3, C, took_s=100.0)
    assert plan([slow], {A: 299.0, D: 301.0}).chunks == keys(D), "three times what the slowest took"
    later = replace(slow, saved_at_s=5000.0, committed_at_s=5100.0)
    assert plan([later], {A: 299.0, D: 301.0}).chunks == keys(D), "by the length, not by the hour"
    quick = manifest(3, C, took_s=10.0)
    assert plan([quick], {A: 99.0, D: 101.0}).chunks == keys(D), "never less than the grace"


def test_at_least_one() -> None:
    with pytest.raises(ValueError, match="at least one"):
        plan([ONE], OLD, keep=0)
    with pytest.raises(ValueError, match="at least one"):
        one_per(0, [])


def test_one_per_so_many_steps() -> None:
    committed = [("a", 99), ("b", 100), ("c", 100), ("d", 150), ("e", 200), ("f", 350), ("g", 301)]
    assert one_per(100, committed) == {"c", "e", "g"}, "the first of each; of one step, the last"
    assert one_per(1, [("a", 0), ("b", 1)]) == {"b"}


class Meddled(MemoryStore):
    """Something happens just before its n-th list of chunks, or of manifests."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.clock = clock
        self.before: dict[tuple[str, int], Callable[[], None]] = {}
        self.lists: Counter[str] = Counter()
        self.gets: Counter[str] = Counter()

    def get(self, key: str) -> bytes | None:
        self.gets[key] += 1
        return super().get(key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        for kind in (CHUNKS_PREFIX, MANIFESTS_PREFIX):
            if prefix.startswith(kind):
                self.lists[kind] += 1
                self.before.pop((kind, self.lists[kind]), lambda: None)()
        return super().list(prefix, after=after)

    def commit(self, *manifests: Manifest) -> None:
        for made in manifests:
            self.create(made.key, manifest_bytes(made))


@pytest.fixture
def store() -> Meddled:
    """An old chunk that nobody names, one that the newest names; a day later."""
    clock = ManualClock(0.0)
    store = Meddled(clock)
    for digest in (A, B):
        store.put(chunk_key(digest), b"x")
    clock.at_s = 10.0
    store.commit(manifest(1, B))
    clock.at_s = 1e5
    return store


def chunks_of(store: MemoryStore) -> set[str]:
    return {info.key for info in MemoryStore.list(store, CHUNKS_PREFIX)}


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("kind", [CHUNKS_PREFIX, MANIFESTS_PREFIX])
def test_what_is_committed_between_two_lists_is_kept(store: Meddled, kind: str, number: int) -> None:
    """Chunks are listed before manifests: whoever commits meanwhile is seen."""
    store.before[kind, number] = lambda: store.commit(manifest(2, A, B))
    assert prune(store, keep=2, pins=(), grace_s=GRACE).chunks == ()
    assert not store.before, "it has happened"
    assert chunks_of(store) == set(keys(A, B))


def test_what_came_back_since_the_first_look_is_kept(store: Meddled) -> None:
    """Everything is looked at once more, right before it goes."""
    store.before[CHUNKS_PREFIX, 2] = lambda: store.put(chunk_key(A), b"x")  # rewritten: young again
    found = prune(store, keep=1, pins=(), grace_s=GRACE)
    assert found.chunks == ()
    assert chunk_key(A) in chunks_of(store)


@pytest.mark.parametrize(
    ("took_s", "deleted"), [(0.0, True), (SETTLE_S / 2, True), (SETTLE_S / 2 + 0.01, False)]
)
def test_a_look_that_has_grown_old_is_not_acted_on(store: Meddled, took_s: float, deleted: bool) -> None:
    watch = ManualClock(0.0)
    store.before[CHUNKS_PREFIX, 2] = lambda: watch.sleep(took_s)
    found = prune(store, keep=1, pins=(), grace_s=GRACE, clock=watch)
    assert (found.chunks == keys(A)) is deleted
    assert (chunk_key(A) in chunks_of(store)) is not deleted
    assert found.chunk_bytes == int(deleted)


def test_it_tells_what_it_has_deleted(store: Meddled) -> None:
    store.commit(manifest(2, B))
    found = prune(store, keep=1, pins=(), grace_s=GRACE)
    assert found == Prune(manifests=(manifest(1, B).key,), chunks=keys(A), chunk_bytes=1)
    assert list_manifests(store) == (manifest(2, B).key,)
    assert chunks_of(store) == set(keys(B))
    assert prune(store, keep=1, pins=(), grace_s=GRACE) == Prune(manifests=(), chunks=(), chunk_bytes=0)


def test_each_manifest_is_read_once(store: Meddled) -> None:
    prune(store, keep=1, pins=(), grace_s=GRACE)
    assert store.lists[MANIFESTS_PREFIX] == 2
    assert store.gets[manifest(1, B).key] == 1


def test_a_first_upload_has_the_time_it_needs(store: Meddled) -> None:
    """Without any manifest whatever lies there may belong to it."""
    store.delete([manifest(1, B).key])
    assert prune(store, keep=1, pins=(), grace_s=GRACE).chunks == ()


@pytest.mark.parametrize(
    ("list_s", "delete_s", "most_lists"),
    [
        (0.0, 0.0, 2),  # one to decide, one to act on
        (1.0, 1.5, 10),  # a look is acted on for three batches, then there is another
        (3.0, 0.0, 257),  # too long for everything at once: a folder at a time
    ],
)
def test_how_often_a_large_prefix_is_listed(
    store: Meddled, monkeypatch: pytest.MonkeyPatch, list_s: float, delete_s: float, most_lists: int
) -> None:
    """Two thousand old chunks all go, with few looks, and none by a look too old for it."""
    watch, looked_s = ManualClock(0.0), 0.0
    old = [sha256(str(n).encode()) for n in range(2000)]
    store.clock.at_s = 5.0  # before the manifest
    for digest in old:
        MemoryStore.put(store, chunk_key(digest), b"x")
    store.clock.at_s = 1e5
    list_all, delete = store.list, store.delete

    def slow_list(prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        nonlocal looked_s
        if prefix.startswith(CHUNKS_PREFIX):
            looked_s = watch.monotonic_s()
            watch.sleep(list_s if prefix == CHUNKS_PREFIX else list_s / 256)
        return list_all(prefix, after=after)

    def slow_delete(gone: Sequence[str]) -> None:
        assert watch.monotonic_s() - looked_s <= SETTLE_S / 2
        watch.sleep(delete_s)
        delete(gone)

    monkeypatch.setattr(store, "list", slow_list)
    monkeypatch.setattr(store, "delete", slow_delete)
    found = prune(store, keep=1, pins=(), grace_s=GRACE, clock=watch)
    assert set(found.chunks) == {chunk_key(digest) for digest in (A, *old)}
    assert len(found.chunks) == found.chunk_bytes == 2001
    assert chunks_of(store) == {chunk_key(B)}
    assert store.lists[CHUNKS_PREFIX] <= most_lists
