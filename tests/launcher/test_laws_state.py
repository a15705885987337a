"""What a job and a lease are before anything has been said of them: field by field, nothing by default."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from support.harness import JOB, OFFERS, spec

from arylcloud.core.clock import MarketClock
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.ports import Billing
from arylcloud.launcher import state
from arylcloud.launcher.state import Epoch, JobState, Lease, Training, Turn


def values() -> tuple[Any, ...]:
    """One of each, of which only what must be said has been said."""
    job = JobState(
        job_id=JOB,
        spec=spec(1),
        prefix_uri="memory://x",
        journal_id="home",
        market_clock=MarketClock(),
        submitted_at_s=200.0,
    )
    lease = Lease(
        lease_id="n0-a1",
        token="t",
        offer=OFFERS[0],
        index=0,
        attempt=1,
        purpose="start",
        phase=LeasePhase.INTENDED,
        since_s=1.0,
        intended_at_s=1.0,
        until_s=9.0,
        why="first choice",
    )
    training = Training(epoch=1, lease_id="n0-a1", started_at_s=1.0, began_at_s=1.0, first_step=0)
    epoch = Epoch(
        number=1, attempt=1, members=(), resume_from=None, resume_step=0, opened_at_s=1.0, reason="ready"
    )
    return job, lease, training, epoch, Turn(gpu="V100", begin_s=1.0)


NOT_NOTHING: dict[tuple[type, str], Any] = {
    (JobState, "phase"): JobPhase.PENDING,
    (JobState, "phase_code"): "submitted",
    (JobState, "phase_text"): "submitted",
    (Lease, "billing"): Billing(),
    (Training, "told"): True,
}


def test_what_has_not_been_said_is_nothing() -> None:
    """Not known is None; not counted is 0; not there is empty; a yes has to be said, but where listed."""
    for value in values():
        for field in fields(value):
            if field.default is MISSING and field.default_factory is MISSING:
                continue
            found = getattr(value, field.name)
            if (type(value), field.name) in NOT_NOTHING:
                assert found == NOT_NOTHING[type(value), field.name], field.name
            else:
                assert found is None or not found, f"{field.name} is {found} of itself"


def test_the_word_of_the_queue() -> None:
    """It stands in requests that older launchers have written: it cannot change."""
    assert state.BY_QUEUE == "queue"
