"""What each event does to a job's state, and that it does nothing else."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from support.harness import JOB, OFFERS, spec

from arylcloud.core import events as ev
from arylcloud.core.errors import IntegrityError
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.ports import Billing, PricePoint
from arylcloud.core.protocol import Member
from arylcloud.launcher.fold import apply, replay
from arylcloud.launcher.state import Epoch, JobState, Lease, Training

L1, L2 = f"{JOB}-n0-a1", f"{JOB}-n0-a2"
SCALE = 10.0
ORIGIN_S = 100.0


def record(seq: int, at_s: float, event: ev.Event, job_id: str = JOB) -> ev.Record:
    return ev.Record(job_id=job_id, seq=seq, at_s=at_s, writer="l-1", cause_id=None, event=event)


SUBMITTED = ev.JobSubmitted(
    spec=spec(1),
    prefix_uri="memory://x",
    journal_id="home",
    market_origin_s=ORIGIN_S,
    market_scale=SCALE,
    quoted=OFFERS[:2],
    nodes=3,
    queued=True,
    quotes=(ev.BaselineQuoted(name="on_demand", offer=OFFERS[0], speed=1.0),),
)


def market_s(at_s: float) -> float:
    return ORIGIN_S + (at_s - ORIGIN_S) * SCALE


def fold(state: JobState, event: ev.Event, at_s: float = 500.0) -> JobState:
    return apply(state, record(state.seq + 1, at_s, event))


def told(state: JobState, *events: ev.Event, at_s: float = 500.0) -> JobState:
    for event in events:
        state = fold(state, event, at_s)
    return state


def changes(before: Any, after: Any) -> dict[str, Any]:
    """What differs, by field; of a state without its number."""
    pairs = {f.name: (getattr(before, f.name), getattr(after, f.name)) for f in fields(before)}
    return {name: new for name, (old, new) in pairs.items() if old != new and name != "seq"}


@pytest.fixture
def new() -> JobState:
    return apply(None, record(1, 200.0, SUBMITTED))


def intended(lease_id: str = L1, attempt: int = 1, at: int = 0) -> ev.LeaseIntended:
    return ev.LeaseIntended(
        lease_id=lease_id,
        token=f"t-{lease_id}",
        offer=OFFERS[at],
        index=0,
        attempt=attempt,
        purpose="start",
        until_s=9000.0,
        why="first choice",
    )


def created(lease_id: str = L1, launched_s: float = 1000.0) -> ev.LeaseCreated:
    return ev.LeaseCreated(
        lease_id=lease_id,
        instance_id=f"i-{lease_id[-2:]}",
        launched_s=launched_s,
        usd_per_hour=1.5,
        address="10.0.0.1",
        billing=Billing(first_hour_interruption_free=True),
    )


def phase(lease_id: str, to: LeasePhase) -> ev.LeasePhaseChanged:
    return ev.LeasePhaseChanged(lease_id=lease_id, phase=to, text="")


def opened(number: int = 1, **more: Any) -> ev.EpochOpened:
    members = (Member(lease_id=L1, rank=0, address="10.0.0.1"),)
    base = ev.EpochOpened(
        number=number, attempt=1, members=members, resume_from=None, resume_step=0, reason="ready"
    )
    return replace(base, **more)


@pytest.fixture
def ready(new: JobState) -> JobState:
    return told(new, intended(), created(), phase(L1, LeasePhase.READY), opened(), at_s=300.0)


# ---------------------------------------------------------------- the beginning, and the order


def test_a_submission(new: JobState) -> None:
    assert (new.job_id, new.spec, new.prefix_uri, new.journal_id) == (JOB, spec(1), "memory://x", "home")
    assert (new.market_clock.origin_s, new.market_clock.scale) == (ORIGIN_S, SCALE)
    assert (new.submitted_at_s, new.phase_since_s, new.seq) == (200.0, 200.0, 1)
    assert (new.phase, new.phase_code) == (JobPhase.PENDING, "submitted")
    assert (new.baselines, new.quoted, new.size, new.queued) == (SUBMITTED.quotes, OFFERS[:2], 3, True)
    assert changes(new, fold(new, SUBMITTED)) == {}, "a second one says nothing"


@pytest.mark.parametrize(
    ("said", "place"), [(None, "gcp/europe-west4"), ("", None), ("aws/us-east-1", "aws/us-east-1")]
)
def test_where_its_store_is(said: str | None, place: str | None) -> None:
    """As its submission says; one of before, which says nothing, by its bucket's name."""
    uri = "gs://arylcloud-0123456789-europe-west4/jobs/a"
    submitted = replace(SUBMITTED, prefix_uri=uri, store_place=said)
    assert apply(None, record(1, 200.0, submitted)).store_place == place


