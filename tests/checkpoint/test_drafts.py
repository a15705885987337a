"""A checkpoint that is brought near while it is still being sent: nothing of it is used unverified."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from arylcloud.checkpoint.chunks import scan
from arylcloud.checkpoint.drafts import Announcer, Copy
from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.checkpoint.restore import Near, holds, restore
from arylcloud.checkpoint.upload import Uploader
from arylcloud.core.clock import ManualClock
from arylcloud.core.codec import dumps, loads
from arylcloud.core.errors import IntegrityError, StoreError
from arylcloud.core.protocol import CHUNKS_PREFIX, ChunkRef, Manifest, chunk_key
from arylcloud.core.protocol_parts import Draft, DraftChunk, DraftFile, draft_key

CHUNK = 64
FILES = {"a": os.urandom(40 * CHUNK + 7), "b/c": os.urandom(3 * CHUNK), "_COMPLETE": b""}


class Counting(MemoryStore):
    """Counts the chunks that are read; can be unreachable for drafts."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.away = False

    def get(self, key: str) -> bytes | None:
        if key.startswith(CHUNKS_PREFIX):
            self.read.append(key)
        return super().get(key)

    def create(self, key: str, data: bytes) -> bool:
        if self.away and "/draft-" in key:
            raise StoreError("unreachable")
        return super().create(key, data)


class World:
    def __init__(self, tmp_path: Path) -> None:
        self.store = Counting()
        self.source = tmp_path / "step-7"
        for name, data in FILES.items():
            (self.source / name).parent.mkdir(parents=True, exist_ok=True)
            (self.source / name).write_bytes(data)
        self.uploader = Uploader(self.store, chunk_bytes=CHUNK, threads=1)
        self.announcer = Announcer(self.store, job_id="j", epoch=2)
        self.copy = Copy(self.store, tmp_path / "near", job_id="j", epoch=2)
        self.target = tmp_path / "in"

    def send(self, number: int = 1) -> Manifest:
        files = self.uploader.send(
            self.source, name="step-7", clock=ManualClock(0.0), announcer=self.announcer
        )
        return self.uploader.write_manifest(
            files,
            job_id="j",
            lease_id="j-n0-a1",
            epoch=1,
            number=number,
            step=7,
            saved_at_s=0.0,
            directory="step-7",
            clock=ManualClock(0.0),
        )

    def follow(self) -> int:
        """How many drafts there were."""
        number = 0
        while self.copy.look(lambda _: None):
            number += 1
        return number

    def drafts(self) -> list[Draft]:
        keys = [info.key for info in self.store.list("ckpt/parts/e000002/draft-")]
        return [loads(Draft, self.store.get(key) or b"") for key in keys]

    def whole(self, manifest: Manifest) -> Path:
        """Restored by what is near; returns where."""
        near = self.copy.complete(manifest)
        assert near is not None
        path = restore(self.store, manifest, self.target, near=near)
        assert holds(path, manifest)
        assert {p: (path / p).read_bytes() for p in FILES} == FILES
        return path


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_each_chunk_is_fetched_once_and_most_before_the_manifest(world: World) -> None:
    manifest = world.send()
    assert world.follow() >= 2
    early = len(world.store.read)
    assert early >= 32
    world.whole(manifest)
    chunks = [chunk for file in manifest.files for chunk in file.chunks]
    assert len(world.store.read) == len(set(world.store.read)) == len(chunks)
    assert [draft.number for draft in world.drafts()] == list(range(1, len(world.drafts()) + 1))


def test_chunks_are_announced_only_once_they_are_there(world: World) -> None:
    world.send()
    manifest_free = {info.key.rpartition("/")[2] for info in world.store.list(CHUNKS_PREFIX)}
    assert {chunk.ref.sha256 for draft in world.drafts() for chunk in draft.chunks} <= manifest_free


