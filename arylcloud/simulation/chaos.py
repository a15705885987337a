"""An hour of chaos for many jobs, seeded: real launchers and journals in a world that may do anything.

``run(seed)`` returns what came of it, and every law of ``checker`` that was broken. Nothing sleeps: an hour
passes as fast as it can be computed. The same seed is the same story.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from arylcloud.core.clock import ManualClock
from arylcloud.core.job import JobSpec
from arylcloud.launcher.actions import Timing
from arylcloud.launcher.fold import replay
from arylcloud.simulation.chaos_job import ChaosJob
from arylcloud.simulation.chaos_launcher import Home, Tally
from arylcloud.simulation.chaos_sky import Sky
from arylcloud.simulation.checker import Violation, came_too_late, check
from arylcloud.simulation.story import Story

BEGAN_S = 1_000_000.0
STEP_S = 5.0
JOBS_PER_HOME = 10
GANGS = ((1, 1), (1, 1), (1, 1), (2, 2), (3, 3), (1, 3), (1, 3), (2, 4))
"""Fixed and elastic: fewest and most machines."""
PATIENCE_S = 3 * 3600.0
"""Beyond the chaos, in clear weather: a job that has not ended by then is lost."""
UNBOUNDED_PAGES = 1_073_741_823


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    seed: int
    jobs: int
    hours: float
    ended: dict[str, int]
    """Phase (and code) → jobs."""
    unfinished: tuple[str, ...]
    """Jobs lost: not ended, however long the weather was clear."""
    violations: tuple[Violation, ...]
    counts: dict[str, int]
    usd: float
    """The world's own bill of all machines but the next: the reports' sum, to the micro-dollar."""
    beyond_usd: float
    """Of machines that their clouds had denied and listed after their job's end: in no report."""
    simulated_s: float


@dataclass(slots=True)
class Disk:
    """A folder with a journal, on a disk that is full once."""

    journal: Home
    full_from_s: float
    full_until_s: float
    _full: bool = False

    def step(self, now_s: float) -> None:
        full = self.full_from_s <= now_s < self.full_until_s
        if full != self._full:
            self._full = full
            run = self.journal._db._connection.execute
            pages = run("PRAGMA page_count").fetchone()[0] if full else UNBOUNDED_PAGES
            run(f"PRAGMA max_page_count = {int(pages)}")


