"""When a running job moves, and how: each step alone, at its bounds."""

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
    elastic,
    ended,
    epoch,
    events,
    lease,
    saved,
)

from arylcloud.core import events as ev
from arylcloud.core.job import Constraints, InlineRate, MigrateSpec, ProfileRef, Work
from arylcloud.core.offer import Market
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.ports import PricePoint
from arylcloud.core.protocol import AgentPhase
from arylcloud.launcher import actions as act
from arylcloud.launcher.actions import MoveAdvice
from arylcloud.launcher.reconcile import migration
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.state import Lease

A, B = lease(0), lease(1)
HERE, NEXT, WEST, EU = OFFERS
EVERY_S = 2000.0
"""Market seconds: half of that on the wall."""
ADVICE = MoveAdvice(to=WEST, saving_usd=9.0, move_usd=1.0, why="cheaper")
GONE: dict[str, Any] = {"phase": LeasePhase.RELEASED, "ended_at_s": NOW_S, "cause": "interrupted"}


def bar(scope: str, ends_in_s: float = 1.0) -> ev.OfferBarred:
    until_s = CLOCK.market_s(NOW_S) + ends_in_s
    return ev.OfferBarred(scope=scope, until_s=until_s, code="capacity", why="it is full")


def step(*of: Lease, job: Any = None, advice: Any = ADVICE, sizes: Any = None, **more: Any) -> Draft:
    spec_ = job or spec(max(1, len(of)))
    spec_ = replace(spec_, migrate=replace(spec_.migrate, at_most_every_s=EVERY_S))
    d = draft(*of, job=spec_, desired={"move": advice, "sizes": sizes or {}}, **more)
    migration.step(d)
    return d


def started(d: Draft) -> bool:
    found = events(d, ev.MigrationStarted)
    asked = actions(d, act.CreateLease)
    assert bool(found) is bool(asked)
    assert all(x.purpose == "migrate" for x in asked)
    return bool(found)


# ---------------------------------------------------------------- on advice


def test_on_advice() -> None:
    d = step(A, B)
    (found,) = events(d, ev.MigrationStarted)
    assert (found.to, found.from_offer, found.why) == (WEST, HERE.key, "cheaper")
    assert (found.expected_saving_usd, found.move_usd) == (9.0, 1.0)
    assert (found.forced, found.nodes) == (False, None)
    assert [(x.index, x.offer) for x in actions(d, act.CreateLease)] == [(0, WEST), (1, WEST)]
    assert not started(step(A, advice=None))


@pytest.mark.parametrize(
    ("more", "moves"),
    [
        ({"job": spec(1, migrate=MigrateSpec(auto=False))}, False),
        ({"job": spec(1, recovery="none")}, False),
        ({"advice": replace(ADVICE, to=HERE)}, False),
        ({"state": {"bars": (bar(WEST.key),)}}, False),
        ({"state": {"bars": (bar(WEST.key, 0.0),)}}, True),
        ({"state": {"bars": (bar(NEXT.key),)}}, True),
        ({"state": {"migration_at_s": NOW_S - EVERY_S / 2}}, True),
        ({"state": {"migration_at_s": NOW_S - EVERY_S / 2 + 0.1}}, False),
        (
            {"state": {"migration_at_s": NOW_S - 1.0}, "advice": replace(ADVICE, urgent=True)},
            True,
        ),
        ({"observed": {"mailbox_ok": False}}, False),
        ({"epochs": []}, False),
        ({"epochs": [epoch(1, A), epoch(2)]}, False),
    ],
)
def test_when_it_may(more: dict[str, Any], moves: bool) -> None:
    assert started(step(A, **more)) is moves


def test_what_has_to_begin_again_does_not_begin_to_move() -> None:
    damaged = [epoch(1, A, resume_from="x")]
    broken = [beat(A, AgentPhase.BROKEN)]
    assert started(step(A, epochs=damaged, beats=broken))
    assert not started(step(A, epochs=damaged, beats=broken, state={"rejected": frozenset({"x"})}))


@pytest.mark.parametrize("phase", [LeasePhase.SUSPECT, LeasePhase.DOOMED, LeasePhase.ENDING])
def test_only_a_gang_that_is_well(phase: LeasePhase) -> None:
    assert not started(step(A, replace(B, phase=phase)))


