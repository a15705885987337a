"""A machine with bad hardware is replaced: the job is not charged for it, nor its zone given up for long."""

from __future__ import annotations

from pathlib import Path

from arylcloud.core import events as ev
from arylcloud.core.phases import JobPhase
from arylcloud.core.protocol import BAD_HARDWARE
from arylcloud.launcher.reconcile.lifecycle import MAX_BAD_STARTS
from tests.support.harness import TIMING, Harness


def test_more_bad_machines_than_bad_starts_are_allowed(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.agents.bad = MAX_BAD_STARTS + 2
    h.until(JobPhase.RUNNING, within=400)
    bad = [x for x in h.state.leases.values() if x.ending_code == "bad_hardware"]
    assert len(bad) == MAX_BAD_STARTS + 2
    assert len({x.offer.zone for x in bad}) > 1, "elsewhere first"
    bars = [e for e in h.events if isinstance(e, ev.OfferBarred) and e.code == "bad_hardware"]
    assert BAD_HARDWARE in bars[0].why
    lasts_s = bars[0].until_s - (bad[0].intended_at_s + 5.0)
    assert lasts_s <= TIMING.capacity_bar_market_s
    h.until(JobPhase.SUCCEEDED)
    h.check_ended()
