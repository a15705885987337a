"""Jobs whose number of machines changes while they run: each rule as a story in the hostile world."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from support.harness import OFFERS, TIMING, Harness, spec
from support.scenarios import finish

from arylcloud.core import events as ev
from arylcloud.core.job import JobSpec
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.launcher.actions import MoveAdvice, Scaling, Timing
from arylcloud.launcher.baselines import baselines
from arylcloud.launcher.ledger import build_report
from arylcloud.launcher.reconcile.sizes import gain

RUNNING = JobPhase.RUNNING
HERE = OFFERS[0].key


def elastic(least: int = 1, most: int = 3, **changes: object) -> JobSpec:
    return replace(spec(most, on_node_loss="shrink"), nodes_min=least, **changes)  # type: ignore[arg-type,no-any-return]


def running(folder: Path, job: JobSpec | None = None, timing: Timing = TIMING) -> Harness:
    """All machines train, and one checkpoint is committed."""
    h = Harness(folder, spec=job or elastic(), timing=timing)
    h.agents.total_steps = 100_000
    h.agents.collective = True
    h.until(RUNNING)
    h.tick(13)
    assert h.state.checkpoints
    h.agents.boot_s = 15.0
    return h


def world(h: Harness) -> list[str]:
    """Instance ids of the open epoch's members, in order of rank."""
    epoch = next(e for e in reversed(h.state.epochs) if e.members)
    return [h.state.leases[m.lease_id].instance_id or "" for m in epoch.members]


def to_the_end(h: Harness) -> None:
    h.agents.total_steps = 0
    finish(h)


def wait_for_size(h: Harness, size: int, within: int = 60, *, beyond: int = 0) -> int:
    """Seconds until an epoch of that size (and later than ``beyond``) trains."""
    for second in range(within):
        epoch = h.state.epoch
        trained = {t.epoch for t in h.state.trainings if t.epoch > beyond}
        if epoch is not None and len(epoch.members) == size and epoch.number in trained:
            return second
        h.tick()
        h.check()
    raise AssertionError(f"no epoch of {size} in {within} s: {h.state.epochs[-3:]}")


def test_a_loss_shrinks_and_what_comes_back_joins(tmp_path: Path) -> None:
    h = running(tmp_path)
    first = world(h)
    assert len(first) == 3
    h.world.interrupt(first[0])
    took_s = wait_for_size(h, 2)
    assert took_s <= 8, "one-second ticks: seen, stopped, restored, stepped"
    assert world(h) == first[1:], "survivors keep their machines, and their order"
    shrunk = next(e for e in reversed(h.state.epochs) if e.members)
    committed = [c.step for c in h.state.checkpoints if c.epoch < shrunk.number]
    assert shrunk.resume_step == max(committed), "what the lost rank 0 had committed is used"
    assert "is gone" in shrunk.reason
    drain = h.state.epochs[-2]
    assert drain.drain
    assert drain.grace_s == TIMING.loss_grace_s
    wait_for_size(h, 3)
    assert world(h)[:2] == first[1:], "who stayed stays rank 0: the checkpoint is on its disk"
    assert world(h)[2] not in first
    grown = next(e for e in reversed(h.state.epochs) if e.members)
    assert "joins" in grown.reason
    before = [t for t in h.state.trainings if t.epoch == shrunk.number]
    assert {t.how for t in before} == {"drained"}
    assert grown.resume_step == max(t.last_step or 0 for t in before), "nothing is lost by a growth"
    assert [x.purpose for x in h.state.leases.values()] == ["start", "start", "start", "replace"]
    to_the_end(h)


def test_a_silent_rank_leaves_and_is_kept(tmp_path: Path) -> None:
    h = running(tmp_path)
    first = world(h)
    h.agents.silence(first[1], 600.0)
    silent_at_s = h.clock.at_s
    h.until(JobPhase.RECOVERING, within=12)
    assert h.clock.at_s - silent_at_s <= TIMING.silent_s + 2
    wait_for_size(h, 2)
    assert h.clock.at_s - silent_at_s <= TIMING.silent_s + 9
    assert world(h) == [first[0], first[2]]
    for _ in range(113):
        h.pass_time(4)
        h.tick()
    lease = next(x for x in h.state.leases.values() if x.instance_id == first[1])
    assert lease.phase is LeasePhase.SUSPECT
    assert h.world.creates == 3, "ten minutes of silence, and nothing is bought"
    wait_for_size(h, 3, within=90)
    assert set(world(h)) == set(first), "heard again: taken on again"
    assert world(h)[:2] == [first[0], first[2]]
    assert h.world.creates == 3
    to_the_end(h)