def test_how_many_there() -> None:
    def nodes(job: Any, advice: Any, **more: Any) -> tuple[int, int | None]:
        d = step(A, B, job=job, advice=advice, **more)
        (found,) = events(d, ev.MigrationStarted)
        return len(actions(d, act.CreateLease)), found.nodes

    job = elastic(2, 4)
    two = {"state": {"size": 2}}
    assert nodes(job, replace(ADVICE, nodes=3), **two) == (3, 3)
    assert nodes(job, replace(ADVICE, nodes=1), **two) == (2, 2)
    assert nodes(job, replace(ADVICE, nodes=9), **two) == (4, 4)
    assert nodes(job, ADVICE, **two) == (2, 2)
    pinned = {"state": {"size": 2, "size_pinned": True}}
    assert nodes(job, replace(ADVICE, nodes=3), **pinned) == (2, 2)
    assert nodes(spec(2), replace(ADVICE, nodes=3)) == (2, None)
    request = {"state": {"size": 2, "migrate_request": ask(to=EU.key)}, "sizes": {EU.key: 3, WEST.key: 4}}
    assert nodes(job, ADVICE, **request) == (3, 3)


# ---------------------------------------------------------------- on request


def ask(**args: Any) -> ev.RequestSeen:
    return ev.RequestSeen(number=3, verb="migrate", args=args, by="user@host")


def answer(to: str | None, **more: Any) -> tuple[str | None, str]:
    """Offer that it moves to, and the text of a refusal."""
    args = {} if to is None else {"to": to}
    state = {"migrate_request": ask(**args), "migration_at_s": NOW_S - 1.0, **more.pop("state", {})}
    d = step(A, state=state, **more)
    found, no = events(d, ev.MigrationStarted), events(d, ev.MigrationEnded)
    assert len(found) + len(no) == 1
    assert d.state.migrate_request is None
    assert len(actions(d, act.CreateLease)) == len(found)
    if found:
        assert found[0].forced
        assert found[0].why == "asked for by user@host"
        return found[0].to.key, ""
    assert not no[0].done
    return None, no[0].text


def test_a_user_names_where() -> None:
    assert answer(WEST.key) == (WEST.key, "")
    assert answer("aws/us-west-2") == (WEST.key, "")
    assert answer("aws/us-east-1") == (None, "it is there already")
    assert answer(HERE.key) == (None, "it is there already")
    assert answer("gcp") == (None, "gcp is no offer that this job accepts")
    assert answer(EU.key, advice=None) == (EU.key, "")
    assert answer(WEST.key, job=spec(1, migrate=MigrateSpec(auto=False))) == (WEST.key, ""), (
        "whatever the rule"
    )
    assert answer(WEST.key, state={"bars": (bar(WEST.key),)}) == (None, f"{WEST.key} is barred: it is full")
    assert answer(WEST.key, state={"bars": (bar(WEST.key, 0.0),)}) == (WEST.key, "")


def test_of_several_the_first_that_may_be_tried() -> None:
    west = replace(WEST, zone="us-west-2-b")
    desired = (HERE, WEST, west)
    d = draft(
        A,
        state={"migrate_request": ask(to="aws/us-west-2"), "bars": (bar(WEST.key),)},
        desired={"ranking": desired},
    )
    migration.step(d)
    (found,) = events(d, ev.MigrationStarted)
    assert found.to == west


def test_without_a_name_it_is_the_planners() -> None:
    assert answer(None) == (WEST.key, "")
    found, text = answer(None, advice=None)
    assert found is None
    assert text.startswith(f"no market is better than {HERE.key}")


def test_what_the_planner_expects_is_said_only_of_its_own_choice() -> None:
    for to, saving in ((WEST.key, 9.0), (EU.key, None)):
        d = step(A, state={"migrate_request": ask(to=to)})
        (found,) = events(d, ev.MigrationStarted)
        assert (found.expected_saving_usd, found.move_usd) == (saving, None if saving is None else 1.0)


# ---------------------------------------------------------------- going on


MOVE = ev.MigrationStarted(
    to=WEST, from_offer=HERE.key, expected_saving_usd=9.0, move_usd=1.0, forced=False, why="cheaper"
)
BEGUN_S = NOW_S - 100.0
TARGET = replace(
    lease(0, 8),
    offer=WEST,
    purpose="migrate",
    intended_at_s=BEGUN_S,
    since_s=NOW_S - 10.0,
    launched_s=CLOCK.market_s(NOW_S - 90.0),
    prices=(PricePoint(from_s=0.0, usd_per_hour=2.0),),
)
READY = beat(TARGET, AgentPhase.READY, 0, prefetched="m")
DRAINED = beat(A, AgentPhase.DRAINED, 2, drained_epoch=2)
DRAINING = [epoch(1, A), epoch(2, opened_at_s=NOW_S - 5.0)]


