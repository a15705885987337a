"""Field cases and every way that a job may go, with the real executor against the hostile world."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.scenarios import SCENARIOS, case_30_crash_around_every_fact


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, tmp_path: Path) -> None:
    scenario: Callable[[Path], None] = SCENARIOS[name]
    scenario(tmp_path)


@pytest.mark.slow
def test_a_crash_at_every_point(tmp_path: Path) -> None:
    case_30_crash_around_every_fact(tmp_path, step=1)
