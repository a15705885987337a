"""The real launcher under the default deadline policy, beside the replay of that policy on the same trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from arylcloud.core.job import CheckpointSpec, JobSpec
from arylcloud.planner.deadline.registry import deadline_policy
from arylcloud.simulation.deadline.invent import invented
from arylcloud.simulation.deadline.replay import Job, replay
from arylcloud.simulation.deadline.sweep import flat_egress, market_of
from arylcloud.simulation.duelive import CAN, DueLive, named
from arylcloud.simulation.spottraces import grid

STARTS = (2126, 1277)
WITHIN = 0.15
"""Of the replay's cost, over the starts together: see docs/backtest.md for what differs."""


def test_what_a_backtest_says_is_what_the_launcher_does(tmp_path: Path) -> None:
    """No deadline is missed that the replay meets, and the cost is the replay's within what ticks, boots and
    measured times differ."""
    world = grid(named(invented(2, zones=6, regions=3, days=20)))
    job = Job(work_h=4.0, deadline_h=7.0)
    market = market_of(world, startup_h=0.2, egress_usd=flat_egress(3, 0.1))
    replayed = replay(world, market, deadline_policy("default"), job, np.array(STARTS))
    assert not replayed.missed.any()
    usd = 0.0
    for start in STARTS:
        folder = tmp_path / str(start)
        folder.mkdir()
        lived = DueLive(grid=world, job=job, start=start, folder=folder, step_s=60.0, save_every=5).run()
        assert not lived.missed
        assert lived.leaked == 0
        assert lived.waited_too_long_s <= 120.0
        usd += lived.usd
    assert usd <= (1 + WITHIN) * float(replayed.usd.sum())
    assert usd >= (1 - WITHIN) * float(replayed.usd.sum()), "nor is the world kinder than the trace"


class RareSaves(DueLive):
    """Without an interval in its file: how often it saves is known only by having seen it."""

    def spec(self, steps: int) -> JobSpec:
        return replace(super().spec(steps), checkpoint=CheckpointSpec(size_gb=self.checkpoint_gb))


def test_what_a_loss_costs_is_not_forgotten_by_moving(tmp_path: Path) -> None:
    """Half an hour between two saves is too much to lose with so little slack: it goes on demand, and stays
    there. (A new machine has not saved yet: that is no sign that a loss would cost nothing.)"""
    world = grid(named(invented(2, zones=6, regions=3, days=20)))
    calm = replace(world, up=np.ones_like(world.up))
    job = Job(work_h=4.0, deadline_h=5.0)
    lived = RareSaves(grid=calm, job=job, start=2126, folder=tmp_path, step_s=60.0, save_every=30).run()
    assert not lived.missed
    assert lived.moves <= 2


def test_two_hours_in_little_more_are_done_in_time_and_called_so(tmp_path: Path) -> None:
    """Thirteen minutes for a boot of ten: `launch` refuses it, since the low end of its speed would be late.
    Sent all the same, it is told at once, and ends in time: its machine takes two minutes more to be gone."""
    world = grid(named(invented(2, zones=6, regions=3, days=20)))
    job = Job(work_h=2.0, deadline_h=2.0 / 0.9)
    lived = DueLive(grid=world, job=job, start=2126, folder=tmp_path, step_s=60.0, save_every=5).run()
    assert "p90" in lived.said
    assert "it may be late" in (lived.near or "")
    assert lived.near_h == 0.0
    assert job.deadline_h - 0.05 < lived.finish_h <= job.deadline_h
    assert not lived.missed


def test_what_cannot_be_kept_is_said_before_anything_is_paid_for(tmp_path: Path) -> None:
    world = grid(named(invented(2, zones=6, regions=3, days=20)))
    job = Job(work_h=2.0, deadline_h=2.1)
    lived = DueLive(grid=world, job=job, start=2126, folder=tmp_path, step_s=60.0, save_every=5).run()
    assert lived.said != CAN
    assert (lived.near or "").startswith("it cannot be kept")
    assert lived.near_h == 0.0
    assert lived.missed


class Dry(DueLive):
    """All there is of spot, until it is lost for good at one of the trace's ticks."""

    dry_from: int = 0

    def _weather(self, tick: int) -> None:
        if tick >= self.dry_from:
            self.world.full = {o.key for o in self.offers[: len(self.grid.places)]}
            for machine in self.world.alive:
                if machine.spec.offer.key in self.world.full:
                    self.world.interrupt(machine.instance_id)


SLOW = (1, 2, *range(4, 8), *range(9, 13))


@pytest.mark.parametrize("dry_from", [3, 8, *(pytest.param(tick, marks=pytest.mark.slow) for tick in SLOW)])
def test_whenever_all_spot_is_lost_for_good_it_ends_in_time(tmp_path: Path, dry_from: int) -> None:
    """Every ten minutes of it: what `launch` said would be kept is kept by more than luck."""
    world = grid(named(invented(2, zones=6, regions=3, days=20)))
    assert world.tick_s == 600.0
    job = Job(work_h=2.0, deadline_h=2.9)
    lived = Dry(grid=world, job=job, start=2126, folder=tmp_path, step_s=30.0, save_every=10)
    lived.dry_from = dry_from
    found = lived.run()
    assert found.said == CAN
    assert not found.missed
    assert found.spot_h > 0.0
    assert found.on_demand_h > 0.0
    assert found.leaked == 0
