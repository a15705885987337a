"""What a home has seen of machines' lives, and that the planner goes by it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from arylcloud.cli.compose import own_history
from arylcloud.cli.settings import Folders
from arylcloud.core import events as ev
from arylcloud.core.errors import LocalStateError
from arylcloud.core.job import InlineRate, JobSpec, ProfileRef, Work
from arylcloud.core.offer import Market, Offer
from arylcloud.core.ports import EndCause
from arylcloud.launcher.history import lives, read
from arylcloud.launcher.history import own_history as estimates
from arylcloud.launcher.journal_db import Database
from arylcloud.planner.single import plan_job
from arylcloud.pricing.table import from_offers

HOUR = 3600.0
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
    found = lives([("j", e) for e in events], now_s=5 * HOUR)
    # what runs is as old as the market's clock says, which goes twice as fast here
    assert [(life.hours, life.lost) for life in found] == [
        (3.0, True),
        (2.0, False),
        (1.0, True),
        (10.0, False),
    ]


def write(path: Path, events: list[ev.Event], job_id: str = "j") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    database = Database(path)
    database.insert_all(
        [
            ev.Record(job_id=job_id, seq=seq, at_s=0.0, writer="w", cause_id=None, event=event)
            for seq, event in enumerate(events, start=1)
        ]
    )
    database.close()


def home(path: Path) -> Folders:
    return Folders(config=path / "config", state=path / "state", cache=path / "cache")


def test_a_home_that_has_lost_enough_plans_by_its_own_history(tmp_path: Path) -> None:
    folders = home(tmp_path)
    assert own_history(folders) == ()
    assert not folders.state.exists()
    lost = [e for i in range(25) for e in machine(f"l{i}", 1.0 + i / 100)]
    write(folders.journal, [begun(), *lost])
    before = hashlib.sha256(folders.journal.read_bytes()).digest()
    history = own_history(folders)
    assert [(h.zone, h.estimate.losses) for h in history] == [(None, 25), ("use1-az1", 25)]
    assert hashlib.sha256(folders.journal.read_bytes()).digest() == before
    table = from_offers([offer("use1-az1"), offer("use1-az2")])
    for candidate in plan_job(SPEC, table, history=history).candidates:
        assert candidate.hazard_source == "own history: 25 losses, Nelson–Aalen"
        assert candidate.interruptions_per_hour > 1  # none lived much longer than an hour


def test_a_few_losses_say_nothing(tmp_path: Path) -> None:
    folders = home(tmp_path)
    write(folders.journal, [begun(), *(e for i in range(19) for e in machine(f"l{i}", 1.0))])
    assert read(folders.journal, 0.0) == ()
    many = [
        ("j", e)
        for e in [begun(), *(e for i in range(40) for e in machine(f"t{i}", 1.0, EndCause.TERMINATED))]
    ]
    assert estimates(lives(many, 0.0)) == ()


def test_a_journal_that_is_none_is_said_and_plans_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = home(tmp_path)
    folders.journal.parent.mkdir(parents=True)
    folders.journal.write_bytes(b"no database" * 100)
    with pytest.raises(LocalStateError, match="cannot be read"):
        read(folders.journal, 0.0)
    assert own_history(folders) == ()
    assert "own history is not used" in capsys.readouterr().err