def test_a_notice_to_one_of_three_loses_nothing(tmp_path: Path) -> None:
    h = running(tmp_path)
    first = world(h)
    h.world.notice(first[0], 20.0)
    wait_for_size(h, 2)
    assert world(h) == first[1:]
    before = [t for t in h.state.trainings if t.epoch == 1]
    after = next(e for e in reversed(h.state.epochs) if e.members)
    assert after.resume_step == max(t.last_step or 0 for t in before)
    assert h.state.epochs[1].drain
    assert h.state.epochs[1].grace_s is None, "all ranks live: they have the time that they need"
    to_the_end(h)


def test_fewer_than_the_least_wait_for_another(tmp_path: Path) -> None:
    h = running(tmp_path, elastic(2, 3))
    first = world(h)
    h.world.interrupt(first[0])
    h.world.interrupt(first[1])
    h.tick(3)
    assert h.state.phase is JobPhase.RECOVERING
    assert h.state.epoch is not None
    assert h.state.epoch.drain, "one is too few: it waits, saved"
    wait_for_size(h, 3, within=80, beyond=1)
    assert first[2] == world(h)[0]
    to_the_end(h)


@pytest.mark.parametrize("rule", ["replace", "restart", "fail"])
def test_what_else_may_be_wished_for(tmp_path: Path, rule: str) -> None:
    h = running(tmp_path, elastic(on_node_loss=rule))
    first = world(h)
    h.world.interrupt(first[1])
    if rule == "fail":
        finish(h, JobPhase.FAILED)
        assert h.state.phase_code == "node_lost"
        assert h.world.creates == 3
        return
    wait_for_size(h, 3, beyond=1)
    epochs = [e for e in h.state.epochs if e.members]
    assert [len(e.members) for e in epochs] == [3, 3], "nobody goes on with fewer"
    kept = set(first) & set(world(h))
    assert kept == ({first[0], first[2]} if rule == "replace" else set())
    to_the_end(h)


def test_a_restart_is_of_the_whole_gang_even_for_the_last_minutes(tmp_path: Path) -> None:
    """Nobody goes on with fewer, so what it is worth is no reason to wait."""
    h = running(tmp_path, elastic(2, 3, on_node_loss="restart"))
    first = world(h)
    h.scaling = Scaling(offer_key=HERE, best=3, loss={2: 1.1, 3: 1.0}, handover=0.01, boot=0.5)
    h.world.interrupt(first[2])
    wait_for_size(h, 3, beyond=1)
    assert not set(first) & set(world(h))
    to_the_end(h)


def test_a_restart_goes_elsewhere_where_its_offer_is_barred(tmp_path: Path) -> None:
    h = Harness(
        tmp_path,
        spec=elastic(on_node_loss="restart"),
        timing=replace(TIMING, capacity_bar_market_s=3600.0),
    )
    h.agents.total_steps = 100_000
    h.world.room = {HERE: 2}
    wait_for_size(h, 2)
    h.tick(20)
    assert len(world(h)) == 2, "before a loss, it goes on without the third"
    h.world.interrupt(world(h)[1])
    wait_for_size(h, 3, beyond=1)
    assert {m.spec.offer.key for m in h.running}.isdisjoint({HERE})
    to_the_end(h)


def test_replace_goes_on_smaller_where_there_is_none(tmp_path: Path) -> None:
    h = running(tmp_path, elastic(on_node_loss="replace"))
    h.world.full = {HERE}
    h.world.interrupt(world(h)[1])
    wait_for_size(h, 2)
    h.world.full = set()
    wait_for_size(h, 3, within=90)
    assert {x.offer.key for x in h.state.leases.values()} == {HERE}, "it grows where it is"
    to_the_end(h)


