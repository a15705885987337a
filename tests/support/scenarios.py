"""Field cases as stories: what happens to one job, second by second, and what must come of it.

Each takes a fresh folder; ``test_world_scenarios`` runs them all, and the mutants must fail at least one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from arylcloud.core import events as ev
from arylcloud.core import protocol as mail
from arylcloud.core.errors import ConflictError
from arylcloud.core.job import Constraints
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.launcher.actions import MoveAdvice
from arylcloud.launcher.journal import Journal
from support.harness import JOB, OFFERS, TIMING, Crash, Harness, capped, fast, offer, regions, spec

RUNNING, ENDED = JobPhase.RUNNING, (JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.STOPPED)


def finish(h: Harness, phase: JobPhase = JobPhase.SUCCEEDED, within: int = 200) -> None:
    h.until(*ENDED, within=within)
    h.check()
    h.check_ended()
    assert h.state.phase is phase, f"{h.state.phase}: {h.state.phase_text}"


def plain_run(folder: Path) -> None:
    h = Harness(folder)
    finish(h)
    assert h.state.attempt == 1
    assert h.state.exit_code == 0
    assert h.world.creates == 1
    assert [t.how for t in h.state.trainings] == ["exited"]


def case_1_first_try_after_a_loss_is_elsewhere(folder: Path) -> None:
    h = Harness(folder)
    h.until(RUNNING)
    h.tick(12)
    h.world.interrupt(h.running[0].instance_id)
    h.until(JobPhase.RECOVERING)
    assert regions([*h.state.leases.values()]) == ["us-east-1", "us-west-2"]
    finish(h)
    assert h.state.interruptions == 1


def case_1_only_the_lost_region_is_left(folder: Path) -> None:
    h = Harness(folder, ranking=OFFERS[:2])
    h.until(RUNNING)
    h.world.interrupt(h.running[0].instance_id)
    finish(h)
    assert set(regions([*h.state.leases.values()])) == {"us-east-1"}


def case_2_silence_alone_replaces_nothing(folder: Path) -> None:
    """The machine is cut off for 10 minutes, its cloud lists it as running: nothing is done."""
    h = Harness(folder)
    h.agents.total_steps = 700
    h.until(RUNNING)
    h.tick(5)
    h.agents.silence(h.running[0].instance_id, 600)
    h.tick(590)
    lease = next(iter(h.state.leases.values()))
    assert lease.phase is LeasePhase.SUSPECT
    assert h.world.creates == 1
    h.tick(30)
    assert h.state.leases[lease.lease_id].phase is LeasePhase.READY
    h.request("stop")
    finish(h, JobPhase.STOPPED)
    assert h.world.creates == 1


def case_2_and_4_the_mailbox_is_cut(folder: Path) -> None:
    h = Harness(folder)
    h.until(RUNNING)
    h.store.down = True
    h.tick(600)
    assert h.world.creates == 1
    assert all(lease.phase is LeasePhase.READY for lease in h.state.open_leases)
    h.store.down = False
    finish(h)


def lost_when_its_cloud_is_silent_too(folder: Path) -> None:
    h = Harness(folder)
    h.agents.total_steps = 200
    h.until(RUNNING)
    h.tick(12)
    first = h.running[0]
    h.agents.silence(first.instance_id, 10_000)
    h.world.lists_fail = True
    h.tick(int(TIMING.lost_s) - 2)
    assert len(h.state.leases) == 1, "too early"
    h.tick(12)
    assert len(h.state.leases) == 2
    lease, instead = h.state.leases.values()
    assert lease.phase is LeasePhase.ENDING, "its cloud has not confirmed: it may still cost"
    assert instead.offer.region != lease.offer.region, "a loss is a loss, also where its cloud is silent"
    h.world.lists_fail = False
    finish(h)


def case_6_every_end_has_a_cause(folder: Path) -> None:
    h = Harness(folder)
    h.until(RUNNING)
    h.agents.exit_code = 7
    finish(h, JobPhase.FAILED)
    assert (h.state.phase_code, h.state.exit_code) == ("user_command", 7)
    assert "7" in h.state.phase_text
    assert h.world.creates == 1, "a failing command is not run again"


def killed_command_on_a_living_machine_is_the_users(folder: Path) -> None:
    h = Harness(folder)
    h.until(RUNNING)
    h.agents.exit_code = 137
    finish(h, JobPhase.FAILED)
    assert (h.state.phase_code, h.state.exit_code) == ("user_command", 137)


def peers_of_a_lost_machine_are_no_failure(folder: Path) -> None:
    """One machine is gone, the other's command dies of it: that is an interruption, not exit 1."""
    h = Harness(folder, spec=spec(2))
    h.until(RUNNING)
    h.tick(12)
    h.world.interrupt(h.running[0].instance_id)
    h.agents.exit_code = 1
    h.pass_time(2)
    h.agents.exit_code = None
    finish(h)


