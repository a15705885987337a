"""What the world says, as it is journaled: each kind of fact at its bounds, and nothing twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.harness import TIMING, spec
from support.situation import (
    CLOCK,
    NOW_S,
    actions,
    beat,
    capabilities,
    draft,
    epoch,
    events,
    failure,
    lease,
    machine,
    saved,
)

from arylcloud.core import events as ev
from arylcloud.core.phases import LeasePhase
from arylcloud.core.ports import Billing, EndCause, MachineState
from arylcloud.core.protocol import AgentPhase, Notice, RequestDoc
from arylcloud.launcher import actions as act
from arylcloud.launcher.reconcile import facts
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.state import Lease

A, B = lease(0), lease(1)
PENDING, SUSPECT, ENDING = LeasePhase.PENDING, LeasePhase.SUSPECT, LeasePhase.ENDING
UNKNOWN: dict[str, Any] = {"instance_id": None, "launched_s": None, "created_at_s": None, "prices": ()}


def noted(*of: Lease, **more: Any) -> Draft:
    d = draft(*of, **more)
    facts.note_facts(d)
    return d


def causes(d: Draft, kind: type) -> list[str | None]:
    return [a.cause_id for a in d.actions if isinstance(a, act.Note) and isinstance(a.event, kind)]


def test_where_nothing_is_new_nothing_is_noted() -> None:
    assert not noted(A, B).actions


# ---------------------------------------------------------------- machines that have come


def test_a_machine_that_the_journal_does_not_know() -> None:
    asked = replace(A, phase=LeasePhase.INTENDED, **UNKNOWN)
    shown = machine(asked, instance_id="i-7", launched_s=5.0, usd_per_hour=1.25, address="10.7.7.7")
    d = noted(asked, epochs=[], beats=[], machines=[shown])
    (made,) = events(d, ev.LeaseCreated)
    assert (made.instance_id, made.launched_s, made.usd_per_hour) == ("i-7", 5.0, 1.25)
    assert (made.address, made.billing) == ("10.7.7.7", Billing())
    assert causes(d, ev.LeaseCreated) == ["list of aws"]
    assert d.state.leases[A.lease_id].phase is PENDING
    assert not noted(replace(A, phase=PENDING), epochs=[], beats=[]).actions
    own = replace(capabilities(), billing=Billing(minimum_s=1.0))
    d = noted(asked, epochs=[], beats=[], machines=[shown], desired={"capabilities": {"aws": own}})
    assert events(d, ev.LeaseCreated)[0].billing == Billing(minimum_s=1.0)
    d = noted(asked, epochs=[], beats=[], machines=[shown], desired={"capabilities": {}})
    assert events(d, ev.LeaseCreated)[0].billing == Billing()


def test_one_that_was_refused_and_came_all_the_same_is_ended() -> None:
    refused = replace(A, phase=LeasePhase.REFUSED, cause="capacity", **UNKNOWN)
    d = noted(refused, epochs=[], beats=[], machines=[machine(refused)])
    assert [e.code for e in events(d, ev.LeaseEnding)] == ["landed_late"]
    assert events(d, ev.LeaseCreated)
    known = replace(refused, instance_id="i-0-1")
    d = noted(known, epochs=[], beats=[], machines=[machine(known)])
    assert [e.code for e in events(d, ev.LeaseEnding)] == ["landed_late"], "whoever recorded it has died"
    assert not noted(refused, epochs=[], beats=[], machines=[]).actions


# ---------------------------------------------------------------- signs of life


@pytest.mark.parametrize(
    ("phase", "heard_s", "becomes"),
    [
        (PENDING, 1.0, LeasePhase.READY),
        (LeasePhase.READY, TIMING.silent_s, None),
        (LeasePhase.READY, TIMING.silent_s + 0.1, SUSPECT),
        (SUSPECT, TIMING.silent_s, None),
        (SUSPECT, TIMING.silent_s - 0.1, LeasePhase.READY),
        (LeasePhase.DOOMED, 1e4, None),
        (ENDING, 1e4, None),
    ],
)
def test_how_long_ago_it_was_heard(phase: LeasePhase, heard_s: float, becomes: LeasePhase | None) -> None:
    one = replace(A, phase=phase)
    d = noted(one, observed={"heard_s_ago": {A.lease_id: heard_s}})
    assert [e.phase for e in events(d, ev.LeasePhaseChanged)] == ([] if becomes is None else [becomes])
    assert causes(d, ev.LeasePhaseChanged) == [] if becomes is None else ["beat 7"]
    assert not events(noted(one, beats=[]), ev.LeasePhaseChanged)


def test_silence_is_told_once_and_not_of_a_mailbox_that_is_away() -> None:
    silent = {"heard_s_ago": {A.lease_id: 60.0}}
    job = spec(1, notify="https://example.com/…")
    d = noted(A, job=job, observed=silent)
    (told,) = actions(d, act.Notify)
    assert told.topic == f"suspect:{A.lease_id}"
    assert "60 s" in told.text
    assert not noted(A, job=job, observed={**silent, "mailbox_ok": False}).actions


def test_a_notice_is_never_further_away_than_its_cloud_gives() -> None:
    def left_s(at_s: float, **more: Any) -> float:
        said = beat(A, at_s=5000.0, notice=Notice(action="stop", at_s=5000.0 + at_s, seen_s=5000.0))
        d = noted(A, beats=[said], **more)
        (seen,) = events(d, ev.NoticeSeen)
        assert seen.action == "stop"
        assert causes(d, ev.NoticeSeen) == ["beat 7"]
        assert d.state.leases[A.lease_id].phase is LeasePhase.DOOMED
        return float(seen.acts_at_s - NOW_S)

    assert left_s(30.0) == 30.0
    assert left_s(500.0) == 120.0
    assert left_s(-5.0) == 0.0
    assert left_s(500.0, desired={"capabilities": {}}) == 500.0
    assert left_s(500.0, desired={"capabilities": {"aws": capabilities(0.0)}}) == 500.0
    assert left_s(500.0, desired={"capabilities": {"aws": capabilities(0.5)}}) == 0.5


@pytest.mark.parametrize(
    ("phase", "seen"),
    [(PENDING, True), (LeasePhase.READY, True), (SUSPECT, True), (LeasePhase.DOOMED, False), (ENDING, False)],
)
def test_a_notice_counts_once_and_while_it_matters(phase: LeasePhase, seen: bool) -> None:
    said = beat(A, notice=Notice(action="terminate", at_s=NOW_S, seen_s=NOW_S), at_risk_s=NOW_S)
    one = replace(A, phase=phase, notice_acts_at_s=NOW_S if phase is LeasePhase.DOOMED else None)
    d = noted(one, beats=[said])
    assert bool(events(d, ev.NoticeSeen)) is seen
    assert bool(events(d, ev.RiskSeen)) is not seen, "of one with notice, no warning"


def test_a_warning_counts_once() -> None:
    said = [beat(A, at_risk_s=NOW_S)]
    assert causes(noted(A, beats=said), ev.RiskSeen) == ["beat 7"]
    assert not noted(replace(A, at_risk=True), beats=said).actions


# ---------------------------------------------------------------- requests


def test_requests_in_their_order_and_once() -> None:
    docs = [
        RequestDoc(number=n, verb="check", args={"scopes": ["x"]}, at_s=0.0, by="u") for n in (5, 3, 4, 2)
    ]
    d = noted(A, observed={"requests": tuple(docs)}, state={"requests_seen": 3})
    assert [(e.number, e.verb, e.args, e.by) for e in events(d, ev.RequestSeen)] == [
        (4, "check", {"scopes": ["x"]}, "u"),
        (5, "check", {"scopes": ["x"]}, "u"),
    ]
    assert causes(d, ev.RequestSeen) == ["request 4", "request 5"]


# ---------------------------------------------------------------- checkpoints


def shown(key: str, number: int = 1, epoch: int = 1) -> act.CheckpointSeen:
    return act.CheckpointSeen(key=key, epoch=epoch, number=number, step=number, saved_at_s=9.0, total_bytes=5)


def test_checkpoints_in_their_order_and_once() -> None:
    seen = (shown("c", 3), shown("b", 2), shown("a", 1), shown("z", 9, epoch=2), shown("r", 4))
    d = noted(
        A,
        observed={"checkpoints": seen},
        state={"checkpoints": (saved("a"),), "rejected": frozenset({"r"})},
    )
    found = events(d, ev.CheckpointCommitted)
    assert [c.manifest for c in found] == ["b", "c"]
    assert (found[0].epoch, found[0].step, found[0].saved_at_s, found[0].total_bytes) == (1, 2, 9.0, 5)
    assert causes(d, ev.CheckpointCommitted) == ["manifest b", "manifest c"]
    assert not noted(A, epochs=[], beats=[], observed={"checkpoints": seen}).actions


def test_damaged_ones_are_rejected_once() -> None:
    d = noted(
        A, observed={"damaged": {"b": "short", "a": "bad digest"}}, state={"rejected": frozenset({"c"})}
    )
    assert [(e.manifest, e.message) for e in events(d, ev.CheckpointRejected)] == [
        ("a", "bad digest"),
        ("b", "short"),
    ]
    assert not noted(A, observed={"damaged": {"a": "bad"}}, state={"rejected": frozenset({"a"})}).actions


def broken(message: str | None, *, number: int = 1, resume: str | None = "ckpt/m", **more: Any) -> list[str]:
    said = [beat(A, AgentPhase.RUNNING), beat(B, AgentPhase.BROKEN, number, message=message)]
    d = noted(A, B, epochs=[epoch(1, A, B, resume_from=resume)], beats=said, **more)
    return [e.manifest for e in events(d, ev.CheckpointRejected)]


def test_what_a_machine_cannot_restore_is_damaged() -> None:
    assert broken("ckpt/m: bad digest") == ["ckpt/m"]
    assert broken("no disk") == []
    assert broken(None) == []
    assert broken("ckpt/m: bad digest", number=2) == []
    assert broken("None", resume=None) == []
    assert broken("ckpt/m: bad", state={"rejected": frozenset({"ckpt/m"})}) == []
    both = [beat(x, AgentPhase.BROKEN, message="ckpt/m: bad") for x in (A, B)]
    d = noted(A, B, epochs=[epoch(1, A, B, resume_from="ckpt/m")], beats=both)
    assert len(events(d, ev.CheckpointRejected)) == 1
    assert causes(d, ev.CheckpointRejected) == ["beat 7"]
    d = noted(A, B, epochs=[epoch(1, A, B, resume_from="ckpt/m")], beats=both[1:])
    assert len(events(d, ev.CheckpointRejected)) == 1, "though the other has not been heard"


# ---------------------------------------------------------------- commands that have ended


def told(*ends: Any, leases: Any = (A, B), **more: Any) -> list[tuple[int, int, int]]:
    seen = {(e.epoch, e.rank): 50.0 for e in ends}
    d = noted(*leases, observed={"ends": ends, "end_seen_s_ago": seen}, **more)
    return [(e.epoch, e.rank, e.exit_code) for e in events(d, ev.CommandEnded)]


OK = failure(A, exit_code=0, finished=True)
BAD = failure(A)


def test_ends_in_their_order_and_once() -> None:
    second = failure(B, 1, exit_code=0, finished=True)
    assert told(second, OK) == [(1, 0, 0), (1, 1, 0)]
    done = ev.CommandEnded(epoch=1, rank=0, exit_code=0, in_setup=False, tail="")
    assert told(second, OK, state={"commands_ended": (done,)}) == [(1, 1, 0)]
    assert told(replace(OK, epoch=2)) == []
    assert told(OK, epochs=[], beats=[]) == []


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, True),
        ({"signalled": True}, False),
        ({"exit_code": 0}, False),
        ({"exit_code": 0, "finished": True}, True),
        ({"signalled": True, "exit_code": 143, "finished": True}, True),
    ],
)
def test_which_ends_say_something(changes: dict[str, Any], counts: bool) -> None:
    assert bool(told(replace(BAD, **changes))) is counts


def test_a_failure_beside_a_machine_with_notice_says_nothing_but_a_finish_does() -> None:
    doomed = replace(B, phase=LeasePhase.DOOMED)
    assert told(BAD, leases=(A, doomed)) == []
    assert told(OK, leases=(A, doomed)) == [(1, 0, 0)]


@pytest.mark.parametrize(
    ("changes", "of", "history", "counts"),
    [
        ({}, {}, 0, True),
        ({"exit_code": 0}, {}, 0, False),
        ({"signalled": True}, {}, 0, False),
        ({}, {"notice_acts_at_s": NOW_S}, 0, False),
        ({}, {}, 1, False),
        ({"lease_id": "stray"}, {}, 0, False),
    ],
)
def test_a_failed_set_up(changes: dict[str, Any], of: dict[str, Any], history: int, counts: bool) -> None:
    end = replace(BAD, in_setup=True, epoch=0, **changes)
    found = told(end, leases=(replace(A, **of),), epochs=[], beats=[], state={"history_attempt": history})
    assert found == ([(0, 0, 1)] if counts else [])


# ---------------------------------------------------------------- machines that have left


def left(*of: Lease, machines: Any = (), **more: Any) -> list[tuple[float, str]]:
    d = noted(*of, machines=list(machines), **more)
    found = events(d, ev.LeaseReleased)
    return [(e.ended_s, e.cause) for e in found]


MARKET_S = CLOCK.market_s(NOW_S)
LATE_S = MARKET_S - 7.0
"""After its launch."""


@pytest.mark.parametrize(
    ("changes", "shown", "ended"),
    [
        ({}, {"ended_s": LATE_S, "end_cause": EndCause.INTERRUPTED}, (LATE_S, "interrupted")),
        ({}, {"ended_s": None, "end_cause": EndCause.SELF}, (MARKET_S, "self")),
        ({}, {"ended_s": LATE_S}, (LATE_S, "unknown")),
        ({"phase": ENDING}, {"ended_s": LATE_S}, (LATE_S, "terminated")),
        ({}, {"ended_s": 1.0, "end_cause": EndCause.SELF}, (A.launched_s, "self")),
    ],
)
def test_what_its_cloud_lists_as_gone(changes: Any, shown: Any, ended: Any) -> None:
    one = replace(A, **changes)
    gone = [machine(one, state=MachineState.GONE, **shown)]
    assert left(one, machines=gone) == [ended]
    assert causes(noted(one, machines=gone), ev.LeaseReleased) == ["list of aws"]
    assert left(one, machines=[machine(one, **shown)]) == [], "it runs"
    blind: dict[str, Any] = {"observed": {"listed": frozenset()}}
    assert left(one, machines=gone, **blind) == []


@pytest.mark.parametrize(
    ("changes", "heard_s", "ended"),
    [
        ({}, TIMING.silent_s + 0.1, "unknown"),
        ({}, TIMING.silent_s, None),
        ({"phase": ENDING}, 0.0, "terminated"),
        ({"created_at_s": NOW_S - TIMING.list_lag_s}, 60.0, "unknown"),
        ({"created_at_s": NOW_S - TIMING.list_lag_s + 0.1}, 60.0, None),
        ({"created_at_s": None, "intended_at_s": NOW_S - TIMING.list_lag_s + 0.1}, 60.0, None),
        ({"created_at_s": None, "intended_at_s": NOW_S - TIMING.list_lag_s}, 60.0, "unknown"),
        ({"phase": SUSPECT, "notice_acts_at_s": NOW_S}, 60.0, "interrupted"),
        ({"phase": SUSPECT, "notice_acts_at_s": NOW_S + 0.1}, 60.0, "unknown"),
        ({"phase": ENDING, "notice_acts_at_s": NOW_S}, 60.0, "interrupted"),
        ({"phase": ENDING, "notice_acts_at_s": NOW_S + 0.1}, 60.0, "terminated"),
    ],
)
def test_what_is_listed_no_more(changes: Any, heard_s: float, ended: str | None) -> None:
    one = replace(A, **changes)
    seen = {"observed": {"heard_s_ago": {A.lease_id: heard_s}}}
    assert left(one, **seen) == ([] if ended is None else [(MARKET_S, ended)])
    away = {"observed": {**seen["observed"], "mailbox_ok": False}}
    assert left(one, **away) == ([(MARKET_S, ended)] if one.phase is ENDING and ended else [])


@pytest.mark.parametrize(
    ("changes", "gone"),
    [
        ({"since_s": NOW_S - TIMING.landing_s - TIMING.list_lag_s}, True),
        ({"since_s": NOW_S - TIMING.landing_s - TIMING.list_lag_s + 0.1}, False),
        ({"since_s": NOW_S, "uncertain_at_s": NOW_S - TIMING.landing_s - TIMING.list_lag_s}, True),
        ({"since_s": 0.0, "uncertain_at_s": NOW_S - 1.0}, False),
        ({"since_s": 0.0, "phase": LeasePhase.INTENDED}, False),
    ],
)
def test_what_never_landed(changes: Any, gone: bool) -> None:
    one = replace(A, **{**UNKNOWN, "phase": ENDING, **changes})
    assert left(one, epochs=[], beats=[]) == ([(MARKET_S, "terminated")] if gone else [])


def test_a_late_landing_gets_its_real_end() -> None:
    closed = replace(
        A,
        phase=LeasePhase.RELEASED,
        ended_s=1000.0,
        ended_at_s=NOW_S - 50.0,
        created_at_s=NOW_S - 40.0,
    )
    gone = {"state": MachineState.GONE, "ended_s": 2000.0}

    def corrected(of: Lease = closed, **shown: Any) -> list[tuple[float, str]]:
        of = replace(of, launched_s=500.0)
        return left(of, epochs=[], beats=[], machines=[machine(of, **{**gone, **shown})])

    assert corrected() == [(2000.0, "terminated")]
    assert corrected(end_cause=EndCause.INTERRUPTED) == [(2000.0, "interrupted")]
    assert corrected(ended_s=1000.0) == [], "no later than was known"
    assert corrected(ended_s=None) == []
    assert corrected(state=MachineState.STOPPING) == []
    assert corrected(replace(closed, created_at_s=NOW_S - 50.0)) == [], "it was there in time"
    assert corrected(replace(closed, created_at_s=None)) == []
    assert corrected(replace(closed, ended_s=None)) == []
    assert corrected(replace(closed, ended_at_s=None)) == []
