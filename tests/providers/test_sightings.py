"""What an adapter has seen outlives it: ends, tokens, and who asked for what."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from arylcloud.core.ports import EndCause, Machine, MachineState
from arylcloud.providers import sightings
from arylcloud.providers.sightings import Sightings

NOW_S = time.time()
ONE = Machine(
    instance_id="vm-1",
    token="aryl-1",
    journal_id="j",
    job_id="job",
    lease_id="job-n0-a1",
    cloud="azure",
    region="eastus",
    zone=None,
    instance_type="Standard_NC4as_T4_v3",
    market="spot",
    state=MachineState.PENDING,
    usd_per_hour=0.2,
    launched_s=NOW_S - 100,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "seen.jsonl"


def test_another_process_knows_what_this_one_saw(path: Path) -> None:
    here, there = Sightings(path), Sightings(path)
    here.saw(ONE)
    assert [m.instance_id for m in there.live()] == ["vm-1"]
    there.asked_end("vm-1")
    assert here.asked_s("vm-1") == there.asked_s("vm-1") is not None
    end = here.end("vm-1", NOW_S - 5, EndCause.TERMINATED)
    assert end is not None
    assert (end.state, end.ended_s, end.end_cause) == (MachineState.GONE, NOW_S - 5, EndCause.TERMINATED)
    assert there.end("vm-1", NOW_S, EndCause.INTERRUPTED) == there.ended()[0]  # the first word stays
    assert there.ended()[0].ended_s == NOW_S - 5
    assert there.live() == []
    known = Sightings(path).of_token("aryl-1")
    assert known is not None
    assert known.end_cause is EndCause.TERMINATED


def test_an_end_is_not_before_its_launch_nor_shown_for_ever(path: Path) -> None:
    seen = Sightings(path)
    seen.saw(ONE)
    end = seen.end("vm-1", 7.0, EndCause.UNKNOWN)
    assert end is not None
    assert end.ended_s == ONE.launched_s
    seen.saw(replace(ONE, instance_id="vm-2", token="aryl-2", launched_s=NOW_S - 2 * sightings.SHOWN_S))
    seen.end("vm-2", NOW_S - sightings.SHOWN_S - 1, EndCause.UNKNOWN)
    assert [m.instance_id for m in seen.ended()] == ["vm-1"]
    assert seen.of_token("aryl-2") is not None


def test_a_stranger_has_no_end(path: Path) -> None:
    seen = Sightings(path)
    seen.asked_end("vm-9")
    assert seen.end("vm-9", NOW_S, EndCause.TERMINATED) is None
    assert seen.asked_s("vm-9") is None
    assert not path.exists()


def test_many_writers_lose_nothing(path: Path) -> None:
    def write(number: int) -> None:
        seen = Sightings(path)
        seen.saw(replace(ONE, instance_id=f"vm-{number}", token=f"t-{number}"))
        seen.end(f"vm-{number}", NOW_S, EndCause.SELF)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(40)))
    assert len(Sightings(path).ended()) == 40


def test_a_torn_line_hides_no_other(path: Path) -> None:
    Sightings(path).saw(ONE)
    with path.open("ab") as file:
        file.write(b'[]\n{"ended": "vm-')  # cut off: a full disk, a power cut
    seen = Sightings(path)
    assert len(seen.live()) == 1
    seen.end("vm-1", NOW_S, EndCause.SELF)
    assert len(Sightings(path).ended()) == 1


def test_a_file_is_found_when_it_is_needed(path: Path) -> None:
    seen = Sightings(lambda: path)
    assert not path.parent.exists()
    seen.saw(ONE)
    assert len(Sightings(path).live()) == 1


def test_a_file_that_cannot_be_written_hides_no_machine(path: Path) -> None:
    path.parent.mkdir()
    path.mkdir()  # not a file
    seen = Sightings(path)
    seen.saw(ONE)
    assert [m.instance_id for m in seen.live()] == ["vm-1"]


def test_a_large_file_is_tidied_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Sightings(path)
    reader.saw(ONE)
    old = replace(ONE, instance_id="vm-0", token="t-0", launched_s=1.0)
    reader.saw(old)
    reader.end("vm-0", 2.0, EndCause.SELF)
    with monkeypatch.context() as patch:
        patch.setattr(sightings.time, "time", lambda: NOW_S - sightings.KEPT_S - 1)
        reader.turned_to("t-0", "b")
    reader.turned_to("aryl-1", "a")
    reader.turned_to("aryl-1", "b")
    monkeypatch.setattr(sightings, "LARGE_BYTES", 100)
    before = path.stat().st_size
    tidier = Sightings(path)
    assert [m.instance_id for m in tidier.live()] == ["vm-1"]
    assert path.stat().st_size < before
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert tidier.of_token("t-0") is None
    for one in (tidier, reader, Sightings(path)):
        assert (one.turned("aryl-1"), Sightings(path).turned("t-0")) == ("b", None)
    tidier.end("vm-1", NOW_S, EndCause.INTERRUPTED)
    assert [m.end_cause for m in reader.ended()] == [EndCause.INTERRUPTED]  # across the tidying


def test_tidying_up_loses_nothing_that_others_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sightings, "LARGE_BYTES", 0)

    def write(number: int) -> None:
        seen = Sightings(path)
        seen.saw(replace(ONE, instance_id=f"vm-{number}", token=f"t-{number}"))
        seen.end(f"vm-{number}", NOW_S, EndCause.SELF)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(40)))
    assert len(Sightings(path).ended()) == 40


def test_a_tidying_that_fails_leaves_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Sightings(path).saw(ONE)
    path.with_suffix(".half").mkdir()  # it cannot be written
    monkeypatch.setattr(sightings, "LARGE_BYTES", 0)
    before = path.read_bytes()
    assert len(Sightings(path).live()) == 1
    assert path.read_bytes() == before