def moving(
    old: Lease = A,
    target: Lease = TARGET,
    said: Any = None,
    epochs: Any = None,
    job: Any = None,
    **state: Any,
) -> Draft:
    return step(
        *(old, target),
        job=job or spec(1),
        advice=None,
        epochs=[epoch(1, old)] if epochs is None else epochs,
        beats=[beat(old), READY] if said is None else said,
        state={
            "migration": MOVE,
            "migration_at_s": BEGUN_S,
            "checkpoints": (saved("m"),),
            **state,
        },
    )


def over(d: Draft) -> ev.MigrationEnded | None:
    found = events(d, ev.MigrationEnded)
    assert len(found) <= 1
    return found[0] if found else None


def test_the_old_drains_once_the_new_is_ready_and_has_the_checkpoint() -> None:
    d = moving()
    (drain,) = actions(d, act.OpenEpoch)
    assert (drain.members, drain.reason) == ((), f"moving to {WEST.key}")
    assert not ended(d)
    assert over(d) is None
    for said in (
        [beat(A), beat(TARGET, AgentPhase.SETUP, 0, prefetched="m")],
        [beat(A), beat(TARGET, AgentPhase.READY, 0)],
        [beat(A)],
    ):
        assert not moving(said=said).actions
    done = ev.CommandEnded(epoch=1, rank=0, exit_code=0, in_setup=False, tail="")
    assert not moving(commands_ended=(done,)).actions, "about to finish"
    assert moving(commands_ended=(replace(done, epoch=0),)).actions


def test_then_it_goes_on_there_and_the_old_is_ended() -> None:
    d = moving(said=[DRAINED, READY], epochs=DRAINING)
    (opened,) = actions(d, act.OpenEpoch)
    assert [m.lease_id for m in opened.members] == [TARGET.lease_id]
    assert (opened.reason, opened.resume_from) == (f"moved to {WEST.key}", "m")
    assert ended(d) == {A.lease_id: "migrated"}
    found = over(d)
    assert found is not None
    assert (found.done, found.text) == (True, f"{HERE.key} → {WEST.key}")
    assert (found.expected_saving_usd, found.took_s) == (9.0, 100.0)
    assert found.took_usd == pytest.approx(2.0 * 180.0 / 3600.0), "ninety seconds are three minutes there"
    assert d.state.migrations_done == 1
    fresh = [DRAINED, beat(TARGET, AgentPhase.READY, 0)]
    assert over(moving(said=fresh, epochs=DRAINING)) is not None, "it is drained: no waiting for the disk"
    assert not moving(said=[beat(A, AgentPhase.SAVING, 2), READY], epochs=DRAINING).actions


@pytest.mark.parametrize("changes", [{"prices": ()}, {"launched_s": None}])
def test_what_is_not_known_is_not_invented(changes: dict[str, Any]) -> None:
    found = over(moving(target=replace(TARGET, **changes), said=[DRAINED, READY], epochs=DRAINING))
    assert found is not None
    assert found.took_usd is None


def test_a_machine_launched_by_a_clock_ahead_costs_nothing_yet() -> None:
    ahead = replace(TARGET, launched_s=CLOCK.market_s(NOW_S + 50.0))
    found = over(moving(target=ahead, said=[DRAINED, READY], epochs=DRAINING))
    assert found is not None
    assert found.took_usd == 0.0


def test_where_the_new_is_not_to_be_had_it_goes_on_here() -> None:
    lost = replace(TARGET, phase=LeasePhase.REFUSED, cause="capacity")
    d = moving(target=lost)
    found = over(d)
    assert found is not None
    assert not found.done
    assert found.text == f"the new machine is not to be had: {lost.lease_id} refused (capacity)"
    assert not ended(d)
    for changes, word in (
        ({"cause": None, "ending_code": "boot_timeout"}, "boot_timeout"),
        ({"cause": None}, "no answer"),
    ):
        found = over(moving(target=replace(lost, **changes)))
        assert found is not None
        assert found.text.endswith(f"({word})")
    two = replace(MOVE, nodes=2)
    found = over(moving(migration=two))
    assert found is not None, "one of two"
    assert not found.done
    assert over(moving(job=elastic(1, 3), migration=replace(MOVE, nodes=1))) is None


