"""Upload and restore: what is restored is what was saved, or nothing is."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arylcloud.agent.saved import complete
from arylcloud.checkpoint.chunks import spans, write_all
from arylcloud.checkpoint.digests import sha256
from arylcloud.checkpoint.keys import is_temporary
from arylcloud.checkpoint.manifest import check_files, manifest_bytes, parse_manifest, seal
from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.checkpoint.restore import (
    Near,
    holds,
    list_manifests,
    next_number,
    parallel,
    read_manifest,
    restore,
)
from arylcloud.checkpoint.store import file_uri, local_file, open_store, sub
from arylcloud.checkpoint.upload import Uploader
from arylcloud.core.clock import ManualClock
from arylcloud.core.codec import decode, encode
from arylcloud.core.errors import (
    ArylError,
    ConflictError,
    IntegrityError,
    LocalStateError,
    StoreError,
    UsageError,
)
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import CHUNKS_PREFIX, ChunkRef, FileEntry, Manifest, chunk_key
from arylcloud.training import latest

CHUNK = 64


def make(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        p.relative_to(folder).as_posix(): (p.read_bytes(), p.stat().st_mode & 0o777)
        for p in folder.rglob("*")
        if p.is_file()
    }


def commit(uploader: Uploader, folder: Path, number: int = 1, *, epoch: int = 1, step: int = 10) -> Manifest:
    return uploader.commit(
        folder,
        job_id="job-1",
        lease_id="job-1-n0-a1",
        epoch=epoch,
        number=number,
        step=step,
        saved_at_s=1000.0,
        clock=ManualClock(1001.0),
    )


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return MemoryStore() if request.param == "memory" else open_store(file_uri(tmp_path / "store"))


SMALL = {"weights.npy": bytes(range(200)), "opt/state.npy": b"o" * 130, "_COMPLETE": b"", "ü b/x": b"1"}


def test_what_is_restored_is_what_was_saved(store: ObjectStore, tmp_path: Path) -> None:
    source = make(tmp_path / "out/step-10", SMALL)
    (source / "weights.npy").chmod(0o400)
    (source / "ü b/x").chmod(0o755)
    made = commit(Uploader(store, chunk_bytes=CHUNK), source)
    assert list_manifests(store) == (made.key,) == ("ckpt/manifests/e000001-000001.json",)
    read = read_manifest(store, made.key, job_id="job-1")
    assert read == made
    assert decode(Manifest, encode(made)) == made
    assert (read.step, read.total_bytes, read.committed_at_s) == (10, 331, 1001.0)
    path = restore(store, read, tmp_path / "in")
    assert path == tmp_path / "in/step-10"
    assert contents(path) == contents(source)
    assert [p.name for p in (tmp_path / "in").iterdir()] == ["step-10"]
    assert path.stat().st_ctime_ns > path.stat().st_mtime_ns


def test_a_restored_folder_is_complete_though_the_clock_that_saved_it_is_ahead(
    store: ObjectStore, tmp_path: Path
) -> None:
    source = make(tmp_path / "out/step-10", SMALL)
    made = replace(commit(Uploader(store, chunk_bytes=CHUNK), source), saved_at_s=time.time() + 90.0)
    path = restore(store, made, tmp_path / "in")
    assert [found.path for found in complete(tmp_path / "in")] == [path]
    assert latest(tmp_path / "in") == path


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.dictionaries(
        st.sampled_from(["a", "b/c", "b/d/e", "z z", "é"]), st.binary(max_size=300), min_size=1
    ),
    chunk=st.integers(1, 100),
)
def test_any_files_any_chunk_size(
    files: dict[str, bytes], chunk: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tmp = tmp_path_factory.mktemp("any")
    store = MemoryStore()
    source = make(tmp / "step-1", files)
    made = commit(Uploader(store, chunk_bytes=chunk), source)
    restored = restore(store, read_manifest(store, made.key), tmp / "in")
    assert contents(restored) == contents(source)
    assert holds(restored, made)


@given(st.integers(0, 5000), st.integers(1, 700))
def test_spans_tile_a_file(size: int, chunk: int) -> None:
    cut = list(spans(size, chunk))
    assert sum(length for _, length in cut) == size
    assert all(0 < length <= chunk for _, length in cut)
    ends = list(itertools.accumulate((length for _, length in cut), initial=0))
    assert [offset for offset, _ in cut] == ends[:-1]


class Counting(MemoryStore):
    """Also a store that can fail: ``fail_after`` writes of chunks it is unreachable."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []
        self.fail_after: int | None = None

    def _count(self, key: str) -> None:
        if self.fail_after is not None and len(self.written) >= self.fail_after:
            raise StoreError("unreachable")
        self.written.append(key)

    def put(self, key: str, data: bytes) -> None:
        self._count(key)
        super().put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        self._count(key)
        return super().create(key, data)


