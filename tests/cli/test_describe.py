"""What people read: words in place of ids and keys."""

from __future__ import annotations

from typing import Any

import pytest
from support.diary import Diary, offer

from arylcloud.cli.describe import cause_text, line, offer_text, spelled
from arylcloud.cli.logs import _title
from arylcloud.core import events as ev
from arylcloud.core.offer import Market, Offer

SPOT, DEMAND = offer(), offer("use1-az2", market=Market.ON_DEMAND)
THERE = offer("use1-az2")


def said(event: ev.Event) -> str:
    diary = Diary().write(1.0, event)
    return (line(diary.records[-1], diary.state) or "")[10:]


def test_a_move_is_told_by_what_differs() -> None:
    def moving(to: Offer) -> str:
        event = ev.MigrationStarted(
            from_offer=SPOT.key,
            to=to,
            expected_saving_usd=1.0,
            forced=False,
            why="saves $1, the move costs $0.10",
        )
        return said(event)

    assert (
        moving(THERE)
        == "moving from aws/us-east-1/use1-az1 to aws/us-east-1/use1-az2: saves $1, the move costs $0.10"
    )
    assert moving(DEMAND) == (
        "moving from p3.2xlarge spot in aws/us-east-1/use1-az1 to p3.2xlarge on-demand in"
        " aws/us-east-1/use1-az2: saves $1, the move costs $0.10"
    )
    done = ev.MigrationEnded(done=True, text=f"{SPOT.key} → {THERE.key}")
    assert said(done) == "moved: aws/us-east-1/use1-az1 → aws/us-east-1/use1-az2"
    assert said(ev.MigrationEnded(done=False, text="it was lost")) == "move given up: it was lost"


def test_no_key_of_an_offer_stands_in_a_sentence() -> None:
    from arylcloud.core.phases import JobPhase

    event = ev.JobPhaseChanged(
        phase=JobPhase.RUNNING, code="x", text=f"epoch 1 on 2 × {SPOT.key}; {DEMAND.key}"
    )
    assert said(event) == (
        "running: epoch 1 on 2 × p3.2xlarge spot in aws/us-east-1/use1-az1;"
        " p3.2xlarge on-demand in aws/us-east-1/use1-az2"
    )
    assert offer_text("no key") == "no key"


def test_what_was_saved_when_it_was_asked_to_end_is_told_as_it_was() -> None:
    def stopped(saved_s: float | None, last: int = 100, **more: Any) -> str:
        event = ev.TrainingStopped(
            epoch=1, lease_id="a", at_s=500.0, last_step=last, committed_step=100,
            committed_saved_at_s=saved_s, **{"how": "drained", **more},
        )  # fmt: skip
        return said(event).removeprefix("training stopped at step ")

    assert stopped(499.0) == "100 (saved and handed over)"
    assert stopped(499.0, told=False) == "100 (saved and handed over)"
    assert stopped(480.0) == "100 (saved and handed over)", "it tells of its steps: none since"
    old = "handed over without saving again: its last checkpoint was 20 s old"
    assert stopped(480.0, told=False) == f"100 ({old})"
    assert stopped(None, told=False) == "100 (handed over without saving)"
    assert stopped(480.0, 130) == f"130 ({old}), 30 steps to repeat"
    assert stopped(None, 130, how="lost") == "130 (the machine is gone), 30 steps to repeat"
    assert stopped(None, how="exited") == "100 (the command ended)"


def test_of_other_ranks_it_is_not_known_when_they_saved() -> None:
    """Saves are by the clock of rank 0: a rank that tells of no steps is not said to have lost some."""
    diary = Diary().epoch(1.0, "a", "b")
    for name, how in (("a", "handed over without saving"), ("b", "saved and handed over")):
        diary.halt(1, name, 500.0, how="drained", last=100, committed=100, saved_s=None, told=False)
        text = line(diary.records[-1], diary.state)
        assert text is not None
        assert text.endswith(f"training stopped at step 100 ({how})")


def test_a_start_that_is_put_right_is_told_once() -> None:
    diary = Diary()
    told, before = [], None
    starts = [
        ev.TrainingStarted(epoch=1, lease_id="a", at_s=10.0, step=3),
        ev.TrainingStarted(epoch=1, lease_id="a", at_s=8.0, step=3, ran_s=9.0),
        ev.TrainingStarted(epoch=1, lease_id="b", at_s=11.0, step=3),
        ev.TrainingStarted(epoch=2, lease_id="a", at_s=12.0, step=5),
    ]
    for at_s, start in enumerate(starts, start=20):
        before = diary.state
        diary.write(float(at_s), start)
        told.append((line(diary.records[-1], diary.state, before) or "")[10:])
    assert told == ["training at step 3", "", "training at step 3", "training at step 5"]
    assert diary.state.trainings[0].started_at_s == 8.0, "the ledger has it"


def test_of_one_machine_no_rank_is_named() -> None:
    event = ev.LeaseIntended(
        lease_id="a", token="t", offer=SPOT, index=0, attempt=1, purpose="start", until_s=9.0,
        why="rank 0: the best of 7 offers",
    )  # fmt: skip
    assert said(event) == "asking for p3.2xlarge spot in aws/us-east-1/use1-az1 (the best of 7 offers)"


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("beat 8", "heartbeat 8"),
        ("manifest ckpt/manifests/e000005-000001.json", "manifest e000005-000001"),
        ("end e5 r0", "end of epoch 5, rank 0"),
        ("list of aws", "the list of machines of aws"),
        ("advice", "advice"),
    ],
)
def test_causes_in_words(cause: str, text: str) -> None:
    assert cause_text(cause) == text


def test_streams_in_words() -> None:
    assert _title("e000012-r03") == "epoch 12, rank 3"
    assert _title("boot-digits-1a-n0-a2") == "machine digits-1a-n0-a2"


def test_a_phase_names_its_offer_as_events_do() -> None:
    assert spelled("epoch 2 on 4 × gcp/us-central1/us-central1-a:g2-standard-4:on_demand; 1 missing") == (
        "epoch 2 on 4 × g2-standard-4 on-demand in gcp/us-central1/us-central1-a; 1 missing"
    )
    assert spelled("exit code 2: can't open file 'a/b:c'") == "exit code 2: can't open file 'a/b:c'"