def test_all_of_the_new_have_the_checkpoint_first() -> None:
    more = replace(TARGET, lease_id="more", index=1, attempt=9, address="10.9.9.9")

    def goes_on(has: str | None) -> bool:
        d = step(
            *(A, B, TARGET, more),
            job=spec(2),
            advice=None,
            epochs=[epoch(1, A, B)],
            beats=[beat(A), beat(B), READY, beat(more, AgentPhase.READY, 0, prefetched=has)],
            state={"migration": MOVE, "migration_at_s": BEGUN_S, "checkpoints": (saved("m"),)},
        )
        return bool(d.actions)

    assert goes_on("m")
    assert not goes_on(None)


def test_it_names_the_machines_of_this_move_alone() -> None:
    lost = replace(TARGET, phase=LeasePhase.REFUSED, cause="capacity")
    before = replace(lost, lease_id="earlier", attempt=5, intended_at_s=BEGUN_S - 1.0)
    beside = replace(lost, lease_id="beside", attempt=9, purpose="replace")
    d = step(
        *(A, before, beside, lost),
        job=spec(1),
        advice=None,
        epochs=[epoch(1, A)],
        beats=[beat(A)],
        state={"migration": MOVE, "migration_at_s": BEGUN_S},
    )
    found = over(d)
    assert found is not None
    assert found.text == f"the new machine is not to be had: {lost.lease_id} refused (capacity)"


def test_a_gang_that_begins_again_where_it_is_moves_later() -> None:
    """It cannot restore what it was given: first it goes on, with the checkpoint before."""
    damaged = [epoch(1, A, resume_from="x")]
    d = moving(said=[beat(A, AgentPhase.BROKEN), READY], epochs=damaged, rejected=frozenset({"x"}))
    assert not d.actions


def test_one_that_falls_silent_while_all_drain_holds_up_no_move() -> None:
    silent = replace(B, phase=LeasePhase.SUSPECT)
    more = replace(TARGET, lease_id="more", index=1, attempt=9, address="10.9.9.9")
    d = step(
        *(A, silent, TARGET, more),
        job=elastic(1),
        advice=None,
        epochs=[epoch(1, A, silent), epoch(2, opened_at_s=NOW_S - 5.0)],
        beats=[DRAINED, beat(silent, AgentPhase.SAVING, 2), READY, beat(more, AgentPhase.READY, 0)],
        state={"migration": replace(MOVE, nodes=2), "migration_at_s": BEGUN_S, "size": 2},
    )
    found = over(d)
    assert found is not None
    assert found.done
    assert found.text == f"{HERE.key} → {WEST.key}"
    assert ended(d) == {A.lease_id: "migrated", silent.lease_id: "migrated"}


def test_what_the_old_loses_meanwhile() -> None:
    for phase in (LeasePhase.DOOMED, LeasePhase.ENDING, LeasePhase.RELEASED):
        found = over(moving(old=replace(A, phase=phase, ended_at_s=NOW_S)))
        assert found is not None, phase
        assert found.done
        assert found.text == "the old machine is lost or has notice; the new one takes over"
    assert over(moving(old=replace(A, phase=LeasePhase.SUSPECT))) is None


def test_an_elastic_gang_that_goes_on_with_fewer_moves_later() -> None:
    """Two, of which one is lost: the other goes on, and the move with it."""
    gone = replace(B, **GONE)
    more = replace(lease(1, 9), offer=WEST, purpose="migrate", intended_at_s=BEGUN_S)

    def after(job: Any) -> ev.MigrationEnded | None:
        d = step(
            *(A, gone, TARGET, more),
            job=job,
            advice=None,
            epochs=[epoch(1, A, gone)],
            beats=[beat(A), READY],
            state={"migration": replace(MOVE, nodes=2), "migration_at_s": BEGUN_S, "size": 2},
        )
        return over(d)

    assert after(elastic(1)) is None
    found = after(elastic(2))
    assert found is not None
    assert found.done


def test_nothing_of_a_move_without_a_mailbox() -> None:
    d = draft(
        *(A, TARGET),
        job=spec(1),
        epochs=DRAINING,
        beats=[DRAINED, READY],
        state={"migration": MOVE, "migration_at_s": BEGUN_S},
        observed={"mailbox_ok": False},
    )
    migration.step(d)
    assert not d.actions