def test_a_start_takes_what_there_is(tmp_path: Path) -> None:
    h = Harness(tmp_path, spec=elastic(), ranking=OFFERS[:1])
    h.agents.total_steps = 100_000
    h.world.room = {HERE: 2}
    wait_for_size(h, 2)
    assert h.state.phase_text.endswith("(3 wanted)")
    h.world.room = {}
    wait_for_size(h, 3, within=120)
    to_the_end(h)


def test_quota_is_needed_for_the_machines_that_are_wanted(tmp_path: Path) -> None:
    """Of 1..4 that begins on one, not for four; but it stands where others can come."""
    h = Harness(tmp_path, spec=elastic(1, 4))
    h.request("scale", nodes=1)
    h.until(RUNNING)
    (machine,) = h.running
    assert (machine.spec.nodes, machine.spec.gang) == (1, True)
    to_the_end(h)


def test_a_start_waits_for_others_for_a_while_only(tmp_path: Path) -> None:
    h = Harness(tmp_path, spec=elastic())
    h.agents.total_steps = 100_000
    h.agents.duds = 1
    took_s = wait_for_size(h, 2)
    assert TIMING.gather_s <= took_s <= TIMING.gather_s + 10
    wait_for_size(h, 3, within=90)
    assert h.state.phase is not JobPhase.FAILED
    to_the_end(h)


def test_one_that_never_comes_up_ends_no_job_that_runs(tmp_path: Path) -> None:
    h = running(tmp_path, elastic(1, 2))
    h.agents.duds = 99
    h.world.interrupt(world(h)[1])
    h.tick(200)
    bad = [x for x in h.state.leases.values() if x.ending_code == "boot_timeout"]
    assert len(bad) >= 2
    assert h.state.phase is RUNNING
    h.agents.duds = 0
    to_the_end(h)


@pytest.mark.parametrize("loss", ["silence", "notice", "interrupt"])
def test_what_never_came_up_while_it_trained_is_not_held_against_it(tmp_path: Path, loss: str) -> None:
    h = running(tmp_path, elastic(1, 2), timing=replace(TIMING, capacity_bar_market_s=0.1, grow_every_s=1.0))
    h.agents.duds = 99
    h.world.interrupt(world(h)[1])
    for _ in range(300):
        bad = [x for x in h.state.leases.values() if x.ending_code == "boot_timeout"]
        if len(bad) > 5:
            break
        h.tick()
    assert len(bad) > 5
    assert h.state.phase is RUNNING
    h.agents.duds = 0
    (only,) = world(h)
    if loss == "silence":
        h.agents.silence(only, TIMING.silent_s + 6.0)
    elif loss == "notice":
        h.world.notice(only, 10.0)
    else:
        h.world.interrupt(only)
    h.tick(30)
    assert h.state.phase is not JobPhase.FAILED, h.state.phase_text
    wait_for_size(h, 2, within=90, beyond=1)
    to_the_end(h)


def test_what_never_comes_up_once_it_has_stopped_still_ends_it(tmp_path: Path) -> None:
    h = running(tmp_path, elastic(2, 3), timing=replace(TIMING, capacity_bar_market_s=0.1))
    h.agents.duds = 99
    h.world.interrupt(world(h)[1])
    h.world.interrupt(world(h)[2])
    h.until(JobPhase.FAILED, within=400)
    assert h.state.phase_code == "bad_starts"


def test_scale_down_and_up(tmp_path: Path) -> None:
    h = running(tmp_path)
    first = world(h)
    h.request("scale", nodes=2)
    wait_for_size(h, 2)
    assert world(h) == first[:2]
    shrunk = next(e for e in reversed(h.state.epochs) if e.members)
    assert shrunk.resume_step == max(t.last_step or 0 for t in h.state.trainings if t.epoch == 1)
    h.tick(4)
    assert len(h.running) == 2, "the third is paid for no more"
    assert {(m.spec.nodes, m.spec.gang) for m in h.world.born.values()} == {(3, True)}
    h.restart()
    assert (h.state.size, h.state.size_pinned) == (2, True), "it survives the launcher"
    h.scaling = Scaling(offer_key=HERE, best=3, loss={2: 100.0, 3: 1.0}, handover=0.1)
    h.tick(40)
    assert len(world(h)) == 2, "what a user has asked for stays"
    h.request("scale", nodes=3)
    wait_for_size(h, 3)
    assert world(h)[:2] == first[:2]
    assert [e.code for e in h.of(ev.SizeChosen)] == ["scale", "scale"]
    to_the_end(h)