def case_9_survivors_are_kept(folder: Path) -> None:
    h = Harness(folder, spec=spec(3))
    h.until(RUNNING)
    h.tick(12)
    lost, *survivors = (m.instance_id for m in h.running)
    h.world.interrupt(lost)
    h.until(JobPhase.RECOVERING)
    h.until(RUNNING)
    now = {m.instance_id for m in h.running}
    assert set(survivors) < now
    assert len(now) == 3
    assert h.world.creates == 4
    finish(h)


def restart_replaces_all(folder: Path) -> None:
    h = Harness(folder, spec=spec(2, on_node_loss="restart"))
    h.until(RUNNING)
    before = {m.instance_id for m in h.running}
    h.world.interrupt(h.running[0].instance_id)
    h.until(JobPhase.RECOVERING)
    h.until(RUNNING)
    assert not before & {m.instance_id for m in h.running if m.stopping_until_s is None}
    finish(h)


def a_gang_that_cannot_be_completed_moves(folder: Path) -> None:
    h = Harness(folder, spec=spec(2))
    h.world.troubles.extend(["none", "capacity"])
    h.until(RUNNING)
    members = h.state.epochs[-1].members
    assert len({h.state.leases[m.lease_id].offer.key for m in members}) == 1
    finish(h)


def case_15_never_run_again(folder: Path) -> None:
    for change in ({"recovery": "none"}, {"on_node_loss": "fail"}):
        h = Harness(folder / next(iter(change)), spec=spec(1, **change))
        h.until(RUNNING)
        h.world.interrupt(h.running[0].instance_id)
        finish(h, JobPhase.FAILED)
        assert h.state.phase_code == "node_lost"
        assert h.world.creates == 1


def case_15_notice_too(folder: Path) -> None:
    h = Harness(folder, spec=spec(1, recovery="none"))
    h.until(RUNNING)
    h.tick(5)
    h.world.notice(h.running[0].instance_id, 20)
    finish(h, JobPhase.FAILED)
    assert (h.state.phase_code, h.world.creates) == ("node_lost", 1)
    assert h.state.checkpoints, "what it had done is saved all the same"


def case_16_what_no_try_can_mend(folder: Path) -> None:
    h = Harness(folder)
    h.world.troubles.append("access")
    h.tick(2)
    assert h.state.phase is JobPhase.FAILED
    assert (h.state.phase_code, h.world.creates) == ("access", 1)
    h.check_ended()


def case_20_our_own_errors_end_no_job(folder: Path) -> None:
    h = Harness(folder)
    h.until(RUNNING)
    for _ in range(20):
        h.crash_in = 1
        h.tick(3)
    finish(h)
    assert h.world.creates == 1


def notice_loses_no_step(folder: Path) -> None:
    h = Harness(folder)
    h.until(RUNNING)
    h.tick(16)
    h.world.notice(h.running[0].instance_id, 20)
    finish(h)
    drained, exited = h.state.trainings
    assert (drained.how, exited.how) == ("drained", "exited")
    assert drained.committed_step == drained.last_step == exited.first_step
    second = list(h.state.leases.values())[1]
    assert second.intended_at_s <= drained.stopped_at_s, "the replacement is asked for at once"


def notice_to_one_of_two(folder: Path) -> None:
    h = Harness(folder, spec=spec(2))
    h.until(RUNNING)
    h.tick(16)
    h.world.notice(h.running[1].instance_id, 20)
    finish(h)
    steps = [t.first_step for t in h.state.trainings]
    assert steps == sorted(steps)
    assert h.world.creates == 3


