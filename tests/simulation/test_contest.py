"""Launchers that fight over a job: one of them holds it, whatever the order of their steps."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from arylcloud.checkpoint.store import open_store
from arylcloud.core import events as ev
from arylcloud.core import protocol as mail
from arylcloud.core.codec import loads
from arylcloud.core.job import JobSpec
from arylcloud.launcher.journal import Journal
from arylcloud.simulation import checker
from arylcloud.simulation.chaos_store import Mailbox
from arylcloud.simulation.contest import Contest, Fought
from arylcloud.simulation.story import Story


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def fight(folder: Path, seed: int, launchers: int, jobs: int) -> Fought:
    contest = Contest(folder, seed, launchers, jobs)
    try:
        return contest.run()
    finally:
        contest.close()


def holds(fought: Fought) -> None:
    assert not fought.violations, "\n".join(str(v) for v in fought.violations)
    assert fought.calls_of_losers == 0, "a launcher that never held the job has called a cloud"
    assert fought.held > fought.jobs, "nobody has taken anything over"
    assert fought.lost > fought.jobs


def test_one_of_many_launchers_holds_the_job(tmp_path: Path) -> None:
    fought = fight(tmp_path, 5, launchers=6, jobs=3)
    holds(fought)
    assert fought.epochs > fought.jobs


def test_the_same_seed_is_the_same_fight(tmp_path: Path) -> None:
    assert fight(tmp_path / "a", 6, 4, 1) == fight(tmp_path / "b", 6, 4, 1)


def test_without_the_fence_it_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a store that says "written" to whoever comes second, several launchers act at once."""
    exclusive = Mailbox.create_by

    def careless(self: Mailbox, who: str, key: str, data: bytes) -> bool:
        return exclusive(self, who, key, data) or key.startswith(mail.JOURNAL_PREFIX)

    monkeypatch.setattr(Mailbox, "create_by", careless)
    monkeypatch.setattr(Journal, "check_fence", lambda *_args: None)
    found = fight(tmp_path, 5, launchers=4, jobs=2).violations
    assert {"one_history", "losers_call_nothing", "intent_first"} & {v.law for v in found}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_twenty_launchers_fight_over_a_hundred_jobs(tmp_path: Path) -> None:
    fought = fight(tmp_path, 1, launchers=20, jobs=100)
    holds(fought)
    assert fought.epochs >= 200


# ---------------------------------------------------------------- real processes, a real folder

PROCESS = """
import json, sys, time
from pathlib import Path
from arylcloud.checkpoint.store import open_store
from arylcloud.core import events as ev
from arylcloud.core.errors import ConflictError
from arylcloud.core.protocol import Member
from arylcloud.launcher.epochdocs import publish
from arylcloud.launcher.fold import apply
from arylcloud.launcher.holder import take_over
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.probe import no_probe

home, root, jobs, epochs = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(","), int(sys.argv[4])
lost = opened = 0
with Journal(home / "journal.db") as journal:
    open_jobs, number = list(jobs), 0
    while open_jobs:
        job = open_jobs[number % len(open_jobs)]
        number += 1
        store, writer = open_store(f"{root}/{job}"), f"{home.name}-{number}"
        try:
            take_over(journal, job, store, writer=writer, wall_s=time.time)
            state = journal.state(job)
            for _ in range(3):
                if len(state.epochs) >= epochs:
                    open_jobs.remove(job)
                    break
                journal.check_fence(job, store, writer)
                event = ev.EpochOpened(
                    number=len(state.epochs) + 1,
                    attempt=len(state.epochs) + 1,
                    resume_from=None,
                    resume_step=0,
                    members=(Member(lease_id=writer, rank=0, address="10.0.0.1"),),
                    reason=writer,
                )
                record = journal.append(job, time.time(), writer, event, None, mirror=store)
                state = apply(state, record)
                publish(
                    store, state, event.number,
                    checkpoint_interval_s=None, losses_per_hour=None, probe=no_probe,
                )
                opened += 1
        except ConflictError:
            lost += 1
print(json.dumps({"lost": lost, "opened": opened}))
"""


@pytest.mark.slow
def test_four_processes_fight_over_ten_jobs_in_a_folder(tmp_path: Path) -> None:
    jobs = [f"fight-{number:08x}" for number in range(10)]
    root = (tmp_path / "store" / "jobs").as_uri()
    with Journal(tmp_path / "first" / "journal.db") as first:
        for job in jobs:
            (tmp_path / "store" / "jobs" / job).mkdir(parents=True)
            submitted = ev.JobSubmitted(
                spec=JobSpec(name="fight", run="true"),
                prefix_uri=f"{root}/{job}",
                journal_id=first.journal_id,
                market_origin_s=0.0,
                market_scale=1.0,
            )
            first.append(job, 1.0, "cli", submitted, None, mirror=open_store(f"{root}/{job}"))
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(tmp_path / f"home-{n}"), root, ",".join(jobs), "12"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    said = [json.loads(process.communicate(timeout=240)[0]) for process in started]
    assert [process.returncode for process in started] == [0] * 4
    assert sum(one["lost"] for one in said) > 0, "they never met"
    for job in jobs:
        store = open_store(f"{root}/{job}")
        records = tuple(
            ev.Record.from_bytes(store.get(info.key) or b"") for info in store.list(mail.JOURNAL_PREFIX)
        )
        documents = [
            loads(mail.EpochDoc, store.get(info.key) or b"") for info in store.list(mail.EPOCHS_PREFIX)
        ]
        story = told(job, records, {d.number: d for d in documents})
        for law in (checker.one_history, checker.one_writer, checker.one_author):
            assert list(law(story)) == []
        assert len(documents) == sum(isinstance(r.event, ev.EpochOpened) for r in records) >= 12


def told(job_id: str, records: tuple[ev.Record, ...], documents: dict[int, mail.EpochDoc]) -> Story:
    """What files alone tell."""
    empty = {f.name: () for f in fields(Story) if f.name in ("calls", "machines", "runs", "commits")}
    return Story(
        job_id=job_id,
        records=records,
        local=records,
        written_s={},
        documents=documents,
        authors={},
        total_steps=0,
        **empty,  # type: ignore[arg-type]
    )
