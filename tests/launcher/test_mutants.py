"""Seeded bugs of reconcile, the state machine, fencing, retention and cadence: the suite must find each.

``support/seeded_*`` hold the list: text for text, with the test that finds it. Those that the hostile world
must find as well, at fixed seeds and not knowing what to look for, are marked there. The unchanged product
passes all of it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from support.hostile import HostileWorld
from support.planting import planted
from support.seeded import Seeded, seeded

from arylcloud.core.errors import ConflictError, IntegrityError

ROOT = Path(__file__).resolve().parents[2]
BUGS = seeded()

FOUND = (AssertionError, IntegrityError, ConflictError)
"""What a bug must show itself by. (A TypeError would be a fault of the list.)"""


def test_the_list() -> None:
    """Forty or more, no two of one name, of every part that it is about."""
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 40
    parts = Counter(bug.module.partition("/")[0] for bug in BUGS)
    assert min(parts[room] for room in ("core", "checkpoint", "launcher")) >= 4
    for bug in BUGS:
        bug.planted()  # its text is there, once, and what stands in its place compiles


@pytest.mark.timeout(900)
def test_each_is_found_by_the_test_that_is_named() -> None:
    """In one process of its own, each test in a fork: with the bug it fails, without it passes."""
    script = [sys.executable, str(ROOT / "scripts" / "seeded.py")]
    done = subprocess.run(script, capture_output=True, text=True, env={**os.environ, "PYTEST_ADDOPTS": ""})
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


SEEDS = range(4)
"""Searches that begin anew: one that has gone into a corner does not come out of it."""
STORIES = 50
"""Of each search. All of them together take less than two minutes of one core; a mutant dies long before."""


def survives_the_world() -> None:
    for number in SEEDS:
        world = seed(number)(type("World", (HostileWorld,), {}))
        run_state_machine_as_test(
            world,
            settings=settings(
                max_examples=STORIES,
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                database=None,
                phases=(Phase.generate,),
                report_multiple_bugs=False,
            ),
        )


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.world], ids=lambda bug: bug.name)
def test_the_hostile_world_finds_it(bug: Seeded) -> None:
    """Without being told what to look for."""
    with planted(*bug.planted()), pytest.raises(FOUND):
        survives_the_world()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_product_itself_survives_the_same_searches() -> None:
    """Else a bug that is found there would prove nothing."""
    survives_the_world()