def test_files_sent_anew(ready: JobState) -> None:
    after = fold(ready, ev.FilesChanged(workdir="/elsewhere", sha256="f" * 64, files=3), 700.0)
    assert set(changes(ready, after)) == {"spec", "files_sha256", "files_at_s"}
    assert changes(ready.spec, after.spec) == {"workdir": "/elsewhere"}
    assert (after.files_sha256, after.files_at_s) == ("f" * 64, 700.0)


def test_what_is_no_history(new: JobState) -> None:
    hour = ev.Notified(topic="x", ok=True, text="")
    for first in (record(1, 0.0, hour), record(2, 0.0, SUBMITTED)):
        with pytest.raises(IntegrityError, match="begin"):
            apply(None, first)
    for wrong in (record(3, 0.0, hour), record(1, 0.0, hour), record(2, 0.0, hour, "other-0a1b2c3d")):
        with pytest.raises(IntegrityError, match="follows"):
            apply(new, wrong)
    with pytest.raises(IntegrityError, match="no records"):
        replay(())
    assert replay((), new) is new
    assert apply(new, record(2, 0.0, hour)).seq == 2


# ---------------------------------------------------------------- the job's own phase


def test_a_change_of_phase(ready: JobState) -> None:
    event = ev.JobPhaseChanged(phase=JobPhase.STOPPING, code="user_command", text="exit 3", exit_code=3)
    after = fold(ready, event, 600.0)
    assert changes(ready, after) == {
        "phase": JobPhase.STOPPING,
        "phase_code": "user_command",
        "phase_text": "exit 3",
        "phase_since_s": 600.0,
        "exit_code": 3,
    }
    failed = ev.JobPhaseChanged(phase=JobPhase.FAILED, code="user_command", text="exit 3")
    assert fold(after, failed).exit_code == 3, "it stays"


def test_a_wait_by_choice_says_how_long(ready: JobState) -> None:
    waits = ev.JobPhaseChanged(phase=JobPhase.WAITING, code="spot_awaited", text="", until_s=900.0)
    assert fold(ready, waits).phase_until_s == 900.0
    assert fold(fold(ready, waits), replace(waits, code="capacity", until_s=None)).phase_until_s is None


def test_a_resume_is_a_clean_slate(ready: JobState) -> None:
    ended = ev.CommandEnded(epoch=1, rank=0, exit_code=1, in_setup=False, tail="")
    move = ev.MigrationStarted(to=OFFERS[1], from_offer="x", expected_saving_usd=None, forced=True, why="")
    asked = [ev.RequestSeen(number=n, verb=v, args={}, by="u") for n, v in enumerate(("stop", "scale"), 1)]
    before = told(
        ready,
        ended,
        move,
        *asked,
        ev.RequestSeen(number=3, verb="migrate", args={}, by="u"),
        ev.JobPhaseChanged(phase=JobPhase.FAILED, code="x", text="x", exit_code=1),
    )
    assert before.commands_ended
    assert before.stop
    assert before.scale_request
    assert before.migrate_request
    assert before.migration
    after = fold(before, ev.JobPhaseChanged(phase=JobPhase.PENDING, code="resumed", text="again"), 700.0)
    assert (after.commands_ended, after.stop, after.scale_request, after.migrate_request) == (
        (),
        None,
        None,
        None,
    )
    assert (after.migration, after.exit_code) == (None, None)
    assert (after.history_epoch, after.history_attempt) == (1, 1)
    assert (after.phase, after.phase_code, after.phase_since_s) == (JobPhase.PENDING, "resumed", 700.0)
    assert (after.requests_seen, after.leases, after.epochs) == (3, before.leases, before.epochs)


