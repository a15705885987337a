"""Pruning never takes what somebody needs, whatever happens at the same time."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.manifests import manifest

from arylcloud.checkpoint.digests import sha256
from arylcloud.checkpoint.manifest import manifest_bytes, seal
from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.checkpoint.restore import list_manifests, read_manifest
from arylcloud.checkpoint.retention import SETTLE_S, one_per, plan_prune, prune
from arylcloud.checkpoint.upload import Uploader
from arylcloud.core.clock import ManualClock
from arylcloud.core.errors import StoreError
from arylcloud.core.ports import ObjectInfo
from arylcloud.core.protocol import CHUNKS_PREFIX, Manifest, chunk_key
from arylcloud.core.protocol_parts import part_call_key, part_key

GRACE = 100.0
DIGESTS = [f"{n:x}" * 64 for n in range(8)]


manifests = st.dictionaries(
    st.tuples(st.integers(1, 3), st.integers(1, 4)),
    st.one_of(st.none(), st.lists(st.sampled_from(DIGESTS), min_size=1, max_size=4).map(tuple)),
    max_size=8,
)


@given(
    made=manifests,
    keep=st.integers(1, 3),
    pinned=st.sets(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=3),
    ages=st.lists(st.floats(0, 300), min_size=8, max_size=8),
    new=st.sets(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=1),
    rotten=st.sets(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=2),
)
def test_the_decision(
    made: dict[tuple[int, int], tuple[str, ...] | None],
    keep: int,
    pinned: set[tuple[int, int]],
    ages: list[float],
    new: set[tuple[int, int]],
    rotten: set[tuple[int, int]],
) -> None:
    by_key = {
        manifest(*at, ()).key: None if digests is None else manifest(*at, digests)
        for at, digests in made.items()
    }
    pins = {manifest(*at, ()).key for at in pinned}
    rejected = {manifest(*at, ()).key for at in rotten}
    unreadable = {manifest(*at, ()).key for at in new} & {k for k, m in by_key.items() if m is None}
    chunks = [
        ObjectInfo(key=chunk_key(d), size=1, modified_s=1000.0 - age)
        for d, age in zip(DIGESTS, ages, strict=True)
    ]
    plan = plan_prune(
        by_key,
        chunks,
        keep=keep,
        pins=pins,
        now_s=1000.0,
        grace_s=GRACE,
        rejected=rejected,
        unreadable=unreadable,
    )
    left = set(by_key) - set(plan.manifests)
    sound = sorted(k for k, m in by_key.items() if m is not None and k not in rejected)
    assert set(sound[-keep:]) <= left
    assert pins & set(by_key) <= left
    assert left == set(sound[-keep:]) | (pins & set(by_key)) | unreadable
    needed = {chunk_key(c.sha256) for k in left if (m := by_key[k]) for f in m.files for c in f.chunks}
    assert not needed & set(plan.chunks)
    young = {c.key for c in chunks if c.modified_s >= 1000.0 - GRACE}
    assert not young & set(plan.chunks)
    assert set(plan.chunks) == (set() if unreadable else {c.key for c in chunks} - needed - young)
    assert plan.chunk_bytes == len(plan.chunks)
    assert (plan.held_back is None) == (not unreadable)


@given(
    steps=st.lists(st.integers(0, 500), max_size=30),
    every=st.integers(1, 120),
    later=st.lists(st.integers(0, 50), max_size=10),
)
def test_one_per_so_many_steps(steps: list[int], every: int, later: list[int]) -> None:
    committed = [(f"m{number:03d}", step) for number, step in enumerate(steps)]
    kept = one_per(every, committed)
    by_key = dict(committed)
    multiples = {step // every for step in steps} - {0}
    assert {by_key[key] // every for key in kept} == multiples
    assert len(kept) == len(multiples)
    for key in kept:  # none of its multiple is nearer to it
        assert by_key[key] == min(s for s in steps if s // every == by_key[key] // every)
    # what comes after the newest step takes nobody's place but that of its own multiple
    top = max(steps, default=0)
    more = [*committed, *((f"n{number:03d}", top + 1 + step) for number, step in enumerate(later))]
    assert kept <= one_per(every, more)


def test_parts_of_epochs_that_are_over_go(tmp_path: Path) -> None:
    clock = ManualClock(10_000.0)
    store = MemoryStore(clock=clock)
    for epoch in (1, 2, 3):
        store.create(part_key(epoch, 7, 1), b"{}")
        store.create(part_call_key(epoch, 1), b"{}")
    uploader = Uploader(store)
    (tmp_path / "step-7").mkdir()
    (tmp_path / "step-7" / "w").write_text("x")
    assert prune(store, keep=2, pins=(), grace_s=GRACE, clock=clock).parts == ()
    commit(uploader, tmp_path / "step-7", epoch=2, clock=clock)
    assert prune(store, keep=2, pins=(), grace_s=GRACE, clock=clock).parts == ()  # too young
    clock.sleep(GRACE + 1)
    gone = prune(store, keep=2, pins=(), grace_s=GRACE, clock=clock).parts
    assert gone == (part_key(1, 7, 1), part_call_key(1, 1))
    assert len(list(store.list("ckpt/parts/"))) == 4


def commit(uploader: Uploader, folder: Path, *, epoch: int, clock: ManualClock) -> Manifest:
    return uploader.commit(
        folder,
        job_id="j",
        lease_id="l",
        epoch=epoch,
        number=1,
        step=7,
        saved_at_s=clock.now_s(),
        clock=clock,
    )


def test_keeping_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        plan_prune({}, [], keep=0, pins=(), now_s=0.0)


def test_what_a_newer_writer_left_stays_with_its_chunks() -> None:
    clock = ManualClock(0.0)
    store = MemoryStore(clock=clock)
    for digest in DIGESTS[:2]:
        store.put(chunk_key(digest), b"x")
    newer = seal(replace(manifest(1, 1, (DIGESTS[0],)), schema_version=7))
    store.create(newer.key, manifest_bytes(newer))
    mine = manifest(1, 2, (DIGESTS[1],))
    store.create(mine.key, manifest_bytes(mine))
    clock.at_s = 1e6
    plan = prune(store, keep=1, pins=())
    assert plan.held_back is not None
    assert list_manifests(store) == (newer.key, mine.key)
    assert len(list(store.list(CHUNKS_PREFIX))) == 2


class World(MemoryStore):
    """Lets somebody else act before any one of our calls, or ends our process there."""

    def __init__(self, clock: LivingClock) -> None:
        super().__init__(clock=clock)
        self.clock = clock
        self.calls_left: int | None = None
        self.then: Callable[[], None] | None = None

    def _step(self) -> None:
        if self.calls_left is None:
            return
        if self.calls_left > 0:
            self.calls_left -= 1
            return
        self.calls_left = None
        assert self.then is not None
        self.then()

    def put(self, key: str, data: bytes) -> None:
        self._step()
        super().put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        self._step()
        return super().create(key, data)

    def get(self, key: str) -> bytes | None:
        self._step()
        return super().get(key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        self._step()
        return super().list(prefix, after=after)

    def delete(self, keys: Sequence[str]) -> None:
        # on its way; it lands when the other side lets time pass, or has done its turn
        def land() -> None:
            super(World, self).delete(keys)

        self.clock.in_flight = land
        self._step()
        self.clock.land()


class LivingClock(ManualClock):
    """While somebody sleeps, what is on its way arrives."""

    in_flight: Callable[[], None] | None = None

    def land(self) -> None:
        if self.in_flight is not None:
            done, self.in_flight = self.in_flight, None
            done()

    def sleep(self, seconds: float) -> None:
        self.land()
        super().sleep(seconds)


def crash() -> None:
    raise StoreError("the process is gone")


BLOCKS = st.lists(st.sampled_from(["aaaa", "bbbb", "cccc", "dddd"]), min_size=1, max_size=3)


class Pruning(RuleBasedStateMachine):
    """An agent commits checkpoints, crashes and restarts; epochs change; a launcher prunes and
    crashes; blocks come back after having been garbage. The newest manifests can always be restored."""

    @initialize()
    def start(self) -> None:
        self.clock = LivingClock(1000.0)
        self.store = World(self.clock)
        self.folder = Path(tempfile.mkdtemp())
        self.epoch = 1
        self.number = 0
        self.resumed: str | None = None
        self.uploader = Uploader(self.store, threads=1, chunk_bytes=4, grace_s=GRACE)
        self.committed: list[str] = []

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    @rule(blocks=BLOCKS)
    def commit(self, blocks: list[str]) -> None:
        source = self.folder / "step-1"
        source.mkdir(exist_ok=True)
        (source / "w").write_text("".join(blocks))
        self.number += 1
        made = self.uploader.commit(
            source,
            job_id="j",
            lease_id="l",
            epoch=self.epoch,
            number=self.number,
            step=self.number,
            saved_at_s=self.clock.now_s(),
            clock=self.clock,
        )
        self.committed.append(made.key)

    @rule(calls=st.integers(0, 4), blocks=BLOCKS)
    def commit_and_crash(self, calls: int, blocks: list[str]) -> None:
        self.store.calls_left, self.store.then = calls, crash
        try:
            self.commit(blocks)
        except StoreError:
            # started again on the same machine: it has restored nothing, so it vouches for nothing
            self.number += 1
            self.uploader = Uploader(self.store, threads=1, chunk_bytes=4, grace_s=GRACE)
        self.store.calls_left = None

    @rule()
    def new_epoch(self) -> None:
        """A new machine: it resumes from the newest manifest, which it reads and verifies."""
        self.epoch += 1
        self.number = 0
        self.resumed = self.committed[-1] if self.committed else None
        base = None if self.resumed is None else read_manifest(self.store, self.resumed)
        self.uploader = Uploader(self.store, base=base, threads=1, chunk_bytes=4, grace_s=GRACE)

    @rule(seconds=st.sampled_from([1.0, 60.0, 150.0]))
    def wait(self, seconds: float) -> None:
        self.clock.at_s += seconds

    @rule(keep=st.integers(1, 2))
    def prune(self, keep: int) -> None:
        pins = () if self.resumed is None else (self.resumed,)
        prune(self.store, keep=keep, pins=pins, grace_s=GRACE, clock=self.clock)

    @rule(calls=st.integers(0, 12))
    def prune_and_crash(self, calls: int) -> None:
        self.store.calls_left, self.store.then = calls, crash
        with contextlib.suppress(StoreError):
            self.prune(1)
        self.store.calls_left = None
        self.clock.land()

    @rule(calls=st.integers(0, 8), blocks=BLOCKS, keep=st.integers(1, 2))
    def prune_while_a_checkpoint_is_committed(self, calls: int, blocks: list[str], keep: int) -> None:
        self.store.calls_left, self.store.then = calls, lambda: self.commit(blocks)
        self.prune(keep)
        self.store.calls_left = None

    @rule(calls=st.integers(0, 4), blocks=BLOCKS, keep=st.integers(1, 2))
    def commit_while_it_is_pruned(self, calls: int, blocks: list[str], keep: int) -> None:
        self.store.calls_left, self.store.then = calls, lambda: self.prune(keep)
        self.commit(blocks)
        self.store.calls_left = None

    @invariant()
    def what_is_listed_can_be_restored(self) -> None:
        if not hasattr(self, "store"):
            return
        found = list_manifests(self.store)
        if self.committed:
            assert self.committed[-1] in found
        if self.resumed is not None:
            assert self.resumed in found
        for key in found:
            for file in read_manifest(self.store, key).files:
                for chunk in file.chunks:
                    data = self.store.get(chunk_key(chunk.sha256))
                    assert data is not None, f"{key} has lost a chunk"
                    assert sha256(data) == chunk.sha256


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("inside", ["pruner", "uploader"])
@pytest.mark.parametrize("calls", range(14))
def test_old_content_that_comes_back_while_it_is_pruned_is_kept(
    calls: int, inside: str, fails: bool, tmp_path: Path
) -> None:
    """The chunk is old, no kept manifest names it, and an upload needs it again: before any one call of
    the pruner (its deletes landing late); or the pruner runs before any one call of the uploader. And where
    the upload ``fails`` once it has been written, and another follows at once."""
    clock = LivingClock(1000.0)
    store = World(clock)
    uploader = Uploader(store, threads=1, chunk_bytes=4, grace_s=GRACE)

    def away(_: int) -> None:
        raise StoreError("away")

    def commit(number: int, text: str, *, progress: Callable[[int], None] | None = None) -> None:
        source = tmp_path / f"step-{number}"
        source.mkdir(exist_ok=True)
        (source / "w").write_text(text)
        uploader.commit(
            source,
            job_id="j",
            lease_id="l",
            epoch=1,
            number=number,
            step=number,
            saved_at_s=clock.now_s(),
            clock=clock,
            progress=progress,
        )

    def tidy() -> None:
        prune(store, keep=1, pins=(), grace_s=GRACE, clock=clock)
        clock.land()

    commit(1, "aaaa")
    clock.at_s += 2 * GRACE
    commit(2, "bbbb")
    done: list[str] = []

    def come_back() -> None:
        done.append("committed")
        if fails:
            with pytest.raises(StoreError):
                commit(3, "aaaa", progress=away)
        commit(3, "aaaa")

    def clean() -> None:
        done.append("pruned")
        tidy()

    outer, inner = (tidy, come_back) if inside == "pruner" else (come_back, clean)
    store.calls_left, store.then = calls, inner
    outer()
    store.calls_left = None
    enough = {"pruner": ["committed"], "uploader": ["committed", "pruned"]}[inside]
    assert done == enough or calls >= (5 if inside == "pruner" else 4), (
        "fewer calls are made than this test believes"
    )
    if "committed" not in done:
        come_back()
    newest = list_manifests(store)[-1]
    (file,) = read_manifest(store, newest).files
    assert store.get(chunk_key(file.chunks[0].sha256)) == b"aaaa"
    # and what nobody needs is gone in the end
    clock.at_s += 1
    commit(4, "cccc")
    clock.at_s += 2 * GRACE
    prune(store, keep=1, pins=(), grace_s=GRACE, clock=clock)
    assert [info.key for info in store.list(CHUNKS_PREFIX)] == [chunk_key(sha256(b"cccc"))]


def commit_one(
    store: MemoryStore, uploader: Uploader, clock: ManualClock, folder: Path, number: int, blocks: str
) -> str:
    source = folder / f"step-{number}"
    source.mkdir(exist_ok=True)
    (source / "w").write_text(blocks)
    return uploader.commit(
        source,
        job_id="j",
        lease_id="l",
        epoch=1,
        number=number,
        step=number,
        saved_at_s=clock.now_s(),
        clock=clock,
    ).key


def restorable(store: MemoryStore) -> None:
    for key in list_manifests(store):
        for file in read_manifest(store, key).files:
            for chunk in file.chunks:
                assert store.get(chunk_key(chunk.sha256)) is not None, f"{key} has lost a chunk"


@pytest.mark.parametrize("ahead_s", [-1e6, 0.0, 2 * GRACE, 1e6])
def test_ages_are_told_by_the_stores_clock(tmp_path: Path, ahead_s: float) -> None:
    """A caller whose clock is wrong takes nothing of an upload under way, and still clears what is old."""
    clock = ManualClock(5000.0)
    store = MemoryStore(clock=clock)
    uploader = Uploader(store, threads=1, chunk_bytes=4, grace_s=GRACE)
    commit_one(store, uploader, clock, tmp_path, 1, "aaaa")
    clock.at_s += 1
    commit_one(store, uploader, clock, tmp_path, 2, "bbbb")
    clock.at_s += 1
    store.put(chunk_key(sha256(b"cccc")), b"cccc")  # of the third, whose manifest is still to come
    wrong = ManualClock(clock.at_s + ahead_s)
    assert prune(store, keep=1, pins=(), grace_s=GRACE, clock=wrong).chunks == ()
    clock.at_s += 2 * GRACE
    store.put(chunk_key(sha256(b"cccc")), b"cccc")
    assert prune(store, keep=1, pins=(), grace_s=GRACE, clock=wrong).chunks == (chunk_key(sha256(b"aaaa")),)


def test_an_upload_longer_than_any_grace_keeps_its_chunks(tmp_path: Path) -> None:
    """Its first chunks are older than the grace when a launcher starts again and prunes: they are younger
    than the newest manifest, and so may belong to the next one."""
    clock = ManualClock(5000.0)
    store = MemoryStore(clock=clock)
    uploader = Uploader(store, threads=1, chunk_bytes=4, grace_s=GRACE)
    commit_one(store, uploader, clock, tmp_path, 1, "aaaa")
    clock.at_s += 2 * GRACE
    commit_one(store, uploader, clock, tmp_path, 2, "bbbb")

    class Slow(MemoryStore):
        def put(self, key: str, data: bytes) -> None:
            super().put(key, data)
            if key.startswith(CHUNKS_PREFIX):
                clock.at_s += 3 * GRACE
                deleted.append(prune(self, keep=1, pins=(), grace_s=GRACE, clock=clock).chunks)

    deleted: list[tuple[str, ...]] = []
    slow = Slow(clock=clock)
    slow._objects = store._objects
    commit_one(slow, Uploader(slow, threads=1, chunk_bytes=4, grace_s=GRACE), clock, tmp_path, 3, "ccccdddd")
    assert deleted == [(chunk_key(sha256(b"aaaa")),), ()]
    restorable(slow)


def test_the_grace_grows_with_the_measured_commits() -> None:
    slow = seal(replace(manifest(1, 1, (DIGESTS[0],)), saved_at_s=0.0, committed_at_s=2 * GRACE))
    chunk = ObjectInfo(key=chunk_key(DIGESTS[1]), size=1, modified_s=1000.0 - 5 * GRACE)
    older = replace(chunk, modified_s=1000.0 - 7 * GRACE)

    def gone(info: ObjectInfo) -> tuple[str, ...]:
        plan = plan_prune({slow.key: slow}, [info], keep=1, pins=(), now_s=1000.0, grace_s=GRACE)
        return plan.chunks

    assert gone(chunk) == ()
    assert gone(older) == (older.key,)


def test_a_chunk_that_vanished_during_the_upload_is_written_again_before_the_manifest(tmp_path: Path) -> None:
    """Whoever took it: the manifest never names what is not there. Vouched ones, too."""
    clock = ManualClock(5000.0)

    class Thief(MemoryStore):
        taken = ""

        def put(self, key: str, data: bytes) -> None:
            super().put(key, data)
            if data == b"bbbb" and self.taken:
                self.delete([self.taken])
                self.taken = ""

    store = Thief(clock=clock)
    uploader = Uploader(store, threads=1, chunk_bytes=4, grace_s=GRACE)
    commit_one(store, uploader, clock, tmp_path, 1, "aaaa")
    store.taken = chunk_key(sha256(b"aaaa"))
    commit_one(store, uploader, clock, tmp_path, 2, "aaaabbbb")
    restorable(store)
    store.delete([chunk_key(sha256(b"bbbb"))])
    store.taken = chunk_key(sha256(b"cccc"))
    commit_one(store, uploader, clock, tmp_path, 3, "ccccbbbb")
    restorable(store)


@pytest.mark.parametrize("skew_s", [-1e6, 1e6])
def test_an_uploaders_clock_does_not_decide_what_is_old(tmp_path: Path, skew_s: float) -> None:
    """An old chunk that comes back is waited for although the machine's clock is wrong; none is without."""
    store_clock = ManualClock(5000.0)
    store = MemoryStore(clock=store_clock)
    mine = ManualClock(5000.0 + skew_s)
    commit_one(store, Uploader(store, threads=1, chunk_bytes=4, grace_s=GRACE), mine, tmp_path, 1, "aaaa")
    begun_s = mine.at_s
    commit_one(store, Uploader(store, threads=1, chunk_bytes=4, grace_s=GRACE), mine, tmp_path, 2, "aaaa")
    assert mine.at_s == begun_s
    store_clock.at_s += GRACE
    commit_one(store, Uploader(store, threads=1, chunk_bytes=4, grace_s=GRACE), mine, tmp_path, 3, "aaaa")
    assert mine.at_s == begun_s + SETTLE_S