def case_28_stop_at_any_moment(folder: Path) -> None:
    """Stopped only when the cloud lists nothing any more; nothing is asked for afterwards."""
    for moment in (0, 1, 2, 3, 4, 7, 12, 20, 21, 22, 23, 24, 26, 30):
        h = Harness(folder / f"{moment}", spec=spec(2 if moment % 2 else 1))
        h.world.troubles.extend(["none", "none", "none", "lost_answer"])
        for second in range(moment):
            if second == 19:
                h.world.interrupt(h.running[0].instance_id)
            h.tick()
        h.request("stop")
        creates = h.world.creates
        finish(h, JobPhase.STOPPED)
        assert h.world.creates == creates, f"a create after the stop at {moment} s"


def stop_while_waiting(folder: Path) -> None:
    h = Harness(folder)
    h.world.full = {o.key for o in OFFERS}
    h.until(JobPhase.WAITING)
    h.request("stop")
    h.tick(2)
    assert h.state.phase is JobPhase.STOPPED
    h.check_ended()


def stop_while_migrating(folder: Path) -> None:
    for moment in range(1, 9):
        h = Harness(folder / f"{moment}")
        h.until(RUNNING)
        h.tick(12)
        h.request("migrate", to="aws/us-west-2")
        h.tick(moment)
        h.request("stop")
        finish(h, JobPhase.STOPPED)
        assert h.state.lineage is not None


def stop_then_resume(folder: Path) -> None:
    h = Harness(folder)
    h.until(RUNNING)
    h.tick(17)
    h.request("stop")
    finish(h, JobPhase.STOPPED)
    step = h.state.lineage.step
    h.request("stop")  # asked of a job that has ended: the resume overtakes it
    h.clock.at_s += 5
    h.resume()
    finish(h)
    assert h.state.trainings[-1].first_step == step
    assert h.state.attempt == 2


def failed_then_resumed(folder: Path) -> None:
    h = Harness(folder)
    h.until(RUNNING)
    h.tick(12)
    h.agents.exit_code = 1
    finish(h, JobPhase.FAILED)
    h.agents.exit_code = None
    h.resume()
    finish(h)
    assert h.state.exit_code == 0


def case_30_crash_around_every_fact(folder: Path, step: int = 7) -> None:
    """The launcher dies at its k-th crash point, for every k of a run with a loss and a move."""
    h = story(folder / "count")
    total = h.points
    assert total > 60
    for point in range(1, total, step):
        h = story(folder / f"{point}", crash_in=point)
        assert h.state.phase is JobPhase.SUCCEEDED, f"crash at {point}: {h.state.phase_text}"


def story(folder: Path, crash_in: int | None = None) -> Harness:
    h = Harness(folder)
    h.crash_in = crash_in
    for second in range(300):
        if second == 16:
            h.world.notice(h.running[0].instance_id, 15)
        if second == 30 and h.running:
            h.world.interrupt(h.running[0].instance_id)
        if second == 50:
            h.request("migrate", to="aws/us-east-1")
        h.tick()
        h.check()
        if h.state.phase.ended:
            break
    h.check_ended()
    return h


def crash_before_the_intent(folder: Path) -> None:
    """Whatever is asked of a cloud stands in the journal before."""
    h = Harness(folder)

    def probe(at: str) -> None:
        if at == "before journal LeaseIntended":
            h.launcher.executor.probe = lambda _at: None
            raise Crash

    h.launcher.executor.probe = probe
    h.tick()
    assert not h.world.born
    finish(h)


def lists_lag_behind_creates(folder: Path) -> None:
    h = Harness(folder)
    h.world.list_lag_s = TIMING.list_lag_s - 1
    finish(h)
    assert h.world.creates == 1
    h = Harness(folder / "stopped at once")
    h.world.list_lag_s = TIMING.list_lag_s - 1
    h.tick()
    h.request("stop")
    finish(h, JobPhase.STOPPED)


def crash_between_intent_and_create(folder: Path) -> None:
    h = Harness(folder)
    for point in ("before create", "after create"):
        name, seen = point, []

        def probe(at: str, name: str = name, seen: list[str] = seen) -> None:
            if at == name and not seen:
                seen.append(at)
                raise Crash

        h.launcher.executor.probe = probe
        h.tick()
    finish(h)
    assert len(h.world.born) == 1
    assert len(h.state.leases) == 1


def case_31_terminate_until_confirmed(folder: Path) -> None:
    h = Harness(folder)
    h.until(RUNNING)
    h.world.ends_fail = True
    h.request("stop")
    h.tick(60)
    assert h.state.phase is JobPhase.STOPPING, "not stopped while its machine is paid for"
    h.world.ends_fail = False
    finish(h, JobPhase.STOPPED)


