"""Budget and ``max_runtime`` at their bounds, and what is kept of a budget for the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.harness import OFFERS, spec
from support.situation import BEGUN_S, CLOCK, NOW_S, actions, beat, draft, epoch, events, lease, training

from arylcloud.core import events as ev
from arylcloud.core.job import Constraints
from arylcloud.core.phases import LeasePhase
from arylcloud.core.ports import PricePoint
from arylcloud.launcher import actions as act
from arylcloud.launcher import limits
from arylcloud.launcher.reconcile import caps
from arylcloud.launcher.reconcile.draft import Draft

NOTIFY = "https://example.com/…"
A, B = lease(0), lease(1)
RUNS = (training(A),)
STOPPED = (training(A, stopped_at_s=NOW_S),)


def limited(spent: float | None = None, *, state: dict[str, Any] | None = None, **more: Any) -> Draft:
    d = draft(
        A,
        job=spec(constraints=Constraints(**more.pop("limits")), notify=NOTIFY),
        state={"trainings": RUNS, **(state or {})},
        desired={"spent_usd": spent, **more},
    )
    d.now_s = NOW_S
    return d


def budget(spent: float | None, usd: float = 10.0, **more: Any) -> Draft:
    return limited(spent, limits={"budget_usd": usd}, **more)


def code(d: Draft) -> str | None:
    found = caps.reached(d)
    assert found is None or found[2] is None
    return None if found is None else found[0]


# ---------------------------------------------------------------- the budget


def kept(d: Draft, **more: Any) -> float:
    return limits.reserve_usd(d.state, limits.burn_usd_per_hour(d.state), **more)


def test_it_ends_while_the_last_save_can_still_be_paid() -> None:
    """A machine at $1 per market hour, which is half an hour here: a minute costs $1/30."""
    assert kept(budget(0.0)) == pytest.approx(1 / 30)
    assert code(budget(10.0 - 1 / 30 - 0.001)) is None
    assert code(budget(10.0 - 1 / 30 + 0.001)) == "over_budget"
    found = caps.reached(budget(9.99))
    assert found is not None
    assert found[1] == "$9.99 of a budget of $10.00 is spent; $0.03 is kept for the last save"
    found = caps.reached(budget(10.0))
    assert found is not None
    assert found[1] == "$10.00 of a budget of $10.00 is spent"
    d = budget(0.0)
    d.desired = replace(d.desired, spent_usd=10.0 - kept(d))
    assert code(d) == "over_budget", "to the cent"
    found = caps.reached(budget(0.0499, usd=0.05))
    assert found is not None
    assert found[1] == "$0.05 of a budget of $0.05 is spent", "less than a cent is kept: not worth a word"
    found = caps.reached(budget(0.004, usd=0.004))
    assert found is not None
    assert found[1] == "< $0.01 of a budget of $0.004 is spent"
    free = budget(1e9)
    free.state = replace(free.state, spec=spec())
    assert code(free) is None


def test_what_a_save_took_is_kept() -> None:
    said = beat(A, save_s=100.0, upload_s=200.0)
    d = budget(0.0)
    d.observed = replace(d.observed, beats={"x": beat(B, save_s=None, upload_s=10.0), A.lease_id: said})
    assert caps._save_s(d) == 300.0
    expected = (300.0 + limits.END_S) / 1800.0
    for spent, over in ((10.0 - expected - 0.001, False), (10.0 - expected + 0.001, True)):
        d.desired = replace(d.desired, spent_usd=spent)
        assert (code(d) == "over_budget") is over
    d.observed = replace(d.observed, beats={A.lease_id: beat(A, upload_s=10.0)})
    assert caps._save_s(d) == 10.0, "what it held up is not known"
    d.observed = replace(d.observed, beats={A.lease_id: beat(A, save_s=5.0)})
    assert caps._save_s(d) is None, "it has uploaded nothing yet"


def test_of_a_small_budget_little_is_kept() -> None:
    assert kept(budget(0.0, usd=0.1)) == pytest.approx(0.005), "a twentieth"
    assert kept(budget(0.0, usd=0.1), save_s=0.0) == pytest.approx(0.005)
    assert kept(budget(0.0), save_s=0.0) == pytest.approx(1 / 60), "until the machines have ended"
    assert limits.reserve_usd(budget(0.0).state, 0.0) == 0.0


def test_nothing_is_bought_for_the_last_of_it() -> None:
    """While nothing runs, and once something has: the last fiftieth is worth no machine."""
    for spent, over in ((9.79, False), (9.801, True)):
        assert (code(budget(spent, state={"trainings": STOPPED})) == "over_budget") is over
        assert code(budget(spent, state={"trainings": STOPPED, "epochs": ()})) is None, "never begun"
        assert code(budget(spent)) is None, "it runs"


def test_told_once_from_four_fifths_on() -> None:
    assert not budget(7.99).actions
    d = budget(7.99)
    assert code(d) is None
    assert not d.actions
    d = budget(8.0)
    assert code(d) is None
    (near,) = events(d, ev.LimitNear)
    assert near.limit == "budget"
    assert near.text.startswith("$8.00 of $10.00 is spent; at $1.00/h the rest lasts 2.0 h")
    assert [n.topic for n in actions(d, act.Notify)] == ["near:budget"]
    d = budget(8.0, state={"limits_near": frozenset({"budget"})})
    assert code(d) is None
    assert not d.actions
    d = budget(9.3)
    assert code(d) is None
    (near,) = events(d, ev.LimitNear)
    assert near.text.endswith("lasts 40 min; then it saves and stops")
    dear = replace(A, prices=(PricePoint(from_s=0.0, usd_per_hour=4.0),))
    d = budget(8.0, state={"leases": {A.lease_id: dear}})
    assert code(d) is None
    (near,) = events(d, ev.LimitNear)
    assert near.text.startswith("$8.00 of $10.00 is spent; at $4.00/h the rest lasts 28 min")
    nothing = budget(8.0, state={"leases": {}, "epochs": ()})
    assert code(nothing) is None
    (near,) = events(nothing, ev.LimitNear)
    assert near.text == "$8.00 of $10.00 is spent; then it saves and stops"


@pytest.mark.parametrize(
    ("hours", "text"), [(1.0, "1.0 h"), (0.99, "59 min"), (2.26, "2.3 h"), (-1.0, "0 min"), (0.0, "0 min")]
)
def test_how_long_it_lasts(hours: float, text: str) -> None:
    assert caps._hours(hours) == text


def test_what_is_not_known_is_said_once_and_ends_nothing() -> None:
    d = budget(None)
    assert code(d) is None
    (unknown,) = events(d, ev.LimitUnknown)
    assert unknown.limit == "budget"
    assert [n.topic for n in actions(d, act.Notify)] == ["limit:budget"]
    d = budget(None, state={"limits_unknown": frozenset({"budget"})})
    assert code(d) is None
    assert not d.actions


def test_what_has_no_known_price_is_said_once_and_the_rest_is_watched() -> None:
    there = ev.Charged(what="egress", usd=0.0, gb=5.0, text="", unknown="traffic out of nowhere/west")
    vague = {"charges": (there,)}
    d = budget(1.0, state=vague)
    assert code(d) is None
    (unknown,) = events(d, ev.LimitUnknown)
    assert (unknown.limit, "nowhere/west" in unknown.text) == ("budget", True)
    (told,) = actions(d, act.Notify)
    assert told.topic == "limit:budget"
    assert "may be exceeded" in told.text
    again = budget(1.0, state={**vague, "limits_unknown": frozenset({"budget"})})
    assert code(again) is None
    assert not again.actions
    assert code(budget(10.0, state=vague)) == "over_budget", "what is known is over it"


# ---------------------------------------------------------------- max_runtime


@pytest.mark.parametrize(
    ("runs", "limit_s", "over"),
    [
        (True, 2 * 4995.0, True),  # market seconds: twice those on the wall
        (True, 2 * 4995.0 + 0.1, False),
        (False, 10_000.0, True),  # the last fiftieth is worth no machine
        (False, 10_200.0, False),
    ],
)
def test_the_longest_that_is_allowed(runs: bool, limit_s: float, over: bool) -> None:
    """It began 4995 s ago."""
    d = limited(limits={"max_runtime_s": limit_s}, state={"trainings": RUNS if runs else STOPPED})
    assert (code(d) == "max_runtime") is over
    assert code(limited(limits={}, state={"trainings": RUNS})) is None


def test_a_deadline_is_said_once() -> None:
    d = limited(limits={}, late="it cannot be kept")
    assert code(d) is None
    (near,) = events(d, ev.LimitNear)
    assert (near.limit, near.text) == ("deadline", "it cannot be kept")
    assert [n.topic for n in actions(d, act.Notify)] == ["near:deadline"]
    d = limited(limits={}, late="it cannot be kept", state={"limits_near": frozenset({"deadline"})})
    assert code(d) is None
    assert not d.actions


def test_the_budget_is_named_before_max_runtime() -> None:
    assert code(limited(10.0, limits={"budget_usd": 10.0, "max_runtime_s": 1.0})) == "over_budget"
    assert code(limited(0.0, limits={"budget_usd": 10.0, "max_runtime_s": 1.0})) == "max_runtime"


# ---------------------------------------------------------------- what is left, and what burns


def test_what_is_left_on_the_wall() -> None:
    d = budget(0.0)
    left = limits.hard_left_s(d.state, NOW_S, spent_usd=4.0, usd_per_hour=2.0, reserve_usd=1.0)
    assert left == pytest.approx(2.5 * 3600.0 / 2.0)
    left = limits.hard_left_s(d.state, NOW_S, spent_usd=4.0, usd_per_hour=2.0)
    assert left == pytest.approx(3.0 * 3600.0 / 2.0), "nothing is kept, unless it is said"
    assert limits.hard_left_s(d.state, NOW_S, spent_usd=40.0, usd_per_hour=2.0) == 0.0
    assert limits.hard_left_s(d.state, NOW_S, spent_usd=4.0, usd_per_hour=0.0) is None
    d = limited(limits={"max_runtime_s": 20_000.0})
    assert limits.hard_left_s(
        d.state, NOW_S, spent_usd=None, usd_per_hour=None, boot_s=30.0
    ) == pytest.approx(10_000.0 - 4995.0), "it runs: its boot is over"
    d = limited(limits={"max_runtime_s": 20_000.0}, state={"trainings": STOPPED})
    assert limits.hard_left_s(
        d.state, NOW_S, spent_usd=None, usd_per_hour=None, boot_s=30.0
    ) == pytest.approx(10_000.0 - 4995.0 + 30.0), "wall seconds"
    assert limits.hard_left_s(d.state, NOW_S, spent_usd=None, usd_per_hour=None) == pytest.approx(5005.0)
    over = limited(limits={"max_runtime_s": 1.0})
    assert limits.hard_left_s(over.state, NOW_S, spent_usd=None, usd_per_hour=None) == 0.0


def test_each_epoch_by_its_longest_rank() -> None:
    d = draft(A, B)
    runs = (
        training(A, 1, stopped_at_s=BEGUN_S + 105.0),
        training(B, 1, stopped_at_s=BEGUN_S + 95.0),
        training(B, 3, stopped_at_s=BEGUN_S + 55.0),
    )
    state = replace(d.state, trainings=runs)
    assert limits.trained_market_s(state, NOW_S) == pytest.approx(2 * 150.0)
    assert not limits.running(state)
    skewed = training(A, 4, started_at_s=1.0, began_at_s=NOW_S - 10.0)
    assert limits.trained_market_s(replace(state, trainings=(*runs, skewed)), NOW_S) == pytest.approx(320.0)
    assert limits.running(replace(state, trainings=(*runs, skewed)))
    assert CLOCK.scale == 2.0


def test_what_burns_is_all_that_may_be_paid_for() -> None:
    dear = replace(
        B, prices=(PricePoint(from_s=0.0, usd_per_hour=0.5), PricePoint(from_s=1.0, usd_per_hour=3.0))
    )
    assert limits.burn_usd_per_hour(draft(A, dear).state) == pytest.approx(4.0), "the price in force"
    quoted = replace(B, prices=(), offer=OFFERS[3])
    assert limits.burn_usd_per_hour(draft(A, quoted).state) == pytest.approx(2.4), "its offer's, until then"
    unknown = replace(quoted, offer=replace(OFFERS[3], usd_per_hour=None))
    assert limits.burn_usd_per_hour(draft(A, unknown).state) is None
    gone = replace(unknown, phase=LeasePhase.RELEASED)
    assert limits.burn_usd_per_hour(draft(A, gone, epochs=[epoch(1, A)]).state) == pytest.approx(1.0)
