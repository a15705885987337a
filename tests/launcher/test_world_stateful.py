"""The launcher against the hostile world (style.md: a naive fake proves nothing)."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from support.hostile import HostileWorld


def test_the_launcher_survives_a_hostile_world() -> None:
    run_state_machine_as_test(
        HostileWorld,
        settings=settings(
            max_examples=36,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            database=None,
        ),
    )
