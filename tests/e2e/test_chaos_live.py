"""Chaos with real processes on the local cloud: launchers killed at any moment, machines taken with and
without a word, while many jobs share one market; afterwards every law that can be told from outside.

Fifty jobs for ten minutes; ``ARYLCLOUD_CHAOS_JOBS`` and ``ARYLCLOUD_CHAOS_MINUTES`` say otherwise.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from arylcloud.core import events as ev
from arylcloud.core import protocol as mail
from arylcloud.core.codec import loads
from arylcloud.simulation import checker
from arylcloud.simulation.story import MachineTruth, Story
from e2e.market import job, market, spot, strike
from e2e.support import Child, Home, Warm
from e2e.truth import exact_bill, settled

JOBS = int(os.environ.get("ARYLCLOUD_CHAOS_JOBS", "50"))
MINUTES = float(os.environ.get("ARYLCLOUD_CHAOS_MINUTES", "10"))
SCALE = 60.0
"""Market seconds per second: an offer that could not be had is asked for again after ten."""
LAWS = (
    checker.one_history,
    checker.one_writer,
    checker.one_author,
    checker.nothing_leaks,
    checker.releases_are_true,
    checker.money_adds_up,
    checker.every_end_has_a_cause,
)
"""The others need to know what every command and every call was: ``simulation/chaos`` has these."""


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_many_jobs_live(tmp_path: Path, warm: Warm) -> None:
    rng = random.Random(7)
    offers = [
        spot(
            region,
            0.10 + 0.01 * number,
            *(
                strike(age_s=rng.uniform(3, 30), notice_s=notice_s, from_market_s=at * 60.0 * MINUTES * SCALE)
                for at in (0.05, 0.2, 0.35, 0.5, 0.65)
                for notice_s in (0.0, 8.0)
            ),
            capacity=JOBS,
        )
        for number, region in enumerate(["rough-a", "rough-b", "rough-c", "rough-d", "rough-e"])
    ]
    steps = max(20, int(MINUTES * 60 * 0.6))
    with Home(tmp_path, market(*offers, time_scale=SCALE, notice_s=8.0), warm=warm) as home:
        spec = job(steps=steps, step_s=0.5, save_every=10)
        jobs = [home.submit(spec) for _ in range(JOBS)]
        launchers = {job_id: home.serve(job_id) for job_id in jobs}
        killed = fight(home, launchers, rng, until_s=time.monotonic() + 60.0 * MINUTES)
        for job_id, child in launchers.items():
            child.wait(1200)
            if child.code != 0:
                home.serve_to_the_end(job_id)
        assert killed >= JOBS
        for job_id in jobs:
            settled(home, job_id)
            story = told(home, job_id)
            assert [text for law in LAWS for text in law(story)] == []
        assert sum(home.state(job_id).interruptions for job_id in jobs) >= min(5, JOBS)


def fight(home: Home, launchers: dict[str, Child], rng: random.Random, *, until_s: float) -> int:
    """Each launcher is killed about once in two minutes, and begun again. Returns how many were."""
    killed = 0
    while time.monotonic() < until_s:
        time.sleep(min(120.0 / len(launchers), 5.0) * rng.uniform(0.5, 1.5))
        job_id = rng.choice(list(launchers))
        child = launchers[job_id]
        if child.running:
            child.kill()
            killed += 1
            launchers[job_id] = home.serve(job_id, crash_at=rng.choice([None, rng.randint(1, 30)]))
        elif child.wait() != 0:  # it died at its crash point
            launchers[job_id] = home.serve(job_id)
    return killed


def told(home: Home, job_id: str) -> Story:
    """What files and the cloud's own log tell. Moments of records: when their objects were written."""
    state, folder = home.state(job_id), home.prefix(job_id)
    paths = sorted((folder / mail.JOURNAL_PREFIX).glob("*.json"))
    documents = [
        loads(mail.EpochDoc, path.read_bytes()) for path in (folder / mail.EPOCHS_PREFIX).glob("*.json")
    ]
    records = home.cloud_records()
    ended_s = {r["instance_id"]: r["ended_s"] for r in records if r["kind"] == "end"}
    bills = exact_bill(records, job_id)
    wall_s = state.market_clock.wall_s
    return Story(
        job_id=job_id,
        records=tuple(ev.Record.from_bytes(path.read_bytes()) for path in paths),
        local=home.events(job_id),
        written_s={number: path.stat().st_mtime for number, path in enumerate(paths, start=1)},
        documents={document.number: document for document in documents},
        authors={},
        calls=(),
        machines=tuple(
            MachineTruth(
                instance_id=machine["instance_id"],
                token=machine["token"],
                lease_id=machine["lease_id"],
                landed_s=wall_s(machine["launched_s"]),
                in_time=True,
                ended_s=wall_s(ended_s[machine["instance_id"]]),
                bill_micro=round(bills[machine["lease_id"]] * 1_000_000),
            )
            for machine in (r["instance"] for r in records if r["kind"] == "launch")
            if machine["job_id"] == job_id
        ),
        runs=(),
        commits=(),
        total_steps=0,
    )
