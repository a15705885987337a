"""What the deadline policy says of a job that lacks machines is what is asked for, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support.harness import OFFERS, spec
from support.situation import CLOCK, NOW_S, actions, beat, draft, elastic, ended, epoch, lease, training

from arylcloud.core import events as ev
from arylcloud.core.job import Constraints
from arylcloud.core.phases import LeasePhase
from arylcloud.core.protocol import AgentPhase
from arylcloud.launcher import actions as act
from arylcloud.launcher.reconcile import slots
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.state import Lease

A, B, C = lease(0), lease(1), lease(2)
GONE: dict[str, Any] = {"phase": LeasePhase.RELEASED, "ended_at_s": NOW_S, "cause": "interrupted"}
HELD = act.DueStart(to=None, until_s=NOW_S + 600.0, why="spot is awaited")
LAST = act.DueStart(to=OFFERS[2], until_s=NOW_S, why="no time is left", forced=True)
EASY = replace(LAST, forced=False)
START: dict[str, Any] = {"job": spec(1), "epochs": []}
LOST_ONE: dict[str, Any] = {
    "beats": [beat(A, AgentPhase.DRAINED, 2, drained_epoch=2)],
    "epochs": [epoch(1, A, B), epoch(2)],
}


def filled(*of: Lease, due: act.DueStart | None = None, by_policy: bool = False, **more: Any) -> Draft:
    d = draft(*of, desired={"due": due, "by_policy": by_policy}, **more)
    slots.fill(d)
    return d


def asked(d: Draft) -> list[str]:
    return [a.offer.key for a in actions(d, act.CreateLease)]


def barred(offer: str = OFFERS[2].key) -> dict[str, Any]:
    until_s = CLOCK.market_s(NOW_S) + 10.0
    return {"state": {"bars": (ev.OfferBarred(scope=offer, until_s=until_s, code="capacity", why="none"),)}}


def test_a_start_goes_where_it_says_and_waits_as_long_as_it_says() -> None:
    assert asked(filled(**START)) == [OFFERS[0].key], "by the ranking, where no policy speaks"
    for due in (LAST, EASY):
        assert asked(filled(due=due, **START)) == [OFFERS[2].key]
    waits = filled(due=HELD, **START)
    assert not waits.actions
    assert (waits.waiting, waits.waiting_until_s) == (("spot_awaited", "spot is awaited"), NOW_S + 600.0)


def test_a_choice_that_is_barred_is_waited_for() -> None:
    d = filled(due=LAST, **START, **barred())
    assert not d.actions
    assert d.waiting == ("capacity", "none; no time is left")
    assert asked(filled(due=LAST, **START, **barred(OFFERS[0].key))) == [OFFERS[2].key]


def test_what_is_lost_in_this_very_pass_waits_for_the_policys_word() -> None:
    for by_policy, due, noted, offers in (
        (True, None, True, []),
        (True, None, False, [OFFERS[0].key]),
        (False, None, True, [OFFERS[0].key]),
        (True, LAST, True, [OFFERS[2].key]),
    ):
        d = draft(desired={"due": due, "by_policy": by_policy}, **START)
        if noted:
            d.note(ev.Notified(topic="x", ok=True, text=""))
        slots.fill(d)
        assert asked(d) == offers, (by_policy, due, noted)


def test_a_gang_is_completed_where_it_is_unless_there_is_no_time() -> None:
    gone = replace(B, **GONE)
    for due, ends in (
        (None, False),
        (HELD, False),
        (EASY, False),
        (replace(LAST, to=OFFERS[0]), False),
        (LAST, True),
    ):
        d = filled(A, gone, due=due, **LOST_ONE)
        assert ended(d) == ({A.lease_id: "regroup"} if ends else {}), due
        assert asked(d) == ([] if ends else [OFFERS[0].key]), due
    (end,) = actions(filled(A, gone, due=LAST, **LOST_ONE), act.EndLease)
    assert end.why.endswith(f"all machines move to {OFFERS[2].key}")


def test_one_that_cannot_be_completed_waits_for_spot_without_its_machines() -> None:
    gone = replace(B, **GONE)
    d = filled(A, gone, due=HELD, **LOST_ONE, **barred(OFFERS[0].key))
    assert ended(d) == {A.lease_id: "regroup"}
    (end,) = actions(d, act.EndLease)
    assert end.why.endswith("the job waits for spot")
    nowhere = filled(A, gone, due=LAST, **LOST_ONE, **barred("aws"))
    assert not nowhere.actions, "and where it has to go is not to be had: kept"
    assert not filled(A, gone, **LOST_ONE, **barred("aws")).actions


def test_nobody_is_ended_who_works() -> None:
    """Of two survivors one has not handed over yet."""
    gone = replace(C, **GONE)
    beats = [beat(A, AgentPhase.DRAINED, 2, drained_epoch=2), beat(B)]
    drains = {"epochs": [epoch(1, A, B, C), epoch(2)]}
    assert not ended(filled(A, B, gone, due=LAST, beats=beats, **drains))
    done = [beats[0], beat(B, AgentPhase.DRAINED, 2, drained_epoch=2)]
    assert set(ended(filled(A, B, gone, due=LAST, beats=done, **drains))) == {A.lease_id, B.lease_id}


def test_enough_of_an_elastic_gang_goes_on_unless_all_begin_anew() -> None:
    gone = replace(B, **GONE)
    assert not filled(A, gone, job=elastic(), due=LAST, **LOST_ONE).actions
    anew = filled(A, gone, job=elastic(on_node_loss="restart"), due=LAST, **LOST_ONE)
    assert ended(anew) == {A.lease_id: "regroup"}
    few = filled(A, gone, job=elastic(2), due=LAST, **LOST_ONE)
    assert ended(few) == {A.lease_id: "regroup"}


def test_the_reason_names_who_was_there_before_and_the_policy() -> None:
    gone = replace(B, **GONE)

    def why(*of: Lease, **more: Any) -> list[str]:
        return [a.why for a in actions(filled(*of, **more), act.CreateLease)]

    assert why(A, gone) == [f"rank 1: in place of {B.lease_id}, interrupted"]
    assert why(A, job=elastic(2, 2)) == ["rank 1: the best of 4 offers"], "of that rank, not of another"
    assert why(due=LAST, **START) == ["rank 0: the best of 4 offers; no time is left"]


def test_a_machine_whose_price_is_not_known_limits_no_lease() -> None:
    """Nor do the others that are paid for, whose price is not."""
    job = spec(2, constraints=Constraints(budget_usd=10.0))
    unknown = replace(A, prices=(), offer=replace(OFFERS[0], usd_per_hour=None))
    d = draft(unknown, job=job, desired={"spent_usd": 4.0}, state={"trainings": (training(A),)})
    assert slots.lease_until_s(d, OFFERS[0]) == NOW_S + d.state.spec.unattended_s
