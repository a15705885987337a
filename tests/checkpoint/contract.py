"""What every object store must do, run on each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from arylcloud.checkpoint.store import sub
from arylcloud.core.errors import IntegrityError
from arylcloud.core.ports import ObjectStore

BAD_KEYS = [
    "",
    "/a",
    "../a",
    "a/../b",
    "a/..",
    "a//b",
    "a/",
    ".",
    "./a",
    "a\x00b",
    "a\\b",
    "a\n",
    "t#1",
    "a#12/b",
]
BAD_KEYS += ["x" * 300, "\ud800", "/".join(["abcdefgh"] * 200)]


def keys(store: ObjectStore, prefix: str, after: str = "") -> list[str]:
    return [info.key for info in store.list(prefix, after=after)]


class ObjectStoreContract:
    races = 20
    reads = 100

    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        raise NotImplementedError("a subclass says which store")

    def test_the_missing_is_none_and_can_be_deleted(self, store: ObjectStore) -> None:
        assert store.get("a/b") is None
        store.delete(["a/b", "nothing"])
        store.delete([])
        assert keys(store, "") == []

    @pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 50_000], ids=["empty", "one", "large"])
    def test_what_is_put_is_got(self, store: ObjectStore, data: bytes) -> None:
        store.put("a/b.bin", data)
        assert store.get("a/b.bin") == data
        assert [(i.key, i.size) for i in store.list("a/")] == [("a/b.bin", len(data))]

    def test_put_overwrites_create_does_not(self, store: ObjectStore) -> None:
        assert store.create("k", b"first") is True
        assert store.create("k", b"second") is False
        assert store.get("k") == b"first"
        store.put("k", b"third")
        assert store.get("k") == b"third"
        store.delete(["k"])
        assert store.get("k") is None
        assert store.create("k", b"fourth") is True

    def test_one_of_many_creators_wins(self, store: ObjectStore) -> None:
        for turn in range(self.races):
            won: list[int] = []
            gate = threading.Barrier(4)

            def race(
                me: int, key: str = f"race/{turn}", won: list[int] = won, gate: threading.Barrier = gate
            ) -> None:
                gate.wait()
                if store.create(key, b"%d" % me):
                    won.append(me)

            threads = [threading.Thread(target=race, args=(me,)) for me in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(won) == 1
            assert store.get(f"race/{turn}") == b"%d" % won[0]

    def test_readers_and_lists_see_whole_objects_while_it_is_overwritten(self, store: ObjectStore) -> None:
        store.put("beat", b"0" * 200_000)
        stop = threading.Event()

        def write() -> None:
            turn = 0
            while not stop.is_set():
                turn += 1
                store.put("beat", b"%d" % (turn % 10) * 200_000)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(self.reads):
                data = store.get("beat")
                assert data is not None
                assert len(data) == 200_000
                assert len(set(data)) == 1
                assert keys(store, "") == ["beat"]
        finally:
            stop.set()
            writer.join()

    def test_lists_are_in_key_order_and_start_after(self, store: ObjectStore) -> None:
        names = ["j/0001", "j/0002", "j/0010", "j/a/b", "j0", "ja", "k"]
        for name in reversed(names):
            store.put(name, b"1")
        assert keys(store, "") == sorted(names)
        assert keys(store, "j/") == ["j/0001", "j/0002", "j/0010", "j/a/b"]
        assert keys(store, "j/000") == ["j/0001", "j/0002"]
        assert keys(store, "j") == names[:-1]
        assert keys(store, "j/", after="j/0002") == ["j/0010", "j/a/b"]
        assert keys(store, "j/", after="j/00015") == ["j/0002", "j/0010", "j/a/b"]
        assert keys(store, "j/", after="z") == []
        assert keys(store, "nothing/here/") == []

    def test_delete_removes_all_that_are_named_though_some_are_missing(self, store: ObjectStore) -> None:
        for name in ("a", "b", "c"):
            store.put(name, b"1")
        store.delete(["missing", "a", "missing/too", "b"])
        assert keys(store, "") == ["c"]

    @pytest.mark.parametrize("key", BAD_KEYS, ids=lambda key: repr(key)[:20])
    def test_unsafe_keys_are_refused_by_every_method(self, store: ObjectStore, key: str) -> None:
        calls: list[Callable[[], object]] = [
            lambda: store.create(key, b""),
            lambda: store.put(key, b""),
            lambda: store.get(key),
            lambda: store.delete([key]),
            lambda: sub(store, "sub").get(key),
        ]
        for call in calls:
            with pytest.raises(IntegrityError):
                call()

    @pytest.mark.parametrize(
        "key", ["a b", "%20", "a%2Fb", "ü/ß/数", "a#b", "a+b&c=d?e", "~", "-", "...", "e:1"]
    )
    def test_odd_keys_are_kept_as_they_are(self, store: ObjectStore, key: str) -> None:
        store.put(key, b"1")
        assert store.create(key, b"2") is False
        assert keys(store, "") == [key]
        assert store.get(key) == b"1"

    def test_a_part_of_a_store_is_a_store(self, store: ObjectStore) -> None:
        part = sub(sub(store, "jobs/"), "über 1")
        assert part.create("x", b"1") is True
        part.put("y/z", b"2")
        assert part.create("x", b"3") is False
        store.put("jobs/other/x", b"4")
        assert keys(part, "") == ["x", "y/z"]
        assert keys(part, "", after="x") == ["y/z"]
        assert keys(part, "y/") == ["y/z"]
        assert keys(store, "jobs/über") == ["jobs/über 1/x", "jobs/über 1/y/z"]
        assert part.get("x") == b"1"
        part.delete(["x"])
        assert part.get("x") is None
        assert store.get("jobs/other/x") == b"4"
