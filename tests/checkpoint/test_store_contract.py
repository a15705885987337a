"""What every object store must do, run on each."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkpoint.contract import ObjectStoreContract
from hypothesis import given
from hypothesis import strategies as st

from arylcloud.checkpoint.keys import checked_key
from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.checkpoint.store import (
    LocalStoreError,
    StoreAccessError,
    file_path,
    file_uri,
    map_error,
    open_store,
    sub,
    sweep_partials,
    unreadable,
)
from arylcloud.core.errors import IntegrityError, LocalStateError, StoreError, UsageError
from arylcloud.core.ports import ObjectStore


class TestMemory(ObjectStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return MemoryStore()


class TestFile(ObjectStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return open_store(file_uri(tmp_path / "st%20ore ü"))

    def test_its_address_opens_it_again(self, store: ObjectStore) -> None:
        part = sub(store, "jobs/ä b")
        part.put("x", b"1")
        assert open_store(store.uri).get("jobs/ä b/x") == b"1"
        assert open_store(part.uri).get("x") == b"1"
        assert open_store(store.uri).uri == store.uri

    def test_is_private(self, store: ObjectStore) -> None:
        assert stat.S_IMODE(file_path(store.uri).stat().st_mode) == 0o700

    def test_modified_is_now(self, store: ObjectStore) -> None:
        before = time.time()
        store.put("a", b"1")
        (info,) = store.list("")
        assert before - 1 <= info.modified_s <= time.time() + 1


class TestFileDurable(ObjectStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return open_store(file_uri(tmp_path / "store"), durable=True)


@given(st.text(max_size=30))
def test_a_key_is_refused_or_stays_inside(key: str) -> None:
    try:
        checked_key(key)
    except IntegrityError:
        return
    root = "/root/store"
    assert os.path.normpath(f"{root}/{key}") == f"{root}/{key}"


@pytest.mark.parametrize(
    "uri",
    ["", "/tmp/x", "store", "file:", "file://", "file://host/x", "file:x", "http://x/y", "s3://", "ftp://a"],
)
def test_bad_addresses_are_usage_errors(uri: str) -> None:
    with pytest.raises(UsageError):
        open_store(uri)


def test_a_missing_store_is_not_made_by_looking(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no object store"):
        open_store(file_uri(tmp_path / "none"), create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_the_store_should_be_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(StoreError) as caught:
        open_store(file_uri(tmp_path / "x"))
    assert "\n" not in caught.value.message


def test_opening_needs_no_cloud_and_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    assert open_store("s3://bucket/some/prefix", region="eu-west-1").uri == "s3://bucket/some/prefix"
    with pytest.raises(UsageError, match="regoin"):
        open_store("s3://bucket", regoin="x")


def test_an_unreachable_store_is_a_store_error_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}.items():
        monkeypatch.setenv(name, value)
    store = open_store("s3://bucket/p", endpoint="http://127.0.0.1:9", region="us-east-1")
    with pytest.raises(StoreError) as caught:
        store.get("a")
    assert "\n" not in caught.value.message


def test_errors_are_by_remedy() -> None:
    import obstore.exceptions as ob

    full = map_error(OSError(errno.ENOSPC, "No space"), "cannot write a")
    assert isinstance(full, LocalStateError)
    assert isinstance(full, StoreError)
    assert (full.exit_code, full.message) == (2, "cannot write a: No space left on device")
    denied = map_error(ob.PermissionDeniedError("nope\n\nDebug source: …"), "cannot read a")
    assert isinstance(denied, StoreAccessError)
    assert (denied.exit_code, denied.message) == (4, "cannot read a: nope")
    other = map_error(ob.GenericError("Generic S3 error: 503\nmore"), "cannot list a")
    assert (type(other), other.exit_code, other.kind) == (StoreError, 5, "store")


def test_a_bad_file_is_told_apart_from_a_full_or_busy_host() -> None:
    for number in (errno.EIO, errno.EACCES):
        assert isinstance(unreadable(OSError(number, ""), "cannot read a"), IntegrityError)
    for number in (errno.ENOSPC, errno.EROFS, errno.EMFILE, errno.ENOMEM):
        assert isinstance(unreadable(OSError(number, ""), "cannot read a"), StoreError)


def in_namespace(script: str, *mounts: str) -> subprocess.CompletedProcess[str]:
    """Run ``script`` where ``mounts`` are real mounts; skips where the kernel does not allow it."""
    unshare = shutil.which("unshare")
    probe = [unshare or "false", "-rm", "true"]
    if unshare is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("user namespaces are not allowed here")
    command = " && ".join([*(f"mount {m}" for m in mounts), f"exec {sys.executable} -c '{script}'"])
    return subprocess.run(
        [unshare, "-rm", "sh", "-c", command], capture_output=True, text=True, check=False, timeout=60
    )


SHOW = """
from arylcloud.checkpoint.store import open_store, LocalStoreError
store = open_store("file://{folder}")
for call in {calls}:
    try:
        call(store)
    except LocalStoreError as error:
        print(error.message)
