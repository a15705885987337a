"""What ``status`` says of saving: the interval, and what it follows from."""

from __future__ import annotations

from typing import Any

from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.cli.progress import read_progress
from arylcloud.cli.saves import read_saves, saves_text
from arylcloud.core.clock import MarketClock
from arylcloud.core.codec import dumps
from arylcloud.core.job import JobSpec
from arylcloud.core.protocol import AgentPhase, EpochDoc, Heartbeat, Member, beat_key, epoch_key
from arylcloud.launcher.state import Epoch, JobState

MEMBERS = (Member(lease_id="a", rank=0, address="127.0.0.2"),)


def beat(**more: Any) -> Heartbeat:
    known: dict[str, Any] = {"lease_id": "a", "seq": 1, "at_s": 5.0, "phase": AgentPhase.RUNNING, "epoch": 1}
    return Heartbeat(**{**known, **more})


def epoch(losses_per_hour: float | None) -> EpochDoc:
    return EpochDoc(
        job_id="j",
        number=1,
        attempt=1,
        opened_s=0.0,
        reason="",
        members=MEMBERS,
        resume_from=None,
        losses_per_hour=losses_per_hour,
    )


def text(store: MemoryStore, *, fixed: bool = False, **of_beat: Any) -> str | None:
    return saves_text(read_saves(store, beat(**of_beat)), fixed=fixed)


def test_the_line() -> None:
    store = MemoryStore()
    store.create(epoch_key(1), dumps(epoch(1 / 9)))
    assert (
        text(store, checkpoint_interval_s=240.0, save_s=1.2, upload_s=8.0)
        == "every 4 min (a save holds up 1.2 s, an upload takes 8.0 s, 1 loss per 9.0 h)"
    )
    assert text(store, save_s=None) == "as the training decides (1 loss per 9.0 h)"
    late = text(store, checkpoint_interval_s=30.0, uploading_step=1200, saves_skipped=3)
    assert late is not None
    assert "; step 1,200 is on its way to the store; 3 overtaken by a newer one: they come faster" in late


def test_what_is_not_known_is_not_said() -> None:
    store = MemoryStore()
    assert text(store) is None
    assert text(store, save_s=0.5) == "as the training decides (a save holds up 0.5 s)"
    assert text(store, checkpoint_interval_s=90.0, fixed=True) == "every 90 s (as the job file says)"
    store.create(epoch_key(1), b"damaged")
    assert text(store, save_s=0.5) == "as the training decides (a save holds up 0.5 s)"


def test_of_the_open_epoch_only() -> None:
    store = MemoryStore()
    store.put(beat_key("a"), dumps(beat(save_s=0.5)))
    opened = Epoch(
        number=1, attempt=1, opened_at_s=0.0, reason="", members=MEMBERS, resume_from=None, resume_step=0
    )
    state = JobState(
        job_id="j",
        spec=JobSpec(name="j", run="x"),
        prefix_uri="memory://",
        journal_id="o",
        market_clock=MarketClock(),
        submitted_at_s=0.0,
        epochs=(opened,),
    )
    reading = read_progress(store, state, with_saves=True)
    assert reading.saves is not None
    assert reading.saves["save_s"] == 0.5
    assert read_progress(store, state).saves is None
    store.put(beat_key("a"), dumps(beat(save_s=0.5, epoch=0)))
    assert read_progress(store, state, with_saves=True).saves is None