def test_a_resume_before_any_epoch(new: JobState) -> None:
    after = fold(new, ev.JobPhaseChanged(phase=JobPhase.PENDING, code="resumed", text="again"))
    assert (after.history_epoch, after.history_attempt) == (0, 0)


# ---------------------------------------------------------------- leases


def test_an_intent(new: JobState) -> None:
    after = fold(new, intended(attempt=4), 250.0)
    assert after.leases == {
        L1: Lease(
            lease_id=L1,
            token=f"t-{L1}",
            offer=OFFERS[0],
            index=0,
            attempt=4,
            purpose="start",
            phase=LeasePhase.INTENDED,
            since_s=250.0,
            intended_at_s=250.0,
            until_s=9000.0,
            why="first choice",
        )
    }
    assert after.attempts == 4
    assert fold(after, intended(L2, attempt=3)).attempts == 4, "the highest so far"
    with pytest.raises(IntegrityError, match="twice"):
        fold(after, intended(attempt=5))


def test_a_creation(new: JobState) -> None:
    before = told(new, intended(), ev.CreateUncertain(lease_id=L1, kind="throttled", message=""))
    lease = before.leases[L1]
    assert (lease.uncertain, lease.uncertain_at_s, lease.uncertain_kind) == (True, 500.0, "throttled")
    assert lease.phase is LeasePhase.INTENDED
    after = fold(before, created(), 600.0)
    assert changes(lease, after.leases[L1]) == {
        "phase": LeasePhase.PENDING,
        "since_s": 600.0,
        "created_at_s": 600.0,
        "instance_id": "i-a1",
        "launched_s": 1000.0,
        "address": "10.0.0.1",
        "prices": (PricePoint(from_s=1000.0, usd_per_hour=1.5),),
        "billing": Billing(first_hour_interruption_free=True),
        "uncertain": False,
    }
    assert fold(before, replace(created(), usd_per_hour=None)).leases[L1].prices == ()


def test_a_refusal(new: JobState) -> None:
    no = ev.LeaseRefused(lease_id=L1, kind="quota", code="L-1", message="none")
    after = told(new, intended(), no)
    lease = after.leases[L1]
    assert (lease.phase, lease.cause, lease.refusal, lease.ended_at_s) == (
        LeasePhase.REFUSED,
        "quota",
        no,
        500.0,
    )
    assert lease.since_s == 500.0
    late = fold(after, created(), 700.0).leases[L1]
    assert (late.phase, late.since_s, late.created_at_s) == (LeasePhase.REFUSED, 500.0, 700.0)
    assert late.ended_s is None


def test_a_landing_after_its_end_costs_from_its_launch(new: JobState) -> None:
    done = told(
        new,
        intended(),
        ev.LeaseEnding(lease_id=L1, code="create_uncertain", why=""),
        ev.LeaseReleased(lease_id=L1, ended_s=900.0, cause="terminated"),
    )
    late = fold(done, created(launched_s=1000.0)).leases[L1]
    assert (late.phase, late.launched_s, late.ended_s) == (LeasePhase.RELEASED, 1000.0, 1000.0)
    early = fold(done, created(launched_s=800.0)).leases[L1]
    assert early.ended_s == 900.0


def test_phases_of_a_lease(ready: JobState) -> None:
    lease = ready.leases[L1]
    after = fold(ready, phase(L1, LeasePhase.SUSPECT), 600.0).leases[L1]
    assert changes(lease, after) == {"phase": LeasePhase.SUSPECT, "since_s": 600.0}
    same = fold(ready, phase(L1, LeasePhase.READY), 600.0).leases[L1]
    assert changes(lease, same) == {}, "to where it is: not even the moment"
    with pytest.raises(IntegrityError, match="cannot go"):
        fold(ready, phase(L1, LeasePhase.INTENDED))
    with pytest.raises(IntegrityError, match="unknown lease"):
        fold(ready, phase("nobody", LeasePhase.READY))


