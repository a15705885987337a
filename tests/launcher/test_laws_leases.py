"""Which machines must go, each rule at its bounds; and which are left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.harness import OFFERS, TIMING, spec
from support.situation import (
    CLOCK,
    NOW_S,
    actions,
    beat,
    draft,
    ended,
    epoch,
    events,
    failure,
    lease,
    machine,
)

from arylcloud.core import events as ev
from arylcloud.core.job import Constraints
from arylcloud.core.offer import Market
from arylcloud.core.phases import LeasePhase
from arylcloud.core.ports import Billing, MachineState, PricePoint
from arylcloud.core.protocol import BAD_HARDWARE, AgentPhase
from arylcloud.launcher import actions as act
from arylcloud.launcher.reconcile import leases
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.state import Lease

A, B = lease(0), lease(1)
PENDING = replace(A, phase=LeasePhase.PENDING, since_s=NOW_S - 5.0)


def judged(*of: Lease, **more: Any) -> Draft:
    d = draft(*of, **more)
    leases.judge(d)
    return d


def codes(*of: Lease, **more: Any) -> list[str]:
    return list(ended(judged(*of, **more)).values())


def bars(d: Draft) -> list[tuple[str, str]]:
    return [(b.scope, b.code) for b in events(d, ev.OfferBarred)]


def test_nothing_of_what_is_well() -> None:
    assert not judged(A, B).actions
    assert not judged(PENDING, epochs=[], beats=[]).actions


# ---------------------------------------------------------------- never came up


@pytest.mark.parametrize(
    ("since_s", "ok", "late"),
    [(TIMING.boot_timeout_s, True, False), (TIMING.boot_timeout_s + 0.1, True, True), (1e4, False, False)],
)
def test_never_heard(since_s: float, ok: bool, late: bool) -> None:
    slow = replace(PENDING, since_s=NOW_S - since_s)
    d = judged(slow, epochs=[], beats=[], observed={"mailbox_ok": ok})
    assert list(ended(d).values()) == (["boot_timeout"] if late else [])
    assert bars(d) == ([(A.offer.key, "boot_timeout")] if late else [])


@pytest.mark.parametrize(
    ("changes", "observed", "given_up"),
    [
        ({}, {}, True),
        ({"uncertain_at_s": NOW_S - TIMING.landing_s + 0.1}, {}, False),
        ({"uncertain": False}, {}, False),
        ({"uncertain_at_s": None}, {}, False),
        ({"uncertain_kind": "throttled"}, {}, False),
        ({}, {"listed": frozenset()}, False),
    ],
)
def test_a_create_without_clear_answer(
    changes: dict[str, Any], observed: dict[str, Any], given_up: bool
) -> None:
    asked: dict[str, Any] = {
        "phase": LeasePhase.INTENDED,
        "instance_id": None,
        "launched_s": None,
        "uncertain": True,
        "uncertain_at_s": NOW_S - TIMING.landing_s,
        "uncertain_kind": "other",
    }
    one = replace(A, **{**asked, **changes})
    d = judged(one, epochs=[], beats=[], machines=[], observed=observed)
    assert list(ended(d).values()) == (["create_uncertain"] if given_up else [])
    assert bars(d) == ([(A.offer.key, "other")] if given_up else [])
    if given_up:
        landed = judged(one, epochs=[], beats=[], machines=[machine(one)], observed=observed)
        assert not landed.actions, "it is there"


# ---------------------------------------------------------------- not what was chosen


def costing(usd: float, *, of: Lease = PENDING, cap: float | None = None, epochs: Any = ()) -> Draft:
    priced = replace(of, prices=(PricePoint(from_s=0.0, usd_per_hour=usd),))
    job = spec(constraints=Constraints(max_usd_per_hour=cap))
    return judged(priced, job=job, epochs=list(epochs), beats=[])


@pytest.mark.parametrize("phase", [LeasePhase.PENDING, LeasePhase.READY, LeasePhase.SUSPECT])
def test_dearer_than_it_was_quoted(phase: LeasePhase) -> None:
    of = replace(PENDING, phase=phase)
    d = costing(1.11, of=of)
    assert list(ended(d).values()) == ["over_cap"]
    assert bars(d) == [(A.offer.key, "over_cap")]
    assert not ended(costing(1.0 + leases.PRICE_TOLERANCE, of=of))
    assert not ended(costing(1.0, of=of, cap=1.0))
    assert list(ended(costing(1.0, of=of, cap=0.99)).values()) == ["over_cap"]
    assert not ended(costing(5.0, of=of, epochs=[epoch(1, A)])), "it works: later prices are the market's"
    unquoted = replace(of, offer=replace(OFFERS[0], usd_per_hour=None))
    assert not ended(costing(5.0, of=unquoted))
    assert list(ended(costing(5.0, of=unquoted, cap=4.0)).values()) == ["over_cap"]


def test_a_price_that_came_later_is_the_markets() -> None:
    moved = (PricePoint(from_s=0.0, usd_per_hour=1.0), PricePoint(from_s=1.0, usd_per_hour=9.0))
    assert not codes(replace(PENDING, prices=moved), epochs=[], beats=[])
    assert not codes(replace(PENDING, prices=()), epochs=[], beats=[])


def test_beside_a_gang_that_works() -> None:
    dear = replace(B, prices=(PricePoint(from_s=0.0, usd_per_hour=9.0),))
    assert ended(judged(A, dear, epochs=[epoch(1, A)])) == {B.lease_id: "over_cap"}


# ---------------------------------------------------------------- cannot work


def test_a_machine_that_cannot_work_is_replaced() -> None:
    for message, code in (
        (None, "broken"),
        ("no disk", "broken"),
        (f"{BAD_HARDWARE}no GPU", "bad_hardware"),
        (f"no {BAD_HARDWARE}", "broken"),
    ):
        d = judged(A, beats=[beat(A, AgentPhase.BROKEN, message=message)])
        assert list(ended(d).values()) == [code]
        assert bars(d) == [(A.offer.key, code)]
        (asked,) = actions(d, act.EndLease)
        assert asked.why == (message or "it cannot do its work")
    assert not codes(A, beats=[beat(A, AgentPhase.EXITED)])


def test_a_bad_checkpoint_or_a_failed_set_up_is_not_its_fault() -> None:
    broken = beat(A, AgentPhase.BROKEN, message="cannot restore ckpt/m-7")
    for rejected, fault in ((frozenset({"ckpt/m-7"}), False), (frozenset({"ckpt/m-8"}), True)):
        assert codes(A, beats=[broken], state={"rejected": rejected}) == ["broken"] * fault
    end = failure(A, in_setup=True)
    for told, fault in (
        (end, False),
        (replace(end, in_setup=False), True),
        (replace(end, lease_id=B.lease_id), True),
    ):
        assert codes(A, beats=[broken], observed={"ends": (told,)}) == ["broken"] * fault


# ---------------------------------------------------------------- stands still, or is lost


@pytest.mark.parametrize(
    ("phase", "shown", "gone"),
    [
        (LeasePhase.PENDING, MachineState.STOPPING, True),
        (LeasePhase.SUSPECT, MachineState.STOPPING, True),
        (LeasePhase.READY, MachineState.STOPPING, False),
        (LeasePhase.SUSPECT, MachineState.RUNNING, False),
        (LeasePhase.SUSPECT, None, False),
    ],
)
def test_kept_by_its_cloud_and_not_running(phase: LeasePhase, shown: Any, gone: bool) -> None:
    one = replace(PENDING, phase=phase)
    machines = [] if shown is None else [machine(one, state=shown)]
    assert codes(one, epochs=[], beats=[], machines=machines) == ["stopped"] * gone


@pytest.mark.parametrize(
    ("phase", "since_s", "unlisted_s", "observed", "lost"),
    [
        (LeasePhase.SUSPECT, TIMING.lost_s, TIMING.lost_s, {}, True),
        (LeasePhase.SUSPECT, TIMING.lost_s - 0.1, TIMING.lost_s, {}, False),
        (LeasePhase.SUSPECT, TIMING.lost_s, TIMING.lost_s - 0.1, {}, False),
        (LeasePhase.READY, 1e4, 1e4, {}, False),
        (LeasePhase.SUSPECT, 1e4, 1e4, {"mailbox_ok": False}, False),
        (LeasePhase.SUSPECT, 1e4, 1e4, {"listed": frozenset({"aws"})}, False),
        (LeasePhase.SUSPECT, 1e4, 1e4, {"unlisted_s": {}}, False),
    ],
)
def test_silent_and_its_cloud_too(
    phase: LeasePhase, since_s: float, unlisted_s: float, observed: dict[str, Any], lost: bool
) -> None:
    one = replace(A, phase=phase, since_s=NOW_S - since_s)
    seen = {"listed": frozenset(), "unlisted_s": {"aws": unlisted_s}, **observed}
    assert codes(one, machines=[], observed=seen) == ["lost"] * lost


def test_one_cause_is_enough() -> None:
    """Ended once in a pass, for the first cause that holds."""
    dear = replace(PENDING, since_s=0.0, prices=(PricePoint(from_s=0.0, usd_per_hour=9.0),))
    stopping = [machine(A, state=MachineState.STOPPING)]
    suspect = replace(A, phase=LeasePhase.SUSPECT)
    broken = [beat(suspect, AgentPhase.BROKEN)]
    for d, code in (
        (judged(dear, epochs=[], beats=[], machines=stopping), "over_cap"),
        (judged(replace(dear, prices=()), epochs=[], beats=[], machines=stopping), "stopped"),
        (judged(suspect, beats=broken, machines=stopping), "broken"),
    ):
        assert [a.code for a in actions(d, act.EndLease)] == [code]


# ---------------------------------------------------------------- with notice


def doomed(acts_in_s: float | None, *, since_s: float = 10.0, **more: Any) -> Lease:
    acts_at_s = None if acts_in_s is None else NOW_S + acts_in_s
    return replace(A, phase=LeasePhase.DOOMED, since_s=NOW_S - since_s, notice_acts_at_s=acts_at_s, **more)


def test_one_with_notice_is_ended_once_it_has_handed_over() -> None:
    one = doomed(60.0)
    assert not codes(one), "it works still"
    for said in ([beat(one, AgentPhase.DRAINED, drained_epoch=1)], [beat(one, AgentPhase.BROKEN)]):
        assert codes(one, beats=said) == ["noticed"]
    assert codes(one, epochs=[]) == ["noticed"], "a member of nothing"


@pytest.mark.parametrize(
    ("acts_in_s", "since_s", "over"),
    [
        (-TIMING.drain_timeout_s, 100.0, False),
        (-TIMING.drain_timeout_s - 0.1, 100.0, True),
        (-1e4, TIMING.drain_timeout_s, False),  # its clock may differ: since the notice came, too
        (-1e4, TIMING.drain_timeout_s + 0.1, True),
        (None, TIMING.drain_timeout_s, False),
        (None, TIMING.drain_timeout_s + 0.1, True),
    ],
)
def test_one_whose_cloud_does_not_act_is_not_waited_for(
    acts_in_s: float | None, since_s: float, over: bool
) -> None:
    assert codes(doomed(acts_in_s, since_s=since_s)) == ["noticed"] * over


FREE = Billing(first_hour_interruption_free=True)
HANDED_OVER = AgentPhase.DRAINED


@pytest.mark.parametrize(
    ("changes", "acts_in_s", "left"),
    [
        ({}, 60.0, True),
        ({}, -leases.TAKES_S, True),
        ({}, -leases.TAKES_S - 0.1, False),  # it has not kept its word
        ({"billing": Billing()}, 60.0, False),
        ({"launched_s": None}, 60.0, False),
        ({"offer": replace(OFFERS[0], market=Market.ON_DEMAND)}, 60.0, False),
        ({"launched_s": CLOCK.market_s(NOW_S + 120.0) - 3600.0}, 60.0, False),
        ({"launched_s": CLOCK.market_s(NOW_S + 120.0) - 3599.9}, 60.0, True),
    ],
)
def test_what_its_cloud_takes_for_nothing_is_left_to_it(
    changes: dict[str, Any], acts_in_s: float, left: bool
) -> None:
    young: dict[str, Any] = {"billing": FREE, "launched_s": CLOCK.market_s(NOW_S - 100.0), **changes}
    one = doomed(acts_in_s, **young)
    assert codes(one, beats=[beat(one, HANDED_OVER, drained_epoch=1)]) == ["noticed"] * (not left)


def test_but_not_while_it_works_for_ever() -> None:
    one = doomed(60.0, billing=FREE, launched_s=CLOCK.market_s(NOW_S - 100.0))
    assert not codes(one)
    young = CLOCK.market_s(NOW_S - 100.0)
    late = doomed(-TIMING.drain_timeout_s - 1.0, since_s=100.0, billing=FREE, launched_s=young)
    assert TIMING.drain_timeout_s + 1.0 < leases.TAKES_S, "its cloud might still keep its word"
    unknown = doomed(None, billing=FREE, launched_s=young)
    assert codes(unknown, beats=[beat(unknown, HANDED_OVER, drained_epoch=1)]) == ["noticed"]
    assert codes(late) == ["noticed"]


# ---------------------------------------------------------------- seeing to it


def test_an_end_is_asked_for_again_by_its_first_code() -> None:
    one = replace(A, phase=LeasePhase.ENDING, ending_code="surplus")
    d = draft(one)
    leases.finish_ending(d)
    (again,) = actions(d, act.EndLease)
    assert (again.code, again.machine) == ("surplus", machine(one))
    leases.finish_ending(d)
    assert len(actions(d, act.EndLease)) == 1, "once in a pass"
    d = draft(replace(one, ending_code=None), machines=[])
    leases.finish_ending(d)
    (again,) = actions(d, act.EndLease)
    assert again.code == "ending"
    assert again.machine is not None
    assert again.machine.state is MachineState.PENDING, "not shown: by what is known of it"
    nothing = replace(one, instance_id=None)
    d = draft(nothing, B, machines=[])
    leases.finish_ending(d)
    assert not actions(d, act.EndLease), "it never came"
    d = draft(nothing, machines=[machine(nothing)])
    leases.finish_ending(d)
    assert len(actions(d, act.EndLease)) == 1, "it came after all"
    d = draft(A)
    leases.finish_ending(d)
    assert not d.actions


def swept(d: Draft) -> list[str]:
    leases.sweep(d)
    return [a.machine.instance_id for a in actions(d, act.SweepMachine)]


def test_what_stands_for_nothing_is_swept() -> None:
    shown = machine(A)
    closed = replace(A, phase=LeasePhase.RELEASED)
    assert swept(draft(A, machines=[shown])) == []
    assert swept(draft(closed, epochs=[], machines=[shown])) == [shown.instance_id]
    assert swept(draft(A, machines=[replace(shown, lease_id="x")])) == [shown.instance_id]
    assert swept(draft(A, machines=[replace(shown, instance_id="i-9")])) == ["i-9"]
    unknown = replace(A, instance_id=None)
    assert swept(draft(unknown, machines=[replace(shown, instance_id="i-9")])) == []
    for other in ({"state": MachineState.GONE}, {"journal_id": "x"}, {"job_id": "x"}):
        assert swept(draft(closed, epochs=[], machines=[replace(shown, **other)])) == [], other
    two = [replace(shown, job_id="x"), replace(shown, journal_id="x"), replace(shown, instance_id="i-8")]
    assert swept(draft(closed, epochs=[], machines=two)) == ["i-8"], "and the others are looked at"
