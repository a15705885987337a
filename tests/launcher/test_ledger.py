"""The ledger by worked examples: every figure here can be checked with pencil and paper."""

from __future__ import annotations

import pytest
from support.diary import Diary, offer, survivor

from arylcloud.core import events as ev
from arylcloud.core.job import Constraints, JobSpec
from arylcloud.core.offer import Market
from arylcloud.core.phases import JobPhase
from arylcloud.core.ports import Billing
from arylcloud.launcher.ledger import SplitMicro, build_report
from arylcloud.launcher.spent import known_spent_usd, spent_for_limits_usd, spent_usd

CENT = 10_000


def dollars(split: SplitMicro | None) -> tuple[float, float, float, float]:
    assert split is not None
    return (split.useful / 1e6, split.boot / 1e6, split.lost_work / 1e6, split.idle / 1e6)


def test_the_survivor_to_the_cent() -> None:
    report = build_report(survivor().state, now_s=9999.0)
    a, b, c, d = report.leases
    # 3.6 $/h = 0.1 cent per second
    assert dollars(a.micro) == (0.60, 0.10, 0.30, 0.0)  # 100 s boot, 600 kept, 300 lost
    assert dollars(b.micro) == (0.58, 0.10, 0.0, 0.82)  # price doubles at 1510
    assert dollars(c.micro) == (0.40, 0.07, 0.0, 0.25)
    assert dollars(d.micro) == (0.3475, 0.0525, 0.0, 0.025)
    assert report.compute_micro == 3_645_000
    assert report.total_micro == report.compute_micro + 5 * CENT + CENT
    assert report.known_micro == report.total_micro
    assert report.unknown == ()
    assert (report.interruptions, report.interruptions_with_notice, report.migrations) == (2, 1, 1)
    assert (report.epochs, report.attempts, report.final_step) == (6, 4, 328)
    assert report.exit_code == 0
    assert report.ended_s == 4001.0


def test_an_unknown_price_is_unknown_and_said_never_zero() -> None:
    d = Diary().lease("a", 0.0, usd_per_hour=None).end("a", 3600.0)
    d.lease("b", 4000.0, usd_per_hour=3.6).end("b", 7600.0)
    report = build_report(d.state, now_s=9999.0)
    assert report.compute_micro is None
    assert report.split_micro is None
    assert report.total_micro is None
    assert report.known_micro == 3_600_000
    assert len(report.unknown) == 1
    assert "(a) is unknown" in report.unknown[0]
    assert spent_usd(d.state, 9999.0) is None
    assert known_spent_usd(d.state, 9999.0) == 3.6


def test_a_price_that_comes_to_be_known_late_leaves_the_beginning_unknown() -> None:
    d = Diary().lease("a", 0.0, usd_per_hour=None).price("a", 120.0, 3.6).end("a", 3600.0)
    report = build_report(d.state, now_s=9999.0)
    assert report.compute_micro is None
    assert "first 120 s" in report.unknown[0]
    d.price("a", -5.0, 3.6)  # history that reaches back settles it
    assert build_report(d.state, now_s=9999.0).compute_micro == 3_600_000


def test_open_leases_count_up_to_now() -> None:
    d = Diary().lease("a", 100.0)
    assert spent_usd(d.state, 1100.0) == 1.0
    assert build_report(d.state, now_s=1100.0).leases[0].ended_s is None


@pytest.mark.parametrize(("ended", "billed"), [(10.0, 60.0), (60.0, 60.0), (61.0, 61.0)])
def test_the_first_minute_is_always_paid(ended: float, billed: float) -> None:
    d = Diary().lease("a", 0.0).end("a", ended)
    report = build_report(d.state, now_s=9999.0)
    assert report.leases[0].billed_s == billed
    assert report.compute_micro == round(billed * 1000)


def test_what_is_missing_to_the_minute_is_paid_at_the_last_price_before_the_end() -> None:
    """Whenever a later step was read: while the machine was thought to live, or afterwards."""
    for early in (True, False):
        d = Diary().lease("a", 0.0, usd_per_hour=3.6).price("a", 20.0, 7.2)
        d = d.price("a", 45.0, 36.0).end("a", 40.0) if early else d.end("a", 40.0).price("a", 45.0, 36.0)
        report = build_report(d.state, now_s=9999.0)
        assert report.compute_micro == 100_000  # 20 s at 0.1 cent, 40 at 0.2
        assert spent_usd(d.state, 9999.0) == spent_for_limits_usd(d.state, 9999.0) == 0.1


