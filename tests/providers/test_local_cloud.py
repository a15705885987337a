"""The cloud without its daemon: a clock that is moved by hand, a log on a real disk."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from providers.localcloud import LocalCloud, a_market, an_offer

from arylcloud.core.clock import ManualClock, MarketClock
from arylcloud.core.errors import CapacityError, OtherCloudError
from arylcloud.core.ports import MachineState
from arylcloud.providers.local import marketfile
from arylcloud.providers.local.book import Book
from arylcloud.providers.local.cloud import Cloud
from arylcloud.providers.local.log import CloudLog, read
from arylcloud.providers.local.machines import Machines

START_S = 1_800_000_000.0


def open_book(folder: Path, clock: ManualClock, market: dict[str, object]) -> Book:
    return Book(
        folder=folder,
        market=marketfile.parse(json.dumps(market), what="test"),
        market_id={},
        market_clock=MarketClock(origin_s=START_S, scale=1.0),
        clock=clock,
        cloud_log=CloudLog(folder / "cloud.jsonl"),
        bind=lambda _instance_id, _address, _port: ("127.0.0.1", 1),
        unbind=lambda _instance_id: None,
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(at_s=START_S)


@pytest.fixture
def book(tmp_path: Path, clock: ManualClock) -> Book:
    book = open_book(tmp_path, clock, a_market(an_offer(steps=[[0, 0.5, 2], [3000, 0.6, 0]])))
    book.record("opened", START_S, origin_s=START_S)
    return book


@pytest.fixture
def cloud(book: Book) -> Cloud:
    return Cloud(book, end=lambda _instance: None)


@pytest.fixture
def maker(tmp_path: Path) -> LocalCloud:
    """Only for its ``spec``."""
    return LocalCloud(state=tmp_path, market={})


def test_an_ended_machine_is_listed_for_ten_minutes_and_more(
    book: Book, cloud: Cloud, clock: ManualClock, maker: LocalCloud
) -> None:
    machine = cloud.create(maker.spec(cloud.offers()[0]), "/usr/bin/python3")
    clock.at_s += 100
    book.record("ending", clock.at_s, instance_id=machine.instance_id, cause="terminated")
    book.record("end", clock.at_s, instance_id=machine.instance_id, cause="terminated", ended_s=clock.at_s)
    for later_s in (0.0, 600.0, 1800.0):
        clock.at_s = START_S + 100 + later_s
        (seen,) = cloud.list_machines("j")
        assert (seen.state, seen.ended_s) == (MachineState.GONE, START_S + 100)
    clock.at_s = START_S + 100 + 86400
    assert cloud.list_machines("j") == []
    assert cloud.create(maker.spec(cloud.offers()[0], token="t1"), "python3").state is MachineState.GONE


def test_capacity_zero_is_not_offered(cloud: Cloud, clock: ManualClock, maker: LocalCloud) -> None:
    offer = cloud.offers()[0]
    assert cloud.quote(offer).usd_per_hour == 0.5
    clock.at_s += 3000
    assert cloud.offers()[0].usd_per_hour == 0.6
    with pytest.raises(CapacityError):
        cloud.quote(offer)
    with pytest.raises(CapacityError):
        cloud.create(maker.spec(offer), "python3")


def test_prices_of_an_older_machine_are_not_lost_to_a_younger_one(
    book: Book, cloud: Cloud, clock: ManualClock, maker: LocalCloud
) -> None:
    """The price moved while no daemon was there, and the first thing after its restart is a create."""
    market = a_market(an_offer(steps=[[0, 0.5, 2], [100, 0.6, 2], [200, 0.7, 2]]))
    book.market = marketfile.parse(json.dumps(market), what="test")
    cloud.create(maker.spec(cloud.offers()[0]), "python3")
    clock.at_s += 250
    cloud.create(maker.spec(cloud.offers()[0]), "python3")
    prices = [
        (r["t_s"], r["usd_per_hour"]) for r in read(book.folder / "cloud.jsonl")[0] if r["kind"] == "price"
    ]
    assert prices == [(100.0, 0.6), (200.0, 0.7)]


def test_what_the_log_says_is_the_state(book: Book, cloud: Cloud, maker: LocalCloud) -> None:
    for _ in range(2):
        cloud.create(maker.spec(cloud.offers()[0]), "python3")
    assert Machines.replay(read(book.folder / "cloud.jsonl")[0]) == book.machines


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """As a full disk does it: the write that crosses the limit is cut short, the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)


@pytest.mark.parametrize("room", [0, 1, 100])
def test_a_full_disk_makes_no_machine_and_leaves_no_half_line(
    tmp_path: Path, book: Book, cloud: Cloud, maker: LocalCloud, room: int
) -> None:
    first = cloud.create(maker.spec(cloud.offers()[0]), "python3")
    path = tmp_path / "cloud.jsonl"
    before = path.read_bytes()
    spec = maker.spec(cloud.offers()[0])
    with file_size_limit(len(before) + room), pytest.raises(OtherCloudError, match="log cannot be written"):
        cloud.create(spec, "python3")
    assert path.read_bytes() == before
    assert [m.instance_id for m in cloud.list_machines("j")] == [first.instance_id]
    assert [p.name for p in (tmp_path / "machines").iterdir()] == [first.instance_id]
    again = cloud.create(spec, "python3")
    assert {m.instance_id for m in cloud.list_machines("j")} == {first.instance_id, again.instance_id}
    assert [r["seq"] for r in read(path)[0]] == [1, 2, 3]
