"""Chaos in small: seeded stories of which every law holds. (Two hundred jobs for an hour are the slow test
here, and ``benchmarks/chaos.py``.)"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from arylcloud.simulation.chaos import Chaos, Outcome


def run(folder: Path, seed: int, jobs: int, hours: float) -> Outcome:
    chaos = Chaos(folder, seed, jobs, hours)
    logging.disable(logging.ERROR)  # a mailbox that is away is said hundreds of times
    try:
        return chaos.run()
    finally:
        logging.disable(logging.NOTSET)
        chaos.close()


def holds(outcome: Outcome) -> None:
    assert not outcome.unfinished, f"jobs lost: {outcome.unfinished}"
    assert not outcome.violations, "\n".join(str(v) for v in outcome.violations)


@pytest.mark.parametrize("seed", [11, 12])
def test_ten_minutes_of_chaos(tmp_path: Path, seed: int) -> None:
    outcome = run(tmp_path, seed, jobs=6, hours=1 / 6)
    holds(outcome)
    assert sum(outcome.ended.values()) == 6
    assert outcome.counts["launchers killed"] >= 5
    assert outcome.counts["machines"] >= 10


def test_the_same_seed_is_the_same_story(tmp_path: Path) -> None:
    first = run(tmp_path / "a", 13, jobs=2, hours=0.1)
    assert first == run(tmp_path / "b", 13, jobs=2, hours=0.1)
    assert first.counts != run(tmp_path / "c", 14, jobs=2, hours=0.1).counts


def test_nothing_of_the_process_that_simulates_is_in_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a disk is full depends on each record's length: the same seed was another story elsewhere."""

    def lengths(name: str, process: int) -> list[int]:
        monkeypatch.setattr(os, "getpid", lambda: process)
        chaos = Chaos(tmp_path / name, 15, 1, 0.05)
        try:
            chaos.run()
            return [len(record.to_bytes()) for record in chaos.all[0].story(10.0).records]
        finally:
            chaos.close()

    assert lengths("a", 7) == lengths("b", 4_194_303)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_hundred_jobs_for_an_hour(tmp_path: Path, seed: int) -> None:
    outcome = run(tmp_path, seed, jobs=200, hours=1.0)
    holds(outcome)
    assert outcome.counts["launchers killed"] >= 1000
    assert outcome.counts["launchers refused (exit 6)"] >= 20
    assert outcome.counts["launchers ended by a full disk"] >= 20
    assert outcome.counts["losses without a word"] >= 200
    assert outcome.counts["notices"] >= 200
