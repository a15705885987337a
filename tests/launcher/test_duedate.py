"""A deadline while the job runs: on demand in time, and said early where it cannot be kept. By the launcher's
own rules: what a policy makes of it is in test_duepolicy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from arylcloud.core import events as ev
from arylcloud.core.clock import ManualClock
from arylcloud.core.job import Constraints, InlineRate, JobSpec, MigrateSpec, ProfileRef, Work
from arylcloud.core.offer import Market, Offer
from arylcloud.core.phases import JobPhase
from arylcloud.core.plan import Plan
from arylcloud.launcher import actions as act
from arylcloud.launcher.desire import Desires
from arylcloud.launcher.duedate import late, way_out
from arylcloud.launcher.quotes import Quotes
from arylcloud.launcher.state import JobState
from arylcloud.planner.single import plan_job
from arylcloud.pricing.table import from_offers
from tests.support.harness import OFFERS, TIMING, Harness, spec

SPOT = OFFERS[0]
DEMAND = replace(OFFERS[1], market=Market.ON_DEMAND, usd_per_hour=3.0)
JOB = JobSpec(
    name="j",
    run="x",
    profile=ProfileRef(rates=(InlineRate(gpu="V100", count=1, rate=1.0),), unit="steps/s"),
    work=Work(amount=36_000, unit="steps"),
)
"""Ten hours of work."""


def plan(job: JobSpec, *offers: Offer) -> Plan:
    return plan_job(job, from_offers(offers or (SPOT, DEMAND)), also=(SPOT,), limit=50)


def due(hours: float) -> JobSpec:
    return replace(JOB, constraints=Constraints(deadline_s=hours * 3600.0))


def test_nothing_to_say_while_some_place_keeps_it() -> None:
    candidates = plan(JOB).candidates
    assert late(20 * 3600.0, candidates) is None
    assert late(None, candidates) is None
    assert late(20 * 3600.0, ()) is None


def test_it_may_be_late_then_it_cannot_be_kept() -> None:
    candidates = plan(JOB).candidates
    quickest = min(c.hours.p50 for c in candidates if c.hours is not None)
    assert "it may be late" in (late((quickest + 0.01) * 3600, candidates) or "")
    said = late((quickest - 1.0) * 3600, candidates) or ""
    assert said.startswith("it cannot be kept: ")
    assert f"takes {quickest:.1f} h" in said


def test_the_way_out_is_on_demand_at_the_last_moment() -> None:
    candidates = plan(JOB).candidates
    here = next(c for c in candidates if c.offer.key == SPOT.key)
    there = next(c for c in candidates if c.offer.key == DEMAND.key)
    assert here.hours is not None
    assert there.hours is not None
    assert way_out(40 * 3600.0, here, candidates) is None, "there is time for spot"
    found = way_out((there.hours.p50 + 0.05) * 3600, here, candidates)
    assert found is not None
    assert found.offer.key == DEMAND.key
    assert way_out((there.hours.p50 - 0.05) * 3600, here, candidates) is None, "too late for it, too"
    assert way_out((there.hours.p50 + 0.05) * 3600, there, candidates) is None, "it is there"


@dataclass
class Planned(Harness):
    """With the real planner behind the real ``desire``."""

    def __post_init__(self) -> None:
        self.desires: Desires | None = None
        super().__post_init__()

    def _desire(self, state: JobState, observed: act.Observed, now_s: float) -> act.Desired:
        if self.desires is None:
            self.desires = Desires(
                providers={"aws": self.world},
                plan=lambda job, *, quoted, also: plan_job(
                    job, from_offers((SPOT, DEMAND)), also=tuple(also), limit=50
                ),
                timing=TIMING,
                quotes=Quotes({}, ManualClock()),
                refresh_s=60.0,
            )
        return self.desires(state, observed, now_s)


def planned(folder: Path, deadline_s: float) -> Planned:
    job = replace(
        JOB,
        work=Work(amount=1000.0, unit="steps"),
        constraints=Constraints(deadline_s=deadline_s),
        migrate=MigrateSpec(at_most_every_s=1e9),
        policy="off",
        notify="https://example.com/…",
    )
    h = Planned(folder, spec=job)
    h.agents.total_steps = 1000
    return h


def test_it_begins_on_spot_and_says_nothing(tmp_path: Path) -> None:
    h = planned(tmp_path, 100_000.0)
    h.until(JobPhase.RUNNING)
    h.tick(10)
    (lease,) = h.state.open_leases
    assert lease.offer.market is Market.SPOT
    assert not h.of(ev.LimitNear)


def test_a_job_that_loses_its_slack_falls_to_on_demand_in_time(tmp_path: Path) -> None:
    """A thousand seconds of work, and an hour. It makes no progress on spot, and moves at the last moment,
    whatever ``at_most_every`` says."""
    h = planned(tmp_path, 3600.0)
    h.agents.hangs_at = 100
    h.until(JobPhase.RUNNING)

    def paid_for() -> set[Market]:
        return {x.offer.market for x in h.state.open_leases}

    while Market.ON_DEMAND not in paid_for() and h.clock.at_s < 5000.0:
        h.pass_time(59)
        h.tick()
    spare_s = h.state.submitted_at_s + 3600.0 - h.clock.at_s - 900.0
    assert 0.0 < spare_s < 2400.0, "neither at once nor too late"
    h.agents.hangs_at = None
    while not h.state.phase.ended and h.clock.at_s < 6000.0:
        h.pass_time(20)
        h.tick(3)
    assert h.state.phase is JobPhase.SUCCEEDED
    assert h.state.phase_code == "finished", h.state.phase_text
    assert list(h.state.leases.values())[-1].offer.market is Market.ON_DEMAND


def test_said_once_and_early_where_it_cannot_be_kept(tmp_path: Path) -> None:
    h = planned(tmp_path, 500.0)
    h.until(JobPhase.RUNNING)
    h.tick(5)
    (near,) = (e for e in h.events if isinstance(e, ev.LimitNear))
    assert near.limit == "deadline"
    assert near.text.startswith("it cannot be kept")
    assert [e.topic for e in h.events if isinstance(e, ev.Notified)].count("near:deadline") == 1
    assert not h.state.phase.ended, "it goes on all the same"
    (lease,) = h.state.open_leases
    assert lease.offer.market is Market.ON_DEMAND, "as early as may be"
    h.tick(20)
    assert not h.of(ev.MigrationStarted), "no slower place is worth its dollars now"


@pytest.mark.parametrize(("urgent", "moves"), [(False, 1), (True, 2)])
def test_an_urgent_move_does_not_wait_for_its_day(tmp_path: Path, urgent: bool, moves: int) -> None:
    h = Harness(tmp_path, spec=spec())
    h.agents.total_steps = 100_000
    h.until(JobPhase.RUNNING)
    h.tick(12)
    h.move = act.MoveAdvice(to=OFFERS[2], saving_usd=41.0, move_usd=0.5, why="cheaper")
    h.until(JobPhase.MIGRATING)
    h.until(JobPhase.RUNNING)
    h.tick(12)
    h.move = act.MoveAdvice(to=OFFERS[3], saving_usd=1.0, move_usd=0.5, why="due", urgent=urgent)
    h.tick(15)
    assert len([e for e in h.events if isinstance(e, ev.MigrationStarted)]) == moves
