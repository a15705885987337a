"""Two digests of each chunk: whoever has both checks the quicker one, whoever has not is none the worse."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import blake3
import pytest

from arylcloud.checkpoint import digests
from arylcloud.checkpoint.manifest import parse_manifest, read_manifest, seal
from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.checkpoint.restore import restore
from arylcloud.checkpoint.sharding import union
from arylcloud.checkpoint.store import file_uri, open_store
from arylcloud.checkpoint.upload import Uploader
from arylcloud.core.clock import ManualClock
from arylcloud.core.codec import dumps
from arylcloud.core.errors import IntegrityError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import ChunkRef, FileEntry, Manifest, chunk_key

DATA = bytes(range(256)) * 3
SIZE = 256 * 3


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return MemoryStore() if request.param == "memory" else open_store(file_uri(tmp_path / "store"))


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """``slow.setattr(*WITHOUT)``: a Python for which BLAKE3's module is not compiled."""
    return monkeypatch


WITHOUT = (digests, "QUICK", None)


def commit(store: ObjectStore, tmp_path: Path, number: int = 1, uploader: Uploader | None = None) -> Manifest:
    folder = tmp_path / f"from-{number}" / "step-1"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(DATA)
    return (uploader or Uploader(store, chunk_bytes=100)).commit(
        folder,
        job_id="job-1",
        lease_id="job-1-n0-a1",
        epoch=1,
        number=number,
        step=1,
        saved_at_s=1.0,
        clock=ManualClock(2.0),
    )


def chunks(manifest: Manifest) -> tuple[ChunkRef, ...]:
    return manifest.files[0].chunks


def test_both_are_what_they_say() -> None:
    ref = digests.named(memoryview(DATA))
    assert (ref.sha256, ref.size) == (hashlib.sha256(DATA).hexdigest(), SIZE)
    assert ref.blake3 == blake3.blake3(DATA).hexdigest()


@pytest.mark.parametrize("writer", [True, False], ids=["writer has it", "writer has not"])
@pytest.mark.parametrize("reader", [True, False], ids=["reader has it", "reader has not"])
def test_any_reader_reads_any_writer(
    store: ObjectStore, tmp_path: Path, slow: pytest.MonkeyPatch, writer: bool, reader: bool
) -> None:
    with slow.context() as once:
        if not writer:
            once.setattr(*WITHOUT)
        written = commit(store, tmp_path)
    both = writer and isinstance(store, MemoryStore)  # a folder of this host is written with one
    assert all((chunk.blake3 is not None) == both for chunk in chunks(written))
    if not reader:
        slow.setattr(*WITHOUT)
    manifest = read_manifest(store, written.key)
    assert manifest == written
    assert (restore(store, manifest, tmp_path / "to") / "weights").read_bytes() == DATA
    key = chunk_key(chunks(manifest)[3].sha256)
    data = store.get(key) or b""
    store.put(key, bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(IntegrityError, match="damaged"):
        restore(store, manifest, tmp_path / "again")


def test_the_quick_one_alone_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    manifest = commit(store, tmp_path)
    monkeypatch.setattr(digests.hashlib, "sha256", None)
    assert (restore(store, manifest, tmp_path / "to") / "weights").read_bytes() == DATA


def test_what_is_unchanged_has_the_same_digests_again(store: ObjectStore, tmp_path: Path) -> None:
    """A folder's chunks go there in two ways: the first checkpoint's and the unchanged ones of the next."""
    uploader = Uploader(store, chunk_bytes=100)
    first, second = (commit(store, tmp_path, number, uploader=uploader) for number in (1, 2))
    assert [chunk.blake3 for chunk in chunks(first)] == [chunk.blake3 for chunk in chunks(second)]


def test_a_manifest_of_before_is_restored(store: ObjectStore, tmp_path: Path) -> None:
    """Its chunks name no second digest at all."""
    manifest = commit(store, tmp_path)
    old = dumps(seal(without(manifest))).replace(b'"blake3":null,', b"")
    sealed = digests.sha256(old.replace(parse(old), b""))
    old = old.replace(parse(old), sealed.encode())
    read = parse_manifest(old, key=manifest.key)
    assert read.files == without(manifest).files
    assert (restore(store, read, tmp_path / "to") / "weights").read_bytes() == DATA


def without(manifest: Manifest) -> Manifest:
    bare = tuple(replace(chunk, blake3=None) for chunk in chunks(manifest))
    return replace(manifest, files=(replace(manifest.files[0], chunks=bare),))


def parse(data: bytes) -> bytes:
    return data.partition(b'"digest":"')[2].partition(b'"')[0]


def test_an_object_that_has_more_is_not_laid_over_its_neighbour(store: ObjectStore, tmp_path: Path) -> None:
    """A chunk that grew in the store: whatever is wrong with it, the chunk after it is not overwritten."""
    manifest = commit(store, tmp_path)
    key = chunk_key(chunks(manifest)[0].sha256)
    store.put(key, (store.get(key) or b"") + b"more")
    with pytest.raises(IntegrityError, match=key):
        restore(store, manifest, tmp_path / "to")


def test_two_ranks_of_which_one_has_no_second_digest_may_share_a_file() -> None:
    """Machines of two Pythons in one gang: the same bytes are the same file."""
    both = digests.named(DATA)
    files = [
        FileEntry(path="config", size=SIZE, mode=0o600, chunks=(chunk,))
        for chunk in (both, replace(both, blake3=None))
    ]
    for order in (files, files[::-1]):
        assert union({0: (order[0],), 1: (order[1],)}) == (order[0],)


def test_a_digest_that_is_none_is_refused(store: ObjectStore, tmp_path: Path) -> None:
    manifest = commit(store, tmp_path)
    for wrong in ("", "../../etc", "A" * 64, "0" * 63):
        first = replace(chunks(manifest)[0], blake3=wrong)
        files = (replace(manifest.files[0], chunks=(first, *chunks(manifest)[1:])),)
        with pytest.raises(IntegrityError, match="cannot be"):
            parse_manifest(dumps(seal(replace(manifest, files=files))), key=manifest.key)


def test_more_than_a_chunk_is_told_before_it_is_written() -> None:
    ref = digests.named(b"abc")
    check = digests.Check(ref)
    assert check.update(b"ab")
    assert not check.holds()
    assert not check.update(b"cd")
    assert digests.sound(b"abc", ref)
    assert not digests.sound(b"ab", ref)
