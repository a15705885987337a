"""Prices that cannot be read, come late or are not known: what a machine cost is true or unknown, and a
budget is kept all the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.harness import OFFERS, TIMING, Harness, spec
from support.scenarios import finish

from arylcloud.core import events as ev
from arylcloud.core.job import Constraints
from arylcloud.core.phases import JobPhase
from arylcloud.core.ports import Billing, PricePoint
from arylcloud.launcher import actions as act
from arylcloud.launcher.leasebill import integral_usd
from arylcloud.launcher.ledger import build_report
from arylcloud.launcher.spent import spent_for_limits_usd, spent_usd

RUNNING = JobPhase.RUNNING
STEPS = tuple(
    PricePoint(from_s=at_s, usd_per_hour=usd)
    for at_s, usd in ((900.0, 1.0), (1015.0, 1.25), (1030.0, 0.75), (1045.0, 2.0))
)


def priced(folder: Path, **changes: Any) -> Harness:
    h = Harness(folder, **changes)
    h.world.steps[OFFERS[0].key] = STEPS
    return h


def truth_micro(h: Harness) -> int:
    total = 0
    for machine in h.world.born.values():
        until_s = max(machine.ended_s or h.clock.at_s, machine.lands_at_s + 60.0)
        steps = STEPS if machine.spec.offer.key == OFFERS[0].key else ()
        prices = steps or (PricePoint(from_s=0.0, usd_per_hour=machine.price or 0.0),)
        total += round(integral_usd(prices, machine.lands_at_s, until_s) * 1_000_000)
    return total


def test_every_step_is_in_the_account(tmp_path: Path) -> None:
    h = priced(tmp_path)
    finish(h)
    assert build_report(h.state, now_s=h.clock.at_s).total_micro == truth_micro(h)
    assert not h.of(ev.PricesChecked)


@pytest.mark.parametrize("from_second", [0, 15, 40])
def test_a_history_that_fails_at_the_end_is_asked_again(tmp_path: Path, from_second: int) -> None:
    h = priced(tmp_path)
    h.tick(from_second)
    h.world.histories_fail = True
    h.until(JobPhase.STOPPING)
    while h.state.open_leases:
        h.tick()
    h.tick(10)
    assert h.state.phase is JobPhase.STOPPING, "its account is not complete"
    assert spent_usd(h.state, h.clock.at_s) is None
    h.world.histories_fail = False
    finish(h)
    assert [e.complete for e in h.of(ev.PricesChecked)] == [False, True]  # type: ignore[attr-defined]
    assert build_report(h.state, now_s=h.clock.at_s).total_micro == truth_micro(h)


def test_a_launcher_that_dies_over_it_asks_again(tmp_path: Path) -> None:
    h = priced(tmp_path)
    h.world.histories_fail = True
    h.until(JobPhase.STOPPING)
    while h.state.open_leases:
        h.tick()
    h.restart()
    h.world.histories_fail = False
    finish(h)
    assert build_report(h.state, now_s=h.clock.at_s).total_micro == truth_micro(h)


def test_one_that_never_answers_ends_as_unknown(tmp_path: Path) -> None:
    h = priced(tmp_path)
    h.until(RUNNING)
    h.world.histories_fail = True
    h.until(JobPhase.STOPPING)
    began_s = h.clock.at_s
    finish(h)
    assert TIMING.prices_patience_s <= h.clock.at_s - began_s <= TIMING.prices_patience_s + 10
    report = build_report(h.state, now_s=h.clock.at_s)
    assert report.total_micro is None
    assert "could not be read to the end" in report.unknown[0]


def test_of_a_lost_machine_too_and_the_job_goes_on(tmp_path: Path) -> None:
    h = priced(tmp_path)
    h.until(RUNNING)
    h.tick(20)
    h.world.histories_fail = True
    h.world.interrupt(h.running[0].instance_id)
    h.tick(20)
    assert h.state.phase in (RUNNING, JobPhase.RECOVERING)
    assert len(h.state.leases) == 2
    h.world.histories_fail = False
    finish(h)
    first, _ = h.state.leases.values()
    assert first.prices_missing_since_s is None
    assert [p.usd_per_hour for p in first.prices] == [1.0, 1.25]


def test_a_step_that_turns_up_late_has_its_place(tmp_path: Path) -> None:
    h = priced(tmp_path)
    h.world.hidden_steps = {1015.0}
    h.tick(55)
    h.world.hidden_steps = set()
    finish(h)
    (lease,) = h.state.leases.values()
    assert [p.from_s for p in lease.prices] == sorted(p.from_s for p in lease.prices)
    assert build_report(h.state, now_s=h.clock.at_s).total_micro == truth_micro(h)


def test_a_history_that_lags_at_the_end_does_not_hide_what_was_seen(tmp_path: Path) -> None:
    h = priced(tmp_path)
    h.world.hidden_steps = {1045.0}
    finish(h)
    (lease,) = h.state.leases.values()
    assert lease.prices[-1].usd_per_hour == 2.0
    assert lease.prices[-1].from_s == pytest.approx(1045.0, abs=2.0)


# ---------------------------------------------------------------- budgets


def watched(h: Harness) -> Harness:
    desire = h.launcher.desire

    def real(state: Any, observed: act.Observed, now_s: float) -> act.Desired:
        return replace(desire(state, observed, now_s), spent_usd=spent_for_limits_usd(state, now_s))

    h.launcher.desire = real
    return h


def test_a_budget_is_kept_where_the_cloud_names_no_price(tmp_path: Path) -> None:
    """$1.00 an hour is quoted, the machine has no price: 3 cents are spent after 108 s, and a twentieth of
    them is kept for the last save."""
    h = watched(Harness(tmp_path, spec=spec(constraints=Constraints(budget_usd=0.03))))
    h.world.price_of = lambda offer: None
    h.agents.total_steps = 400
    h.until(RUNNING)
    began_s = h.running[0].lands_at_s
    h.until(JobPhase.STOPPING)
    assert h.state.phase_code == "over_budget"
    assert h.clock.at_s - began_s == pytest.approx(0.95 * 108.0, abs=2.0)
    finish(h, JobPhase.FAILED)
    assert build_report(h.state, now_s=h.clock.at_s).total_micro is None, "the report does not guess"


def test_where_there_is_no_quote_either_it_is_said_once(tmp_path: Path) -> None:
    bare = tuple(replace(o, usd_per_hour=None) for o in OFFERS)
    limits = spec(constraints=Constraints(budget_usd=0.03), notify="https://example.org/hook")
    h = watched(Harness(tmp_path, spec=limits, ranking=bare))
    finish(h)
    assert [e.limit for e in h.of(ev.LimitUnknown)] == ["budget"]  # type: ignore[attr-defined]
    assert [e.topic for e in h.of(ev.Notified)][:1] == ["limit:budget"]  # type: ignore[attr-defined]


def test_what_limits_go_by(tmp_path: Path) -> None:
    """The price in force; for a time before the first one that is known, that one."""
    h = priced(tmp_path)
    h.until(RUNNING)
    h.tick(50)
    exact = spent_usd(h.state, h.clock.at_s)
    assert exact is not None
    assert spent_for_limits_usd(h.state, h.clock.at_s) == exact
    (lease,) = h.state.leases.values()
    later = replace(lease, prices=lease.prices[1:])
    state = replace(h.state, leases={lease.lease_id: later})
    assert spent_usd(state, h.clock.at_s) is None
    more = (1.25 - 1.0) * (lease.prices[1].from_s - (lease.launched_s or 0.0)) / 3600
    assert spent_for_limits_usd(state, h.clock.at_s) == pytest.approx(exact + more, abs=2e-6)


def test_a_price_that_moved_after_the_end_is_not_its_machines(tmp_path: Path) -> None:
    """Its cloud's clock is half a minute ahead of the launcher's, and lists show the price of now for what
    has ended, too: by the launcher's clock that was before the end."""
    h = Harness(tmp_path)
    h.world.ahead_s, h.world.end_lag_s = 30.0, 6.0
    h.until(RUNNING)
    h.tick(20)
    machine = h.running[0]
    h.world.interrupt(machine.instance_id)
    later_s = h.clock.at_s + h.world.ahead_s + 2.0
    h.world.steps[OFFERS[0].key] = (
        PricePoint(from_s=0.0, usd_per_hour=1.0),
        PricePoint(from_s=later_s, usd_per_hour=1.05),
    )
    h.until(JobPhase.SUCCEEDED)
    lease = h.state.leases[machine.spec.lease_id]
    assert lease.cause == "interrupted"
    assert [p.usd_per_hour for p in lease.prices] == [1.0]


