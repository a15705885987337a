"""One launcher acts: what is found out in the last moment, and by whom an epoch's document was written."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.harness import JOB, Harness

from arylcloud.core import events as ev
from arylcloud.core import protocol as mail
from arylcloud.core.codec import dumps
from arylcloud.core.errors import ConflictError
from arylcloud.core.phases import JobPhase
from arylcloud.launcher.fence import FRESH_S, Fence


def theirs(seq: int) -> ev.Record:
    event = ev.JobPhaseChanged(phase=JobPhase.WAITING, code="theirs", text="theirs")
    return ev.Record(job_id=JOB, seq=seq, at_s=0.0, writer="l-9", cause_id=None, event=event)


def take_over(h: Harness) -> None:
    """Another launcher writes the job's next record."""
    seq = h.journal.head(JOB) + 1
    assert h.store.create(mail.journal_key(seq), theirs(seq).to_bytes())


def test_taken_over_between_the_decision_and_the_create(tmp_path: Path) -> None:
    """The tick's own look was good, and so was the record of the intent: it is looked at once more."""
    h = Harness(tmp_path)
    h.tick()
    assert h.world.creates == 1
    h = Harness(tmp_path / "again")

    def probe(at: str) -> None:
        if at == "after journal LeaseIntended":
            take_over(h)

    h.launcher.executor.probe = probe
    with pytest.raises(ConflictError) as caught:
        h.tick(3)
    assert "l-9" in caught.value.message
    assert h.world.creates == 0, "a machine was asked for, for a job that is another's"


def test_an_epoch_has_one_author(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    other = mail.EpochDoc(
        job_id=JOB,
        number=1,
        attempt=1,
        opened_s=0.0,
        reason="theirs",
        members=(mail.Member(lease_id=f"{JOB}-n0-a9", rank=0, address="10.9.9.9"),),
        resume_from=None,
        checkpoint_interval_s=None,
    )
    h.store.create(mail.epoch_key(1), dumps(other))
    with pytest.raises(ConflictError) as caught:
        h.tick(60)
    assert "epoch 1" in caught.value.message
    assert h.store.get(mail.epoch_key(1)) == dumps(other), "and it stays theirs"


def test_a_look_is_good_for_so_long(tmp_path: Path) -> None:
    """By the monotonic clock, the last moment included; a look that failed is remembered for as long."""
    h = Harness(tmp_path)
    h.tick()
    fence = Fence(journal=h.journal, store=h.store, writer=h.launcher.executor.writer, clock=h.clock)
    assert fence.is_ours(JOB)
    take_over(h)
    h.clock.at_s += FRESH_S
    assert fence.is_ours(JOB), "five seconds old: good enough"
    h.clock.at_s += 0.001
    with pytest.raises(ConflictError):
        fence.is_ours(JOB)
    h.store.delete([mail.journal_key(h.journal.head(JOB) + 1)])
    h.store.down = True
    assert fence.look(JOB) is False
    h.store.down = False
    assert fence.is_ours(JOB) is False, "not asked again at once"
    h.clock.at_s += FRESH_S + 0.001
    assert fence.is_ours(JOB)