def case_37_create_without_answer(folder: Path) -> None:
    """The machine came all the same: it is found by its tag, used, and nothing else is asked for."""
    h = Harness(folder)
    h.world.troubles.append("lost_answer")
    h.world.landing_s = 6.0
    finish(h)
    assert h.world.creates == 1


def create_without_machine_is_given_up(folder: Path) -> None:
    h = Harness(folder)
    h.world.troubles.append("lost_call")
    finish(h)
    first = next(iter(h.state.leases.values()))
    assert (first.ending_code, first.phase, first.launched_s) == (
        "create_uncertain",
        LeasePhase.RELEASED,
        None,
    )


def too_late_a_landing_is_swept_and_accounted(folder: Path) -> None:
    h = Harness(folder)
    h.world.troubles.append("lost_answer")
    h.world.landing_s = TIMING.landing_s + TIMING.list_lag_s + 10
    finish(h)
    late = h.world.born["i-0001"]
    assert late.cause is not None, "swept"
    assert h.state.leases[late.spec.lease_id].launched_s == late.lands_at_s


def landing_while_it_is_given_up(folder: Path) -> None:
    h = Harness(folder)
    h.world.troubles.append("lost_answer")
    h.world.landing_s = TIMING.landing_s - 1
    h.world.list_lag_s = TIMING.list_lag_s - 1
    h.tick(3)
    h.request("stop")
    finish(h, JobPhase.STOPPED)
    h.pass_time(40)
    h.check_ended()


def case_40_what_is_not_ours_is_left_alone(folder: Path) -> None:
    h = Harness(folder)
    h.until(RUNNING)
    stranger = h.running[0].spec
    theirs = replace(stranger, journal_id="someone-else", token="theirs", lease_id="x-n0-a1")
    other_job = replace(stranger, job_id="other-job", token="other", lease_id="other-job-n0-a1")
    for machine in (theirs, other_job):
        h.world.create(machine)
    h.until(*ENDED)
    assert {m.spec.token for m in h.world.alive} == {"theirs", "other"}


def case_41_two_machines_of_one_lease(folder: Path) -> None:
    h = Harness(folder)
    h.until(RUNNING)
    h.world.create(replace(h.running[0].spec, token="twice"))
    h.tick(5)
    assert [m.instance_id for m in h.running] == ["i-0001"]


def unknown_machine_of_this_job_is_swept(folder: Path) -> None:
    h = Harness(folder)
    h.until(RUNNING)
    h.world.create(replace(h.running[0].spec, token="lost", lease_id=f"{JOB}-n0-a99"))
    h.tick(5)
    assert [m.instance_id for m in h.running] == ["i-0001"]


def case_42_the_created_price_counts(folder: Path) -> None:
    h = Harness(folder, spec=capped(1.3))
    h.world.price_of = lambda o: 1.52 if o.key == OFFERS[0].key else o.usd_per_hour
    finish(h)
    first, second = h.state.leases.values()
    assert first.ending_code == "over_cap"
    assert second.offer.key == OFFERS[1].key
    assert not any(m.lease_id == first.lease_id for e in h.state.epochs for m in e.members)


def quoted_price_counts_without_a_cap(folder: Path) -> None:
    h = Harness(folder)
    h.world.price_of = lambda o: (o.usd_per_hour or 0) * (1.2 if o.key == OFFERS[0].key else 1.05)
    finish(h)
    assert [x.ending_code for x in h.state.leases.values()] == ["over_cap", "finished"]


def case_75_capacity_comes_back(folder: Path) -> None:
    h = Harness(folder, spec=spec(2))
    h.until(RUNNING)
    h.world.full = {o.key for o in OFFERS}
    h.world.interrupt(h.running[0].instance_id)
    h.until(JobPhase.WAITING)
    h.tick(40)
    h.world.full = set()
    finish(h)


def waiting_for_capacity(folder: Path) -> None:
    h = Harness(folder, spec=spec(notify="https://example.org/hook"))
    h.world.full = {o.key for o in OFFERS}
    h.until(JobPhase.WAITING)
    assert h.world.creates == len(OFFERS), "each offer is asked once until its bar ends"
    assert h.state.phase_code == "capacity"
    assert h.state.phase_text.startswith("no capacity in 4 zones of aws (tried ")
    assert "; next try " in h.state.phase_text
    h.tick(10)
    assert h.world.creates == len(OFFERS)
    h.world.full = set()
    finish(h)
    topics = {e.topic.split(":")[0] for e in h.of(ev.Notified)}
    assert topics == {"waiting", "ended"}


