"""A move says before what it is to bring and to cost, and afterwards what it has cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from arylcloud.cli.describe import sentence
from arylcloud.core import events as ev
from arylcloud.core.phases import JobPhase
from arylcloud.launcher.actions import MoveAdvice
from tests.support.harness import OFFERS, Harness


def test_expected_before_and_taken_after(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.agents.total_steps = 200
    h.until(JobPhase.RUNNING)
    h.tick(12)
    h.move = MoveAdvice(to=OFFERS[2], saving_usd=41.0, move_usd=0.5, why="it is cheaper there")
    h.until(JobPhase.MIGRATING)
    h.until(JobPhase.RUNNING)
    (started,) = (e for e in h.events if isinstance(e, ev.MigrationStarted))
    (ended,) = (e for e in h.events if isinstance(e, ev.MigrationEnded))
    assert (started.expected_saving_usd, started.move_usd) == (41.0, 0.5)
    target = next(x for x in h.state.leases.values() if x.purpose == "migrate")
    assert target.launched_s is not None
    assert ended.took_usd == pytest.approx(1.2 * (h.clock.at_s - target.launched_s) / 3600, rel=0.3)
    assert ended.took_s is not None
    assert 3 <= ended.took_s <= 60
    before, after = sentence(started, h.state), sentence(ended, h.state)
    assert before is not None
    assert after is not None
    assert "expected to save $41.00 of what is left, for a move of $0.50" in before
    assert "; expected to save $41.00, took < $0.01 and " in after
    h.until(JobPhase.SUCCEEDED)
    h.check_ended()
