"""When the next epoch is opened, who is told to stop for it, and what it is said to be for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.harness import TIMING, spec
from support.situation import NOW_S, actions, beat, draft, elastic, epoch, failure, lease, saved

from arylcloud.core.phases import LeasePhase
from arylcloud.core.protocol import AgentPhase
from arylcloud.launcher import actions as act
from arylcloud.launcher.reconcile import epochs
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.reconcile.membership import Change
from arylcloud.launcher.state import Lease

A, B, C = lease(0), lease(1), lease(2)
READY, DRAINED = AgentPhase.READY, AgentPhase.DRAINED
GONE: dict[str, Any] = {"phase": LeasePhase.RELEASED, "ended_at_s": NOW_S, "cause": "interrupted"}


def advanced(*of: Lease, **more: Any) -> list[act.OpenEpoch]:
    d = draft(*of, **more)
    epochs.advance(d)
    assert len(d.actions) == len(actions(d, act.OpenEpoch)) <= 1
    return actions(d, act.OpenEpoch)


def names(opened: act.OpenEpoch) -> list[str]:
    return [m.lease_id for m in opened.members]


def drained(*of: Lease, epoch: int = 2) -> list[Any]:
    return [beat(x, DRAINED, epoch, drained_epoch=epoch) for x in of]


# ---------------------------------------------------------------- the first


def test_the_first_opens_when_all_are_ready() -> None:
    said = [beat(x, READY, 0) for x in (A, B)]
    (opened,) = advanced(A, B, epochs=[], beats=said)
    assert names(opened) == [A.lease_id, B.lease_id]
    assert (opened.number, opened.attempt, opened.resume_from, opened.resume_step) == (1, 1, None, 0)
    assert (opened.reason, opened.grace_s) == ("all machines are ready", None)
    assert not advanced(A, B, epochs=[], beats=said[:1])
    assert not advanced(A, B, epochs=[], beats=said, observed={"mailbox_ok": False})
    (opened,) = advanced(A, B, job=elastic(), epochs=[], beats=said)
    assert opened.reason == "2 of 3 machines are ready"


def test_where_all_is_well_nothing_is_opened() -> None:
    assert not advanced(A, B)
    assert not advanced(A, B, job=elastic(2, 2))


# ---------------------------------------------------------------- a fixed gang


def test_survivors_of_a_fixed_gang_stop_as_soon_as_one_is_lost() -> None:
    gone = replace(B, **GONE)
    (drain,) = advanced(A, gone)
    assert (drain.members, drain.reason, drain.grace_s) == ((), "a machine has left", None)
    assert not advanced(A, gone, epochs=[epoch(1, A, gone), epoch(2, opened_at_s=NOW_S)]), "asked once"


def test_one_alone_with_notice_uses_its_time() -> None:
    doomed = replace(A, phase=LeasePhase.DOOMED)
    assert not advanced(doomed), "nobody stands ready"
    fresh = lease(0, 5)
    (drain,) = advanced(
        *(doomed, fresh), job=spec(1), epochs=[epoch(1, doomed)], beats=[beat(doomed), beat(fresh, READY, 0)]
    )
    assert (drain.members, drain.reason) == ((), "moving")


def test_a_replacement_begins_from_what_was_committed() -> None:
    gone, new = replace(B, **GONE), lease(1, 5)
    said = [*drained(A), beat(new, READY, 2)]
    old = [epoch(1, A, gone), epoch(2)]
    (opened,) = advanced(
        *(A, gone, new), job=spec(2), epochs=old, beats=said, state={"checkpoints": (saved("m", step=42),)}
    )
    assert names(opened) == [A.lease_id, new.lease_id]
    assert (opened.number, opened.attempt) == (3, 3), "the second of its attempts, after number 2"
    assert (opened.resume_from, opened.resume_step) == ("m", 42)
    assert opened.reason == f"in place of {B.lease_id}"
    again = advanced(A, B, epochs=[epoch(1, A, B), epoch(2)], beats=drained(A, B))
    assert again[0].reason == "all machines are ready again"


def test_a_fixed_gang_of_another_size_than_is_wanted_stops() -> None:
    assert advanced(A, B, job=spec(3))[0].reason == "a machine has left"


# ---------------------------------------------------------------- an elastic one


def test_a_loss_hurries_the_others() -> None:
    gone = replace(C, **GONE)
    (drain,) = advanced(A, B, gone, job=elastic())
    assert (drain.members, drain.grace_s) == ((), TIMING.loss_grace_s)
    said = [*drained(A, B)]
    (opened,) = advanced(A, B, gone, job=elastic(), epochs=[epoch(1, A, B, gone), epoch(2)], beats=said)
    assert names(opened) == [A.lease_id, B.lease_id]
    assert opened.grace_s == TIMING.loss_grace_s, "whoever was left behind has no time, either"
    assert opened.reason == f"2 of 3 machines: {C.lease_id} is gone"


def test_a_loss_while_they_save_shortens_that() -> None:
    gone = replace(C, **GONE)
    saving = [beat(x, AgentPhase.SAVING, 2) for x in (A, B)]
    calm = [epoch(1, A, B, gone), epoch(2, opened_at_s=NOW_S)]
    (drain,) = advanced(A, B, gone, job=elastic(), epochs=calm, beats=saving)
    assert (drain.members, drain.grace_s) == ((), TIMING.loss_grace_s)
    hurried = [epoch(1, A, B, gone), epoch(2, opened_at_s=NOW_S, grace_s=1.0)]
    assert not advanced(A, B, gone, job=elastic(), epochs=hurried, beats=saving)
    doomed = replace(C, phase=LeasePhase.DOOMED)
    assert not advanced(A, B, doomed, job=elastic(), epochs=calm, beats=saving), "a notice hurries nobody"


def test_a_notice_gives_them_time() -> None:
    doomed = replace(C, phase=LeasePhase.DOOMED)
    (drain,) = advanced(A, B, doomed, job=elastic())
    assert (drain.members, drain.grace_s, drain.reason) == ((), None, f"{C.lease_id} has notice")
    calm = [epoch(1, A, B, doomed), epoch(2)]
    (opened,) = advanced(A, B, doomed, job=elastic(), epochs=calm, beats=drained(A, B, doomed))
    assert (names(opened), opened.grace_s) == ([A.lease_id, B.lease_id], None)
    alone = replace(A, phase=LeasePhase.DOOMED)
    assert not advanced(alone, job=elastic()), "it is alone, and uses the time that it has"


@pytest.mark.parametrize(
    ("changes", "went"),
    [
        (GONE, "is gone"),
        ({**GONE, "ending_code": "surplus"}, "leaves"),
        ({**GONE, "notice_acts_at_s": NOW_S}, "has notice"),
        ({"phase": LeasePhase.SUSPECT}, "is silent (kept)"),
        ({"phase": LeasePhase.SUSPECT, "notice_acts_at_s": NOW_S}, "is silent (kept)"),
    ],
)
def test_it_says_who_went_and_how(changes: dict[str, Any], went: str) -> None:
    left = replace(C, **changes)
    (opened,) = advanced(
        *(A, B, left), job=elastic(), epochs=[epoch(1, A, B, left), epoch(2)], beats=drained(A, B)
    )
    assert opened.reason == f"2 of 3 machines: {C.lease_id} {went}"


def test_who_joins_is_named_and_who_only_begins_again() -> None:
    (opened,) = advanced(A, B, C, job=elastic(), epochs=[epoch(1, A), epoch(2)], beats=drained(A, B, C))
    assert opened.reason == f"3 machines: {B.lease_id} joins, {C.lease_id} joins"
    said = [*drained(A), beat(B, READY, 2, prefetched="m")]
    saves = {"checkpoints": (saved("m"),)}
    (opened,) = advanced(A, B, job=elastic(), epochs=[epoch(1, A), epoch(2)], beats=said, state=saves)
    assert opened.reason == f"2 of 3 machines: {B.lease_id} joins"
    (opened,) = advanced(A, B, C, job=elastic(), epochs=[epoch(1, A, B, C), epoch(2)], beats=drained(A, B, C))
    assert opened.reason == "3 machines, ready again"
    (opened,) = advanced(A, B, job=elastic(), epochs=[epoch(1, A, B), epoch(2)], beats=drained(A, B))
    assert opened.reason == "2 of 3 machines, ready again"


def test_a_silent_one_is_not_waited_for() -> None:
    silent = replace(C, phase=LeasePhase.SUSPECT)
    said = [*drained(A, B), beat(silent, AgentPhase.RUNNING)]
    (opened,) = advanced(A, B, silent, job=elastic(), epochs=[epoch(1, A, B, silent), epoch(2)], beats=said)
    assert names(opened) == [A.lease_id, B.lease_id]
    fixed = [epoch(1, A, B, silent), epoch(2, opened_at_s=NOW_S)]
    assert not advanced(A, B, silent, epochs=fixed, beats=said), "of a fixed gang it is"


# ---------------------------------------------------------------- waiting for a drain


@pytest.mark.parametrize(
    ("ago_s", "over"), [(TIMING.drain_timeout_s, False), (TIMING.drain_timeout_s + 0.1, True)]
)
def test_a_drain_is_waited_for_so_long(ago_s: float, over: bool) -> None:
    d = draft(
        A, epochs=[epoch(1, A), epoch(2, opened_at_s=NOW_S - ago_s)], beats=[beat(A, AgentPhase.SAVING)]
    )
    assert epochs.handed_over(d, d.state.epochs[0], None) is over
    assert not d.actions


def test_nothing_runs_nothing_to_wait_for() -> None:
    d = draft(A, epochs=[epoch(1, A)], beats=[beat(A, DRAINED, drained_epoch=1)])
    assert epochs.handed_over(d, d.state.epochs[0], None)
    assert not d.actions
    d = draft(A)
    assert not epochs.handed_over(d, d.state.epochs[0], None)
    (drain,) = actions(d, act.OpenEpoch)
    assert drain.reason == "moving"
    d = draft(A)
    assert not epochs.handed_over(d, d.state.epochs[0], None, wait=True)
    assert not d.actions
    d = draft(A)
    at_once = Change(why="now", at_once=True)
    assert not epochs.handed_over(d, d.state.epochs[0], at_once, wait=True)
    assert actions(d, act.OpenEpoch), "nobody has to stand ready for that"
    d = draft(A, B)
    assert not epochs.handed_over(d, d.state.epochs[0], None, wait=True)
    assert actions(d, act.OpenEpoch), "of several, the others cannot go on"


# ---------------------------------------------------------------- damaged, or echoed


def test_who_cannot_restore_begins_again_with_the_one_before() -> None:
    bad = [epoch(1, A, resume_from="m")]
    state = {"rejected": frozenset({"m"})}
    broken = [beat(A, AgentPhase.BROKEN)]
    (opened,) = advanced(A, epochs=bad, beats=broken, state=state)
    assert names(opened) == [A.lease_id]
    assert opened.resume_from is None
    assert opened.reason == "m is damaged: back to the checkpoint before it"
    assert not advanced(A, epochs=bad, state=state), "it runs: it had it already"
    assert not advanced(A, epochs=bad, beats=broken), "not damaged: it is broken"
    assert not advanced(A, epochs=[epoch(2, A, resume_from="m")], beats=broken, state=state), "of before"
    assert not advanced(A, epochs=bad, beats=[], state=state)
    two: dict[str, Any] = {"epochs": [epoch(1, A, B, resume_from="m")], "beats": [*broken, beat(B)]}
    assert not advanced(A, B, **two), "not damaged: the other goes on until it is replaced"
    (drain,) = advanced(A, B, **two, state=state)
    assert (drain.members, drain.reason) == ((), "m is damaged"), "one of them cannot restore it"


def test_after_an_echo_all_begin_again_at_once() -> None:
    seen = {
        "ends": (failure(A),),
        "heard_s_ago": {A.lease_id: 1.0, B.lease_id: 1.0},
        "end_seen_s_ago": {(1, 0): 8.0},
        "pauses": {B.lease_id: (3.0, 9.0)},
    }
    said = [beat(A, AgentPhase.EXITED, drained_epoch=1), beat(B)]
    (drain,) = advanced(A, B, beats=said, observed=seen)
    assert (drain.members, drain.grace_s) == ((), TIMING.loss_grace_s)
    assert drain.reason == "rank 0 failed with exit code 1 while a machine was cut off"
    idle = [beat(x, AgentPhase.EXITED, drained_epoch=1) for x in (A, B)]
    (opened,) = advanced(A, B, beats=idle, observed=seen)
    assert names(opened) == [A.lease_id, B.lease_id]
    assert opened.reason == drain.reason
    d = draft(A, B, beats=said, observed=seen)
    assert not epochs.intact(d, d.state.epochs[0])
    assert epochs.intact(draft(A, B), epoch(1, A, B))


# ---------------------------------------------------------------- publishing


def test_what_the_journal_has_and_the_mailbox_has_not() -> None:
    def published(highest: int, **more: Any) -> list[int]:
        d: Draft = draft(A, epochs=[epoch(1, A), epoch(2), epoch(3, A)], **more)
        d.observed = replace(d.observed, published_epoch=highest)
        epochs.publish(d)
        return [a.number for a in actions(d, act.PublishEpoch)]

    assert published(3) == []
    assert published(1) == [2, 3]
    assert published(0) == [1, 2, 3]
    assert published(1, observed={"mailbox_ok": False}) == []
    d = draft(A, epochs=[epoch(1, A)])
    d.open_epoch((), "now")
    epochs.publish(d)
    assert not actions(d, act.PublishEpoch), "of this pass: with the epoch itself"