def test_a_second_save_of_the_same_drain_begins_anew(world: World) -> None:
    world.send()
    world.follow()
    (world.source / "a").write_bytes(FILES["a"][:100] + os.urandom(20 * CHUNK))
    files = world.uploader.send(
        world.source, name="step-7", clock=ManualClock(0.0), announcer=world.announcer
    )
    manifest = world.uploader.write_manifest(
        files,
        job_id="j",
        lease_id="l",
        epoch=1,
        number=2,
        step=8,
        saved_at_s=0.0,
        directory="step-7",
        clock=ManualClock(0.0),
    )
    world.follow()
    near = world.copy.complete(manifest)
    assert near is not None
    assert holds(restore(world.store, manifest, world.target, near=near), manifest)


def test_what_is_complete_is_not_touched_by_later_drafts(world: World) -> None:
    """It is trusted without being read: whoever restores links it."""
    manifest = world.send()
    world.follow()
    near = world.copy.complete(manifest)
    assert near is not None
    world.announcer.begin("step-8", scan(world.source), CHUNK)
    file = next(f for f in scan(world.source) if f.name == "a")
    for offset in range(0, 16 * CHUNK, CHUNK):
        world.announcer.sent(file, offset, ChunkRef(sha256="0" * 64, size=CHUNK))
    assert world.follow() == 1
    assert world.copy.complete(manifest) is None
    world.copy.give_up()
    assert {p: (near.folder / p).read_bytes() for p in FILES} == FILES
    assert holds(restore(world.store, manifest, world.target, near=near), manifest)


def test_a_draft_that_comes_late_is_passed_over(world: World) -> None:
    manifest = world.send()
    assert world.copy.look(lambda _: None)
    assert world.copy.complete(manifest) is not None
    assert world.follow() == len(world.drafts()) - 1
    assert world.copy.complete(manifest) is None


def test_what_is_near_already_is_not_fetched(world: World) -> None:
    base = world.send()
    near = Near(manifest=base, folder=restore(world.store, base, world.target))
    with (near.folder / "a").open("r+b") as file:  # one chunk of it has suffered since
        file.seek(3 * CHUNK)
        file.write(bytes([FILES["a"][3 * CHUNK] ^ 1]))
    changed = bytearray(FILES["a"])
    changed[20 * CHUNK : 21 * CHUNK] = os.urandom(CHUNK)
    (world.source / "a").write_bytes(changed)
    world.store.read.clear()
    world.announcer = Announcer(world.store, job_id="j", epoch=3)
    world.copy = Copy(world.store, world.target / "near", job_id="j", epoch=3)
    manifest = world.send(number=2)
    while world.copy.look(lambda _: None, near):
        pass
    found = world.copy.complete(manifest, near=near)
    assert found is not None
    assert len(world.store.read) == 2
    assert holds(restore(world.store, manifest, world.target / "in", near=found), manifest)


def test_an_agent_that_was_restarted_goes_on_after_its_own_drafts(world: World) -> None:
    world.send()
    before = len(world.drafts())
    world.announcer = Announcer(world.store, job_id="j", epoch=2)
    manifest = world.send()
    assert world.follow() == len(world.drafts()) > before
    world.whole(manifest)


def test_a_store_that_takes_no_drafts_costs_no_checkpoint(world: World) -> None:
    world.store.away = True
    manifest = world.send()
    assert world.announcer.problem is not None
    assert world.follow() == 0
    assert world.copy.complete(manifest) is None
    assert holds(restore(world.store, manifest, world.target), manifest)


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_a_chunk_that_is_not_sound_when_it_is_announced_is_looked_for_again(
    world: World, damage: str
) -> None:
    manifest = world.send()
    key = "ckpt/chunks/" + manifest.files[1].chunks[0].sha256[:2] + "/" + manifest.files[1].chunks[0].sha256
    sound = world.store.get(key)
    assert sound is not None
    if damage == "gone":
        world.store.delete([key])
    else:
        world.store.put(key, bytes([sound[0] ^ 1]) + sound[1:])
    world.follow()
    with pytest.raises(IntegrityError, match=r"missing|damaged"):
        world.copy.complete(manifest)
    world.store.put(key, sound)
    world.whole(manifest)


