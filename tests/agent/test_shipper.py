"""Log segments: numbered, complete, in order, whatever the store does."""

from __future__ import annotations

from pathlib import Path

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