def quota_bars_the_family_in_its_region(folder: Path) -> None:
    h = Harness(folder)
    h.world.troubles.append("quota")
    h.until(RUNNING)
    assert h.world.creates == 2
    assert regions([*h.state.leases.values()]) == ["us-east-1", "us-west-2"], "both zones are barred"
    finish(h)


def throttled_means_the_same_again_later(folder: Path) -> None:
    h = Harness(folder)
    h.world.troubles.append("throttled")
    finish(h)
    assert [x.offer.key for x in h.state.leases.values()] == [OFFERS[0].key], "with the same token"
    assert h.world.creates == 2


def never_booted_is_replaced(folder: Path) -> None:
    h = Harness(folder)
    h.agents.duds = 1
    finish(h)
    first, second = h.state.leases.values()
    assert first.ending_code == "boot_timeout"
    assert first.offer.key != second.offer.key


def never_works_anywhere(folder: Path) -> None:
    h = Harness(folder, ranking=tuple(offer(zone=z) for z in "abcdefg"))
    h.agents.duds = 100
    finish(h, JobPhase.FAILED)
    assert (h.state.phase_code, h.world.creates) == ("bad_starts", 5)


def migrate_by_request(folder: Path) -> None:
    h = Harness(folder, spec=spec(2))
    h.until(RUNNING)
    h.tick(12)
    h.request("migrate", to="aws/eu-west-1")
    finish(h)
    assert h.state.migrations_done == 1
    old, new = h.state.leases["digits-0a1b2c3d-n0-a1"], h.state.leases["digits-0a1b2c3d-n0-a3"]
    assert new.intended_at_s < (old.ended_at_s or 0.0), "make before break"
    assert old.ending_code == "migrated"
    a, b = (t for t in h.state.trainings if t.lease_id in (old.lease_id, new.lease_id))
    assert a.committed_step == b.first_step == a.last_step, "nothing is lost by a move"


def migrate_by_advice(folder: Path) -> None:
    h = Harness(folder)
    h.until(RUNNING)
    h.tick(5)
    h.move = MoveAdvice(to=OFFERS[2], saving_usd=3.0, move_usd=0.5, why="it saves $2.50")
    finish(h)
    assert h.state.migrations_done == 1, "once: at most daily"


def migrate_refused_goes_on(folder: Path) -> None:
    h = Harness(folder, spec=spec(2))
    h.until(RUNNING)
    h.tick(12)
    before = h.state.epochs
    h.world.troubles.extend(["none", "capacity"])
    h.request("migrate", to="aws/eu-west-1")
    h.tick(4)
    assert h.state.phase is RUNNING
    assert h.state.epochs == before, "the job has not been touched"
    extra = [m for m in h.running if m.stopping_until_s is None]
    assert len(extra) == 2, "the half that came is ended"
    finish(h)
    assert h.state.migrations_done == 0


def migrate_target_lost(folder: Path) -> None:
    for moment in range(1, 8):
        h = Harness(folder / f"{moment}")
        h.until(RUNNING)
        h.tick(12)
        h.request("migrate", to="aws/eu-west-1")
        h.tick(moment)
        h.world.interrupt("i-0002")
        finish(h)


def migrate_old_lost(folder: Path) -> None:
    for moment in range(1, 8):
        h = Harness(folder / f"{moment}")
        h.until(RUNNING)
        h.tick(12)
        h.request("migrate", to="aws/eu-west-1")
        h.tick(moment)
        h.world.interrupt("i-0001")
        finish(h)
        assert h.world.creates == 2, "the new machine is the replacement"


def migrate_nowhere(folder: Path) -> None:
    h = Harness(folder)
    h.until(RUNNING)
    h.request("migrate", to="aws/mars-1")
    h.request("migrate")
    h.request("migrate", to=OFFERS[0].key)
    h.tick(4)
    assert [e.done for e in h.of(ev.MigrationEnded)] == [False] or not h.of(ev.MigrationStarted)
    finish(h)
    assert h.state.migrations_done == 0