def test_what_has_been_ended_is_not_ended_again() -> None:
    ending = replace(A, phase=LeasePhase.ENDING, ending_code="noticed")
    d = moving(old=ending, said=[READY], epochs=DRAINING)
    assert not ended(d)


def test_a_drain_that_is_not_answered_is_not_waited_for_for_ever() -> None:
    for ago_s, goes_on in ((TIMING.drain_timeout_s, False), (TIMING.drain_timeout_s + 0.1, True)):
        old = [epoch(1, A), epoch(2, opened_at_s=NOW_S - ago_s)]
        d = moving(said=[beat(A, AgentPhase.SAVING, 2), READY], epochs=old)
        assert (over(d) is not None) is goes_on


def test_what_it_is_called() -> None:
    d = moving()
    assert migration.phase(d) == (JobPhase.MIGRATING, "migrate", f"{HERE.key} → {WEST.key}: cheaper")
    assert migration.phase(draft(A)) is None


# ---------------------------------------------------------------- how many are enough


RATES = ProfileRef(rates=(InlineRate(gpu="V100", count=1, rate=1.0),), unit="steps/s")
BY_POLICY = elastic(
    2, 4, constraints=Constraints(deadline_s=9000.0), profile=RATES, work=Work(amount=9.0, unit="steps")
)
"""Where a policy keeps the deadline."""
DEAR = replace(WEST, market=Market.ON_DEMAND)


def goes_on(old: list[Lease], new: int, job: Any = BY_POLICY, **more: Any) -> bool:
    """Of a move that wants four: does it go on with ``new`` machines there?"""
    there = [
        replace(TARGET, lease_id=f"new-{n}", index=n, attempt=20 + n, offer=more.get("to", WEST))
        for n in range(new)
    ]
    move = replace(MOVE, nodes=4, forced=more.get("forced", False))
    d = step(
        *(*old, *there),
        job=job,
        advice=None,
        epochs=[epoch(1, *old)],
        beats=[beat(one) for one in old],
        state={"migration": move, "migration_at_s": BEGUN_S, "size": 4, **more.get("state", {})},
    )
    found = over(d)
    assert found is None or found.text.startswith("the new machine is not to be had")
    return found is None


def gang(count: int, **changes: Any) -> list[Lease]:
    return [lease(n, **changes) for n in range(count)]


@pytest.mark.parametrize(
    ("old", "least"),
    [
        (gang(4), 4),
        (gang(3), 3),
        (gang(2), 2),
        (gang(1), 2),
        ([*gang(3), lease(3, phase=LeasePhase.DOOMED)], 3),
        (gang(4, offer=DEAR), 2),
        ([*gang(3), lease(3, offer=DEAR)], 2),
        (gang(5), 4),
    ],
    ids=["4", "3", "2", "1 of 2 at least", "4, of which one goes", "on demand", "one on demand", "5"],
)
def test_by_a_policy_on_spot_as_many_as_are_at_work(old: list[Lease], least: int) -> None:
    assert [goes_on(old, new) for new in range(1, 5)] == [new >= least for new in range(1, 5)]


@pytest.mark.parametrize(
    "more",
    [
        {"to": DEAR},
        {"forced": True},
        {"state": {"size_pinned": True}},
        {"job": elastic(2, 4)},
        {"state": {"queued": True}},
    ],
    ids=["to on demand", "asked for", "a size asked for", "by no policy", "of a queue"],
)
def test_else_all_that_it_wants(more: dict[str, Any]) -> None:
    for old in (gang(2), gang(2, offer=DEAR)):
        assert not goes_on(old, 3, **more)
        assert goes_on(old, 4, **more)


def test_one_of_them_on_demand_is_a_move_to_on_demand() -> None:
    """(Places of one offer: a mixture is of two moves, and the dearer rule holds.)"""
    mixed = [
        replace(TARGET, lease_id=f"new-{n}", index=n, attempt=20 + n, offer=DEAR if n else WEST)
        for n in range(3)
    ]
    d = step(
        *(*gang(2), *mixed),
        job=BY_POLICY,
        advice=None,
        epochs=[epoch(1, *gang(2))],
        beats=[beat(one) for one in gang(2)],
        state={"migration": replace(MOVE, nodes=4), "migration_at_s": BEGUN_S, "size": 4},
    )
    assert over(d) is not None
