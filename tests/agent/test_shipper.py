"""Log segments: numbered, complete, in order, whatever the store does."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arylcloud.agent.shipper import TAIL_BYTES, Shipper, Stream
from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.core.errors import StoreError
from arylcloud.core.protocol import log_key


class Flaky(MemoryStore):
    """Fails when told; ``lost``: the write happens and the answer is lost."""

    fail = False
    lost = False

    def create(self, key: str, data: bytes) -> bool:
        if self.fail:
            raise StoreError("away")
        done = super().create(key, data)
        if self.lost:
            self.lost = False
            raise StoreError("the answer is lost")
        return done


def text(store: MemoryStore, stream: str) -> bytes:
    return b"".join(store.get(info.key) or b"" for info in store.list(f"logs/{stream}/"))


def numbers(store: MemoryStore, stream: str) -> list[int]:
    return [int(Path(info.key).stem) for info in store.list(f"logs/{stream}/")]


@settings(max_examples=60, deadline=None)
@given(
    turns=st.lists(
        st.tuples(st.binary(max_size=3000), st.sampled_from(["", "fail", "lost"])), min_size=1, max_size=20
    )
)
def test_every_byte_once_and_in_order(
    turns: list[tuple[bytes, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = Flaky()
    shipper = Shipper(store, tmp_path_factory.mktemp("spool"), on_error=str)
    stream = shipper.stream("s")
    for data, mishap in turns:
        stream.write(data)
        store.fail, store.lost = mishap == "fail", mishap == "lost"
        try:
            shipper.flush()
        except StoreError:
            assert mishap
        store.fail = store.lost = False
    shipper.flush()
    shipper.close()
    assert text(store, "s") == b"".join(data for data, _ in turns)
    assert numbers(store, "s") == list(range(1, len(numbers(store, "s")) + 1))


def test_numbering_goes_on_after_a_predecessor(tmp_path: Path) -> None:
    store = MemoryStore()
    store.create(log_key("s", 1), b"before\n")
    store.create(log_key("s", 2), b"before too\n")
    shipper = Shipper(store, tmp_path, on_error=str)
    shipper.stream("s").write(b"after\n")
    shipper.flush()
    shipper.close()
    assert text(store, "s") == b"before\nbefore too\nafter\n"
    assert numbers(store, "s") == [1, 2, 3]


def test_a_long_outage_costs_the_oldest_lines_and_says_how_many(tmp_path: Path) -> None:
    store = Flaky()
    shipper = Shipper(store, tmp_path, on_error=str)
    stream = Stream("s", tmp_path / "small", spool_bytes=1000)
    shipper._streams["s"] = stream
    store.fail = True
    stream.write(b"line 0000\n")
    for n in range(1, 1000):
        if n == 5:  # a segment of five lines is on its way when the outage begins
            with pytest.raises(StoreError):
                shipper.flush()
        stream.write(b"line %04d\n" % n)
    with pytest.raises(StoreError):
        shipper.flush()
    assert (tmp_path / "small").stat().st_size <= 1010
    store.fail = False
    shipper.flush()
    shipped = text(store, "s").decode()
    assert shipped.endswith("line 0999\n")
    first, _, rest = shipped.partition("\n[arylcloud")
    assert first == "".join(f"line {n:04}\n" for n in range(5))
    kept = rest.partition("]\n")[2]
    assert f"[arylcloud: {10_000 - len(first) - len(kept)} bytes of output could not be kept]" in shipped
    stream.write(b"and on\n")
    shipper.flush()
    shipper.close()
    assert text(store, "s").decode() == shipped + "and on\n"


def test_tail_is_whole_lines_and_bounded(tmp_path: Path) -> None:
    stream = Stream("s", tmp_path / "s")
    stream.write(b"short\n")
    assert stream.tail() == "short\n"
    for n in range(1000):
        stream.write(b"line %04d\n" % n)
    assert len(stream.tail()) <= TAIL_BYTES
    assert stream.tail().startswith("line ")
    assert stream.tail().endswith("line 0999\n")
    stream.close()


class Busy(MemoryStore):
    """Somebody goes on writing while a segment is on its way."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[Stream] = []

    def create(self, key: str, data: bytes) -> bool:
        for stream in self.meanwhile:
            stream.write(b"another line\n")
        return super().create(key, data)


def test_steady_output_neither_costs_a_write_a_line_nor_starves_others_nor_fills_the_disk(
    tmp_path: Path,
) -> None:
    store = Busy()
    shipper = Shipper(store, tmp_path, on_error=str)
    steady = Stream("steady", tmp_path / "steady.log", spool_bytes=4_000)
    shipper._streams["steady"] = steady
    other = shipper.stream("other")
    store.meanwhile = [steady]
    steady.write(b"first line\n")
    other.write(b"booted\n")
    for _ in range(500):
        shipper.flush()
    assert len(numbers(store, "steady")) == 500, "one write a look, however fast the lines come"
    assert text(store, "other") == b"booted\n"
    assert (tmp_path / "steady.log").stat().st_size < 2_100
    store.meanwhile = []
    shipper.flush()
    shipper.close()
    assert text(store, "steady") == b"first line\n" + b"another line\n" * 501


class Filling:
    """A disk that takes a part of a write, as Linux does when it fills."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.room: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: bytes) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, "no space")
        return self._file.write(data if self.room is None else data[: self.room])


def test_a_write_that_a_filling_disk_cuts_short_is_counted_to_the_byte(tmp_path: Path) -> None:
    stream = Stream("s", tmp_path / "s")
    disk = Filling(stream._file)
    stream._file = disk  # type: ignore[assignment]
    stream.write(b"line 1\n")
    disk.room = 4
    stream.write(b"ABCDEFGHIJ\n")
    disk.room = 0
    stream.write(b"nothing of this\n")
    disk.room = None
    stream.write(b"line 3\n")
    segment = stream.peek()
    assert segment is not None
    assert segment.data == b"\n[arylcloud: 23 bytes of output could not be kept]\nline 1\nABCDline 3\n"
    stream.shipped(segment)
    assert stream.peek() is None
    stream.close()


def test_a_spool_that_somebody_else_has_cut_holds_nobody_up(tmp_path: Path) -> None:
    store = MemoryStore()
    shipper = Shipper(store, tmp_path, on_error=str)
    stream = shipper.stream("s")
    stream.write(b"gone\n")
    os.truncate(tmp_path / "s.log", 0)
    shipper.flush()
    stream.write(b"and on\n")
    shipper.flush()
    shipper.close()
    assert text(store, "s").endswith(b"and on\n")


def test_a_spool_that_cannot_be_cut_does_not_end_who_writes(tmp_path: Path) -> None:
    stream = Stream("s", tmp_path / "s", spool_bytes=1000)
    disk = Filling(stream._file)
    stream._file = disk  # type: ignore[assignment]

    def broken(_: int) -> bytes:
        raise OSError(errno.EIO, "a bad block")

    disk.read = broken  # type: ignore[method-assign]
    for _ in range(200):
        stream.write(b"ten bytes\n")
    del disk.read
    segment = stream.peek()
    assert segment is not None
    assert segment.data == b"ten bytes\n" * 200
    stream.close()