@pytest.mark.parametrize(
    ("market", "ended", "cause", "free_rule", "usd"),
    [
        (Market.SPOT, 3599.0, "interrupted", True, 0.0),
        (Market.SPOT, 3600.0, "interrupted", True, 3.6),  # the hour is over
        (Market.SPOT, 3599.0, "terminated", True, 3.599),  # we ended it
        (Market.SPOT, 3599.0, "interrupted", False, 3.599),  # this cloud charges
        (Market.ON_DEMAND, 3599.0, "interrupted", True, 3.599),
    ],
)
def test_first_hour_interruption(
    market: Market, ended: float, cause: str, free_rule: bool, usd: float
) -> None:
    rule = Billing(first_hour_interruption_free=free_rule)
    d = Diary().lease("a", 0.0, at=offer(market=market), billing=rule).end("a", ended, cause)
    report = build_report(d.state, now_s=9999.0)
    assert report.compute_micro == round(usd * 1e6)
    assert report.leases[0].free == (usd == 0.0)


def test_free_needs_no_price() -> None:
    rule = Billing(first_hour_interruption_free=True)
    d = Diary().lease("a", 0.0, usd_per_hour=None, billing=rule).end("a", 600.0, "interrupted")
    assert build_report(d.state, now_s=9999.0).compute_micro == 0


def test_a_machine_that_never_stepped_is_all_boot() -> None:
    d = Diary().lease("a", 0.0).end("a", 1000.0)
    assert dollars(build_report(d.state, now_s=2000.0).split_micro) == (0.0, 1.0, 0.0, 0.0)


def test_a_refused_lease_costs_nothing() -> None:
    d = Diary()
    d.write(
        1.0,
        ev.LeaseIntended(
            lease_id="a", token="t", offer=offer(), index=0, attempt=1, purpose="start", until_s=1e9, why="x"
        ),
    )
    d.write(2.0, ev.LeaseRefused(lease_id="a", kind="capacity", code="ICE", message="none left"))
    report = build_report(d.state, now_s=100.0)
    assert report.leases == ()
    assert report.total_micro == 0


def test_a_damaged_checkpoint_makes_the_work_after_the_one_before_lost() -> None:
    d = Diary().lease("a", 0.0).epoch(0.0, "a").train(1, "a", 0.0)
    d.save(1, 1, 100.0, 10).save(1, 2, 200.0, 20)
    d.halt(1, "a", 200.0, how="drained", last=20, committed=20, saved_s=200.0)
    assert build_report(d.state, now_s=200.0).seconds.lost_work == 0.0
    d.epoch(210.0, "a", resume=(1, 1), step=10).train(2, "a", 220.0, 10)
    report = build_report(d.state, now_s=300.0)
    assert report.seconds.lost_work == 100.0
    assert (report.seconds.useful, report.seconds.idle) == (180.0, 20.0)


@pytest.mark.parametrize(
    ("told", "saved_s", "lost_s"),
    [
        (True, 90.0, 0.0),  # it tells of its steps: none since
        (False, 80.0, 20.0),  # nobody knows what it did since
        (False, 85.0, 0.0),  # it saved when it was asked to end
        (False, None, 100.0),
    ],
)
def test_what_a_command_without_steps_did_after_its_last_checkpoint_is_lost(
    told: bool, saved_s: float | None, lost_s: float
) -> None:
    d = Diary().lease("a", 0.0).epoch(0.0, "a").train(1, "a", 0.0)
    if saved_s is not None:
        d.save(1, 1, saved_s, 10)
    step = 10 if saved_s is not None else 0
    d.halt(1, "a", 100.0, how="drained", last=step, committed=step, saved_s=saved_s, told=told)
    assert build_report(d.state, now_s=100.0).seconds.lost_work == lost_s
    d.epoch(100.0, "a", resume=(1, 1) if step else None, step=step).train(2, "a", 100.0, step)
    report = build_report(d.state, now_s=150.0)
    assert (report.seconds.useful, report.seconds.lost_work) == (150.0 - lost_s, lost_s)


def test_a_save_is_by_the_clock_of_the_rank_that_commits() -> None:
    """b's clock is 30 s ahead of a's: a saved when it was asked to end."""
    d = Diary().lease("a", 0.0).lease("b", 0.0, index=1).epoch(0.0, "a", "b")
    d.train(1, "a", 0.0).train(1, "b", 30.0).save(1, 1, 98.0, 10)
    for name, at_s in (("a", 100.0), ("b", 130.0)):
        d.halt(1, name, at_s, how="drained", last=10, committed=10, saved_s=98.0, told=False)
    assert build_report(d.state, now_s=100.0).seconds.lost_work == 0.0
    d.epoch(140.0, "a", "b", resume=(1, 1), step=10)
    assert build_report(d.state, now_s=150.0).seconds.lost_work == 0.0
    d = Diary().lease("a", 0.0).lease("b", 0.0, index=1).epoch(0.0, "a", "b")
    d.train(1, "a", 0.0).train(1, "b", 0.0).save(1, 1, 60.0, 10)
    for name in ("a", "b"):
        d.halt(1, name, 100.0, how="drained", last=10, committed=10, saved_s=60.0, told=False)
    assert build_report(d.state, now_s=100.0).seconds.lost_work == 80.0, "a's word counts for both"