def test_an_end_and_its_confirmation(ready: JobState) -> None:
    ending = fold(ready, ev.LeaseEnding(lease_id=L1, code="over_cap", why=""), 600.0)
    assert changes(ready.leases[L1], ending.leases[L1]) == {
        "phase": LeasePhase.ENDING,
        "since_s": 600.0,
        "ending_code": "over_cap",
    }
    assert ending.cooling == ()
    done = fold(ending, ev.LeaseReleased(lease_id=L1, ended_s=5100.0, cause="terminated"), 610.0)
    assert changes(ending.leases[L1], done.leases[L1]) == {
        "phase": LeasePhase.RELEASED,
        "since_s": 610.0,
        "ended_s": 5100.0,
        "cause": "terminated",
        "ended_at_s": 610.0,
    }
    assert (done.interruptions, done.losses, done.cooling) == (0, (), ())
    said = ev.LeaseReleased(lease_id=L1, ended_s=1.0, cause="terminated", code="boot_failed", text="no disk")
    lease = fold(ending, said, 610.0).leases[L1]
    assert (lease.ending_code, lease.end_text) == ("boot_failed", "no disk")


# ---------------------------------------------------------------- losses


@pytest.mark.parametrize(
    ("cause", "counts", "cools"), [("interrupted", 1, 1), ("unknown", 0, 1), ("self", 0, 0)]
)
def test_a_loss_without_notice(ready: JobState, cause: str, counts: int, cools: int) -> None:
    after = fold(ready, ev.LeaseReleased(lease_id=L1, ended_s=9.0, cause=cause), 600.0)
    assert after.interruptions == counts
    assert after.losses == ((market_s(600.0), OFFERS[0].key),) * counts
    assert after.cooling == ((market_s(600.0), "aws/us-east-1"),) * cools


def test_a_loss_counts_once(ready: JobState) -> None:
    """When the notice comes; not again when the cloud has acted."""
    seen = fold(ready, ev.NoticeSeen(lease_id=L1, action="terminate", acts_at_s=720.0), 600.0)
    assert changes(ready.leases[L1], seen.leases[L1]) == {
        "phase": LeasePhase.DOOMED,
        "since_s": 600.0,
        "notice_acts_at_s": 720.0,
    }
    assert (seen.interruptions, seen.losses) == (1, ((market_s(600.0), OFFERS[0].key),))
    assert seen.cooling == ((market_s(600.0), "aws/us-east-1"),)
    gone = fold(seen, ev.LeaseReleased(lease_id=L1, ended_s=9.0, cause="interrupted"), 720.0)
    assert (gone.interruptions, gone.losses) == (1, seen.losses)
    assert gone.cooling == ((market_s(720.0), "aws/us-east-1"),), "one moment per region: the last"


def test_lost_to_us_is_no_interruption_but_cools(ready: JobState) -> None:
    lost = fold(ready, ev.LeaseEnding(lease_id=L1, code="lost", why=""), 600.0)
    assert lost.cooling == ((market_s(600.0), "aws/us-east-1"),)
    assert (lost.interruptions, lost.losses) == (0, ())
    with pytest.raises(IntegrityError):
        fold(ready, ev.LeaseEnding(lease_id="nobody", code="lost", why=""))


def test_a_warning(ready: JobState) -> None:
    after = fold(ready, ev.RiskSeen(lease_id=L1), 600.0)
    assert changes(ready.leases[L1], after.leases[L1]) == {"at_risk": True}
    assert changes(ready, after).keys() == {"leases", "cooling"}
    elsewhere = told(after, intended(L2, 2, at=2), created(L2), ev.RiskSeen(lease_id=L2), at_s=700.0)
    assert elsewhere.cooling == ((market_s(600.0), "aws/us-east-1"), (market_s(700.0), "aws/us-west-2"))


