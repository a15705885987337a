"""Laws of one pass of reconcile: a situation as it is, and what was observed changed by a little."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.harness import JOB, OFFERS, TIMING, Harness, spec

from arylcloud.core import events as ev
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.ports import MachineState
from arylcloud.core.protocol import EndDoc, RequestDoc
from arylcloud.launcher import actions as act
from arylcloud.launcher.reconcile import reconcile
from arylcloud.launcher.state import JobState


def running(folder: Path, nodes: int = 1, **changes: Any) -> Harness:
    h = Harness(folder, spec=spec(nodes, **changes))
    h.agents.total_steps = 500
    h.until(JobPhase.RUNNING)
    h.tick(12)
    assert look(h) == (), "at rest, before anything is changed"
    return h


def look(
    h: Harness,
    state: JobState | None = None,
    desired: dict[str, Any] | None = None,
    now_s: float | None = None,
    **observed: Any,
) -> tuple[act.Action, ...]:
    """One pass, of which nothing is carried out."""
    seen = h.launcher.observer.observe(h.state)
    wanted = replace(h._desire(h.state, seen, h.clock.at_s), **(desired or {}))
    at_s = h.clock.at_s if now_s is None else now_s
    return reconcile(state or h.state, replace(seen, **observed), wanted, at_s)


def of(actions: tuple[act.Action, ...], kind: type) -> list[Any]:
    """Actions of a kind, or events of a kind that are noted."""
    events = [a.event for a in actions if isinstance(a, act.Note)]
    return [x for x in (*actions, *events) if isinstance(x, kind)]


def end(h: Harness, rank: int = 0, epoch: int | None = None, **changes: Any) -> EndDoc:
    newest = h.state.epochs[-1]
    member = next(m for m in newest.members if m.rank == rank)
    done = EndDoc(
        epoch=newest.number if epoch is None else epoch,
        rank=rank,
        lease_id=member.lease_id,
        exit_code=0,
        signalled=False,
        finished=True,
        step=12,
        at_s=h.clock.at_s,
    )
    return replace(done, **changes)


# ---------------------------------------------------------------- whose machine


def test_swept_is_what_is_ours_and_stands_for_nothing(tmp_path: Path) -> None:
    h = running(tmp_path)
    (mine,) = h.launcher.observer.observe(h.state).machines
    stray = replace(mine, instance_id="i-stray", lease_id=f"{JOB}-n0-a9")
    assert [a.machine for a in of(look(h, machines=(mine, stray)), act.SweepMachine)] == [stray]
    for foreign in (replace(stray, journal_id="another"), replace(stray, job_id="another-0a1b2c3d")):
        assert look(h, machines=(mine, foreign)) == (), "somebody else's"
    twin = replace(mine, instance_id="i-twin")
    assert [a.machine for a in of(look(h, machines=(mine, twin)), act.SweepMachine)] == [twin]


# ---------------------------------------------------------------- who said what, of which epoch


def test_an_end_counts_for_its_own_epoch_only(tmp_path: Path) -> None:
    h = running(tmp_path)
    h.world.interrupt(h.running[0].instance_id)
    h.until(JobPhase.RECOVERING)
    h.until(JobPhase.RUNNING)
    h.tick(3)
    number = h.state.epochs[-1].number
    assert number >= 2
    for other in (1, number - 1, number + 1):
        assert not of(look(h, ends=(end(h, epoch=other),)), ev.CommandEnded), f"of epoch {other}"
    (told,) = of(look(h, ends=(end(h),)), ev.CommandEnded)
    assert (told.epoch, told.rank, told.exit_code) == (number, 0, 0)


def test_a_checkpoint_counts_for_the_newest_epoch_only(tmp_path: Path) -> None:
    h = running(tmp_path)
    h.world.interrupt(h.running[0].instance_id)
    h.until(JobPhase.RECOVERING)
    h.until(JobPhase.RUNNING)
    number = h.state.epochs[-1].number
    seen = act.CheckpointSeen(key="m", epoch=number, number=9, step=99, saved_at_s=1.0, total_bytes=1)
    (told,) = of(look(h, checkpoints=(seen,)), ev.CheckpointCommitted)
    assert (told.manifest, told.epoch, told.step) == ("m", number, 99)
    for other in (1, number - 1, number + 1):
        assert not of(look(h, checkpoints=(replace(seen, epoch=other),)), ev.CheckpointCommitted)
    rejected = replace(h.state, rejected=frozenset({"m"}))
    assert not of(look(h, rejected, checkpoints=(seen,)), ev.CheckpointCommitted)


def test_a_job_has_finished_when_all_ranks_have(tmp_path: Path) -> None:
    h = running(tmp_path, 2)
    first, second = end(h), end(h, rank=1)
    phases = [e.phase for e in of(look(h, ends=(first,)), ev.JobPhaseChanged)]
    assert JobPhase.STOPPING not in phases
    (change,) = of(look(h, ends=(first, second)), ev.JobPhaseChanged)
    assert (change.phase, change.code) == (JobPhase.STOPPING, "finished")


def test_a_request_is_seen_once(tmp_path: Path) -> None:
    h = running(tmp_path)
    h.request("stop")
    h.tick()
    assert h.state.requests_seen == 1
    again = RequestDoc(number=1, verb="stop", at_s=h.clock.at_s, by="user@host")
    assert not of(look(h, requests=(again,)), ev.RequestSeen)
    assert of(look(h, requests=(replace(again, number=2),)), ev.RequestSeen)


def test_a_request_from_before_a_resume_is_overtaken_by_it(tmp_path: Path) -> None:
    h = running(tmp_path)
    for verb in ("stop", "migrate", "scale"):
        asked = ev.RequestSeen(number=1, verb=verb, args={"stale": True, "nodes": 1}, by="user@host")
        h.launcher.executor.note(h.state, asked)
        h.state = h.launcher.refold()
    assert (h.state.stop, h.state.migrate_request, h.state.scale_request) == (None, None, None)
    assert h.state.requests_seen == 1


# ---------------------------------------------------------------- what can be seen at all


def test_where_the_mailbox_cannot_be_read_silence_is_ours(tmp_path: Path) -> None:
    h = running(tmp_path)
    (lease,) = h.state.open_leases
    silent = {lease.lease_id: TIMING.silent_s + 1.0}
    assert look(h, heard_s_ago=silent, mailbox_ok=False) == ()
    (change,) = of(look(h, heard_s_ago=silent), ev.LeasePhaseChanged)
    assert change.phase is LeasePhase.SUSPECT
    assert look(h, heard_s_ago={lease.lease_id: TIMING.silent_s}) == (), "not yet"


def test_silence_alone_replaces_nothing(tmp_path: Path) -> None:
    """SUSPECT; LOST only when its cloud has not answered for as long, either; READY when it is heard."""
    h = running(tmp_path)
    (lease,) = h.state.open_leases
    suspect = replace(lease, phase=LeasePhase.SUSPECT, since_s=h.clock.at_s - TIMING.lost_s)
    state = replace(h.state, leases={lease.lease_id: suspect})
    silent: dict[str, Any] = {"heard_s_ago": {lease.lease_id: TIMING.lost_s}}
    away: dict[str, Any] = {"listed": frozenset(), "machines": ()}
    assert not of(look(h, state, **silent), act.EndLease), "its cloud runs it"
    for unlisted_s, lost in ((0.0, False), (TIMING.lost_s - 1.0, False), (TIMING.lost_s, True)):
        seen = look(h, state, unlisted_s={"aws": unlisted_s}, **silent, **away)
        assert [e.code for e in of(seen, act.EndLease)] == ["lost"] * lost, unlisted_s
    recent = replace(state, leases={lease.lease_id: replace(suspect, since_s=h.clock.at_s - 1.0)})
    for other, more in ((recent, {}), (state, {"mailbox_ok": False})):
        seen = look(h, other, unlisted_s={"aws": 1e6}, **silent, **away, **more)
        assert not of(seen, act.EndLease)
    (change,) = of(look(h, state, heard_s_ago={lease.lease_id: 1.0}), ev.LeasePhaseChanged)
    assert change.phase is LeasePhase.READY
    late = look(h, state, heard_s_ago={lease.lease_id: TIMING.silent_s})
    assert not of(late, ev.LeasePhaseChanged), "not lately enough"


def test_an_end_is_asked_for_until_it_is_confirmed(tmp_path: Path) -> None:
    h = running(tmp_path)
    h.world.ends_fail = True
    h.request("stop")
    h.tick(8)
    (lease,) = h.state.open_leases
    assert lease.phase is LeasePhase.ENDING
    (again,) = of(look(h), act.EndLease)
    assert (again.lease_id, again.code) == (lease.lease_id, "stop_requested")
    assert again.machine is not None
    (blind,) = of(look(h, listed=frozenset(), machines=()), act.EndLease)
    assert blind.machine is not None, "by what is known of it, where it cannot be seen"
    assert blind.machine.instance_id == again.machine.instance_id
    assert of(look(h, machines=(replace(again.machine, state=MachineState.GONE),)), ev.LeaseReleased)


def test_without_a_mailbox_nothing_is_begun(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    assert of(look(h), act.CreateLease)
    assert look(h, mailbox_ok=False) == () or not of(look(h, mailbox_ok=False), act.CreateLease)
    h = running(tmp_path / "lost")
    gone = tuple(replace(m, state=type(m.state).GONE) for m in h.launcher.observer.observe(h.state).machines)
    begun = (act.CreateLease, act.OpenEpoch, act.PublishEpoch)
    assert of(look(h, machines=gone), act.CreateLease)
    assert not any(of(look(h, machines=gone, mailbox_ok=False), kind) for kind in begun)


def test_it_is_over_when_every_cloud_has_said_so(tmp_path: Path) -> None:
    h = running(tmp_path)
    h.request("stop")
    while h.state.open_leases:
        h.tick()
        assert h.state.phase is JobPhase.STOPPING or not h.state.open_leases
    stopping = replace(h.state, phase=JobPhase.STOPPING, phase_code="stop_requested", phase_text="stop")
    (change,) = of(look(h, stopping, machines=()), ev.JobPhaseChanged)
    assert change.phase is JobPhase.STOPPED
    assert not of(look(h, stopping, machines=(), listed=frozenset()), ev.JobPhaseChanged)


# ---------------------------------------------------------------- stopping


def test_a_stop_saves_first(tmp_path: Path) -> None:
    h = running(tmp_path, 2)
    stop = RequestDoc(number=1, verb="stop", at_s=h.clock.at_s, by="user@host")
    actions = look(h, requests=(stop,))
    (drain,) = of(actions, act.OpenEpoch)
    assert drain.members == ()
    assert not of(actions, act.EndLease), "before it has saved"


def test_nothing_is_bought_for_a_job_that_stops(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    assert of(look(h), act.CreateLease)
    stop = RequestDoc(number=1, verb="stop", at_s=h.clock.at_s, by="user@host")
    assert not of(look(h, requests=(stop,)), act.CreateLease)


@pytest.mark.parametrize("code", ["stop_requested", "over_budget", "max_runtime", "hung"])
def test_a_finish_overtakes_a_stop(tmp_path: Path, code: str) -> None:
    h = running(tmp_path)
    stopping = replace(h.state, phase=JobPhase.STOPPING, phase_code=code, phase_text=code)
    changes = of(look(h, stopping, ends=(end(h),)), ev.JobPhaseChanged)
    assert [(c.phase, c.code) for c in changes] == [(JobPhase.STOPPING, "finished")]


def test_a_finish_does_not_overtake_a_failure(tmp_path: Path) -> None:
    h = running(tmp_path)
    stopping = replace(h.state, phase=JobPhase.STOPPING, phase_code="access", phase_text="access")
    assert not of(look(h, stopping, ends=(end(h),)), ev.JobPhaseChanged)


# ---------------------------------------------------------------- moving


def advice(h: Harness, at: int = 2) -> dict[str, Any]:
    return {"move": act.MoveAdvice(to=OFFERS[at], saving_usd=9.0, move_usd=1.0, why="cheaper")}


def test_how_often_it_moves(tmp_path: Path) -> None:
    h = running(tmp_path)
    every_s = h.state.spec.migrate.at_most_every_s
    assert of(look(h, desired=advice(h)), ev.MigrationStarted), "never yet"
    now_s = h.clock.at_s + 2 * every_s
    heard = {lease.lease_id: 1.0 for lease in h.state.open_leases}
    for ago_s, moves in ((every_s, True), (every_s - 1.0, False), (1.0, False)):
        moved = replace(h.state, migration_at_s=now_s - ago_s)
        found = of(look(h, moved, advice(h), now_s, heard_s_ago=heard), ev.MigrationStarted)
        assert bool(found) is moves, f"{ago_s} s after the last time"


def test_it_does_not_move_to_what_is_barred_or_where_it_is(tmp_path: Path) -> None:
    h = running(tmp_path)
    now_s = h.state.market_clock.market_s(h.clock.at_s)
    bar = ev.OfferBarred(scope=OFFERS[2].key, until_s=now_s + 10.0, code="capacity", why="none")
    assert not of(look(h, replace(h.state, bars=(bar,)), advice(h)), ev.MigrationStarted)
    assert of(look(h, replace(h.state, bars=(replace(bar, until_s=now_s),)), advice(h)), ev.MigrationStarted)
    assert not of(look(h, desired=advice(h, at=0)), ev.MigrationStarted), "it is there already"
    for change in ({"recovery": "none"}, {"migrate": replace(h.state.spec.migrate, auto=False)}):
        fixed = replace(h.state, spec=replace(h.state.spec, **change))
        assert not of(look(h, fixed, advice(h)), ev.MigrationStarted), change


def test_the_old_machine_works_until_the_new_one_is_there(tmp_path: Path) -> None:
    h = running(tmp_path)
    h.agents.boot_s = 8.0
    h.move = advice(h)["move"]
    h.tick(5)
    assert h.state.phase is JobPhase.MIGRATING
    assert not h.state.epochs[-1].drain, "it has stopped before anybody could go on"
    assert [x.phase for x in h.state.leases.values()] == [LeasePhase.READY, LeasePhase.PENDING]
