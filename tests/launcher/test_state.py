"""A job's state is the fold of its journal: any cut, any order that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.harness import JOB, Harness, spec

from arylcloud.core import events as ev
from arylcloud.core.errors import IntegrityError
from arylcloud.core.phases import LEASE_TRANSITIONS, JobPhase, LeasePhase
from arylcloud.launcher.fold import apply, replay
from arylcloud.launcher.state import JobState


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> tuple[ev.Record, ...]:
    """The journal of a real run: two machines, a notice, a loss, a move, a stop, a resume, an end."""
    h = Harness(tmp_path_factory.mktemp("run"), spec=spec(2))
    h.until(JobPhase.RUNNING)
    h.tick(14)
    h.world.notice(h.running[0].instance_id, 15)
    h.tick(16)
    h.world.interrupt(h.running[0].instance_id)
    h.until(JobPhase.RUNNING)
    h.tick(4)
    h.request("migrate", to="aws/eu-west-1")
    h.tick(16)
    h.request("stop")
    h.until(JobPhase.STOPPED)
    h.tick(2)
    h.resume()
    h.until(JobPhase.SUCCEEDED)
    return h.journal.records(JOB)


def test_any_cut_gives_the_same_state(records: tuple[ev.Record, ...]) -> None:
    whole = replay(records)
    state: JobState | None = None
    for cut, record in enumerate(records, start=1):
        state = apply(state, record)
        assert replay(records[cut:], state) == whole
    assert whole.phase is JobPhase.SUCCEEDED
    assert whole.migrations_done >= 1
    assert whole.interruptions == 2, "a notice and a loss"
    assert whole.stop is None


def test_applying_changes_no_earlier_state(records: tuple[ev.Record, ...]) -> None:
    states: list[JobState] = []
    for record in records:
        states.append(apply(states[-1] if states else None, record))
    again: JobState | None = None
    for record, state in zip(records, states, strict=True):
        again = apply(again, record)
        assert again == state


def test_a_journal_has_a_beginning_and_no_gaps(records: tuple[ev.Record, ...]) -> None:
    with pytest.raises(IntegrityError, match="no records"):
        replay(())
    with pytest.raises(IntegrityError, match="begin"):
        replay(records[1:])
    with pytest.raises(IntegrityError, match="follows"):
        replay((*records[:3], *records[4:]))
    with pytest.raises(IntegrityError, match="follows"):
        replay((*records[:3], records[2]))


def fold(state: JobState, event: ev.Event) -> JobState:
    record = ev.Record(
        job_id=state.job_id, seq=state.seq + 1, at_s=9e9, writer="l", cause_id=None, event=event
    )
    return apply(state, record)


@pytest.mark.parametrize("phase", list(LeasePhase))
def test_only_the_ways_of_the_table(records: tuple[ev.Record, ...], phase: LeasePhase) -> None:
    """From every phase that the run shows, to every other one."""
    seen = False
    state: JobState | None = None
    for record in records:
        state = apply(state, record)
        for lease in state.leases.values():
            if lease.phase is not phase:
                continue
            seen = True
            for to in set(LeasePhase) - {phase}:
                event = ev.LeasePhaseChanged(lease_id=lease.lease_id, phase=to, text="")
                if to in LEASE_TRANSITIONS[phase]:
                    assert fold(state, event).leases[lease.lease_id].phase is to
                else:
                    with pytest.raises(IntegrityError, match="cannot go"):
                        fold(state, event)
        if seen:
            return
    assert phase in (LeasePhase.SUSPECT, LeasePhase.REFUSED), f"the run never shows {phase}"


def test_what_speaks_of_nothing_known(records: tuple[ev.Record, ...]) -> None:
    state = replay(records)
    lease = next(iter(state.leases.values()))
    for event in (
        ev.LeaseEnding(lease_id="nobody", code="x", why="x"),
        ev.LeasePriced(lease_id="nobody", from_s=0.0, usd_per_hour=1.0),
        ev.LeaseIntended(
            lease_id=lease.lease_id,
            token="t",
            offer=lease.offer,
            index=0,
            attempt=9,
            purpose="start",
            until_s=0.0,
            why="",
        ),
        ev.EpochOpened(number=99, attempt=1, members=(), resume_from=None, resume_step=0, reason=""),
    ):
        with pytest.raises(IntegrityError):
            fold(state, event)


def test_prices_stay_in_order_and_the_later_word_counts(records: tuple[ev.Record, ...]) -> None:
    state = replay(records)
    lease_id = next(iter(state.leases))
    for from_s, usd in ((5000.0, 2.0), (4000.0, 1.5), (5000.0, 2.5)):
        state = fold(state, ev.LeasePriced(lease_id=lease_id, from_s=from_s, usd_per_hour=usd))
    steps = [(p.from_s, p.usd_per_hour) for p in state.leases[lease_id].prices]
    assert steps == sorted(steps)
    assert steps[-2:] == [(4000.0, 1.5), (5000.0, 2.5)]


def test_lineage_passes_over_what_is_rejected(records: tuple[ev.Record, ...]) -> None:
    state = replay(records)
    steps = []
    while state.lineage is not None:
        steps.append(state.lineage.step)
        state = fold(state, ev.CheckpointRejected(manifest=state.lineage.manifest, message="damaged"))
    assert steps == sorted(steps, reverse=True)
    assert len(steps) >= 4


def test_a_machine_that_lands_after_its_lease_was_closed_is_known(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.world.troubles.append("lost_call")
    h.until(JobPhase.SUCCEEDED)
    lease = next(iter(h.state.leases.values()))
    assert lease.phase is LeasePhase.RELEASED
    late = ev.LeaseCreated(
        lease_id=lease.lease_id, instance_id="i-9", launched_s=8e9, usd_per_hour=1.0, address=None
    )
    after = fold(h.state, late).leases[lease.lease_id]
    assert (after.phase, after.instance_id, after.ended_s) == (LeasePhase.RELEASED, "i-9", 8e9)
