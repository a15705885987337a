"""Who fills a slot, and what is known of one lease: its machine, its silence, whether it has handed over."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from support.harness import OFFERS, TIMING, spec
from support.situation import (
    NOW_S,
    beat,
    draft,
    elastic,
    epoch,
    lease,
    machine,
    saved,
)

from arylcloud.core import events as ev
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.ports import MachineState
from arylcloud.core.protocol import AgentPhase
from arylcloud.launcher import actions as act
from arylcloud.launcher.state import Lease

A, B, C = lease(0), lease(1), lease(2)
INTENDED, PENDING, ENDING = LeasePhase.INTENDED, LeasePhase.PENDING, LeasePhase.ENDING


def ids(leases: Any) -> list[str]:
    return [x.lease_id for x in leases]


# ---------------------------------------------------------------- who fills a slot


def held(*of: Lease, **more: Any) -> dict[int, str]:
    return {index: x.lease_id for index, x in draft(*of, **more).holders().items()}


def test_a_slot_is_filled_by_whoever_is_neither_out_nor_on_its_way_out() -> None:
    for phase in LeasePhase:
        filled = phase in (INTENDED, PENDING, LeasePhase.READY, LeasePhase.SUSPECT)
        one = replace(A, phase=phase)
        assert held(one, epochs=[]) == ({0: A.lease_id} if filled else {}), phase


def test_of_two_in_a_slot_the_member_else_the_newest() -> None:
    newer = lease(0, 7)
    assert held(A, newer, job=spec(1), epochs=[epoch(1, A)]) == {0: A.lease_id}
    assert held(newer, A, job=spec(1), epochs=[epoch(1, A)]) == {0: A.lease_id}
    assert held(A, newer, job=spec(1), epochs=[]) == {0: newer.lease_id}
    assert held(newer, A, job=spec(1), epochs=[]) == {0: newer.lease_id}
    assert held(A, newer, job=spec(1), epochs=[epoch(1, A, newer)]) == {0: newer.lease_id}


def test_of_two_offers_the_one_that_fills_most_then_the_members_then_the_newest() -> None:
    there = replace(lease(0, 8), offer=OFFERS[2])
    assert held(A, B, there, job=spec(2), epochs=[]) == {0: A.lease_id, 1: B.lease_id}
    assert held(A, there, job=spec(2), epochs=[]) == {0: there.lease_id}
    assert held(A, there, job=spec(2), epochs=[epoch(1, A)]) == {0: A.lease_id}
    four = [lease(0, 1), lease(1, 9), *(replace(x, offer=OFFERS[2]) for x in (lease(0, 5), lease(1, 6)))]
    assert set(held(*four, job=spec(2), epochs=[]).values()) == {x.lease_id for x in four[:2]}, (
        "the newest of all"
    )
    more = [replace(x, offer=OFFERS[2]) for x in (lease(0, 8), lease(1, 9), lease(2, 10))]
    assert held(A, B, *more, job=spec(2), epochs=[epoch(1, A, B)]) == {0: A.lease_id, 1: B.lease_id}, (
        "three fill no more than the two that are wanted"
    )


def test_of_more_than_are_wanted_members_by_rank_then_who_is_nearest() -> None:
    two = {"size": 2}
    assert held(A, B, C, job=elastic(), epochs=[epoch(1, C, B, A)], state=two) == {
        1: B.lease_id,
        2: C.lease_id,
    }
    near = [replace(A, phase=INTENDED), replace(B, phase=LeasePhase.SUSPECT), C]
    assert held(*near, job=elastic(), epochs=[], state=two) == {1: B.lease_id, 2: C.lease_id}
    near[0] = replace(A, phase=PENDING)
    assert held(*near, job=elastic(), epochs=[], state={"size": 1}) == {2: C.lease_id}
    one: dict[str, Any] = {"job": elastic(), "epochs": [], "state": {"size": 1}}
    assert held(replace(A, phase=PENDING), replace(B, phase=LeasePhase.SUSPECT), **one) == {1: B.lease_id}
    assert held(replace(A, phase=LeasePhase.SUSPECT), B, **one) == {1: B.lease_id}
    assert held(replace(A, phase=INTENDED), replace(B, phase=PENDING), **one) == {1: B.lease_id}
    near = [replace(A, phase=INTENDED), replace(B, phase=PENDING), C]
    assert held(*near, job=elastic(), epochs=[], state=two) == {1: B.lease_id, 2: C.lease_id}
    assert held(A, B, C, job=elastic(), epochs=[], state=two) == {0: A.lease_id, 1: B.lease_id}
    assert held(A, B, C, job=elastic(), epochs=[epoch(1, B)], state={"size": 1}) == {1: B.lease_id}


MOVE = ev.MigrationStarted(
    to=OFFERS[2], from_offer="x", expected_saving_usd=None, move_usd=None, forced=False, why=""
)


def test_machines_of_a_move_are_set_aside_while_it_lasts() -> None:
    target = replace(lease(0, 8), offer=OFFERS[2], purpose="migrate", intended_at_s=NOW_S)
    moving = {"migration": MOVE, "migration_at_s": NOW_S}
    assert held(A, target, job=spec(1), epochs=[], state=moving) == {0: A.lease_id}
    assert held(A, target, job=spec(1), epochs=[]) == {0: target.lease_id}
    for other in ({"purpose": "start"}, {"intended_at_s": NOW_S - 1.0}):
        of = replace(target, **other)
        assert held(A, of, job=spec(1), epochs=[], state=moving) == {0: target.lease_id}, other
        assert not draft(A, of, state=moving).targets()
    assert ids(draft(A, target, state=moving).targets()) == [target.lease_id]
    assert not draft(A, replace(target, phase=ENDING), state=moving).targets()
    for over in ({"migration_at_s": None}, {"migration": None}):
        assert not draft(A, target, state={**moving, **over}).targets(), "where it has moved to is no target"


# ---------------------------------------------------------------- what is known of one lease


def test_its_machine_is_that_of_its_instance_id_or_its_tag() -> None:
    other = machine(A, instance_id="i-9")
    assert draft(A, machines=[other, machine(A)]).machine(A) == machine(A)
    assert draft(A, machines=[other]).machine(A) is None
    unknown = replace(A, instance_id=None)
    gone = machine(A, instance_id="i-1", state=MachineState.GONE, launched_s=1.0)
    late = machine(A, instance_id="i-2", launched_s=3.0)
    early = machine(A, instance_id="i-3", launched_s=2.0)
    assert draft(unknown, machines=[gone, late, early]).machine(unknown) == early
    assert draft(unknown, machines=[gone]).machine(unknown) == gone
    assert draft(unknown, B, machines=[machine(B)]).machine(unknown) is None


def test_how_long_it_is_silent() -> None:
    since = replace(A, since_s=NOW_S - 30.0)
    for heard_s, silent_s in ((2.0, 2.0), (math.inf, 30.0 + TIMING.silent_s)):
        d = draft(since, observed={"heard_s_ago": {A.lease_id: heard_s}})
        assert d.silent_s(since) == silent_s
    assert draft(since, observed={"heard_s_ago": {}}).silent_s(since) == 30.0


def test_who_has_handed_over() -> None:
    one = epoch(2, A)

    def settled(said: Any, of: Lease = A, **more: Any) -> bool:
        return draft(of, epochs=[one], beats=said, **more).settled(of, one)

    assert not settled([])
    assert settled([], replace(A, phase=ENDING))
    assert settled([beat(A, epoch=2)], replace(A, phase=ENDING))
    assert settled([beat(A, AgentPhase.BROKEN)])
    assert not settled([beat(A, drained_epoch=1)])
    assert settled([beat(A, drained_epoch=2)])
    assert settled([beat(A, drained_epoch=3)])
    said = [beat(A, drained_epoch=2, committed="m")]
    assert not settled(said), "what it saved is not to be seen yet"
    shown = act.CheckpointSeen(key="m", epoch=2, number=1, step=1, saved_at_s=1.0, total_bytes=1)
    known = ev.CheckpointCommitted(manifest="m", epoch=2, step=1, saved_at_s=1.0, total_bytes=1)
    assert settled(said, observed={"checkpoints": (shown,)})
    assert settled(said, observed={"damaged": {"m": "bad"}})
    assert settled(said, state={"checkpoints": (known,)})
    assert settled(said, state={"rejected": frozenset({"m"})})


# ---------------------------------------------------------------- what a pass decides its later rules see


def test_an_epoch_and_a_drain() -> None:
    assert not draft(A, epochs=[]).draining
    d = draft(A, B, epochs=[epoch(1, A, B, attempt=4)], state={"checkpoints": (saved("m", step=42),)})
    d.open_epoch((), "a machine has left")
    drain = d.state.epochs[-1]
    assert d.draining
    assert (drain.number, drain.attempt, drain.resume_from, drain.resume_step) == (2, 4, None, 0)
    d.open_epoch(d.state.epochs[0].members, "ready again", 1.5)
    opened = d.state.epochs[-1]
    assert (opened.number, opened.attempt, opened.resume_from, opened.resume_step) == (3, 5, "m", 42)
    assert (opened.grace_s, opened.reason) == (1.5, "ready again")
    asked = [a for a in d.actions if isinstance(a, act.OpenEpoch)]
    assert [(a.number, a.attempt, a.resume_from, a.resume_step) for a in asked] == [
        (2, 4, None, 0),
        (3, 5, "m", 42),
    ]


def test_what_is_ended_by_what_is_known_of_it() -> None:
    d = draft(A, machines=[])
    d.end(A, "surplus", "not wanted")
    (asked,) = (a for a in d.actions if isinstance(a, act.EndLease))
    shown = asked.machine
    assert shown is not None
    assert (shown.instance_id, shown.token, shown.journal_id) == (A.instance_id, A.token, "home")
    assert (shown.state, shown.usd_per_hour, shown.address) == (MachineState.PENDING, 1.0, A.address)
    assert (shown.launched_s, shown.until_s) == (A.launched_s, A.until_s)
    assert d.state.leases[A.lease_id].phase is ENDING
    for changes in ({"instance_id": None}, {"launched_s": None}):
        d = draft(A, machines=[])
        d.end(replace(A, **changes), "surplus", "not wanted")
        (asked,) = (a for a in d.actions if isinstance(a, act.EndLease))
        assert asked.machine is None, "nothing is known of it"


def test_a_phase_is_said_when_it_changes() -> None:
    d = draft(A)
    d.phase(JobPhase.RUNNING, "running", "whatever it says")
    assert not d.actions
    d.phase(JobPhase.RECOVERING, "recovering", "one is lost")
    d.phase(JobPhase.RECOVERING, "recovering", "one is lost")
    d.phase(JobPhase.RECOVERING, "other", "one is lost")
    assert [(a.event.phase, a.event.code) for a in d.actions if isinstance(a, act.Note)] == [  # type: ignore[union-attr]
        (JobPhase.RECOVERING, "recovering"),
        (JobPhase.RECOVERING, "other"),
    ]


def test_told_once_per_topic_and_only_who_wants_to_be() -> None:
    d = draft(A)
    d.notify("x", "something")
    assert not d.actions
    d = draft(A, job=spec(1, notify="https://example.com/…"))
    for topic in ("x", "x", "y"):
        d.notify(topic, "something")
    assert [a.topic for a in d.actions if isinstance(a, act.Notify)] == ["x", "y"]