"""


def test_a_full_disk_is_one_clear_line_and_leaves_nothing(tmp_path: Path) -> None:
    big = "bytes(3 << 20)"
    calls = f'[lambda s: s.put("a", {big}), lambda s: s.create("b", {big}), lambda s: s.put("c", b"fits")]'
    script = SHOW.format(folder=tmp_path, calls=calls) + 'print([i.key for i in store.list("")])'
    done = in_namespace(script, f"-t tmpfs -o size=1m tmpfs {tmp_path}")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.endswith("No space left on device") for line in lines[:2])
    assert lines[2] == "['c']"


def test_a_read_only_store_can_be_read_and_says_so_when_written(tmp_path: Path) -> None:
    open_store(file_uri(tmp_path)).put("a", b"old")
    calls = '[lambda s: s.put("a", b"1"), lambda s: s.create("b", b""), lambda s: s.delete(["a"])]'
    script = SHOW.format(folder=tmp_path, calls=calls) + 'print(store.get("a"))'
    done = in_namespace(script, f"--bind {tmp_path} {tmp_path}", f"-o remount,ro,bind {tmp_path}")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert all(line.endswith("Read-only file system") for line in lines[:3])
    assert lines[3] == "b'old'"


WRITER = """
import sys
from arylcloud.checkpoint.store import open_store
store = open_store(sys.argv[1])
data = bytes(32 << 20)
print("ready", flush=True)
turn = 0
while True:
    turn += 1
    store.put("big", data)
    store.create(f"made/{turn}", data)
    store.delete([f"made/{turn}"])
"""


def test_a_killed_writer_leaves_whole_objects_only(tmp_path: Path) -> None:
    uri = file_uri(tmp_path / "store")
    store = open_store(uri)
    seen_partial = False
    for turn in range(40):
        if turn >= 6 and seen_partial:
            break
        process = subprocess.Popen([sys.executable, "-c", WRITER, uri], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.02 + 0.017 * (turn % 8))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        for info in store.list(""):
            assert info.key == "big" or info.key.startswith("made/")
            data = store.get(info.key)
            assert data is not None
            assert len(data) == info.size == 32 << 20
        seen_partial = seen_partial or any("#" in p.name for p in (tmp_path / "store").rglob("*"))
    assert seen_partial, "no kill hit a write: the test shows nothing"
    assert sweep_partials(store, now_s=time.time()) == 0  # too young: somebody may be writing
    assert sweep_partials(store, now_s=time.time() + 2 * 86400) >= 1
    assert not any("#" in p.name for p in (tmp_path / "store").rglob("*"))
    assert sweep_partials(MemoryStore(), now_s=0) == 0


def test_nothing_heavy_is_imported_before_a_store_is_opened() -> None:
    modules = "arylcloud.checkpoint.store, arylcloud.checkpoint.upload, arylcloud.checkpoint.restore"
    code = f"import sys, {modules}; print('obstore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_local_store_error_is_both() -> None:
    assert issubclass(LocalStoreError, StoreError)
    assert issubclass(LocalStoreError, LocalStateError)
