"""The budget and max_runtime as the moment after which no renewal counts: in the lease, and in every beat."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from arylcloud.agent import deadman
from arylcloud.core import protocol as mail
from arylcloud.core.clock import MarketClock
from arylcloud.core.codec import loads
from arylcloud.core.job import Constraints
from arylcloud.core.phases import JobPhase
from arylcloud.launcher import actions as act
from arylcloud.launcher.limits import (
    END_S,
    SAVE_S,
    burn_usd_per_hour,
    hard_left_s,
    running,
    trained_market_s,
)
from tests.support.first import initial_actions
from tests.support.harness import OFFERS, Harness, spec

HOUR_S = 3600.0
LAST_SAVE_S = SAVE_S + END_S
"""So much of a budget is kept for the end."""


def beat(h: Harness) -> mail.LauncherBeat:
    data = h.store.get(mail.LAUNCHER_KEY)
    assert data is not None
    return loads(mail.LauncherBeat, data, what=mail.LAUNCHER_KEY)


def ends_at_s(h: Harness) -> float:
    found = beat(h)
    assert found.hard_left_s is not None
    return found.at_s + found.hard_left_s


def limited(folder: Path, nodes: int = 1, **limits: float) -> Harness:
    return Harness(folder, spec=spec(nodes, constraints=Constraints(**limits)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("budget", "runtime_s", "spent", "rate", "scale", "left_s"),
    [
        (None, None, 1.0, 1.0, 1.0, None),
        (4.0, None, 1.0, 1.5, 1.0, 2 * HOUR_S),
        (4.0, None, 1.0, 1.5, 600.0, 12.0),
        (4.0, None, 5.0, 1.5, 1.0, 0.0),
        (4.0, None, None, 1.5, 1.0, None),
        (4.0, None, 1.0, None, 1.0, None),
        (4.0, HOUR_S, 1.0, 1.5, 1.0, HOUR_S),
        (4.0, 3 * HOUR_S, 1.0, 1.5, 1.0, 2 * HOUR_S),
        (None, HOUR_S, None, None, 600.0, 6.0),
    ],
)
def test_the_earlier_of_budget_and_runtime(
    tmp_path: Path,
    budget: float | None,
    runtime_s: float | None,
    spent: float | None,
    rate: float | None,
    scale: float,
    left_s: float | None,
) -> None:
    h = Harness(tmp_path, spec=spec(constraints=Constraints(budget_usd=budget, max_runtime_s=runtime_s)))
    state = replace(h.state, market_clock=MarketClock(scale=scale))
    found = hard_left_s(state, 1000.0, spent_usd=spent, usd_per_hour=rate)
    assert found == (None if left_s is None else pytest.approx(left_s))


def test_a_boot_is_not_running(tmp_path: Path) -> None:
    """While nothing trains, ``max_runtime`` is not used up: what a boot may take is not taken from it."""
    h = limited(tmp_path, max_runtime_s=HOUR_S)
    h.agents.total_steps = 1000
    waiting = hard_left_s(h.state, 1000.0, spent_usd=None, usd_per_hour=None, boot_s=300.0)
    assert waiting == pytest.approx(HOUR_S + 300.0)
    h.until(JobPhase.RUNNING)
    h.tick(30)
    assert running(h.state)
    now_s = h.clock.now_s()
    left_s = HOUR_S - trained_market_s(h.state, now_s)
    going = hard_left_s(h.state, now_s, spent_usd=None, usd_per_hour=None, boot_s=300.0)
    assert going == pytest.approx(left_s)


def test_every_beat_says_until_when_the_budget_lasts(tmp_path: Path) -> None:
    """Two machines at $1/h; the moment does not move while nothing changes (after the minute that is billed
    at least)."""
    h = limited(tmp_path, nodes=2, budget_usd=4.0)
    h.agents.total_steps = 1000
    h.until(JobPhase.RUNNING)
    h.tick(70)
    first = beat(h)
    launched = [x.launched_s for x in h.state.open_leases]
    assert burn_usd_per_hour(h.state) == pytest.approx(2.0)
    expected_s = 2 * HOUR_S - LAST_SAVE_S + sum(s for s in launched if s is not None) / 2
    ends_s = ends_at_s(h)
    assert ends_s == pytest.approx(expected_s, abs=1.0)
    h.tick(60)
    later = beat(h)
    assert later.at_s > first.at_s + 50
    assert ends_at_s(h) == pytest.approx(ends_s, abs=1.0)


def test_every_beat_says_what_is_left_of_max_runtime_over_all_machines(tmp_path: Path) -> None:
    h = limited(tmp_path, max_runtime_s=500.0)
    h.agents.total_steps = 1000
    h.until(JobPhase.RUNNING)
    h.tick(100)
    began_s = h.state.trainings[0].started_at_s
    assert ends_at_s(h) == pytest.approx(began_s + 500.0, abs=3.0)
    # the machine is lost after 100 s of training: the next one does not get all of it again
    h.world.interrupt(h.running[0].instance_id)
    h.until(JobPhase.RECOVERING, JobPhase.PROVISIONING)
    h.until(JobPhase.RUNNING)
    h.tick(20)
    second = h.state.trainings[-1]
    assert second.lease_id != h.state.trainings[0].lease_id
    ran_s = (h.state.trainings[0].stopped_at_s or 0.0) - began_s
    assert ran_s > 50
    assert ends_at_s(h) == pytest.approx(second.started_at_s + 500.0 - ran_s, abs=3.0)


def test_the_lease_is_made_out_for_max_runtime_too(tmp_path: Path) -> None:
    h = limited(tmp_path, max_runtime_s=HOUR_S)
    observed = h.launcher.observer.observe(h.state)
    desired = h._desire(h.state, observed, h.clock.at_s)
    (create,) = (a for a in initial_actions(h.state, desired, h.clock.at_s) if isinstance(a, act.CreateLease))
    boot_s = desired.timing.boot_timeout_s  # provisioning is not running
    assert create.until_s == pytest.approx(h.clock.at_s + HOUR_S + boot_s)


def test_no_launcher_heard_just_before_the_budget_is_spent_goes_beyond_it(tmp_path: Path) -> None:
    """Budget for two hours; the launcher is heard at 1.9 h and never again; ``unattended`` is 12 h."""
    h = limited(tmp_path, budget_usd=2.0)
    h.until(JobPhase.RUNNING)
    (lease,) = h.state.open_leases
    assert lease.launched_s is not None
    end_s = lease.launched_s + 2 * HOUR_S - LAST_SAVE_S
    h.clock.at_s = lease.launched_s + 1.9 * HOUR_S
    h.launcher._beat(h.state)
    heard = beat(h)
    found = deadman.limit(
        lease.until_s,
        launcher_heard_s=heard.at_s,
        unattended_s=h.spec.unattended_s,
        hard_until_s=ends_at_s(h),
    )
    assert found is not None
    assert (found.at_s, found.why) == (pytest.approx(end_s, abs=1.0), deadman.USED_UP)
    assert OFFERS[0].usd_per_hour == 1.0