# ---------------------------------------------------------------- prices and limits


def test_prices(ready: JobState) -> None:
    missing = fold(ready, ev.PricesChecked(lease_id=L1, complete=False, text=""), 600.0)
    assert missing.leases[L1].prices_missing_since_s == 600.0
    assert (
        fold(missing, ev.PricesChecked(lease_id=L1, complete=True, text="")).leases[L1].prices_missing_since_s
        is None
    )
    for_each = (
        ev.LeasePriced(lease_id=L1, from_s=3000.0, usd_per_hour=3.0),
        ev.LeasePriced(lease_id=L1, from_s=2000.0, usd_per_hour=2.0),
        ev.LeasePriced(lease_id=L1, from_s=3000.0, usd_per_hour=4.0),
    )
    lease = told(ready, *for_each).leases[L1]
    assert [(p.from_s, p.usd_per_hour) for p in lease.prices] == [(1000.0, 1.5), (2000.0, 2.0), (3000.0, 4.0)]
    assert lease.usd_per_hour == 4.0
    with pytest.raises(IntegrityError, match="unknown lease"):
        fold(ready, ev.LeasePriced(lease_id="nobody", from_s=1.0, usd_per_hour=1.0))


def test_what_is_said_once(ready: JobState) -> None:
    unknown = fold(ready, ev.LimitUnknown(limit="budget", text=""))
    assert changes(ready, unknown) == {"limits_unknown": {"budget"}}
    near = told(ready, ev.LimitNear(limit="budget", text=""), ev.LimitNear(limit="max_runtime", text=""))
    assert changes(ready, near) == {"limits_near": {"budget", "max_runtime"}}
    heard = told(ready, *(ev.Notified(topic=t, ok=True, text="") for t in ("a", "b", "a")))
    assert changes(ready, heard) == {"notified": {"a", "b"}}


def test_of_new_limits_all_is_said_again(ready: JobState) -> None:
    topics = ("near:budget", "near:deadline", "limit:budget", "suspect:near:limit:")
    said = [ev.Notified(topic=t, ok=True, text="") for t in topics]
    before = told(
        ready, ev.LimitUnknown(limit="budget", text=""), ev.LimitNear(limit="budget", text=""), *said
    )
    due = fold(before, ev.LimitsChanged(budget_usd=None, deadline_s=70.0, max_runtime_s=None))
    assert due.spec.constraints.deadline_s == 70.0
    after = fold(due, ev.LimitsChanged(budget_usd=9.0, deadline_s=None, max_runtime_s=60.0))
    assert (after.limits_near, after.limits_unknown, after.notified) == (set(), set(), {topics[-1]})
    limits = after.spec.constraints
    assert (limits.budget_usd, limits.deadline_s, limits.max_runtime_s) == (9.0, None, 60.0)


# ---------------------------------------------------------------- epochs, training, checkpoints


def test_epochs(ready: JobState) -> None:
    assert ready.epochs == (
        Epoch(
            number=1,
            attempt=1,
            members=opened().members,
            resume_from=None,
            resume_step=0,
            opened_at_s=300.0,
            reason="ready",
        ),
    )
    drain = opened(2, members=(), reason="moving", resume_from="m", resume_step=7, grace_s=3.0)
    after = fold(ready, drain, 600.0)
    newest = after.epochs[-1]
    assert (newest.number, newest.opened_at_s, newest.reason, newest.grace_s) == (2, 600.0, "moving", 3.0)
    assert (newest.resume_from, newest.resume_step, newest.drain) == ("m", 7, True)
    for wrong in (1, 3):
        with pytest.raises(IntegrityError, match="follows"):
            fold(ready, opened(wrong))


def started(epoch: int = 1, lease_id: str = L1) -> ev.TrainingStarted:
    return ev.TrainingStarted(epoch=epoch, lease_id=lease_id, at_s=77.0, step=5, ran_s=20.0)