def test_a_machine_that_is_found_late_is_billed_from_its_launch_at_the_price_of_then(tmp_path: Path) -> None:
    """Its create had no answer; the price moved between its launch and the list that showed it."""
    h = Harness(tmp_path)
    h.world.steps[OFFERS[0].key] = steps = (
        PricePoint(from_s=0.0, usd_per_hour=1.0),
        PricePoint(from_s=1006.0, usd_per_hour=1.05),
    )
    h.world.troubles.append("lost_answer")
    h.world.landing_s, h.world.list_lag_s = 2.0, 6.0
    finish(h)
    (lease,) = h.state.leases.values()
    assert (lease.launched_s, h.world.creates) == (1003.0, 1)
    assert lease.prices == (replace(steps[0], from_s=1003.0), steps[1])


def test_what_is_billed_beyond_the_end_is_billed_at_the_last_price(tmp_path: Path) -> None:
    """The first minute is always paid. Its cloud's price moves after the machine's end, within that minute,
    and its list shows the machine alive at the new price for a while."""
    h = Harness(tmp_path)
    h.world.end_lag_s, h.world.billing = 10.0, Billing()
    h.until(RUNNING)
    machine = h.running[0]
    h.world.interrupt(machine.instance_id)
    assert machine.ended_s is not None
    h.world.steps[OFFERS[0].key] = (
        PricePoint(from_s=0.0, usd_per_hour=1.0),
        PricePoint(from_s=machine.ended_s + 2.0, usd_per_hour=1.08),
    )
    finish(h)
    lease = h.state.leases[machine.spec.lease_id]
    assert len(lease.prices) == 2, "it was read while the machine was thought to live"
    assert lease.ended_s == machine.ended_s < machine.lands_at_s + 58.0
    cost = build_report(h.state, now_s=h.clock.at_s).leases[0]
    assert cost.micro is not None
    assert cost.micro.total == round(1_000_000 / 60)
    assert cost.prices == lease.prices[:1]


def test_one_that_is_found_long_after_its_end_is_billed_at_the_price_of_its_life(tmp_path: Path) -> None:
    """Lists show what has ended at the price of now, and that one came long after its end."""
    h = Harness(tmp_path)
    h.world.steps[OFFERS[0].key] = (
        PricePoint(from_s=0.0, usd_per_hour=1.0),
        PricePoint(from_s=1500.0, usd_per_hour=1.05),
    )
    h.world.troubles.append("lost_answer")
    h.world.landing_s = 2.0
    while not h.world.born:
        h.tick()
    (machine,) = h.world.born.values()
    while not machine.alive(h.clock.at_s):
        h.world.advance(1.0)
    h.world.interrupt(machine.instance_id)
    h.world.advance(600.0)
    h.restart()
    finish(h)
    lease = h.state.leases[machine.spec.lease_id]
    assert lease.ended_s == machine.ended_s
    assert [p.usd_per_hour for p in lease.prices] == [1.0]
