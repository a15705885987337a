"""Every way of a lease from one phase to another, by name: what may follow what, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.situation import draft, lease

from arylcloud.core import events as ev
from arylcloud.core.errors import IntegrityError
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.launcher.fold import apply

WAYS = {
    "intended": {"pending", "refused", "ending"},
    "pending": {"ready", "doomed", "ending", "released"},
    "ready": {"suspect", "doomed", "ending", "released"},
    "suspect": {"ready", "doomed", "ending", "released"},
    "doomed": {"ending", "released"},
    "ending": {"released"},
    "released": set(),
    "refused": {"ending"},
}


@pytest.mark.parametrize("before", list(LeasePhase))
def test_what_may_follow(before: LeasePhase) -> None:
    one = lease(0, phase=before)
    state = draft(one, epochs=[]).state
    for after in set(LeasePhase) - {before}:
        change = ev.LeasePhaseChanged(lease_id=one.lease_id, phase=after, text="")
        record = ev.Record(
            job_id=state.job_id, seq=state.seq + 1, at_s=9e9, writer="l", cause_id=None, event=change
        )
        if after.value in WAYS[before.value]:
            assert apply(state, record).leases[one.lease_id].phase is after
        else:
            with pytest.raises(IntegrityError, match=f"cannot go from {before} to {after}"):
                apply(state, record)


def test_what_is_over() -> None:
    assert {p.value for p in LeasePhase if p.closed} == {"released", "refused"}
    assert {p.value for p in JobPhase if p.ended} == {"stopped", "succeeded", "failed"}
    assert not replace(lease(0), phase=LeasePhase.REFUSED).open
