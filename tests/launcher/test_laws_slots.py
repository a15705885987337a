"""Which machines should exist that do not, and which exist too often: each rule at its bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.harness import JOB, OFFERS, spec
from support.situation import (
    CLOCK,
    NOW_S,
    actions,
    beat,
    draft,
    elastic,
    ended,
    epoch,
    lease,
    training,
)

from arylcloud.core import events as ev
from arylcloud.core.job import Constraints
from arylcloud.core.phases import LeasePhase
from arylcloud.core.ports import PricePoint
from arylcloud.core.protocol import AgentPhase
from arylcloud.launcher import actions as act
from arylcloud.launcher import limits
from arylcloud.launcher.actions import Scaling
from arylcloud.launcher.reconcile import slots
from arylcloud.launcher.state import Lease

A, B, C = lease(0), lease(1), lease(2)
INTENDED, PENDING, ENDING = LeasePhase.INTENDED, LeasePhase.PENDING, LeasePhase.ENDING
GONE: dict[str, Any] = {"phase": LeasePhase.RELEASED, "ended_at_s": NOW_S, "cause": "interrupted"}
MARKET_S = CLOCK.market_s(NOW_S)


def bar(scope: str, until_s: float = MARKET_S + 10.0, code: str = "capacity") -> ev.OfferBarred:
    return ev.OfferBarred(scope=scope, until_s=until_s, code=code, why="none")


MOVE = ev.MigrationStarted(
    to=OFFERS[2], from_offer="x", expected_saving_usd=None, move_usd=None, forced=False, why=""
)


# ---------------------------------------------------------------- asking for what is missing


def filled(*of: Lease, **more: Any) -> list[act.CreateLease]:
    d = draft(*of, **more)
    slots.fill(d)
    return actions(d, act.CreateLease)


def test_a_start_asks_for_all_on_the_best_offer() -> None:
    asked = filled(job=spec(2), epochs=[])
    assert [(x.index, x.attempt, x.offer, x.purpose) for x in asked] == [
        (0, 1, OFFERS[0], "start"),
        (1, 2, OFFERS[0], "start"),
    ]
    assert [x.lease_id for x in asked] == [f"{JOB}-n0-a1", f"{JOB}-n1-a2"]
    assert asked[0].why == "rank 0: the best of 4 offers"
    assert not filled(job=spec(2), epochs=[], observed={"mailbox_ok": False})
    assert not filled(A, B)


def test_a_start_elsewhere_has_the_best_size_there() -> None:
    sizes = {OFFERS[0].key: 2}
    asked = filled(job=elastic(), epochs=[], state={"attempts": 4}, desired={"sizes": sizes})
    assert [x.index for x in asked] == [0, 1]
    more = filled(A, job=elastic(), state={"attempts": 4}, desired={"sizes": sizes})
    assert [x.index for x in more] == [1, 2], "of one that has begun, the size is another rule's"


def test_what_is_missing_is_asked_for_where_the_others_are() -> None:
    gone = replace(B, **GONE)
    (asked,) = filled(A, gone)
    assert (asked.index, asked.attempt, asked.offer, asked.purpose) == (1, 3, OFFERS[0], "replace")
    assert asked.why == f"rank 1: in place of {B.lease_id}, interrupted"
    (asked,) = filled(A, replace(B, phase=LeasePhase.DOOMED))
    assert asked.why.endswith("given notice")
    dearer = replace(OFFERS[0], usd_per_hour=7.0)
    (asked,) = filled(A, gone, desired={"ranking": (OFFERS[1], dearer)})
    assert asked.offer == dearer, "at its price of today"
    (asked,) = filled(A, gone, desired={"ranking": OFFERS[1:]})
    assert asked.offer == OFFERS[0]


@pytest.mark.parametrize("rule", [{"recovery": "none"}, {"on_node_loss": "fail"}])
def test_what_is_not_run_again_is_not_completed_again(rule: dict[str, Any]) -> None:
    gone = replace(B, **GONE)
    assert not filled(A, gone, job=spec(2, **rule))
    assert filled(A, gone, job=spec(2, **rule), epochs=[]), "it has not begun"
    job = replace(elastic(), **rule)
    assert not filled(A, gone, job=job)
    assert filled(A, gone, job=job, state={"size_pinned": True}), "asked for by a user"
    assert not filled(A, gone, job=spec(2, **rule), state={"size_pinned": True})


def test_a_barred_offer_waits_or_moves_all_together() -> None:
    gone = replace(B, **GONE)
    here = {"bars": (bar(OFFERS[0].key),)}
    busy = draft(A, gone, state=here)
    slots.fill(busy)
    assert not busy.actions, "the survivor works"
    drained = [beat(x, AgentPhase.DRAINED, 2, drained_epoch=2) for x in (A, B)]
    idle = drained[:1]
    d = draft(A, gone, beats=idle, state=here, epochs=[epoch(1, A, B), epoch(2)])
    slots.fill(d)
    assert ended(d) == {A.lease_id: "regroup"}
    assert not actions(d, act.CreateLease)
    whole = draft(A, B, beats=drained, state=here, epochs=[epoch(1, A, B), epoch(2)])
    slots.fill(whole)
    assert not whole.actions, "nothing is missing"
    nowhere = draft(A, gone, beats=idle, state={"bars": (bar("aws"),)}, epochs=[epoch(1, A, B), epoch(2)])
    slots.fill(nowhere)
    assert not nowhere.actions
    enough = draft(A, gone, job=elastic(), beats=idle, state=here, epochs=[epoch(1, A, B), epoch(2)])
    slots.fill(enough)
    assert not enough.actions, "it goes on with fewer, and waits"
    few = draft(A, gone, job=elastic(2), beats=idle, state=here, epochs=[epoch(1, A, B), epoch(2)])
    slots.fill(few)
    assert ended(few) == {A.lease_id: "regroup"}


def test_a_restart_moves_together_where_only_members_are_left() -> None:
    gone = replace(B, **GONE)
    job = elastic(on_node_loss="restart")
    idle = [beat(A, AgentPhase.DRAINED, 2, drained_epoch=2)]
    d = draft(A, gone, job=job, beats=idle, epochs=[epoch(1, A, B), epoch(2)])
    slots.fill(d)
    assert ended(d) == {A.lease_id: "regroup"}
    new = replace(lease(2, 3), phase=PENDING)
    d = draft(A, gone, new, job=job, beats=idle, epochs=[epoch(1, A, B), epoch(2)])
    slots.fill(d)
    assert not ended(d)
    assert [x.index for x in actions(d, act.CreateLease)] == [1]


def test_a_throttled_call_waits_and_a_wait_says_why() -> None:
    d = draft(job=spec(1), epochs=[], state={"bars": (bar("aws", code="throttled"),)})
    slots.fill(d)
    assert not d.actions
    assert d.waiting is None
    best = {"bars": (bar("aws/us-east-1", code="throttled"),)}
    assert not filled(job=spec(1), epochs=[], state=best), "the same call again, later"
    other = {"bars": (bar("aws/us-west-2", code="throttled"),)}
    assert [x.offer for x in filled(job=spec(1), epochs=[], state=other)] == [OFFERS[0]]
    d = draft(job=spec(1), epochs=[], state={"bars": (bar("aws", until_s=CLOCK.market_s(NOW_S + 61.0)),)})
    slots.fill(d)
    assert d.waiting is not None
    assert d.waiting[0] == "capacity"
    d = draft(job=spec(1), epochs=[], desired={"ranking": ()})
    slots.fill(d)
    assert d.waiting is not None
    assert d.waiting[0] == "no_offer"
    refused = replace(A, phase=LeasePhase.REFUSED, cause="capacity")
    d = draft(
        refused, job=spec(1), epochs=[], state={"bars": (bar("aws", until_s=CLOCK.market_s(60.0 * 90)),)}
    )
    d.now_s = 0.0
    slots.fill(d)
    assert d.waiting is not None
    assert d.waiting[1].endswith("; next try 01:30 UTC"), d.waiting
    d = draft(refused, job=spec(1), epochs=[], desired={"ranking": ()})
    slots.fill(d)
    assert d.waiting is not None
    assert d.waiting[1].endswith("; no other offer is acceptable")


def test_one_more_is_asked_for_where_it_pays() -> None:
    scaling = Scaling(offer_key=A.offer.key, best=2, loss={1: 10.0, 2: 6.0}, handover=1.0, boot=2.0)
    two = {"size": 2}
    (asked,) = filled(A, job=elastic(), state=two, desired={"scaling": scaling})
    assert (asked.index, asked.purpose) == (1, "grow")
    dear = replace(scaling, boot=3.0)
    assert not filled(A, job=elastic(), state=two, desired={"scaling": dear})
    assert filled(A, job=elastic(2), state=two, desired={"scaling": dear}), "it cannot run with fewer"
    assert filled(A, job=elastic(), epochs=[], state=two, desired={"scaling": dear}), "a start"
    moving = {**two, "migration": MOVE, "migration_at_s": NOW_S}
    assert not filled(A, job=elastic(), state=moving, desired={"scaling": scaling})
    assert filled(A, job=elastic(2), state=moving, desired={"scaling": scaling}), "too few, even so"
    assert filled(A, job=spec(2), state=moving)
    anew = replace(B, **GONE)
    restart = elastic(on_node_loss="restart")
    new = replace(lease(2, 3), phase=PENDING)
    never = replace(dear, loss={1: 10.0, 2: 6.0, 3: 5.9})
    gang = [epoch(1, A, B)]
    assert filled(A, anew, new, job=restart, epochs=gang, desired={"scaling": never})
    assert not filled(A, anew, new, job=elastic(), epochs=gang, desired={"scaling": never})


def test_a_slot_that_was_filled_before_is_replaced_not_grown() -> None:
    gone = replace(B, **GONE)
    purposes = [x.purpose for x in filled(A, gone, job=elastic())]
    assert purposes == ["replace", "grow"]
    since_resume = filled(A, gone, job=elastic(), state={"history_attempt": 2})
    assert [x.purpose for x in since_resume] == ["grow", "grow"]


# ---------------------------------------------------------------- for how long


def test_a_lease_ends_with_unattended_or_the_money() -> None:
    d = draft(A)
    assert slots.lease_until_s(d, OFFERS[0]) == NOW_S + d.state.spec.unattended_s
    job = spec(2, constraints=Constraints(budget_usd=10.0))
    d = draft(A, job=job, desired={"spent_usd": 4.0}, state={"trainings": (training(A),)})
    reserve = limits.reserve_usd(d.state, 2.4)
    for offer, rate in ((OFFERS[0], 2.0), (OFFERS[2], 2.4)):
        reserve = limits.reserve_usd(d.state, rate)
        left_s = (10.0 - 4.0 - reserve) / rate * 3600.0 / CLOCK.scale
        assert slots.lease_until_s(d, offer) == pytest.approx(NOW_S + left_s)
    dear = replace(A, prices=(PricePoint(from_s=0.0, usd_per_hour=9.0),))
    d = draft(dear, job=job, desired={"spent_usd": 4.0}, state={"trainings": (training(A),)})
    left_s = (10.0 - 4.0 - limits.reserve_usd(d.state, 10.0)) / 10.0 * 3600.0 / CLOCK.scale
    assert slots.lease_until_s(d, OFFERS[0]) == pytest.approx(NOW_S + left_s), "with those that it has"
    unknown = replace(OFFERS[0], usd_per_hour=None)
    assert slots.lease_until_s(d, unknown) == NOW_S + d.state.spec.unattended_s
    rich = draft(A, job=spec(1, constraints=Constraints(budget_usd=1e6)))
    assert slots.lease_until_s(rich, OFFERS[0]) == NOW_S + rich.state.spec.unattended_s


# ---------------------------------------------------------------- trimming, repeating


def trimmed(*of: Lease, **more: Any) -> dict[str, str]:
    d = draft(*of, **more)
    slots.trim(d)
    return ended(d)


def test_one_machine_per_slot() -> None:
    assert trimmed(A, B) == {}
    newer = lease(0, 7)
    assert trimmed(A, newer, job=spec(1), epochs=[epoch(1, A)]) == {newer.lease_id: "surplus"}
    for phase in (ENDING, LeasePhase.DOOMED, LeasePhase.RELEASED):
        assert trimmed(A, replace(newer, phase=phase), job=spec(1), epochs=[epoch(1, A)]) == {}
    target = replace(newer, offer=OFFERS[2], purpose="migrate", intended_at_s=NOW_S)
    moving = {"migration": MOVE, "migration_at_s": NOW_S}
    assert trimmed(A, target, job=spec(1), epochs=[epoch(1, A)], state=moving) == {}
    assert trimmed(A, target, job=spec(1), epochs=[epoch(1, A)]) == {target.lease_id: "surplus"}


def test_who_still_works_for_the_open_epoch_is_left_until_it_has_handed_over() -> None:
    two = {"size": 2}
    assert trimmed(A, B, C, job=elastic(), state=two) == {}
    said = [beat(A), beat(B), beat(C, AgentPhase.DRAINED, drained_epoch=1)]
    assert trimmed(A, B, C, job=elastic(), state=two, beats=said) == {C.lease_id: "surplus"}
    idle = [beat(A), beat(B), beat(C, AgentPhase.READY)]
    assert trimmed(A, B, C, job=elastic(), epochs=[epoch(1, A, B)], state=two, beats=idle) == {
        C.lease_id: "surplus"
    }


def why(*of: Lease, **more: Any) -> str:
    d = draft(*of, **more)
    slots.trim(d)
    (asked,) = actions(d, act.EndLease)
    return str(asked.why)


def test_it_says_why() -> None:
    two: dict[str, Any] = {"job": elastic(), "epochs": [], "state": {"size": 2}}
    assert why(A, B, C, **two) == "2 machines are wanted"
    assert why(A, B, replace(C, phase=INTENDED), **two) == "another machine has its place"
    assert why(A, lease(0, 7), job=spec(1), epochs=[]) == "another machine has its place"
    assert why(A, lease(0, 7), **two) == "another machine has its place"


@pytest.mark.parametrize(
    ("changes", "more", "repeats"),
    [
        ({}, {}, True),
        ({"uncertain": True}, {}, False),
        ({"uncertain": True, "uncertain_kind": "throttled"}, {}, True),
        ({"uncertain": True, "uncertain_kind": "throttled"}, {"state": {"bars": (bar("aws"),)}}, False),
        ({}, {"state": {"bars": (bar("aws"),)}}, True),
        ({"phase": PENDING}, {}, False),
        ({}, {"observed": {"mailbox_ok": False}}, False),
    ],
)
def test_an_intent_without_outcome_is_asked_for_again(
    changes: dict[str, Any], more: dict[str, Any], repeats: bool
) -> None:
    one = (
        replace(B, phase=INTENDED, instance_id=None, **changes)
        if "phase" not in changes
        else replace(B, **changes)
    )
    settled = replace(A, phase=PENDING)
    d = draft(settled, one, epochs=[], **more)
    slots.repeat_intents(d)
    asked = actions(d, act.CreateLease)
    assert [(x.lease_id, x.token, x.index, x.attempt, x.offer) for x in asked] == (
        [(B.lease_id, B.token, 1, 2, B.offer)] if repeats else []
    )
    slots.repeat_intents(d)
    assert len(actions(d, act.CreateLease)) == int(repeats), "once in a pass"