class Cut(MemoryStore):
    """Is away after ``writes`` more chunks."""

    writes: int | None = None
    before: Callable[[], None] | None = None
    put_chunks: list[bytes]

    def put(self, key: str, data: bytes) -> None:
        if key.startswith(CHUNKS_PREFIX):
            if self.before is not None:
                before, self.before = self.before, None
                before()
            if self.writes == 0:
                raise StoreError("away")
            self.writes = None if self.writes is None else self.writes - 1
            self.put_chunks.append(data)
        super().put(key, data)


@pytest.mark.parametrize(
    ("waited_s", "took_s", "others", "again"),
    [
        (GRACE * 0.4, 0.0, False, False),
        (GRACE * 0.6, 0.0, False, True),  # too old to be relied upon
        (GRACE * 0.4, GRACE, False, False),  # newer than any manifest: nobody takes it
        (GRACE * 0.4, GRACE, True, True),  # … until somebody commits: it might go at any moment
    ],
)
def test_what_a_failed_upload_left_is_relied_upon_while_nobody_takes_it(
    tmp_path: Path, waited_s: float, took_s: float, others: bool, again: bool
) -> None:
    clock = ManualClock(5000.0)
    store = Cut(clock=clock)
    store.put_chunks = []
    other = Uploader(store, threads=1, chunk_bytes=4, grace_s=GRACE)
    commit_one(store, other, clock, tmp_path, 1, "oooo")
    clock.at_s += 1.0
    uploader = Uploader(store, threads=1, chunk_bytes=4, grace_s=GRACE)
    store.writes = 1
    with pytest.raises(StoreError):
        commit_one(store, uploader, clock, tmp_path, 3, "aaaabbbb")
    store.writes = None
    clock.at_s += waited_s
    store.put_chunks.clear()

    def meanwhile() -> None:
        clock.at_s += took_s / 2
        if others:
            commit_one(store, other, clock, tmp_path, 2, "oooo")
        clock.at_s += took_s / 2

    store.before = meanwhile
    before_s = clock.at_s
    commit_one(store, uploader, clock, tmp_path, 3, "aaaabbbb")
    assert (b"aaaa" in store.put_chunks) == again
    assert clock.at_s == before_s + took_s + (SETTLE_S if again else 0.0)
    restorable(store)


TestPruning = Pruning.TestCase
TestPruning.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