def test_unchanged_chunks_travel_once_and_equal_ones_once(tmp_path: Path) -> None:
    store = Counting()
    uploader = Uploader(store, chunk_bytes=CHUNK)
    first = make(tmp_path / "step-1", {"frozen": os.urandom(640), "zeros": bytes(6400), "w": b"1" * 64})
    commit(uploader, first, 1)
    assert len(store.written) == 10 + 1 + 1 + 1
    assert uploader.uploaded_bytes == 640 + 64 + 64
    store.written.clear()
    second = make(tmp_path / "step-2", {name: (first / name).read_bytes() for name in ("frozen", "zeros")})
    make(second, {"w": b"2" * 64})
    made = commit(uploader, second, 2)
    assert len(store.written) == 2  # the changed chunk, the manifest
    fresh = Uploader(store, base=read_manifest(store, made.key), chunk_bytes=CHUNK)
    store.written.clear()
    commit(fresh, second, 3)
    assert len(store.written) == 1


def test_chunks_side_by_side_do_not_mix(tmp_path: Path) -> None:
    store = sub(open_store(file_uri(tmp_path / "store")), "jobs/j")
    source = make(tmp_path / "step-1", {f"f{n}": os.urandom(n * 7 + 1) for n in range(150)})
    made = commit(Uploader(store, chunk_bytes=CHUNK), source)
    chunks = [info.key for info in store.list(CHUNKS_PREFIX)]
    assert len(chunks) > 500
    assert all(key.endswith(sha256(store.get(key) or b"")) for key in chunks)
    assert contents(restore(store, made, tmp_path / "in")) == contents(source)


def test_what_is_written_straight_into_a_folder_leaves_nothing_else(tmp_path: Path) -> None:
    store = open_store(file_uri(tmp_path / "store"))
    uploader = Uploader(store, chunk_bytes=CHUNK)
    source = make(tmp_path / "step-1", {"w": os.urandom(40 * CHUNK), "same": b"s" * CHUNK * 5})
    first = commit(uploader, source, 1)
    (source / "w").write_bytes(os.urandom(3 * CHUNK) + (source / "w").read_bytes()[3 * CHUNK :])
    before = uploader.uploaded_bytes
    second = commit(uploader, source, 2)
    assert uploader.uploaded_bytes - before == 3 * CHUNK
    named = {chunk_key(c.sha256) for made in (first, second) for f in made.files for c in f.chunks}
    there = {p.relative_to(tmp_path / "store").as_posix() for p in (tmp_path / "store/ckpt").rglob("*")}
    assert {name for name in there if (tmp_path / "store" / name).is_file()} == named | {
        first.key,
        second.key,
    }
    assert contents(restore(store, second, tmp_path / "in")) == contents(source)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_folder_that_takes_no_more_is_the_stores_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    store = open_store(file_uri(tmp_path / "store"))
    source = make(tmp_path / "step-1", {"w": os.urandom(40 * CHUNK)})
    real, count = write_all, itertools.count()

    def full(handle: int, offset: int, data: bytes | memoryview) -> None:
        if next(count) == 20:
            raise OSError(number, os.strerror(number))
        real(handle, offset, data)

    monkeypatch.setattr("arylcloud.checkpoint.incoming.write_all", full)
    uploader = Uploader(store, chunk_bytes=CHUNK)
    with pytest.raises(StoreError):
        commit(uploader, source)
    assert not list_manifests(store)
    assert not [p for p in (tmp_path / "store").rglob("*") if is_temporary(p.name)]
    assert contents(restore(store, commit(uploader, source), tmp_path / "in")) == contents(source)


