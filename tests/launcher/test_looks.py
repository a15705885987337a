"""What a job has seen of spot capacity: each lease by itself, at the bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support.situation import CLOCK, NOW_S, draft, elastic, epoch, lease

from arylcloud.core import events as ev
from arylcloud.core.job import Constraints, InlineRate, ProfileRef, Work
from arylcloud.core.offer import Market
from arylcloud.core.phases import LeasePhase
from arylcloud.launcher.duesize import takes_all
from arylcloud.launcher.dueview import SOFT
from arylcloud.launcher.reconcile.leases import NO_ROOM
from arylcloud.launcher.sightings import looks
from arylcloud.launcher.state import Lease

NOW_MARKET_S = CLOCK.market_s(NOW_S)
ONE = replace(lease(0), launched_s=NOW_MARKET_S - 900.0)
ONE = replace(ONE, offer=replace(ONE.offer, market=Market.SPOT))


def seen(*leases: Lease, **more: Any) -> list[tuple[float, bool]]:
    """(market seconds before now, whether there was capacity)."""
    state = draft(*leases, epochs=[epoch(1)], **more).state
    return [(NOW_MARKET_S - look.at_s, look.up) for look in looks(state, NOW_S)]


def released(cause: str, **changes: Any) -> Lease:
    gone = {"phase": LeasePhase.RELEASED, "ended_s": NOW_MARKET_S - 800.0, "ended_at_s": NOW_S - 1.0}
    return replace(ONE, **{**gone, "cause": cause, **changes})


def test_of_a_machine_that_was_had_and_of_one_that_was_lost() -> None:
    assert seen(ONE) == [(900.0, True), (0.0, True)]
    assert seen(released("terminated")) == [(900.0, True), (800.0, True)]
    assert seen(released("unknown")) == [(900.0, True), (800.0, False)]


def test_a_machine_for_which_there_was_no_room_after_all_was_none() -> None:
    assert seen(released(NO_ROOM)) == [(800.0, False)]
    stands = replace(ONE, phase=LeasePhase.ENDING, ending_code=NO_ROOM, since_s=NOW_S - 5.0)
    assert seen(stands) == [(10.0, False)], "said five seconds ago, and not yet gone"
    assert seen(released("terminated", ending_code=NO_ROOM)) == [(800.0, False)]
    ahead = released(NO_ROOM, ended_s=NOW_MARKET_S + 7.0)
    assert seen(ahead) == [(0.0, False)]
    assert NO_ROOM in SOFT, "its bar says no more than that there is nothing now"


def test_a_refusal_for_want_of_capacity() -> None:
    refused = replace(ONE, phase=LeasePhase.REFUSED, launched_s=None, ended_at_s=NOW_S - 3.0)

    def said(kind: Any) -> Lease:
        word = ev.LeaseRefused(lease_id=ONE.lease_id, kind=kind, code="c", message="m")
        return replace(refused, refusal=word, cause=kind)

    assert seen(said("capacity")) == [(6.0, False)]
    assert not seen(said("quota"))


def test_who_has_enough_does_not_learn_from_one_more() -> None:
    job = elastic(
        1,
        3,
        profile=ProfileRef(rates=(InlineRate(gpu="V100", count=1, rate=1.0),), unit="steps/s"),
        work=Work(amount=400.0, unit="steps"),
        constraints=Constraints(deadline_s=1400.0),
    )
    other = replace(ONE, lease_id="other", index=1)
    vain = replace(released(NO_ROOM), lease_id="vain", index=2)
    assert takes_all(draft(ONE, other, vain, epochs=[epoch(1)], job=job).state)
    assert all(up for _, up in seen(ONE, other, vain, job=job))
    assert seen(vain, job=job) == [(800.0, False)]
