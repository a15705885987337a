"""How many machines an elastic job should have: what is asked for, and what pays; at the bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from support.harness import OFFERS, TIMING, spec
from support.situation import (
    NOW_S,
    draft,
    elastic,
    epoch,
    events,
    lease,
)

from arylcloud.core import events as ev
from arylcloud.core.job import Constraints, InlineRate, ProfileRef, Work
from arylcloud.core.offer import Market
from arylcloud.launcher.actions import Scaling
from arylcloud.launcher.duesize import takes_all
from arylcloud.launcher.reconcile import sizes
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.state import Lease

A, B = lease(0), lease(1)

MOVE = ev.MigrationStarted(
    to=OFFERS[2], from_offer="x", expected_saving_usd=None, move_usd=None, forced=False, why=""
)


SCALING = Scaling(offer_key=A.offer.key, best=2, loss={1: 10.0, 2: 6.0, 3: 5.0}, handover=1.0, boot=2.0)


@pytest.mark.parametrize(
    ("now", "then", "boots", "worth"),
    [(1, 2, 0, 3.0), (1, 2, 1, 1.0), (3, 2, 0, -2.0), (1, 3, 2, 0.0), (1, 4, 0, None), (4, 1, 0, None)],
)
def test_what_a_change_is_worth(now: int, then: int, boots: int, worth: float | None) -> None:
    assert sizes.gain(SCALING, now, then, boots=boots) == worth


def test_what_pays() -> None:
    d = draft(A, job=elastic(), desired={"scaling": SCALING})
    assert sizes.pays(d, 1, 2)
    assert sizes.pays(d, 1, 3, boots=1)
    assert not sizes.pays(d, 1, 3, boots=2), "worth nothing"
    assert sizes.pays(d, 1, 4), "nobody can estimate it"
    assert sizes.pays(draft(A, job=elastic(2), desired={"scaling": SCALING}), 1, 3, boots=2)
    assert sizes.pays(draft(A, job=elastic()), 1, 3, boots=2)
    pinned = draft(A, job=elastic(), desired={"scaling": SCALING}, state={"size_pinned": True})
    assert sizes.pays(pinned, 1, 3, boots=2)


def advised(*of: Lease, ago_s: float = 1e4, scaling: Any = SCALING, **more: Any) -> list[int]:
    state = {"size": 1, "size_at_s": NOW_S - ago_s, **more.pop("state", {})}
    job = more.pop("job", elastic())
    d = draft(*(of or (A,)), job=job, state=state, desired={"scaling": scaling}, **more)
    sizes.decide(d)
    chosen = events(d, ev.SizeChosen)
    assert all((x.code, d.state.size_pinned) == ("plan", False) for x in chosen)
    return [x.nodes for x in chosen]


def test_the_planner_is_followed_where_it_pays_and_not_too_often() -> None:
    assert advised() == [2]
    assert advised(ago_s=TIMING.grow_every_s) == [2]
    assert advised(ago_s=TIMING.grow_every_s - 0.1) == []
    young = epoch(1, A, opened_at_s=NOW_S - TIMING.grow_every_s + 0.1)
    assert advised(epochs=[young]) == []
    assert advised(epochs=[replace(young, opened_at_s=NOW_S - TIMING.grow_every_s)]) == [2]
    never = {"size_at_s": None, "submitted_at_s": NOW_S - 1.0}
    assert advised(state=never) == [], "submitted just now"
    assert advised(scaling=replace(SCALING, boot=3.0)) == [], "its boot costs all that it brings"
    assert advised(scaling=replace(SCALING, best=1)) == []
    assert advised(scaling=replace(SCALING, best=9, loss={1: 10.0, 3: 0.0}), state={}) == [3]
    assert advised(scaling=replace(SCALING, loss={})) == []
    assert advised(scaling=replace(SCALING, offer_key="elsewhere")) == []
    assert advised(scaling=None) == []
    down = replace(SCALING, best=1, loss={1: 4.9, 2: 6.0}, boot=100.0)
    assert advised(A, B, state={"size": 2}, scaling=down) == [1], "fewer need no boot"


def test_not_while_it_drains_moves_is_pinned_or_may_not_change() -> None:
    assert advised(epochs=[]) == []
    assert advised(epochs=[epoch(1, A), epoch(2)]) == []
    assert advised(state={"migration": MOVE, "migration_at_s": NOW_S}) == []
    assert advised(state={"size_pinned": True}) == []
    assert advised(job=spec(1)) == []
    assert advised(job=elastic(recovery="none")) == []
    assert advised(job=elastic(on_node_loss="fail")) == []


def test_a_size_that_misses_a_limit_says_so() -> None:
    for loss, text in (
        ({1: math.inf, 2: 6.0}, "no plan for 1 machines meets the job's limits (p90)"),
        ({1: 10.0, 2: 6.0}, "worth $1.00 over the work that is left, hand-over included"),
    ):
        scaling = replace(SCALING, loss=loss)
        d = draft(A, job=elastic(), state={"size": 1}, desired={"scaling": scaling})
        sizes.decide(d)
        (chosen,) = events(d, ev.SizeChosen)
        assert chosen.why == text


def asked(nodes: Any, **more: Any) -> Draft:
    request = ev.RequestSeen(number=4, verb="scale", args={"nodes": nodes}, by="user@host")
    state = {"scale_request": request, "size": 2, **more.pop("state", {})}
    d = draft(A, job=more.pop("job", elastic()), state=state, **more)
    sizes.decide(d)
    return d


@pytest.mark.parametrize(
    ("nodes", "taken"),
    [
        (1, True),
        (3, True),
        (0, False),
        (4, False),
        (True, False),
        ("many", False),
        (None, False),
        (2.0, False),
    ],
)
def test_what_a_user_asks_for(nodes: Any, taken: bool) -> None:
    d = asked(nodes)
    if taken:
        (chosen,) = events(d, ev.SizeChosen)
        assert (chosen.nodes, chosen.code, chosen.why) == (nodes, "scale", "asked for by user@host")
        assert d.state.size_pinned
    else:
        (refused,) = events(d, ev.ScaleRefused)
        assert refused.number == 4
    assert d.state.scale_request is None


def test_auto_leaves_it_to_the_planner_from_where_it_is() -> None:
    d = asked("auto", state={"size_pinned": True})
    (chosen,) = events(d, ev.SizeChosen)
    assert (chosen.nodes, chosen.code) == (2, "plan")
    assert not d.state.size_pinned


def test_a_move_is_waited_for_but_not_to_say_no() -> None:
    moving = {"migration": MOVE, "migration_at_s": NOW_S}
    assert not asked(3, state=moving).actions
    assert events(asked(9, state=moving), ev.ScaleRefused)
    (refused,) = events(asked(2, job=spec(3)), ev.ScaleRefused)
    assert refused.text.startswith("it runs on 3 machines throughout")


def test_another_offer_has_its_own_best_size() -> None:
    def chosen(job: Any = None, best: int = 2, of: int = 2, **state: Any) -> list[int]:
        desired = {"sizes": {OFFERS[of].key: best}}
        d = draft(job=job or elastic(), epochs=[], state={"attempts": 2, **state}, desired=desired)
        sizes.for_offer(d, OFFERS[2])
        return [x.nodes for x in events(d, ev.SizeChosen)]

    assert chosen() == [2]
    assert chosen(size=2) == []
    assert chosen(attempts=0) == [], "the first start is as confirmed"
    assert chosen(size_pinned=True) == []
    assert chosen(job=spec(3)) == []
    assert chosen(best=9, size=2) == [3]
    assert chosen(of=1) == []


def test_where_a_policy_keeps_the_deadline_on_demand_is_all_and_spot_what_was_chosen() -> None:
    def chosen(market: Market, **state: Any) -> list[int]:
        to = replace(OFFERS[2], market=market)
        limits = Constraints(deadline_s=9000.0)
        rates = ProfileRef(rates=(InlineRate(gpu="V100", count=1, rate=1.0),), unit="steps/s")
        job = elastic(constraints=limits, profile=rates, work=Work(amount=9.0, unit="steps"))
        desired = {"sizes": {to.key: 2}}
        d = draft(job=job, epochs=[], state={"attempts": 2, "size": 1, **state}, desired=desired)
        assert takes_all(d.state)
        sizes.for_offer(d, to)
        return [x.nodes for x in events(d, ev.SizeChosen)]

    assert chosen(Market.SPOT) == []
    assert chosen(Market.ON_DEMAND) == [3]
    assert chosen(Market.ON_DEMAND, attempts=0) == []
    assert chosen(Market.ON_DEMAND, size_pinned=True) == []
