"""What a home has seen of machines' lives, and that the planner goes by it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from arylcloud.cli.compose import own_history
from arylcloud.cli.settings import Folders
from arylcloud.core import events as ev
from arylcloud.core.errors import IntegrityError, LocalStateError
from arylcloud.core.job import InlineRate, JobSpec, ProfileRef, Work
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import EndCause
from arylcloud.launcher import history
from arylcloud.launcher.history import lives
from arylcloud.launcher.journal_db import Database
from arylcloud.launcher.lifebook import HALF_DAYS, RECENT_S, SCHEMA, Life, read
from arylcloud.launcher.lifebook import own_history as told
from arylcloud.planner.single import plan_job
from arylcloud.pricing.table import from_offers

HOUR = 3600.0
NOW_S = 1e9
SPEC = JobSpec(
    name="j", run="true", profile=ProfileRef(rates=(InlineRate(gpu="V100", count=1, rate=1.0),),
    unit="steps/s"), work=Work(amount=7200, unit="steps"),
)  # fmt: skip


def offer(zone: str, market: Market = Market.SPOT) -> Offer:
    return Offer(
        cloud="aws", region="us-east-1", zone=zone, instance_type="p3.2xlarge", gpu="V100", gpu_count=1,
        gpu_mem_gib=16.0, vcpus=8.0, mem_gib=61.0, market=market, usd_per_hour=1.0, as_of=None, source="test",
    )  # fmt: skip


def begun() -> ev.JobSubmitted:
    return ev.JobSubmitted(
        spec=SPEC, prefix_uri="file:///x", journal_id="x" * 16, market_origin_s=0.0, market_scale=2.0
    )


def machine(
    name: str, hours: float | None, cause: str = EndCause.INTERRUPTED, *, where: Offer | None = None,
    notice: bool = False,
) -> list[ev.Event]:  # fmt: skip
    events: list[ev.Event] = [
        ev.LeaseIntended(lease_id=name, token=name, offer=where or offer("use1-az1"), index=0, attempt=1,
                         purpose="start", until_s=1e9, why="test"),
        ev.LeaseCreated(lease_id=name, instance_id="i-" + name, launched_s=0.0, usd_per_hour=1.0,
                        address=None),
    ]  # fmt: skip
    if notice:
        events.append(ev.NoticeSeen(lease_id=name, action="terminate", acts_at_s=1.0))
    if hours is not None:
        events.append(ev.LeaseReleased(lease_id=name, ended_s=hours * HOUR, cause=cause))
    return events


def test_lives_of_spot_machines_and_how_they_ended() -> None:
    events = [
        begun(),
        *machine("a", 3.0),
        *machine("b", 2.0, EndCause.TERMINATED),
        *machine("c", None),
        *machine("d", 1.0, EndCause.TERMINATED, notice=True),
        *machine("e", 4.0, where=offer("use1-az1", Market.ON_DEMAND)),
        *machine("f", 0.0, EndCause.TERMINATED),
    ]
    found = lives([(7.0, e) for e in events], last_s=5 * HOUR)
    # what runs is as old as the market's clock said at the newest record; it goes twice as fast here
    assert [(life.hours, life.lost, life.at_s) for life in found] == [
        (3.0, True, 7.0),
        (2.0, False, 7.0),
        (1.0, True, 7.0),
        (10.0, False, 5 * HOUR),
    ]


KEPT = {1: "e48b304be2407851"}
"""By ``lifebook.SCHEMA``: the digest of what ``lives`` makes of the history below."""


def test_what_is_kept_is_what_lives_makes_today() -> None:
    """In every home lies ``lives.json``, folded by an earlier release; of jobs that have ended for good.
    Where ``lives`` makes something else of the same history, ``lifebook.SCHEMA`` is to be raised: then all is
    folded anew. Write its digest beside the new number."""
    zones = (offer("use1-az1"), offer("use1-az2"), replace(offer("use1-az1"), zone=None, region="eu-west-1"))
    events: list[ev.Event] = [
        begun(),
        *(
            event
            for n, cause in enumerate(("terminated", "interrupted", "self", "no_room", "unknown", None))
            for where in zones
            for notice in (False, True)
            for event in machine(
                f"{n}-{where.place}-{notice}", None if cause is None else 1.0 + n, cause or "", where=where,
                notice=notice,
            )
        ),
        *machine("on-demand", 4.0, where=offer("use1-az1", Market.ON_DEMAND)),
        *machine("reserved", 4.0, where=offer("use1-az1", Market.RESERVED), notice=True),
        *machine("never began", 0.0),
        *machine("before its time", -1.0),
        *machine("refused", None)[:1],
        *machine("by a cause of tomorrow", 2.0, "something else"),
    ]  # fmt: skip
    assert {type(event).__name__ for event in events} == set(history.KINDS)
    found = lives([(100.0 * n, event) for n, event in enumerate(events)], last_s=50 * HOUR)
    digest = hashlib.sha256(json.dumps([astuple(life) for life in found]).encode()).hexdigest()
    assert KEPT[SCHEMA] == digest[:16]


def write(
    path: Path, events: list[ev.Event], job_id: str = "j", *, at_s: float = NOW_S, first: int = 1
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    database = Database(path)
    records = [
        ev.Record(job_id=job_id, seq=seq, at_s=at_s, writer="w", cause_id=None, event=event)
        for seq, event in enumerate(events, start=first)
    ]
    assert database.insert_all(records)
    database.close()


def home(path: Path) -> Folders:
    return Folders(config=path / "config", state=path / "state", cache=path / "cache")


def seen(folders: Folders, now_s: float = NOW_S) -> list[tuple[str | None, float, int]]:
    return [(h.zone, round(h.hours, 6), h.losses) for h in read(folders.journal, now_s, folders.lives)]


def test_a_home_that_has_lost_enough_plans_by_its_own_history(tmp_path: Path) -> None:
    folders = home(tmp_path)
    assert own_history(folders) == ()
    assert not folders.state.exists()
    assert not folders.cache.exists()
    lost = [e for i in range(25) for e in machine(f"l{i}", 1.0 + i / 100)]
    write(folders.journal, [begun(), *lost])
    before = hashlib.sha256(folders.journal.read_bytes()).digest()
    own = read(folders.journal, NOW_S, folders.lives)
    assert [(h.zone, h.losses, round(h.hours, 6)) for h in own] == [(None, 25, 28.0), ("use1-az1", 25, 28.0)]
    assert hashlib.sha256(folders.journal.read_bytes()).digest() == before
    table = from_offers([offer("use1-az1"), offer("use1-az2")])
    for candidate in plan_job(SPEC, table, history=own).candidates:
        assert candidate.hazard_source.startswith("own: 25 losses in 28 h in us")
        assert candidate.interruptions_per_hour == pytest.approx(25 / 28, rel=0.3)


def test_a_few_losses_correct_what_is_assumed(tmp_path: Path) -> None:
    folders = home(tmp_path)
    write(folders.journal, [begun(), *(e for i in range(3) for e in machine(f"l{i}", 1.0))])
    own = read(folders.journal, NOW_S, folders.lives)
    table = from_offers([offer("use1-az1"), offer("use1-az2")])
    plain, better = plan_job(SPEC, table), plan_job(SPEC, table, history=own)
    assert better.chosen.hazard_source.startswith("own: 3 losses in 3 h in us")
    assert any(better.chosen.hazard_source in why for why in better.why)
    assert better.chosen.interruptions_per_hour > 1.5 * plain.chosen.interruptions_per_hour


def test_a_minute_without_a_loss_is_nothing_seen_and_what_is_old_is_forgotten() -> None:
    def life(hours: float, lost: bool, at_s: float = NOW_S) -> Life:
        return Life(
            cloud="aws", region="r", zone="z", instance_type="t", hours=hours, lost=lost, at_s=at_s
        )  # fmt: skip

    assert told([life(0.5, False)], NOW_S) == ()
    assert [h.hours for h in told([life(0.5, False)] * 2, NOW_S)] == [1.0, 1.0]
    assert [h.losses for h in told([life(0.5, True)], NOW_S)] == [1, 1]
    old = life(50.0, True, NOW_S - RECENT_S - 1)
    assert told([old], NOW_S) == ()
    assert [h.losses for h in told([old, life(5.0, False)], NOW_S)] == [0, 0]
    days = HALF_DAYS * 86400
    half = told([life(8.0, True, NOW_S - days), life(2.0, True, NOW_S - 5)], NOW_S)[0]
    assert (half.hours, half.losses, half.recent_hours, half.recent_losses) == (10.0, 2, 6.0, 1.5)


def test_a_job_is_folded_again_only_when_it_has_gone_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = home(tmp_path)
    write(folders.journal, [begun(), *machine("a", 3.0)], "one")
    write(folders.journal, [begun(), *machine("b", 2.0, EndCause.TERMINATED)], "two")
    folded: list[float] = []
    fold = history.fold

    def counted(rows: Iterable[tuple[float, bytes]], last_s: float, what: str) -> tuple[Life, ...]:
        folded.append(last_s)
        return fold(rows, last_s, what)

    monkeypatch.setattr(history, "fold", counted)
    assert seen(folders) == [(None, 5.0, 1), ("use1-az1", 5.0, 1)]
    assert len(folded) == 2
    kept = folders.lives.read_bytes()
    assert seen(folders) == [(None, 5.0, 1), ("use1-az1", 5.0, 1)]
    assert len(folded) == 2
    assert folders.lives.read_bytes() == kept
    write(folders.journal, machine("c", 1.0), "two", first=5)
    assert seen(folders) == [(None, 6.0, 2), ("use1-az1", 6.0, 2)]
    assert len(folded) == 3
    # records that were set aside, and others with their numbers: it is another history
    database = Database(folders.journal)
    database.set_aside("two", 5)
    database.close()
    write(folders.journal, machine("c", 4.0), "two", first=5)
    assert seen(folders) == [(None, 9.0, 2), ("use1-az1", 9.0, 2)]
    assert len(folded) == 4


_LIFE = '{"schema_version": 1, "jobs": {"j": [5, "", [["aws", REGION, null, "t", HOURS, true, 0]]]}}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "[" * 200_000,
        '{"schema_version": 9, "jobs": {}}',
        '{"schema_version": 1, "jobs": {"j": 1}}',
        *(
            _LIFE.replace("REGION", '"r"').replace("HOURS", bad)
            for bad in ('"x"', "NaN", "-1", "1" + "0" * 400)
        ),
        _LIFE.replace("REGION", "5").replace("HOURS", "1"),
    ],
    ids=range(11),
)
def test_what_was_kept_may_be_anything(tmp_path: Path, text: str) -> None:
    folders = home(tmp_path)
    write(folders.journal, [begun(), *machine("a", 3.0)])
    folders.cache.mkdir()
    folders.lives.write_text(text)
    assert seen(folders) == [(None, 3.0, 1), ("use1-az1", 3.0, 1)]
    assert list(json.loads(folders.lives.read_text())["jobs"]) == ["j"]


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    folders = home(tmp_path)
    write(folders.journal, [begun(), *machine("a", 3.0)])
    folders.cache.write_text("a file where the folder should be")
    assert seen(folders) == [(None, 3.0, 1), ("use1-az1", 3.0, 1)]


def test_a_journal_that_is_none_is_said_and_plans_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = home(tmp_path)
    folders.journal.parent.mkdir(parents=True)
    folders.journal.write_bytes(b"no database" * 100)
    with pytest.raises(LocalStateError, match="cannot be read"):
        read(folders.journal, 0.0, folders.lives)
    assert own_history(folders) == ()
    assert "own history is not used" in capsys.readouterr().err
    folders.journal.unlink()
    write(folders.journal, [begun()])
    database = Database(folders.journal)
    database._connection.execute("UPDATE records SET body = 'text'")
    database.close()
    with pytest.raises(IntegrityError, match="records that are none"):
        read(folders.journal, 0.0, folders.lives)
