"""A machine that a launcher attends outlives the lease that it was created with."""

from __future__ import annotations

from collections.abc import Callable

from e2e.market import job, quiet
from e2e.support import Home
from e2e.truth import settled

NewHome = Callable[..., Home]


def test_an_attended_machine_outlives_unattended(new_home: NewHome) -> None:
    home = new_home(quiet(until_grace_s=0.2))
    job_id = home.submit(job(steps=850, step_s=0.02, unattended="12s"))
    state = home.serve_to_the_end(job_id)
    settled(home, job_id)
    assert len(state.leases) == 1, "it lost a healthy machine"
    (lease,) = state.leases.values()
    assert lease.launched_s is not None
    assert lease.ended_s is not None
    lived_s = (lease.ended_s - lease.launched_s) / state.market_clock.scale
    assert lived_s > 14.0, "too short to show anything"
