"""The real launcher with an elastic gang and a deadline, beside the replay of that gang on the same trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from arylcloud.planner.deadline.registry import deadline_policy
from arylcloud.simulation.deadline.elastic import elastic_grid, elastic_replay
from arylcloud.simulation.deadline.invent import invented
from arylcloud.simulation.deadline.replay import Job
from arylcloud.simulation.deadline.sweep import flat_egress, market_of
from arylcloud.simulation.duegang import GangLive, in_parts, planned
from arylcloud.simulation.duelive import named

START = 1998
WITHIN = 0.15


def test_machines_come_and_go_and_the_deadline_is_kept_at_the_replays_cost(tmp_path: Path) -> None:
    trace = in_parts(named(invented(2, zones=6, regions=3, days=20)), 4, 2, up_h=3.0, down_h=1.0)
    world, sizes = elastic_grid(trace, planned(2, 4))
    job = Job(work_h=2.0, deadline_h=3.6)
    market = market_of(world, startup_h=0.2, egress_usd=flat_egress(3, 0.1))
    replayed = elastic_replay(world, sizes, market, deadline_policy("default"), job, np.array([START]))
    assert not replayed.missed.any()
    live = GangLive(grid=world, sizes=sizes, job=job, start=START, folder=tmp_path, step_s=60.0, save_every=5)
    lived = live.run()
    ran_on = {len(epoch.members) for epoch in live.state.epochs if epoch.members}
    assert min(ran_on) < 4, "it has lost some"
    assert not lived.missed
    assert lived.leaked == 0
    assert lived.waited_too_long_s <= 120.0
    assert abs(lived.usd / float(replayed.usd[0]) - 1) <= WITHIN