def test_training(ready: JobState) -> None:
    begun = told(ready, started(), started(lease_id=L2), started(epoch=2), at_s=600.0)
    first = Training(epoch=1, lease_id=L1, started_at_s=77.0, began_at_s=580.0, first_step=5)
    assert begun.trainings[0] == first
    stop = ev.TrainingStopped(
        epoch=1,
        lease_id=L1,
        at_s=99.0,
        last_step=40,
        committed_step=30,
        committed_saved_at_s=95.0,
        how="drained",
        told=False,
    )
    after = fold(begun, stop, 700.0)
    assert changes(first, after.trainings[0]) == {
        "stopped_at_s": 99.0,
        "last_step": 40,
        "committed_step": 30,
        "committed_saved_at_s": 95.0,
        "how": "drained",
        "told": False,
    }
    assert after.trainings[1:] == begun.trainings[1:], "of another lease, of another epoch"
    again = fold(after, replace(stop, at_s=500.0, last_step=99))
    assert again.trainings == after.trainings, "the first word counts"


def test_a_second_word_on_when_it_began(ready: JobState) -> None:
    begun = told(ready, started(), started(lease_id=L2), started(epoch=2), at_s=600.0)
    later = replace(started(), at_s=177.0, ran_s=10.0, step=9)
    after = fold(begun, later, 700.0)
    assert changes(begun.trainings[0], after.trainings[0]) == {"started_at_s": 177.0, "began_at_s": 690.0}
    assert after.trainings[1:] == begun.trainings[1:], "of another lease, of another epoch"
    over = replace(begun, trainings=(replace(begun.trainings[0], stopped_at_s=99.0),))
    assert [t.started_at_s for t in fold(over, later, 700.0).trainings] == [77.0, 177.0], (
        "of one that is open"
    )


def test_lists_that_grow(ready: JobState) -> None:
    end = ev.CommandEnded(epoch=1, rank=0, exit_code=0, in_setup=False, tail="")
    saved = ev.CheckpointCommitted(manifest="m1", epoch=1, step=9, saved_at_s=1.0, total_bytes=1)
    assert changes(ready, told(ready, end, end)) == {"commands_ended": (end, end)}
    assert changes(ready, told(ready, saved, replace(saved, manifest="m2"))).keys() == {"checkpoints"}
    bad = [ev.CheckpointRejected(manifest=m, message="") for m in ("m1", "m2")]
    assert changes(ready, told(ready, *bad)) == {"rejected": {"m1", "m2"}}


# ---------------------------------------------------------------- requests, sizes, moves


def asked(verb: str, number: int = 1, **args: Any) -> ev.RequestSeen:
    return ev.RequestSeen(number=number, verb=verb, args=args, by="u")


def test_requests(ready: JobState) -> None:
    names = {"stop": "stop", "migrate": "migrate_request", "scale": "scale_request"}
    for verb, field in names.items():
        event = asked(verb, 4)
        assert changes(ready, fold(ready, event)) == {"requests_seen": 4, field: event}
        assert changes(ready, fold(ready, asked(verb, 4, stale=True))) == {"requests_seen": 4}
    seen = fold(ready, asked("stop", 4))
    assert fold(seen, asked("migrate", 2)).requests_seen == 4
    assert changes(ready, fold(ready, asked("dance", 1))) == {"requests_seen": 1}


def test_a_quota_that_does_now(ready: JobState) -> None:
    bars = [
        ev.OfferBarred(scope=scope, until_s=1e9, code=code, why="")
        for scope, code in (("aws/a", "quota"), ("aws/b", "quota"), ("aws/c", "capacity"))
    ]
    before = told(ready, *bars)
    after = fold(before, asked("check", scopes=["aws/a", "aws/c"]))
    assert [b.scope for b in after.bars] == ["aws/b", "aws/c"]


