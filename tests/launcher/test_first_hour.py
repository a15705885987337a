"""A cloud that does not charge for what it takes back in the first hour is let take it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.harness import Harness

from arylcloud.core import events as ev
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.launcher.ledger import build_report
from arylcloud.launcher.reconcile.leases import TAKES_S


def noticed(h: Harness, lead_s: float) -> str:
    """A running job's machine gets notice; it has handed over; its place is being filled."""
    h.agents.total_steps = 10_000
    h.until(JobPhase.RUNNING)
    h.tick(20)
    (lease,) = h.state.open_leases
    h.world.notice(h.running[0].instance_id, lead_s)
    while h.state.leases[lease.lease_id].phase is not LeasePhase.DOOMED:
        h.tick()
    return lease.lease_id


def goes_on(h: Harness) -> None:
    while len(h.state.epochs) < 2 or h.state.phase is not JobPhase.RUNNING:
        h.tick()
        assert h.clock.at_s < 10_000


def test_it_is_not_ended_by_us_and_costs_nothing(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    lease_id = noticed(h, 20.0)
    goes_on(h)
    h.tick(30)
    lease = h.state.leases[lease_id]
    assert (lease.phase, lease.cause, lease.ending_code) == (LeasePhase.RELEASED, "interrupted", None)
    report = build_report(h.state, now_s=h.clock.at_s)
    cost = next(c for c in report.leases if c.lease_id == lease_id)
    assert cost.free
    assert cost.micro is not None
    assert cost.micro.total == 0


def test_after_the_first_hour_it_is_ended_as_soon_as_it_has_handed_over(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.agents.total_steps = 10_000
    h.until(JobPhase.RUNNING)
    h.tick(10)
    h.clock.at_s += 3600.0
    h.tick(5)
    lease_id = noticed(h, 20.0)
    goes_on(h)
    h.tick(10)
    lease = h.state.leases[lease_id]
    assert (lease.phase, lease.cause, lease.ending_code) == (LeasePhase.RELEASED, "terminated", "noticed")


@pytest.mark.parametrize("seconds", [30])
def test_a_cloud_that_does_not_keep_its_word_is_not_waited_for(tmp_path: Path, seconds: int) -> None:
    h = Harness(tmp_path)
    lease_id = noticed(h, 20.0)
    machine = h.machine_of(h.state.leases[lease_id])
    assert machine is not None
    machine.acts_at_s = None  # it has changed its mind
    acts_at_s = h.state.leases[lease_id].notice_acts_at_s
    assert acts_at_s is not None
    while h.clock.at_s < acts_at_s + TAKES_S:
        assert h.state.leases[lease_id].phase is LeasePhase.DOOMED
        h.tick()
    h.tick(seconds)
    lease = h.state.leases[lease_id]
    assert (lease.phase, lease.ending_code) == (LeasePhase.RELEASED, "noticed")
    assert h.of(ev.LeaseEnding)
