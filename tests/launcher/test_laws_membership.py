"""Who belongs in an epoch, and when that changes: each rule of membership alone, at its very bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.harness import OFFERS, TIMING, spec
from support.situation import NOW_S, beat, draft, elastic, epoch, lease, machine, saved, training

from arylcloud.core import events as ev
from arylcloud.core.phases import LeasePhase
from arylcloud.core.protocol import AgentPhase
from arylcloud.launcher.actions import Scaling
from arylcloud.launcher.reconcile import membership
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.state import Lease

A, B, C = lease(0), lease(1), lease(2)
FREE, BUSY = AgentPhase.READY, AgentPhase.RUNNING
SUSPECT, DOOMED = LeasePhase.SUSPECT, LeasePhase.DOOMED
GONE: dict[str, Any] = {"phase": LeasePhase.RELEASED, "ended_at_s": NOW_S, "cause": "interrupted"}


def names(leases: Any) -> list[str]:
    return [x.lease_id for x in leases]


def ranks(d: Draft) -> list[str] | None:
    found = membership.next_members(d)
    if found is None:
        return None
    assert [m.rank for m in found] == list(range(len(found)))
    return names(found)


# ---------------------------------------------------------------- who is ready


@pytest.mark.parametrize(
    ("phase", "said", "able"),
    [
        (LeasePhase.READY, FREE, True),
        (LeasePhase.READY, AgentPhase.DRAINED, True),
        (LeasePhase.READY, AgentPhase.EXITED, True),
        (LeasePhase.READY, AgentPhase.BROKEN, False),
        (LeasePhase.READY, AgentPhase.SETUP, False),
        (LeasePhase.READY, BUSY, False),
        (SUSPECT, FREE, False),
        (DOOMED, FREE, False),
    ],
)
def test_who_can_join(phase: LeasePhase, said: AgentPhase, able: bool) -> None:
    one = replace(A, phase=phase)
    d = draft(one, epochs=[], beats=[beat(one, said, 0)])
    assert membership.joinable(d, one) == (A.address if able else None)
    assert ranks(d) == ([A.lease_id] if able else None)
    assert membership.joinable(draft(one, epochs=[], beats=[]), one) is None, "not heard at all"


def test_what_broke_over_a_damaged_checkpoint_can_join_again() -> None:
    broken = beat(A, AgentPhase.BROKEN, drained_epoch=1)
    for rejected, able in ((frozenset({"m"}), True), (frozenset({"other"}), False)):
        d = draft(A, epochs=[epoch(1, A, resume_from="m")], beats=[broken], state={"rejected": rejected})
        assert (membership.joinable(d, A) is not None) is able
    d = draft(A, epochs=[], beats=[broken], state={"rejected": frozenset({"m"})})
    assert membership.joinable(d, A) is None


def test_where_it_is_reached_is_known_from_its_lease_or_its_clouds_list() -> None:
    bare = replace(A, address=None)
    shown = machine(bare, address="10.9.9.9")
    d = draft(bare, epochs=[], beats=[beat(bare, FREE, 0)], machines=[shown])
    assert membership.joinable(d, bare) == "10.9.9.9"
    moved = draft(A, epochs=[], beats=[beat(A, FREE, 0)], machines=[shown])
    assert membership.joinable(moved, A) == A.address, "as it was first known"
    d = draft(bare, epochs=[], beats=[beat(bare, FREE, 0)], machines=[])
    assert membership.joinable(d, bare) is None


def test_who_has_not_handed_over_cannot_join_the_next() -> None:
    for drained, able in ((0, False), (1, True)):
        d = draft(A, epochs=[epoch(1, A), epoch(2)], beats=[beat(A, FREE, 2, drained_epoch=drained)])
        assert (membership.joinable(d, A) is not None) is able


def test_a_fixed_gang_begins_whole() -> None:
    free = [beat(x, FREE, 0) for x in (A, B)]
    assert ranks(draft(A, B, epochs=[], beats=free)) == names([A, B])
    assert ranks(draft(A, B, epochs=[], beats=free[:1])) is None
    assert ranks(draft(A, job=spec(2), epochs=[], beats=free[:1])) is None


# ---------------------------------------------------------------- beginning, with some on their way


def starting(waited_s: float, *, least: int = 1, coming: LeasePhase = LeasePhase.PENDING) -> Draft:
    """One is ready since then, another after it, a third is on its way."""
    first = lease(0, since_s=NOW_S - waited_s)
    second = lease(1, since_s=NOW_S - waited_s + 5.0)
    third = lease(2, phase=coming)
    said = [beat(first, FREE, 0), beat(second, FREE, 0)]
    return draft(first, second, third, job=elastic(least), epochs=[], beats=said)


def test_a_start_waits_for_those_that_are_coming_for_so_long_since_the_first_was_ready() -> None:
    assert ranks(starting(TIMING.gather_s - 0.1)) is None
    assert ranks(starting(TIMING.gather_s)) == names([A, B])
    assert ranks(starting(1e4, least=3)) is None, "too few"
    assert ranks(starting(0.0, least=2, coming=SUSPECT)) == names([A, B]), "nobody is coming"
    for coming in (LeasePhase.INTENDED, LeasePhase.READY):
        assert ranks(starting(0.0, coming=coming)) is None, coming


def regroup(rule: str, *, coming: bool, lost: dict[str, Any] | None = None) -> Draft:
    """Of A, B and C, C is lost; the others have handed over; perhaps another is on its way."""
    gone = replace(C, **(GONE if lost is None else lost))
    others = (lease(2, 4, phase=LeasePhase.PENDING),) if coming else ()
    said = [beat(x, AgentPhase.DRAINED, 2, drained_epoch=2) for x in (A, B)]
    return draft(
        *(A, B, gone, *others),
        job=replace(elastic(), on_node_loss=rule),  # type: ignore[arg-type]
        epochs=[epoch(1, A, B, C), epoch(2)],
        beats=said,
    )


@pytest.mark.parametrize(
    ("rule", "coming", "waits"),
    [
        ("shrink", True, False),  # READY long ago: the moment for others to come is over
        ("shrink", False, False),
        ("replace", True, True),
        ("replace", False, False),
        ("restart", True, True),
        ("restart", False, True),
    ],
)
def test_survivors_wait_as_the_rule_says(rule: str, coming: bool, waits: bool) -> None:
    d = regroup(rule, coming=coming)
    assert (ranks(d) is None) is waits
    if not waits:
        assert ranks(d) == names([A, B])


def test_one_survivor_among_those_who_stand_ready_is_enough_for_the_rule() -> None:
    """C is lost, another stands ready in its place, a fourth is on its way."""
    d = regroup("replace", coming=True)
    new = lease(2, 5)
    four = (A, B, replace(C, **GONE), new, lease(3, 6, phase=LeasePhase.PENDING))
    said = [*d.observed.beats.values(), beat(new, FREE, 0)]
    d = draft(*four, job=elastic(most=4, on_node_loss="replace"), epochs=d.state.epochs, beats=said)
    assert ranks(d) is None


def test_who_only_regroups_waits_for_nobody() -> None:
    """All its members are there: one more that is coming is no reason to stand still."""
    more = lease(2, phase=LeasePhase.PENDING)
    said = [beat(x, AgentPhase.DRAINED, 2, drained_epoch=2) for x in (A, B)]
    for rule in ("replace", "restart", "shrink"):
        d = draft(
            *(A, B, more),
            job=replace(elastic(), on_node_loss=rule),
            epochs=[epoch(1, A, B), epoch(2)],
            beats=said,
        )
        assert ranks(d) == names([A, B])


def test_survivors_come_first_in_their_order() -> None:
    """Rank 0 stays where the last checkpoint is, whatever slot who joins has."""
    said = [beat(x, AgentPhase.DRAINED, 2, drained_epoch=2) for x in (A, B, C)]
    d = draft(A, B, C, job=elastic(), epochs=[epoch(1, C, B), epoch(2)], beats=said)
    assert ranks(d) == names([C, B, A])


# ---------------------------------------------------------------- why an epoch cannot stay as it is


def change(d: Draft) -> membership.Change | None:
    return membership.change(d, d.state.epochs[0])


def gang(*leases: Lease, job: Any = None, **more: Any) -> Draft:
    members = more.pop("members", leases)
    return draft(*leases, job=job or elastic(), epochs=[epoch(1, *members)], **more)


def test_all_is_well() -> None:
    assert change(gang(A, B, C)) is None


def test_a_loss_hurries_the_others_unless_it_has_handed_over() -> None:
    lost = replace(B, **GONE)
    found = change(gang(A, lost, C))
    assert found is not None
    assert (found.hurry, found.at_once) == (True, False)
    assert found.why == f"{B.lease_id} is lost"
    drained = training(B, how="drained", stopped_at_s=NOW_S)
    found = change(gang(A, lost, C, state={"trainings": (drained,)}))
    assert found is not None
    assert (found.hurry, found.why) == (False, f"{B.lease_id} has left")
    for other in (replace(drained, how="lost"), replace(drained, epoch=7)):
        found = change(gang(A, lost, C, state={"trainings": (other,)}))
        assert found is not None
        assert found.hurry


def test_a_notice_hurries_nobody() -> None:
    found = change(gang(A, replace(B, phase=DOOMED), C))
    assert found is not None
    assert (found.why, found.hurry, found.at_once) == (f"{B.lease_id} has notice", False, False)


def test_a_silent_one_hurries_the_others() -> None:
    found = change(gang(A, replace(B, phase=SUSPECT), C))
    assert found is not None
    assert (found.why, found.hurry) == (f"{B.lease_id} is silent", True)


def test_more_than_are_wanted() -> None:
    found = change(gang(A, B, C, state={"size": 2}))
    assert found is not None
    assert (found.hurry, found.at_once) == (False, True)
    done = ev.CommandEnded(epoch=1, rank=0, exit_code=0, in_setup=False, tail="")
    assert change(gang(A, B, C, state={"size": 2, "commands_ended": (done,)})) is None, "about to finish"
    earlier = replace(done, epoch=0)
    assert change(gang(A, B, C, state={"size": 2, "commands_ended": (earlier,)})) is not None


@pytest.mark.parametrize(
    ("changes", "silent"),
    [
        ({}, True),
        ({"job": elastic(3)}, False),  # without it they are too few
        ({"job": elastic(2)}, True),
        ({"job": elastic(on_node_loss="fail")}, False),
        ({"job": elastic(recovery="none")}, False),
        ({"job": spec(3)}, False),
    ],
)
def test_who_is_silent_is_left_behind_where_the_others_can_go_on(
    changes: dict[str, Any], silent: bool
) -> None:
    d = gang(A, replace(B, phase=SUSPECT), C, **changes)
    assert bool(membership.left_behind(d, d.state.epochs[0])) is silent
    assert not membership.left_behind(gang(A, B, C), epoch(1, A, B, C))


def test_a_third_that_stands_ready_counts_for_that() -> None:
    job, suspect = elastic(2), replace(B, phase=SUSPECT)
    for said, counts in ((FREE, True), (AgentPhase.SETUP, False)):
        d = draft(
            *(A, suspect, C),
            job=job,
            epochs=[epoch(1, A, B)],
            beats=[beat(A), beat(B), beat(C, said)],
        )
        assert names(membership.left_behind(d, d.state.epochs[0])) == ([B.lease_id] if counts else [])


@pytest.mark.parametrize(
    ("job", "survives"),
    [
        (elastic(2), True),
        (elastic(3), False),
        (elastic(2, on_node_loss="replace"), True),
        (elastic(2, on_node_loss="restart"), False),
        (elastic(2, on_node_loss="fail"), False),
        (elastic(2, recovery="none"), False),
        (spec(3, on_node_loss="shrink"), False),
    ],
)
def test_who_goes_on_with_fewer(job: Any, survives: bool) -> None:
    d = gang(A, replace(B, **GONE), C, job=job)
    assert membership.survives(d, d.state.epochs[0]) is survives


def test_a_restart_is_for_who_is_left() -> None:
    job = elastic(on_node_loss="restart")
    d = gang(A, B, C, job=job)
    assert not membership.begins_anew(d, [A, B, C])
    assert membership.begins_anew(d, [A, C])
    assert membership.begins_anew(d, iter([A, C])), "however they are given"
    assert not membership.begins_anew(d, []), "nobody is left"
    assert not membership.begins_anew(d, [lease(3)]), "strangers"
    assert not membership.begins_anew(gang(A, B, C, job=elastic()), [A, C])
    assert not membership.begins_anew(draft(A, job=job, epochs=[]), [A])


# ---------------------------------------------------------------- who joins, and when


def joining(
    *,
    job: Any = None,
    since_s: float = NOW_S - 5.0,
    said: dict[str, Any] | None = None,
    third: Lease | None = None,
    **state: Any,
) -> Draft:
    """A works and has saved "m"; B stands ready since a moment, with "m" on its disk."""
    ready = replace(B, since_s=since_s)
    words = {"phase": FREE, "prefetched": "m", **(said or {})}
    phase = words.pop("phase")
    beats = [beat(A), beat(ready, phase, 0, **words)]
    others = () if third is None else (third,)
    return draft(
        *(A, ready, *others),
        job=job or elastic(),
        epochs=state.pop("epochs", [epoch(1, A)]),
        beats=beats,
        state={"checkpoints": (saved("m"),), **state},
    )


def joins(d: Draft) -> bool:
    newest = next(e for e in reversed(d.state.epochs) if e.members)
    found = membership.change(d, newest)
    if found is not None:
        assert found.why == f"{B.lease_id} can join: 2 machines"
        assert (found.hurry, found.at_once) == (False, True)
    return found is not None


def test_who_stands_ready_beside_a_checkpoint_joins() -> None:
    assert joins(joining())


def test_only_at_a_checkpoint_of_this_epoch() -> None:
    assert not joins(joining(checkpoints=()))
    d = joining(checkpoints=(saved("m", 1),), epochs=[epoch(1, A), epoch(2, A, resume_from="m")])
    assert not joins(d)


def test_only_once_it_is_on_its_disk_or_takes_too_long() -> None:
    assert not joins(joining(said={"prefetched": None}))
    late_s = TIMING.drain_timeout_s
    assert not joins(joining(said={"prefetched": None}, since_s=NOW_S - late_s))
    assert joins(joining(said={"prefetched": None}, since_s=NOW_S - late_s - 0.1))
    newer = tuple(saved(f"m{i}", step=i) for i in range(5))
    for key, recent in (("m4", True), ("m2", True), ("m1", False), ("m0", False)):
        assert joins(joining(said={"prefetched": key}, checkpoints=newer)) is recent, key


def test_a_checkpoint_of_an_epoch_before_is_not_enough() -> None:
    two = [epoch(1, A), epoch(2), epoch(3, A, resume_from="old")]
    saves = (saved("old", 1), saved("m", 3))
    assert joins(joining(epochs=two, checkpoints=saves))
    assert not joins(joining(epochs=two, checkpoints=saves, said={"prefetched": "old"}))


def test_what_is_on_a_disk() -> None:
    d = joining()
    here = d.state.epochs[0]
    assert membership.prefetched(d, d.state.leases[B.lease_id], here)
    for beats in ({}, {B.lease_id: beat(B, AgentPhase.BROKEN, 0, prefetched="m")}):
        d.observed = replace(d.observed, beats=beats)
        assert not membership.prefetched(d, d.state.leases[B.lease_id], here), beats
    d.state = replace(d.state, rejected=frozenset({"m"}))
    assert membership.prefetched(d, d.state.leases[B.lease_id], here), "there is none to wait for"


def test_the_checkpoint_that_it_resumed_from_will_do_while_there_is_no_other() -> None:
    d = joining(epochs=[epoch(1, A), epoch(2, A, resume_from="m")], checkpoints=(saved("m", 1),))
    assert membership.prefetched(d, d.state.leases[B.lease_id], d.state.epochs[1])


def test_of_two_that_could_join_both_have_it_on_their_disks() -> None:
    for on_disk in ("m", None):
        said = [beat(A), beat(B, FREE, 0, prefetched="m"), beat(C, FREE, 0, prefetched=on_disk)]
        young = [replace(x, since_s=NOW_S - 5.0) for x in (B, C)]
        more = {"checkpoints": (saved("m"),)}
        d = draft(A, *young, job=elastic(), epochs=[epoch(1, A)], beats=said, state=more)
        assert (membership.change(d, d.state.epochs[0]) is not None) is (on_disk == "m")


def test_not_while_it_moves() -> None:
    move = ev.MigrationStarted(
        to=OFFERS[1], from_offer="x", expected_saving_usd=None, move_usd=None, forced=False, why=""
    )
    assert not joins(joining(migration=move, migration_at_s=NOW_S - 1.0))


def test_others_that_are_coming_are_waited_for_and_join_with_it() -> None:
    booting = lease(2, phase=LeasePhase.PENDING)
    gather_s = TIMING.gather_s
    assert not joins(joining(third=booting, since_s=NOW_S - gather_s + 0.1))
    assert joins(joining(third=booting, since_s=NOW_S - gather_s))
    assert joins(joining(third=replace(booting, phase=SUSPECT))), "it is not coming"
    late = lease(2, since_s=NOW_S - 1.0)
    fourth = lease(3, phase=LeasePhase.PENDING)
    ready = replace(B, since_s=NOW_S - gather_s)
    said = [beat(A), *(beat(x, FREE, 0, prefetched="m") for x in (ready, late))]
    d = draft(
        *(A, ready, late, fourth),
        job=elastic(most=4),
        epochs=[epoch(1, A)],
        beats=said,
        state={"checkpoints": (saved("m"),)},
    )
    found = membership.change(d, d.state.epochs[0])
    assert found is not None, "since the first of them was ready"
    assert found.why.endswith("can join: 3 machines")


def grown(ago_s: float, history_epoch: int = 0) -> dict[str, Any]:
    """B came and went before: the epoch that took it on was opened so long ago."""
    epochs = [
        epoch(1, A),
        epoch(2),
        epoch(3, A, B, opened_at_s=NOW_S - ago_s),
        epoch(4),
        epoch(5, A, opened_at_s=NOW_S - 1.0),
    ]
    return {"epochs": epochs, "checkpoints": (saved("m", 5),), "history_epoch": history_epoch}


def test_not_again_so_soon() -> None:
    assert not joins(joining(**grown(TIMING.regain_s - 0.1)))
    assert joins(joining(**grown(TIMING.regain_s)))
    assert joins(joining(**grown(1.0, history_epoch=1))), "resumed since: the first epoch is no growth"
    others = grown(1.0)
    others["epochs"][2] = epoch(3, B, C, opened_at_s=NOW_S - 1.0)
    assert joins(joining(**others)), "all others: no growth, but another gang"
    fewer = [epoch(1, A, C), epoch(2), epoch(3, A, opened_at_s=NOW_S - 1.0)]
    assert joins(joining(epochs=fewer, checkpoints=(saved("m", 3),))), "fewer is no growth"


@pytest.mark.parametrize(
    ("loss", "joined"), [({1: 10.0, 2: 8.0}, True), ({1: 10.0, 2: 9.0}, False), ({1: 10.0}, True)]
)
def test_only_where_it_pays(loss: dict[int, float], joined: bool) -> None:
    d = joining()
    scaling = Scaling(offer_key=A.offer.key, best=2, loss=loss, handover=1.0, boot=100.0)
    d.desired = replace(d.desired, scaling=scaling)
    assert joins(d) is joined, "it is up already: its boot is no longer to be paid"


def test_a_machine_that_is_no_part_of_the_gang_yet_and_has_not_said_anything() -> None:
    d = joining()
    quiet = replace(d.observed, beats={A.lease_id: beat(A)})
    d.observed = quiet
    assert not joins(d)