def test_bars_by_scope(ready: JobState) -> None:
    bar = ev.OfferBarred(scope="aws/a", until_s=1.0, code="capacity", why="")
    longer, other = replace(bar, until_s=2.0, times=2), replace(bar, scope="aws/b")
    assert told(ready, bar, other, longer).bars == (other, longer)


def test_sizes(ready: JobState) -> None:
    before = fold(ready, asked("scale", nodes=2))
    for code, pinned in (("scale", True), ("plan", False)):
        after = fold(before, ev.SizeChosen(nodes=2, code=code, why=""), 600.0)  # type: ignore[arg-type]
        assert (after.size, after.size_pinned, after.size_at_s, after.scale_request) == (
            2,
            pinned,
            600.0,
            None,
        )
    assert changes(before, fold(before, ev.ScaleRefused(number=1, text=""))) == {"scale_request": None}


def test_moves(ready: JobState) -> None:
    go = ev.MigrationStarted(
        to=OFFERS[1], from_offer="x", expected_saving_usd=1.0, forced=False, why="", nodes=2
    )
    asked_for = fold(ready, asked("migrate"))
    moving = fold(asked_for, go, 600.0)
    assert changes(asked_for, moving) == {"migration": go, "migration_at_s": 600.0, "migrate_request": None}
    done = fold(moving, ev.MigrationEnded(done=True, text=""))
    assert (done.migration, done.migrations_done, done.size) == (None, 1, 2)
    assert done.migration_at_s == 600.0, "when the last one was"
    vain = fold(moving, ev.MigrationEnded(done=False, text=""))
    assert (vain.migration, vain.migrations_done, vain.size) == (None, 0, 3)
    same = told(ready, replace(go, nodes=None), ev.MigrationEnded(done=True, text=""))
    assert same.size == 3
    never = told(ready, asked("migrate"), ev.MigrationEnded(done=False, text="no"))
    assert never.migrate_request is None
    assert fold(ready, ev.MigrationEnded(done=True, text="")).size == 3


# ---------------------------------------------------------------- money, and who is at work


def test_baselines_by_name_and_offer(ready: JobState) -> None:
    (first,) = ready.baselines
    later, elsewhere = replace(first, speed=3.0), replace(first, offer=OFFERS[1])
    other = replace(first, name="fixed_zone")
    after = told(ready, elsewhere, other, later)
    assert after.baselines == (elsewhere, other, later)


def test_charges_and_turns(ready: JobState) -> None:
    paid = ev.Charged(what="egress", usd=1.0, gb=2.0, text="")
    assert changes(ready, told(ready, paid, paid)) == {"charges": (paid, paid)}
    turn = ev.QueueDecided(gpu="V100", why="")
    placed = fold(ready, turn)
    (had,) = placed.turns
    assert (had.gpu, had.end_s) == ("V100", None)
    assert changes(ready, placed) == {"placed": turn, "turns": (had,)}
    ended = fold(placed, ev.JobPhaseChanged(phase=JobPhase.STOPPED, code="stop_requested", text=""))
    assert ended.turns[0].end_s is not None
    again = fold(ended, ev.JobPhaseChanged(phase=JobPhase.PENDING, code="resumed", text=""))
    assert again.placed is None, "a new turn is waited for"
    later = fold(again, ev.JobPhaseChanged(phase=JobPhase.STOPPED, code="stop_requested", text=""), 900.0)
    assert later.turns == ended.turns, "over once"
    twice = fold(again, turn)
    assert [t.end_s is None for t in twice.turns] == [False, True]
    assert twice.turns[0] == ended.turns[0]
    over = fold(twice, ev.JobPhaseChanged(phase=JobPhase.STOPPED, code="stop_requested", text=""), 900.0)
    assert over.turns == (ended.turns[0], replace(twice.turns[1], end_s=900.0))