def test_a_manifest_of_something_else_takes_nothing_of_it(world: World) -> None:
    manifest = world.send()
    world.follow()
    other = replace(manifest, directory="step-8")
    assert world.copy.complete(other) is None
    file = manifest.files[1]
    first, second, *rest = file.chunks
    joined = (ChunkRef(sha256=first.sha256, size=first.size + second.size), *rest)
    recut = replace(file, chunks=joined)
    assert (
        world.copy.complete(replace(manifest, files=(manifest.files[0], recut, *manifest.files[2:]))) is None
    )


def test_what_drafts_say_differs_from_the_manifest_is_fetched_again(world: World) -> None:
    """A draft is believed in nothing: here it names another chunk of the same store at a place."""
    manifest = world.send()
    drafts = world.drafts()
    chunks = drafts[0].chunks
    wrong = tuple(replace(chunk, ref=chunks[1].ref) if n == 0 else chunk for n, chunk in enumerate(chunks))
    world.store.put(draft_key(2, 1), dumps(replace(drafts[0], chunks=wrong)))
    world.follow()
    world.whole(manifest)


def test_a_draft_with_another_quick_digest_is_fetched_again(world: World) -> None:
    """By SHA-256 it is what the manifest names; what would be checked first is another chunk's."""
    manifest = world.send()
    drafts = world.drafts()
    first, second, *rest = drafts[0].chunks
    wrong = replace(first, ref=replace(first.ref, blake3=second.ref.blake3))
    world.store.put(draft_key(2, 1), dumps(replace(drafts[0], chunks=(wrong, second, *rest))))
    world.store.put(chunk_key(first.ref.sha256), world.store.get(chunk_key(second.ref.sha256)) or b"")
    world.follow()
    with pytest.raises(IntegrityError, match="damaged"):
        world.copy.complete(manifest)


FILE = DraftFile(path="a", size=100)
GOOD = Draft(job_id="j", epoch=2, number=1, directory="step-1", chunk_bytes=CHUNK, files=(FILE,), chunks=())


def _chunk(file: int = 0, offset: int = 0, size: int = CHUNK, sha256: str = "0" * 64) -> DraftChunk:
    return DraftChunk(file=file, offset=offset, ref=ChunkRef(size=size, sha256=sha256))


@pytest.mark.parametrize(
    "bad",
    [
        replace(GOOD, files=None),
        replace(GOOD, job_id="other"),
        replace(GOOD, epoch=3),
        replace(GOOD, directory="../x"),
        replace(GOOD, directory=".hidden"),
        replace(GOOD, chunk_bytes=0),
        replace(GOOD, chunk_bytes=1 << 40),
        replace(GOOD, files=(replace(FILE, path="../../etc/x"),)),
        replace(GOOD, files=(replace(FILE, path="/etc/x"),)),
        replace(GOOD, files=(replace(FILE, size=-1),)),
        replace(GOOD, files=(replace(FILE, size=1 << 60),)),
        replace(GOOD, files=(FILE, FILE)),
        replace(GOOD, files=(FILE, replace(FILE, path="a/b"))),
        replace(GOOD, chunks=(_chunk(file=1),)),
        replace(GOOD, chunks=(_chunk(file=-1),)),
        replace(GOOD, chunks=(_chunk(offset=1),)),
        replace(GOOD, chunks=(_chunk(offset=-CHUNK),)),
        replace(GOOD, chunks=(_chunk(offset=2 * CHUNK),)),
        replace(GOOD, chunks=(_chunk(size=CHUNK + 1),)),
        replace(GOOD, chunks=(_chunk(sha256="../" + "0" * 61),)),
    ],
)
def test_a_draft_that_makes_no_sense_lays_nothing_down(world: World, bad: Draft, tmp_path: Path) -> None:
    world.store.create(draft_key(2, 1), dumps(bad))
    before = sorted(p for p in tmp_path.rglob("*") if not p.is_relative_to(tmp_path / "near"))
    with pytest.raises(IntegrityError):
        world.copy.look(lambda _: None)
    assert world.store.read == []
    assert sorted(p for p in tmp_path.rglob("*") if not p.is_relative_to(tmp_path / "near")) == before
    world.copy.give_up()
    assert not world.copy.look(lambda _: None)