def test_a_restart_from_the_beginning_loses_every_earlier_epoch() -> None:
    d = Diary().lease("a", 0.0).epoch(0.0, "a").train(1, "a", 0.0)
    d.save(1, 1, 90.0, 9).halt(1, "a", 100.0, how="drained", last=10, committed=9, saved_s=90.0)
    d.epoch(100.0, "a", resume=(1, 1), step=9).train(2, "a", 100.0, 9)
    d.halt(2, "a", 150.0, how="lost", last=12, committed=9, saved_s=None)
    assert build_report(d.state, now_s=150.0).seconds.lost_work == 10.0 + 50.0
    d.epoch(200.0, "a").train(3, "a", 200.0)
    assert d.state.epochs[-1].resume_from is None
    assert build_report(d.state, now_s=300.0).seconds.lost_work == 150.0


def test_nothing_committed_in_an_epoch_loses_all_its_steps_but_no_earlier_ones() -> None:
    d = Diary().lease("a", 0.0).epoch(0.0, "a").train(1, "a", 0.0)
    d.save(1, 1, 100.0, 10).halt(1, "a", 100.0, how="drained", last=10, committed=10, saved_s=100.0)
    d.epoch(100.0, "a", resume=(1, 1), step=10).train(2, "a", 100.0, 10)
    d.halt(2, "a", 160.0, how="lost", last=15, committed=10, saved_s=None)
    d.epoch(170.0, "a", resume=(1, 1), step=10).train(3, "a", 180.0, 10)
    report = build_report(d.state, now_s=200.0)
    assert (report.seconds.useful, report.seconds.lost_work, report.seconds.idle) == (120.0, 60.0, 20.0)


@pytest.mark.parametrize(("code", "lost"), [(0, 0.0), (7, 50.0)])
def test_steps_after_the_last_checkpoint_count_only_if_the_command_succeeded(code: int, lost: float) -> None:
    d = Diary().lease("a", 0.0).epoch(0.0, "a").train(1, "a", 0.0).save(1, 1, 50.0, 5)
    d.halt(1, "a", 100.0, how="exited", last=10, committed=5, saved_s=50.0)
    d.write(100.0, ev.CommandEnded(epoch=1, rank=0, exit_code=code, in_setup=False, tail=""))
    d.phase(100.0, JobPhase.FAILED if code else JobPhase.SUCCEEDED, "user_command", "x", exit_code=code)
    assert build_report(d.state, now_s=100.0).seconds.lost_work == lost


def test_a_rank_without_progress_of_its_own_steps_with_its_gang() -> None:
    d = Diary().lease("a", 0.0).lease("b", 20.0, index=1).epoch(50.0, "a", "b").train(1, "a", 100.0)
    d.save(1, 1, 150.0, 5).halt(1, "a", 200.0, how="lost", last=9, committed=5, saved_s=150.0)
    a, b = build_report(d.state, now_s=300.0).leases
    assert (a.seconds.boot, b.seconds.boot) == (100.0, 80.0)
    assert (a.seconds.useful, b.seconds.useful) == (50.0, 50.0)
    assert (a.seconds.lost_work, b.seconds.lost_work) == (50.0, 50.0)


def test_a_checkpoint_shows_steps_before_the_training_told_of_any() -> None:
    d = Diary().lease("a", 0.0).epoch(0.0, "a").save(1, 1, 80.0, 5).train(1, "a", 90.0)
    assert build_report(d.state, now_s=100.0).seconds.boot == 80.0


def test_running_steps_are_not_lost_yet() -> None:
    d = Diary().lease("a", 0.0).epoch(0.0, "a").train(1, "a", 10.0)
    assert build_report(d.state, now_s=500.0).seconds.useful == 490.0


def test_the_budget_is_shown_beside_the_total() -> None:
    spec = JobSpec(name="x", run="true", constraints=Constraints(budget_usd=12.5))
    assert build_report(Diary(spec=spec).state, now_s=1.0).budget_usd == 12.5