def test_almost_no_room_is_enough_for_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the store has is not written once more; what does not fit is not begun."""
    folder = tmp_path / "store"
    store = open_store(file_uri(folder))
    uploader = Uploader(store, chunk_bytes=CHUNK)
    source = make(tmp_path / "step-1", {"w": os.urandom(40 * CHUNK)})
    first = commit(uploader, source, 1)
    free = 2 * CHUNK
    begun: list[str] = []
    real = os.open

    def opened(path: str | Path, *args: int) -> int:
        begun.extend([str(path)] * ("incoming" in str(path)))
        return real(path, *args)

    def usage(where: Path) -> shutil._ntuple_diskusage:
        assert where == folder
        return shutil._ntuple_diskusage(1 << 20, (1 << 20) - free, free)

    monkeypatch.setattr("arylcloud.checkpoint.incoming.os.open", opened)
    monkeypatch.setattr("shutil.disk_usage", usage)
    (source / "w").write_bytes((source / "w").read_bytes()[:-CHUNK] + os.urandom(CHUNK))
    before = uploader.uploaded_bytes
    second = commit(uploader, source, 2)
    assert uploader.uploaded_bytes - before == CHUNK
    free = CHUNK - 1
    (source / "w").write_bytes(os.urandom(40 * CHUNK))
    with pytest.raises(LocalStateError, match="No space left on device"):
        commit(uploader, source, 3)
    assert begun == []
    assert uploader.uploaded_bytes - before == CHUNK
    assert list(list_manifests(store)) == [first.key, second.key]
    free = 1 << 19
    third = commit(uploader, source, 3)
    assert begun, "there is ample room: in one pass"
    monkeypatch.undo()
    assert contents(restore(store, third, tmp_path / "in")) == contents(source)


def test_a_disk_that_does_not_tell_its_room_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(file_uri(tmp_path / "store"))
    source = make(tmp_path / "step-1", {"w": os.urandom(4 * CHUNK)})
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, 0))
    made = commit(Uploader(store, chunk_bytes=CHUNK), source)
    monkeypatch.undo()
    assert contents(restore(store, made, tmp_path / "in")) == contents(source)


def test_a_folder_that_is_gone_is_not_written_again(tmp_path: Path) -> None:
    """A disk that was unmounted: what is under it is not the store."""
    store = sub(open_store(file_uri(tmp_path / "store")), "j")
    source = make(tmp_path / "step-1", {"w": b"x"})
    (tmp_path / "store").rename(tmp_path / "away")
    with pytest.raises(StoreError):
        commit(Uploader(store), source)
    assert not (tmp_path / "store").exists()


def test_where_an_object_of_a_folder_lies(tmp_path: Path) -> None:
    store = open_store(file_uri(tmp_path / "a b"))
    key = chunk_key("0" * 64)
    assert local_file(store, key) == tmp_path / "a b" / key
    assert local_file(sub(sub(store, "jobs"), "j"), key) == tmp_path / "a b/jobs/j" / key
    store.put(key, b"x")
    found = local_file(store, key)
    assert found is not None
    assert found.read_bytes() == b"x"
    assert local_file(sub(store, "j%"), key) is None  # it is called otherwise on the disk
    assert local_file(MemoryStore(), key) is None


def test_a_chunk_that_nobody_vouches_for_is_written_again(tmp_path: Path) -> None:
    store = MemoryStore()
    source = make(tmp_path / "step-1", {"w": os.urandom(100)})
    made = commit(Uploader(store, chunk_bytes=CHUNK), source)
    (info, *_) = store.list(CHUNKS_PREFIX)
    store.put(info.key, b"rotten" * 10)
    with pytest.raises(IntegrityError, match=info.key):
        restore(store, made, tmp_path / "in")
    commit(Uploader(store, chunk_bytes=CHUNK), source, 2)
    assert contents(restore(store, made, tmp_path / "in")) == contents(source)


@pytest.mark.parametrize("damage", ["truncate", "remove"])
def test_a_vouched_chunk_that_is_short_or_gone_is_written_again(tmp_path: Path, damage: str) -> None:
    store = MemoryStore()
    uploader = Uploader(store, chunk_bytes=CHUNK)
    source = make(tmp_path / "step-1", {"w": os.urandom(100)})
    commit(uploader, source)
    (info, *_) = store.list(CHUNKS_PREFIX)
    if damage == "truncate":
        store.put(info.key, b"")
    else:
        store.delete([info.key])
    made = commit(uploader, source, 2)
    assert contents(restore(store, made, tmp_path / "in")) == contents(source)


def test_an_upload_that_is_cut_off_anywhere_commits_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    source = make(tmp_path / "step-1", {"a": os.urandom(300), "b": os.urandom(100)})
    for writes in range(8):
        store = Counting()
        store.fail_after = writes
        uploader = Uploader(store, chunk_bytes=CHUNK, threads=1)
        if writes < 8:
            with pytest.raises(StoreError):
                commit(uploader, source)
        assert list_manifests(store) == ()
        store.fail_after = None
        made = commit(uploader, source)
        assert contents(restore(store, made, tmp_path / f"in{writes}")) == contents(source)


def test_what_a_failed_upload_has_sent_is_not_sent_again(tmp_path: Path) -> None:
    store = Counting()
    source = make(tmp_path / "step-1", {"a": os.urandom(10 * CHUNK)})
    uploader = Uploader(store, chunk_bytes=CHUNK, threads=1)
    for sent in (4, 7):
        store.fail_after = sent
        with pytest.raises(StoreError):
            commit(uploader, source)
    store.fail_after = None
    made = commit(uploader, source)
    chunks = [key for key in store.written if key.startswith(CHUNKS_PREFIX)]
    assert len(chunks) == len(set(chunks)) == 10
    assert contents(restore(store, made, tmp_path / "in")) == contents(source)


@pytest.mark.parametrize("damage", ["truncate", "remove"])
def test_what_a_failed_upload_has_sent_is_looked_for(tmp_path: Path, damage: str) -> None:
    store = Counting()
    source = make(tmp_path / "step-1", {"a": os.urandom(10 * CHUNK)})
    uploader = Uploader(store, chunk_bytes=CHUNK, threads=1)
    store.fail_after = 4
    with pytest.raises(StoreError):
        commit(uploader, source)
    store.fail_after = None
    (info, *_) = store.list(CHUNKS_PREFIX)
    if damage == "truncate":
        store.put(info.key, b"")
    else:
        store.delete([info.key])
    made = commit(uploader, source)
    assert contents(restore(store, made, tmp_path / "in")) == contents(source)


def test_the_manifest_comes_last(tmp_path: Path) -> None:
    store = Counting()
    commit(Uploader(store, chunk_bytes=CHUNK), make(tmp_path / "step-1", {"a": os.urandom(999)}))
    assert store.written[-1].startswith("ckpt/manifests/")
    assert all(key.startswith(CHUNKS_PREFIX) for key in store.written[:-1])


def test_two_agents_cannot_commit_the_same_number(tmp_path: Path) -> None:
    store = MemoryStore()
    first = commit(Uploader(store), make(tmp_path / "a/step-1", {"w": b"1"}))
    with pytest.raises(ConflictError):
        commit(Uploader(store), make(tmp_path / "b/step-1", {"w": b"2"}))
    assert read_manifest(store, first.key) == first
    # sent again after its answer was lost: the same bytes are no conflict
    assert commit(Uploader(store), tmp_path / "a/step-1") == first
    assert next_number(store, 1) == 2
    assert next_number(store, 2) == 1


class Meddling(MemoryStore):
    """Does something to the source at the first write of a chunk."""

    def __init__(self, meddle: Callable[[], None]) -> None:
        super().__init__()
        self._once: list[Callable[[], None]] = [meddle]

    def put(self, key: str, data: bytes) -> None:
        if self._once:
            self._once.pop()()
        super().put(key, data)


def grow(folder: Path) -> None:
    with (folder / "w").open("ab") as file:
        file.write(b"more")


def rewrite(folder: Path) -> None:
    time.sleep(0.02)  # past the kernel's clock tick
    (folder / "w").write_bytes(b"2" * 500)


def swap(folder: Path) -> None:
    (folder / "new").write_bytes(b"3" * 500)
    (folder / "new").replace(folder / "w")


def add(folder: Path) -> None:
    (folder / "late").write_bytes(b"")


def remove(folder: Path) -> None:
    (folder / "a").unlink()


def truncate(folder: Path) -> None:
    os.truncate(folder / "w", 10)


@pytest.mark.parametrize("meddle", [grow, rewrite, swap, add, remove, truncate])
def test_a_file_that_changes_during_the_upload_is_an_error(
    meddle: Callable[[Path], None], tmp_path: Path
) -> None:
    source = make(tmp_path / "step-1", {"a": b"a", "w": b"1" * 500})
    store = Meddling(lambda: meddle(source))
    with pytest.raises(IntegrityError, match="changed while"):
        commit(Uploader(store, chunk_bytes=CHUNK, threads=1), source)
    assert list_manifests(store) == ()


def test_links_inside_count_as_files_other_things_are_refused(tmp_path: Path) -> None:
    store = MemoryStore()
    source = make(tmp_path / "step-1", {"w": b"1"})
    (source / "latest").symlink_to("w")
    made = commit(Uploader(store), source)
    restored = restore(store, made, tmp_path / "in")
    assert (restored / "latest").read_bytes() == b"1"
    assert not (restored / "latest").is_symlink()

    def refused(prepare: Callable[[Path], object], number: int) -> None:
        folder = make(tmp_path / f"bad{number}/step-1", {"w": b"1"})
        prepare(folder / "odd")
        with pytest.raises(UsageError, match=r"odd|back"):
            commit(Uploader(store), folder, number)

    refused(lambda p: p.symlink_to("/etc/passwd"), 2)
    refused(lambda p: p.symlink_to("nowhere"), 3)
    refused(lambda p: p.symlink_to(tmp_path, target_is_directory=True), 4)
    refused(lambda p: os.mkfifo(p), 5)
    refused(lambda p: (p.parent / "back\\slash").write_bytes(b""), 6)

    def listen(path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as sock:
            here = Path.cwd()
            os.chdir(path.parent)
            try:
                sock.bind(path.name)
            finally:
                os.chdir(here)

    refused(listen, 7)
    (tmp_path / "none/step-1").mkdir(parents=True)
    with pytest.raises(UsageError, match="is empty"):
        commit(Uploader(store), tmp_path / "none/step-1", 8)
    with pytest.raises(IntegrityError, match="changed while"):  # the training pruned it meanwhile
        commit(Uploader(store), tmp_path / "none/step-2", 8)
    with pytest.raises(UsageError, match="cannot be the name"):
        commit(Uploader(store), make(tmp_path / ".tmp-1", {"w": b""}), 8)
    assert list_manifests(store) == (made.key,)


def test_sparse_files_cost_one_chunk(tmp_path: Path) -> None:
    store = MemoryStore()
    source = make(tmp_path / "step-1", {"w": b"1"})
    with (source / "hole").open("wb") as file:
        file.truncate(200 << 20)
    uploader = Uploader(store)
    made = commit(uploader, source)
    assert uploader.uploaded_bytes == (8 << 20) + 1
    assert made.total_bytes == (200 << 20) + 1
    restored = restore(store, made, tmp_path / "in")
    assert (restored / "hole").stat().st_size == 200 << 20


# ---------------------------------------------------------------- damage


def damaged(data: bytes) -> Sequence[bytes]:
    """Every byte flipped in its lowest, its highest and its case bit; cut at every place; one more."""
    flips = [
        data[:i] + bytes([data[i] ^ bit]) + data[i + 1 :] for i in range(len(data)) for bit in (1, 32, 128)
    ]
    cuts = [data[:i] for i in range(len(data))]
    return [*flips, *cuts, data + b"\n", data + b"x"]


def test_no_damaged_chunk_is_ever_restored(tmp_path: Path) -> None:
    store = MemoryStore()
    made = commit(Uploader(store, chunk_bytes=CHUNK), make(tmp_path / "step-1", {"w": os.urandom(150)}))
    target = tmp_path / "in"
    for info in list(store.list(CHUNKS_PREFIX)):
        whole = store.get(info.key)
        assert whole is not None
        for data in damaged(whole):
            store.put(info.key, data)
            with pytest.raises(IntegrityError, match=info.key):
                restore(store, made, target, threads=1)
            assert list(target.iterdir()) == []
        store.delete([info.key])
        with pytest.raises(IntegrityError, match="missing"):
            restore(store, made, target)
        store.put(info.key, whole)
    assert holds(restore(store, made, target), made)


def test_no_damaged_manifest_is_ever_read(tmp_path: Path) -> None:
    store = MemoryStore()
    source = make(tmp_path / "step-1", {"w": os.urandom(100), "ü": b"1"})
    made = Uploader(store, chunk_bytes=CHUNK).commit(
        source,
        job_id="job-1",
        lease_id="l",
        epoch=1,
        number=1,
        step=1,
        saved_at_s=1e-7,
        clock=ManualClock(1e17),
    )
    whole = store.get(made.key)
    assert whole is not None
    for data in damaged(whole):
        with pytest.raises(IntegrityError, match="e000001-000001"):
            parse_manifest(data, key=made.key)
    assert parse_manifest(whole, key=made.key) == made
    for junk in (b"", b"null", b"[]", b"1", b"{}", b'"x"', b"[" * 100_000, b'{"digest":NaN}', b"\xff"):
        with pytest.raises(IntegrityError):
            parse_manifest(junk, key=made.key)
    with pytest.raises(IntegrityError, match="missing"):
        read_manifest(store, "ckpt/manifests/e000009-000001.json")


def test_a_manifest_in_the_wrong_place_is_refused(tmp_path: Path) -> None:
    store = MemoryStore()
    made = commit(Uploader(store), make(tmp_path / "step-1", {"w": b"1"}))
    data = manifest_bytes(made)
    with pytest.raises(IntegrityError, match="holds the manifest"):
        parse_manifest(data, key="ckpt/manifests/e000002-000001.json")
    with pytest.raises(IntegrityError, match="belongs to job"):
        parse_manifest(data, key=made.key, job_id="job-2")
    newer = seal(replace(made, schema_version=99))
    with pytest.raises(IntegrityError, match="schema 99") as caught:
        parse_manifest(manifest_bytes(newer), key=made.key)
    assert caught.value.code == "schema"


def entry(path: str, **changes: object) -> FileEntry:
    values = {
        "path": path,
        "size": 1,
        "mode": 0o644,
        "chunks": (ChunkRef(sha256="a" * 64, size=1),),
        **changes,
    }
    return FileEntry(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "files",
    [
        (entry("../x"),),
        (entry("/etc/passwd"),),
        (entry("a/../../x"),),
        (entry("a//b"),),
        (entry("."),),
        (entry(""),),
        (entry("a\x00b"),),
        (entry("a\\b"),),
        (entry("a"), entry("a")),
        (entry("a"), entry("a/b")),
        (entry("a/b"), entry("a/b/c/d")),
        (entry("a", mode=0o4755),),
        (entry("a", mode=-1),),
        (entry("a", size=2),),
        (entry("a", size=-1, chunks=()),),
        (entry("a", chunks=(ChunkRef(sha256="../../../x", size=1),)),),
        (entry("a", chunks=(ChunkRef(sha256="A" * 64, size=1),)),),
        (entry("a", chunks=(ChunkRef(sha256="a" * 64, size=2), ChunkRef(sha256="a" * 64, size=-1))),),
        (entry("a", size=65 << 20, chunks=(ChunkRef(sha256="a" * 64, size=65 << 20),)),),
    ],
    ids=lambda files: repr([(f.path, f.size, f.mode) for f in files]),
)
def test_a_hostile_manifest_with_a_good_digest_is_refused(files: tuple[FileEntry, ...]) -> None:
    manifest = seal(
        Manifest(
            job_id="j",
            lease_id="l",
            epoch=1,
            number=1,
            step=1,
            saved_at_s=0.0,
            committed_at_s=0.0,
            directory="step-1",
            files=files,
            total_bytes=sum(f.size for f in files),
            digest="",
        )
    )
    with pytest.raises(IntegrityError):
        parse_manifest(manifest_bytes(manifest), key=manifest.key)


@pytest.mark.parametrize("directory", ["", ".", "..", "a/b", "/abs", ".hidden", "a\\b"])
def test_a_manifest_restores_into_a_plain_folder_only(directory: str) -> None:
    manifest = seal(
        Manifest(
            job_id="j",
            lease_id="l",
            epoch=1,
            number=1,
            step=1,
            saved_at_s=0.0,
            committed_at_s=0.0,
            directory=directory,
            files=(entry("a"),),
            total_bytes=1,
            digest="",
        )
    )
    with pytest.raises(IntegrityError):
        parse_manifest(manifest_bytes(manifest), key=manifest.key)


# ---------------------------------------------------------------- restore


def test_restore_replaces_what_differs_and_keeps_what_holds(tmp_path: Path) -> None:
    store = Counting()
    source = make(tmp_path / "step-1", SMALL)
    made = commit(Uploader(store, chunk_bytes=CHUNK), source)
    target = tmp_path / "in"
    path = restore(store, made, target)
    inode = path.stat().st_ino
    assert restore(store, made, target).stat().st_ino == inode  # nothing to do
    changes: list[Callable[[], object]] = [
        lambda: (path / "w2").write_bytes(b""),
        lambda: (path / "weights.npy").write_bytes(b"short"),
        lambda: (path / "weights.npy").write_bytes(bytes(200)),
        lambda: (path / "weights.npy").chmod(
            0o600 if (path / "weights.npy").stat().st_mode & 0o044 else 0o644
        ),
        lambda: (path / "_COMPLETE").unlink(),
    ]
    for change in changes:
        change()
        assert not holds(path, made)
        assert contents(restore(store, made, target)) == contents(source)
        assert [p.name for p in target.iterdir()] == ["step-1"]
    outside = make(tmp_path / "outside", {"precious": b"1"})
    path.rename(tmp_path / "away")
    path.symlink_to(outside)
    assert contents(restore(store, made, target)) == contents(source)
    assert not path.is_symlink()
    assert (outside / "precious").read_bytes() == b"1"


def test_leftovers_of_a_killed_restore_go_at_the_next(tmp_path: Path) -> None:
    store = MemoryStore()
    made = commit(Uploader(store), make(tmp_path / "step-1", SMALL))
    make(tmp_path / "in/.restore-abc", {"new/x": b"1"})
    restore(store, made, tmp_path / "in")
    assert [p.name for p in (tmp_path / "in").iterdir()] == ["step-1"]


class Watched(MemoryStore):
    """Reads from another store, and says how much."""

    def __init__(self, behind: ObjectStore) -> None:
        super().__init__()
        self.behind = behind
        self.fetched: list[int] = []

    def get(self, key: str) -> bytes | None:
        data = self.behind.get(key)
        self.fetched.append(len(data or b""))
        return data


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("links", [True, False])
def test_what_was_brought_near_needs_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool, links: bool
) -> None:
    if not links:

        def link(*_: object, **__: object) -> None:
            raise OSError(18, "another file system")

        monkeypatch.setattr("os.link", link)
    store = MemoryStore()
    source = make(tmp_path / "step-1", {"w": os.urandom(500), "z": bytes(500), "e": b""})
    made = commit(Uploader(store, chunk_bytes=CHUNK), source)
    near = Near(manifest=made, folder=restore(store, made, tmp_path / "near"), trusted=trusted)
    assert contents(restore(MemoryStore(), made, tmp_path / "in", near=near)) == contents(source)
    # the next checkpoint: only the difference is fetched
    make(source, {"w": (source / "w").read_bytes()[:448] + os.urandom(52)})
    after = commit(Uploader(store, base=made, chunk_bytes=CHUNK), source, 2)
    watched = Watched(store)
    assert contents(restore(watched, after, tmp_path / "in2", near=near)) == contents(source)
    assert watched.fetched == [52]
    # a file that the training writes to in place is its own
    (tmp_path / "in2" / source.name / "w").write_bytes(b"mine")
    assert holds(near.folder, made)


def test_what_was_damaged_since_it_was_brought_near_is_mended(tmp_path: Path) -> None:
    store = MemoryStore()
    source = make(tmp_path / "step-1", {"w": os.urandom(500), "z": os.urandom(100)})
    made = commit(Uploader(store, chunk_bytes=CHUNK), source)
    near = Near(manifest=made, folder=restore(store, made, tmp_path / "near"))
    with (near.folder / "w").open("r+b") as file:
        file.seek(130)
        file.write(bytes([(source / "w").read_bytes()[130] ^ 1]))
    with pytest.raises(IntegrityError):
        restore(MemoryStore(), made, tmp_path / "in", near=near)
    watched = Watched(store)
    assert contents(restore(watched, made, tmp_path / "in", near=near)) == contents(source)
    assert watched.fetched == [CHUNK]
    assert (near.folder / "w").read_bytes() != (source / "w").read_bytes()  # left as it was


def test_what_lies_there_already_is_not_fetched_again(tmp_path: Path) -> None:
    """A rank's own part of a sharded checkpoint, when it comes back; damaged, it is fetched like the rest."""
    store = MemoryStore()
    source = make(tmp_path / "step-1", {f"shard-{rank}": os.urandom(500) for rank in range(3)})
    made = commit(Uploader(store, chunk_bytes=CHUNK), source)
    fetched: list[str] = []

    class Watched(MemoryStore):
        def get(self, key: str) -> bytes | None:
            fetched.append(key.rpartition("/")[2])
            return store.get(key)

    own = (source / "shard-1").read_bytes()
    make(tmp_path / "in/step-1", {"shard-1": own[:100] + b"X" + own[101:]})
    assert contents(restore(Watched(), made, tmp_path / "in")) == contents(source)
    parts = {file.path: [chunk.sha256 for chunk in file.chunks] for file in made.files}
    damaged = parts["shard-1"][100 // CHUNK]
    assert sorted(fetched) == sorted([*parts["shard-0"], damaged, *parts["shard-2"]])


def test_a_manifest_larger_than_the_disk_fills_nothing(tmp_path: Path) -> None:
    """One chunk, named a hundred million times."""
    store = MemoryStore()
    made = commit(Uploader(store), make(tmp_path / "step-1", {"w": bytes(1000)}))
    chunk = made.files[0].chunks[0]
    times = shutil.disk_usage(tmp_path).total // chunk.size + 1
    # the sum alone counts: so many references would not fit into this test
    bomb = replace(made, files=(), total_bytes=times * chunk.size)
    with pytest.raises(LocalStateError, match=r"needs .* GB in .* are free") as error:
        restore(store, bomb, tmp_path / "in")
    assert bomb.key not in str(error.value)  # a name in what a machine says gives the checkpoint up
    assert list((tmp_path / "in").iterdir()) == []


def test_a_manifest_without_end_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arylcloud.checkpoint.manifest.MAX_BYTES", 100)
    with pytest.raises(IntegrityError, match="no manifest of ours is that long"):
        parse_manifest(b"[" * 101, key="ckpt/manifests/e000001-000001.json")
    monkeypatch.setattr("arylcloud.checkpoint.manifest.MAX_FILES", 2)
    files = tuple(FileEntry(path=str(n), size=0, mode=0o600, chunks=()) for n in range(3))
    with pytest.raises(IntegrityError, match="names 3 files"):
        check_files(files, "a manifest")


def test_the_error_is_told_not_that_others_were_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that took up the first item is overtaken by one that took up the second, and fails."""

    class Backwards(ThreadPoolExecutor):
        def submit(self, work: Any, item: int) -> Any:  # type: ignore[override]
            future: Future[int] = Future()
            waiting.append((future, work, item))
            if item == 1:
                for one, do, what in reversed(waiting):
                    try:
                        one.set_result(do(what))
                    except BaseException as error:  # noqa: BLE001 - as an executor does
                        one.set_exception(error)
            return future

    def fail(item: int) -> int:
        raise ValueError(item)

    waiting: list[Any] = []
    monkeypatch.setattr("arylcloud.checkpoint.restore.ThreadPoolExecutor", Backwards)
    with pytest.raises(ValueError, match="1"):
        parallel(fail, [0, 1], threads=2)


def test_an_error_in_the_progress_callback_ends_the_transfer(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    store = MemoryStore()
    source = make(tmp_path / "step-1", {"w": os.urandom(5000)})
    lock = threading.Lock()
    seen: list[int] = []

    def progress(size: int) -> None:
        with lock:
            seen.append(size)
            if len(seen) == 5:
                raise Stop

    with pytest.raises(Stop):
        Uploader(store, chunk_bytes=CHUNK, threads=2).commit(
            source,
            job_id="j",
            lease_id="l",
            epoch=1,
            number=1,
            step=1,
            saved_at_s=0.0,
            clock=ManualClock(),
            progress=progress,
        )
    assert list_manifests(store) == ()
    seen.clear()
    made = commit(Uploader(store, chunk_bytes=CHUNK), source)
    with pytest.raises(Stop):
        restore(store, made, tmp_path / "in", progress=progress)
    assert list((tmp_path / "in").iterdir()) == []


def test_a_restore_over_a_store_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    store = MemoryStore()
    source = make(tmp_path / "step-1", {"w": b"old"})
    old = commit(Uploader(store), source)
    target = tmp_path / "in"
    restore(store, old, target)
    make(source, {"w": b"new"})
    new = commit(Uploader(store), source, 2)
    store.delete([chunk_key(new.files[0].chunks[0].sha256)])
    with pytest.raises(ArylError):
        restore(store, new, target)
    assert (target / "step-1/w").read_bytes() == b"old"


def test_after_the_first_error_nothing_begins() -> None:
    """However busy the machine: not when the thread that waits has heard of it, but at once."""
    begun: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        raise IntegrityError(f"{item}")

    with pytest.raises(IntegrityError):
        parallel(work, range(5000), 4)
    assert len(begun) <= 4