@pytest.mark.parametrize("nodes", [0, 4, "many", True, None])
def test_what_cannot_be_scaled_to_is_refused(tmp_path: Path, nodes: object) -> None:
    h = running(tmp_path)
    h.request("scale", nodes=nodes)
    h.tick(2)
    (refused,) = h.of(ev.ScaleRefused)
    assert isinstance(refused, ev.ScaleRefused)
    assert refused.number == 1
    assert h.state.size is None
    to_the_end(h)


def test_a_fixed_gang_is_not_scaled(tmp_path: Path) -> None:
    h = running(tmp_path, spec(2))
    h.request("scale", nodes=1)
    h.tick(2)
    (refused,) = h.of(ev.ScaleRefused)
    assert "2 machines throughout" in refused.text  # type: ignore[attr-defined]
    assert len(h.state.epochs) == 1


def test_the_planners_size_is_followed_where_it_pays(tmp_path: Path) -> None:
    h = running(tmp_path)
    h.scaling = Scaling(offer_key=HERE, best=2, loss={2: 9.0, 3: 10.0}, handover=2.0)
    h.tick(50)
    assert len(world(h)) == 3, "a gain of 1 does not pay for a hand-over of 2"
    h.scaling = replace(h.scaling, handover=0.5)
    wait_for_size(h, 2)
    h.scaling = replace(h.scaling, best=3, loss={2: 10.0, 3: 1.0})
    h.tick(20)
    assert len(world(h)) == 2, "not so soon after the last change"
    wait_for_size(h, 3)
    h.request("scale", nodes="auto")
    h.tick(2)
    assert not h.state.size_pinned
    to_the_end(h)


def test_a_size_that_misses_a_limit_is_left_and_said_to_be(tmp_path: Path) -> None:
    h = running(tmp_path)
    h.scaling = Scaling(offer_key=HERE, best=2, loss={2: 9.0, 3: math.inf}, handover=2.0)
    wait_for_size(h, 2)
    (chosen,) = h.of(ev.SizeChosen)
    assert isinstance(chosen, ev.SizeChosen)
    assert chosen.why == "no plan for 3 machines meets the job's limits (p90)"
    to_the_end(h)


def test_nothing_is_bought_for_the_last_minutes(tmp_path: Path) -> None:
    h = running(tmp_path)
    h.scaling = Scaling(offer_key=HERE, best=3, loss={2: 1.1, 3: 1.0}, handover=0.01, boot=0.5)
    h.world.interrupt(world(h)[2])
    wait_for_size(h, 2)
    h.tick(40)
    assert h.world.creates == 3
    h.scaling = replace(h.scaling, loss={2: 2.0, 3: 1.0})
    wait_for_size(h, 3)
    to_the_end(h)


def test_the_formula_of_a_growth() -> None:
    s = Scaling(offer_key=HERE, best=3, loss={1: 30.0, 3: 20.0}, handover=2.0, boot=1.5)
    assert gain(s, 1, 3, boots=2) == pytest.approx(30 - 20 - 2 - 2 * 1.5)
    assert gain(s, 3, 1, boots=0) == pytest.approx(20 - 30 - 2)
    assert gain(s, 2, 3, boots=0) is None


def test_one_that_comes_and_goes_stops_the_others_seldom(tmp_path: Path) -> None:
    h = running(tmp_path)
    flapping = world(h)[2]
    grown = []
    for _ in range(12):
        h.agents.silence(flapping, 9.0)
        h.tick(14)
        grown = [e.opened_at_s for e in h.state.epochs if len(e.members) == 3]
    gaps = [b - a for a, b in pairwise(grown[1:])]
    assert gaps
    assert min(gaps) >= TIMING.regain_s
    to_the_end(h)