def test_a_users_stop_is_not_overtaken_by_the_queues(ready: JobState) -> None:
    by_user = ev.RequestSeen(number=1, verb="stop", args={}, by="u")
    by_queue = ev.RequestSeen(number=2, verb="stop", args={"queue": "its round is over"}, by="q")
    assert told(ready, by_user, by_queue).stop == by_user
    later = replace(by_user, number=3)
    assert told(ready, by_queue, later).stop == later
    assert told(ready, by_user, later).stop == later, "the newest word counts"
    assert told(ready, by_queue).stop == by_queue
    another = replace(by_queue, number=3, args={"queue": "another job is more urgent"})
    assert told(ready, by_queue, another).stop == another


def test_the_size_of_a_turn(ready: JobState) -> None:
    ready = replace(ready, spec=replace(ready.spec, nodes_min=1, nodes_max=4), size=4)
    placed = fold(ready, ev.QueueDecided(gpu="V100", why="", nodes=2, count=1))
    assert placed.wanted == 2
    asked = told(
        placed,
        ev.RequestSeen(number=1, verb="scale", args={"nodes": 4}, by="u"),
        ev.SizeChosen(nodes=3, code="plan", why=""),
    )
    assert (asked.wanted, asked.scale_request) == (2, None)
    left = fold(placed, ev.JobPhaseChanged(phase=JobPhase.PENDING, code="resumed", text=""))
    assert left.wanted == 4


def test_stalls(ready: JobState) -> None:
    seen = ev.StallSeen(epoch=1, lease_id="", kind="hung", for_s=9.0, do="report", text="")
    assert changes(ready, told(ready, seen, seen)) == {"stalls": (seen, seen)}


def test_the_newest_launcher(ready: JobState) -> None:
    one, two = (ev.LauncherStarted(launcher_id=f"l-{n}", host="h", pid=n) for n in (1, 2))
    assert changes(ready, told(ready, one, two)) == {"launcher": two}


# ---------------------------------------------------------------- what a state says of itself


def saved(manifest: str, epoch: int, step: int) -> ev.CheckpointCommitted:
    return ev.CheckpointCommitted(manifest=manifest, epoch=epoch, step=step, saved_at_s=1.0, total_bytes=1)


def lineage(state: JobState) -> str | None:
    return None if state.lineage is None else state.lineage.manifest


def test_what_a_new_epoch_resumes_from(ready: JobState) -> None:
    assert lineage(ready) is None
    first = told(ready, saved("a", 1, 10), saved("b", 1, 20))
    assert lineage(first) == "b"
    drained = fold(first, opened(2, members=()))
    assert lineage(told(drained, saved("late", 1, 30))) == "late", "of its own epoch"
    second = told(drained, opened(3, resume_from="b", resume_step=20))
    assert lineage(second) == "b", "what it resumed from itself"
    assert lineage(fold(second, saved("stray", 1, 99))) == "b", "a stray one of an older epoch is not read"
    ahead = fold(second, saved("c", 3, 25))
    assert lineage(ahead) == "c"
    worse = fold(ahead, ev.CheckpointRejected(manifest="c", message=""))
    assert lineage(worse) == "b"
    worst = fold(worse, ev.CheckpointRejected(manifest="b", message=""))
    assert lineage(worst) == "a"
    assert lineage(fold(worst, ev.CheckpointRejected(manifest="a", message=""))) is None


def test_small_words(new: JobState, ready: JobState) -> None:
    assert (new.epoch, new.attempt, new.open_leases) == (None, 0, ())
    assert ready.epoch is ready.epochs[-1]
    assert ready.attempt == 1
    assert fold(ready, opened(2, attempt=5)).attempt == 5
    assert ready.open_leases == (ready.leases[L1],)
    assert ready.leases[L1].usd_per_hour == 1.5
    assert fold(new, intended()).leases[L1].usd_per_hour is None
    gone = fold(ready, ev.LeaseReleased(lease_id=L1, ended_s=1.0, cause="self"))
    assert gone.open_leases == ()
    assert [p for p in LeasePhase if p.closed] == [LeasePhase.RELEASED, LeasePhase.REFUSED]
    assert [p for p in JobPhase if p.ended] == [JobPhase.STOPPED, JobPhase.SUCCEEDED, JobPhase.FAILED]