def over_budget(folder: Path) -> None:
    h = Harness(folder, spec=spec(constraints=Constraints(budget_usd=5.0)))
    h.until(RUNNING)
    h.tick(16)
    h.spent_usd = 5.01
    finish(h, JobPhase.FAILED)
    assert h.state.phase_code == "over_budget"
    drained = h.state.trainings[-1]
    assert drained.committed_step == drained.last_step, "with a final checkpoint"


def max_runtime(folder: Path) -> None:
    h = Harness(folder, spec=spec(constraints=Constraints(max_runtime_s=20.0)))
    finish(h, JobPhase.FAILED)
    assert h.state.phase_code == "max_runtime"


def deadline_is_noted_not_enforced(folder: Path) -> None:
    h = Harness(folder, spec=spec(constraints=Constraints(deadline_s=10.0)))
    finish(h)
    assert h.state.phase_code == "missed_deadline"


def damaged_checkpoint_is_passed_over(folder: Path) -> None:
    h = Harness(folder)
    h.until(RUNNING)
    h.tick(26)
    first, second = h.state.checkpoints
    h.store._objects[second.manifest] = (b"{}", 0.0)
    h.launcher.observer._checkpoints.clear()  # a launcher that looks for the first time
    h.world.interrupt(h.running[0].instance_id)
    finish(h)
    assert h.state.epochs[1].resume_from == first.manifest


def checkpoint_that_cannot_be_restored(folder: Path) -> None:
    """The launcher believes in it; the agent finds out. Back to the one before, on the same machine."""
    h = Harness(folder)
    h.until(RUNNING)
    h.tick(26)
    first, second = h.state.checkpoints
    h.store._objects[second.manifest] = (b"{}", 0.0)
    h.world.interrupt(h.running[0].instance_id)
    finish(h)
    assert [e.resume_from for e in h.state.epochs] == [None, second.manifest, first.manifest]
    assert second.manifest in h.state.rejected
    assert h.world.creates == 2


def stray_machine_is_not_read(folder: Path) -> None:
    """Given up as lost, it goes on writing checkpoints: nobody resumes from them."""
    h = Harness(folder)
    h.agents.total_steps = 400
    h.until(RUNNING)
    h.tick(12)
    first = h.running[0].instance_id
    h.agents.silence(first, 60)
    h.world.lists_fail = h.world.ends_fail = True
    h.tick(75)
    assert len(h.state.epochs) == 2
    old = [k for k in h.agents.numbers if k == 1]
    assert old
    mine = [c.epoch for c in h.state.checkpoints]
    assert mine == sorted(mine)
    h.world.lists_fail = h.world.ends_fail = False
    finish(h, within=500)
    for epoch in h.state.epochs[1:]:
        if epoch.resume_from is not None:
            assert epoch.resume_step >= 10


def launcher_away_while_it_finishes(folder: Path) -> None:
    h = Harness(folder)
    h.until(RUNNING)
    h.pass_time(120)
    h.restart()
    finish(h)
    assert h.world.creates == 1


def epoch_document_lost_in_a_crash(folder: Path) -> None:
    h = Harness(folder)

    def probe(at: str) -> None:
        if at == "before epoch document":
            h.launcher.executor.probe = lambda _at: None
            raise Crash

    h.launcher.executor.probe = probe
    finish(h)
    assert h.store.get(mail.epoch_key(1)) is not None


def two_launchers(folder: Path) -> None:
    """Another home takes the job over: the first one ends itself before its next effect."""
    h = Harness(folder)
    h.until(RUNNING)
    h.tick(12)
    with fast(Journal(folder / "elsewhere" / "journal.db")) as other:
        other.catch_up(JOB, h.store)
        first, second = h.launcher, h.new_launcher(other)
        with pytest.raises(ConflictError, match="was heard"):
            second.start()
        h.store.delete([mail.LAUNCHER_KEY])  # `adopt --force`
        second.start()
        h.world.interrupt(h.running[0].instance_id)
        creates = h.world.creates
        h.clock.at_s += 1
        with pytest.raises(ConflictError) as caught:
            first.tick(h.state)
        assert caught.value.exit_code == 6
        assert h.world.creates == creates, "it has asked a cloud for something before it found out"
        h.launcher, h.state = second, second.refold()
        h.journal = other
        finish(h)


SCENARIOS = {
    name: story_
    for name, story_ in list(globals().items())
    if callable(story_) and getattr(story_, "__module__", "") == __name__ and name not in ("finish", "story")
}