def test_who_has_handed_over_hurries_nobody(tmp_path: Path) -> None:
    """One of three is let go as soon as it has saved, long before the others have."""
    h = running(tmp_path)
    first = world(h)
    h.world.end_takes_s = 0.0
    h.agents.stop_takes_s = {first[0]: 9.0}
    h.request("scale", nodes=2)
    wait_for_size(h, 2)
    drains = [e for e in h.state.epochs if e.drain]
    assert [e.grace_s for e in drains] == [None]
    before = [t for t in h.state.trainings if t.epoch == 1]
    assert h.state.epochs[-1].resume_step == max(t.last_step or 0 for t in before)
    assert world(h) == first[:2]
    to_the_end(h)


def test_a_machine_lost_while_all_save_hurries_the_others(tmp_path: Path) -> None:
    """Drained for a growth or a notice, with all the time they need; then a rank is gone."""
    h = running(tmp_path)
    first = world(h)
    h.world.notice(first[1], 25.0)
    while not (h.state.epoch and h.state.epoch.drain):
        h.tick()
    h.world.interrupt(first[2])
    h.until(RUNNING, within=15)
    assert world(h) == first[:1]
    to_the_end(h)


def test_a_move_takes_the_best_size_there(tmp_path: Path) -> None:
    h = running(tmp_path)
    there = OFFERS[3]
    h.move = MoveAdvice(to=there, saving_usd=5.0, move_usd=1.0, why="cheaper", nodes=2)
    for _ in range(40):
        h.tick()
        h.check()
        if h.state.migrations_done:
            break
    h.move = None
    wait_for_size(h, 2)
    assert {h.machine_of(x).spec.offer.key for x in h.state.open_leases if x.instance_id in world(h)} == {
        there.key
    }
    assert h.state.size == 2
    to_the_end(h)


def test_a_loss_during_a_move_shrinks_and_moves_on(tmp_path: Path) -> None:
    h = running(tmp_path)
    first = world(h)
    h.request("migrate", to="aws/eu-west-1")
    h.tick(2)
    assert h.state.migration is not None
    h.world.interrupt(first[1])
    h.tick(4)
    assert h.state.migration is not None
    for _ in range(40):
        h.tick()
        h.check()
        if h.state.migrations_done:
            break
    wait_for_size(h, 3)
    assert {m.spec.offer.region for m in h.running} == {"eu-west-1"}
    to_the_end(h)


@pytest.mark.parametrize("least", [1, 2])
def test_a_failure_while_a_machine_was_cut_off_is_no_failure(tmp_path: Path, least: int) -> None:
    """For less than makes it SUSPECT: the commands on both sides lose each other, and exit."""
    h = running(tmp_path, elastic(least, 2) if least == 1 else spec(2))
    first = world(h)
    h.agents.silence(first[1], 5.0)
    h.tick(3)
    h.agents.exit_code = 1
    h.tick()
    h.agents.exit_code = None
    wait_for_size(h, 2, beyond=1)
    assert world(h) == first
    assert h.state.epoch is not None
    assert h.state.epoch.resume_step >= 10
    assert "cut off" in h.state.epoch.reason
    assert all(x.phase is LeasePhase.READY for x in h.state.open_leases)
    to_the_end(h)


@pytest.mark.parametrize("boot_s", [15.0, 1.0])
def test_such_a_failure_during_a_move_is_no_end_of_it(tmp_path: Path, boot_s: float) -> None:
    """The old machines start again, or the new ones take over if they are there; none is ended in vain."""
    h = running(tmp_path, spec(2))
    first = world(h)
    h.agents.boot_s = boot_s
    h.agents.silence(first[1], 5.0)
    h.tick(2)
    h.request("migrate", to="aws/eu-west-1")
    h.tick()
    h.agents.exit_code = 1
    h.tick()
    h.agents.exit_code = None
    for _ in range(60):
        h.tick()
        h.check()
        if h.state.migrations_done or h.state.phase.ended:
            break
    (ended,) = h.of(ev.MigrationEnded)
    assert isinstance(ended, ev.MigrationEnded)
    assert ended.done
    assert "→" in ended.text
    assert not set(world(h)) & set(first)
    assert h.world.creates == 4, "nothing was brought up in vain"
    wait_for_size(h, 2, beyond=1)
    assert {m.spec.offer.region for m in h.running} == {"eu-west-1"}
    to_the_end(h)