@dataclass(slots=True)
class Chaos:
    folder: Path
    seed: int
    jobs: int = 200
    hours: float = 1.0
    timing: Timing = field(default_factory=Timing)
    tell: Callable[[str], None] = lambda _line: None
    clock: ManualClock = field(default_factory=lambda: ManualClock(BEGAN_S))
    tally: Tally = field(default_factory=Tally)
    homes: list[Disk] = field(default_factory=list)
    skies: list[Sky] = field(default_factory=list)
    all: list[ChaosJob] = field(default_factory=list)
    _judged: dict[str, tuple[Story, tuple[Violation, ...]]] = field(default_factory=dict)

    def run(self) -> Outcome:
        self._begin()
        end_s = BEGAN_S + 3600.0 * self.hours
        while self.clock.at_s < end_s + PATIENCE_S and not all(job.gone for job in self.all):
            self.clock.at_s += STEP_S
            if self.clock.at_s >= end_s:
                self._clear()
            for home in self.homes:
                home.step(self.clock.at_s)
            for sky in self.skies:
                sky.step(STEP_S)
            for job in self.all:
                if job.job_id in self._judged:
                    continue
                job.mailbox.outage = job.sky.outage
                job.step()
                if job.gone:
                    self._judge(job)
                    shutil.rmtree(job.folder, ignore_errors=True)
            if (self.clock.at_s - BEGAN_S) % 600 < STEP_S:
                over = sum(job.over for job in self.all)
                self.tell(
                    f"{(self.clock.at_s - BEGAN_S) / 60:.0f} min: {over} of {len(self.all)} jobs are over"
                )
        return self._outcome()

    def close(self) -> None:
        for home in self.homes:
            home.journal.close()

    def _begin(self) -> None:
        rng = np.random.default_rng(self.seed)
        for number in range(-(-self.jobs // JOBS_PER_HOME)):
            self._home(rng)
            self.skies.append(
                Sky(
                    clock=self.clock,
                    rng=np.random.default_rng([self.seed, number]),
                    hours=self.hours,
                    began_s=BEGAN_S,
                )
            )
        for number in range(self.jobs):
            own = np.random.default_rng([self.seed, 1_000_000 + number])
            least, most = GANGS[int(own.integers(len(GANGS)))]
            sky, home = self.skies[number // JOBS_PER_HOME], self.homes[number // JOBS_PER_HOME]
            self.all.append(
                ChaosJob(
                    job_id=f"chaos-{self.seed & 0xFFFF:04x}{number:04x}",
                    spec=JobSpec(
                        name="chaos",
                        run="python train.py",
                        nodes_min=least,
                        nodes_max=most,
                        on_node_loss="shrink" if least < most else "replace",
                    ),
                    sky=sky,
                    journal=home.journal,
                    spare=lambda: self._home(rng).journal,
                    rng=own,
                    total_steps=int(own.integers(300, 700) * self.hours),
                    timing=self.timing,
                    begins_s=BEGAN_S + float(own.uniform(0, 0.2)) * 3600 * self.hours,
                    tally=self.tally,
                    folder=self.folder / f"job-{number:04d}",
                )
            )

    def _home(self, rng: np.random.Generator) -> Disk:
        folder = self.folder / f"home-{len(self.homes):03d}"
        from_s = self.clock.at_s + float(rng.uniform(0.05, 0.6)) * 3600 * self.hours
        home = Disk(Home(folder / "journal.db"), from_s, from_s + float(rng.uniform(20, 60)))
        self.homes.append(home)
        return home

    def _clear(self) -> None:
        for sky in self.skies:
            sky.clear = True

    def _judge(self, job: ChaosJob) -> tuple[Story, tuple[Violation, ...]]:
        """Once it is over: nothing more will come of it."""
        if job.job_id not in self._judged:
            story = job.story(2 * STEP_S)
            self._judged[job.job_id] = (story, check(story))
            for violation in self._judged[job.job_id][1]:
                self.tell(str(violation))
        return self._judged[job.job_id]

    def _outcome(self) -> Outcome:
        ended: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        violations: list[Violation] = []
        bill = beyond = 0
        for job in self.all:
            story, broken = self._judge(job)
            violations += broken
            state = replay(story.records)
            ended[f"{state.phase} ({state.phase_code})"] += 1
            counts["journal records"] += len(story.records)
            counts["machines"] += len(story.machines)
            counts["machines that landed late"] += sum(
                m.lands_at_s > m.asked_at_s
                for w in job.sky.worlds.values()
                for m in w.born.values()
                if m.spec.job_id == job.job_id
            )
            counts["creates and ends asked for"] += len(story.calls)
            counts["epochs"] += len(story.documents)
            counts["checkpoints committed"] += len(story.commits)
            counts["interruptions"] += state.interruptions
            counts["migrations"] += state.migrations_done
            late = [m for m in story.machines if came_too_late(m, story.written_s.get(len(story.records)))]
            counts["machines that came after their job's end"] += len(late)
            beyond += sum(m.bill_micro or 0 for m in late)
            bill += sum(m.bill_micro or 0 for m in story.machines if m not in late)
        counts["launchers begun"] = self.tally.begun
        counts["launchers killed"] = self.tally.killed
        counts["launchers refused (exit 6)"] = self.tally.refused
        counts["launchers ended by a full disk"] = self.tally.disk_full
        counts["losses without a word"] = sum(sky.losses for sky in self.skies)
        counts["notices"] = sum(sky.notices for sky in self.skies)
        violations += [Violation(law="no_bug", job_id="-", text=bug) for bug in self.tally.bugs]
        return Outcome(
            seed=self.seed,
            jobs=len(self.all),
            hours=self.hours,
            ended=dict(sorted(ended.items())),
            unfinished=tuple(job.job_id for job in self.all if not job.over),
            violations=tuple(violations),
            counts=dict(counts),
            usd=bill / 1e6,
            beyond_usd=beyond / 1e6,
            simulated_s=self.clock.at_s - BEGAN_S,
        )