def test_a_failure_that_comes_again_is_the_users(tmp_path: Path) -> None:
    h = running(tmp_path, spec(2))
    h.agents.hangs_at = 13  # whatever is tried, no checkpoint comes of it any more
    for _ in range(3):
        first = world(h)
        h.agents.silence(first[1], 5.0)
        h.tick(3)
        h.agents.exit_code = 1
        h.tick()
        h.agents.exit_code = None
        h.tick(25)
    assert h.state.phase is JobPhase.FAILED
    assert h.state.phase_code == "user_command"
    assert len([e for e in h.state.epochs if e.members]) == 3


def test_it_looks_more_often_while_machines_stand_still(tmp_path: Path) -> None:
    h = running(tmp_path)
    tick_s = TIMING.tick_s
    assert h.launcher.pause_s(h.state, news=False) == tick_s
    h.request("scale", nodes=2)
    while not (h.state.epoch and h.state.epoch.drain):
        h.tick()
    assert h.launcher.pause_s(h.state, news=False) == tick_s / 4
    assert h.launcher.pause_s(h.state, news=True) == tick_s / 10
    h.pass_time(30)
    assert h.launcher.pause_s(h.state, news=False) == tick_s, "who does not answer is not asked for ever"


def test_the_account_of_a_job_of_many_sizes(tmp_path: Path) -> None:
    """The report is the cloud's bill, whoever came and went; what was lost is what the loss took."""
    h = running(tmp_path)
    first = world(h)
    h.world.interrupt(first[0])
    wait_for_size(h, 3, beyond=2)
    h.agents.silence(world(h)[1], 20.0)
    wait_for_size(h, 2, beyond=h.state.epochs[-1].number)
    h.request("scale", nodes=1)
    wait_for_size(h, 1)
    h.tick(3)
    to_the_end(h)
    report = build_report(h.state, now_s=h.clock.at_s)
    least_s = h.world.capabilities().billing.minimum_s
    lives_s = {m.instance_id: (m.ended_s or 0.0) - m.lands_at_s for m in h.world.born.values()}
    assert {c.instance_id: c.billed_s for c in report.leases} == {
        name: pytest.approx(max(life_s, least_s)) for name, life_s in lives_s.items()
    }
    paid_s = sum(c.billed_s for c in report.leases if c.instance_id != first[0])
    assert (report.compute_micro or 0) / 1e6 == pytest.approx(paid_s / 3600, abs=1e-5), "a dollar an hour"
    assert [c.free for c in report.leases] == [c.instance_id == first[0] for c in report.leases]
    for cost in report.leases:
        assert sum(span.to_s - span.from_s for span in cost.spans) == pytest.approx(cost.billed_s)
    assert report.seconds.useful > report.seconds.lost_work > 0
    assert {line.name for line in baselines(h.state, report)} == {
        "on_demand", "cheapest_per_hour", "fixed_zone"
    }  # fmt: skip


def story(folder: Path, crash_in: int | None = None) -> Harness:
    h = Harness(folder, spec=elastic())
    h.agents.total_steps = 70
    h.crash_in = crash_in
    for second in range(140):
        if second == 16 and h.running:
            h.world.interrupt(h.running[0].instance_id)
        if second == 40 and not h.state.phase.ended:
            h.request("scale", nodes=2)
        if second == 50 and h.running:
            h.agents.silence(h.running[0].instance_id, 12.0)
        if h.state.phase.ended:
            break
        h.tick()
        h.check()
    return h


def test_a_crash_anywhere_converges(tmp_path: Path) -> None:
    whole = story(tmp_path / "whole")
    finish(whole)
    for point in range(3, whole.points, 97):
        finish(story(tmp_path / str(point), crash_in=point))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_crash_at_every_point_converges(tmp_path: Path) -> None:
    points = story(tmp_path / "whole").points
    for point in range(1, points):
        finish(story(tmp_path / str(point), crash_in=point))
