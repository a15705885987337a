"""Many launchers that fight over jobs on one store: each its own home, each the whole of ``adopt`` and
``JobLauncher.run``, interleaved between any two steps by one seeded generator.

Threads run one at a time: at every call of the mailbox or a cloud, at every crash point and every sleep,
the generator says who goes on. The same seed is the same fight.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from arylcloud.core import events as ev
from arylcloud.core.clock import ManualClock
from arylcloud.core.errors import ConflictError
from arylcloud.core.job import JobSpec
from arylcloud.core.ports import Provider
from arylcloud.launcher.actions import Desired, Observed, Timing
from arylcloud.launcher.holder import take_over
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.state import JobState
from arylcloud.simulation.chaos_launcher import asked, build
from arylcloud.simulation.chaos_sky import Sky, machines_of
from arylcloud.simulation.chaos_store import Line, Mailbox
from arylcloud.simulation.checker import Violation, check
from arylcloud.simulation.story import Call, Story
from arylcloud.simulation.world_agents import Agents

BEGAN_S = 1_000_000.0
CALL_S = 0.02
"""Mean time that one step of a launcher takes."""
STUCK_S = 3600.0


@dataclass(slots=True)
class Contender:
    """One thread, which goes on when it is its turn."""

    name: str
    wakes_s: float
    thread: threading.Thread | None = None
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    done: bool = False
    conflicts: int = 0
    """How often it has ended with exit code 6."""
    bug: str | None = None
    """The exception that nobody meant."""


@dataclass(slots=True)
class Turns:
    """Who runs, and how time passes."""

    clock: ManualClock
    rng: np.random.Generator
    each_second: Callable[[], None]
    contenders: list[Contender] = field(default_factory=list)
    turns: int = 0
    _back: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _second: float = 0.0

    def add(self, name: str, at_s: float, work: Callable[[Contender], None]) -> None:
        one = Contender(name=name, wakes_s=at_s)

        def run() -> None:
            one.go.acquire()
            try:
                work(one)
            except BaseException as error:  # noqa: BLE001 - it is judged by whoever looks at the outcome
                one.bug = f"{type(error).__name__}: {error}"
            one.done = True
            self._back.release()

        one.thread = threading.Thread(target=run, name=name, daemon=True)
        one.thread.start()
        self.contenders.append(one)

    def pause(self, one: Contender, seconds: float = 0.0) -> None:
        """Called by ``one``: it goes on at its next turn, not before ``seconds`` have passed. (Threads that
        it has made, to read side by side, are part of its turn.)"""
        if threading.current_thread() is not one.thread:
            return
        one.wakes_s = self.clock.at_s + seconds
        self._back.release()
        one.go.acquire()

    def run(self) -> None:
        """Until all are done. TimeoutError if some are not within ``STUCK_S`` of the world's time."""
        give_up_s = self.clock.at_s + STUCK_S
        while waiting := [c for c in self.contenders if not c.done]:
            ready = [c for c in waiting if c.wakes_s <= self.clock.at_s]
            if not ready:
                self._pass(min(min(c.wakes_s for c in waiting) - self.clock.at_s, 1.0))
                if self.clock.at_s > give_up_s:
                    raise TimeoutError(f"{len(waiting)} launchers are still at it")
                continue
            one = ready[int(self.rng.integers(len(ready)))]
            self.turns += 1
            one.go.release()
            self._back.acquire()
            self._pass(float(self.rng.exponential(CALL_S)))

    def _pass(self, seconds: float) -> None:
        self.clock.at_s += max(seconds, 1e-6)
        while self._second + 1.0 <= self.clock.at_s:
            self._second = max(self._second + 1.0, self.clock.at_s - 5.0)
            self.each_second()


@dataclass(slots=True)
class TurnClock:
    """A contender's clock: to sleep is to let the others go on."""

    clock: ManualClock
    sleep_for: Callable[[float], None]

    def now_s(self) -> float:
        return self.clock.at_s

    def monotonic_s(self) -> float:
        return self.clock.monotonic_s()

    def sleep(self, seconds: float) -> None:
        self.sleep_for(max(0.0, seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fought:
    """What came of it."""

    seed: int
    launchers: int
    jobs: int
    begun: int
    """Launchers that set out for a job, all jobs together."""
    held: int
    """Of these, how many held it for some time."""
    lost: int
    """Ended by a conflict: exit code 6."""
    calls_of_losers: int
    """Cloud calls of launchers that never held the job."""
    epochs: int
    turns: int
    violations: tuple[Violation, ...]


@dataclass(slots=True)
class Contest:
    folder: Path
    seed: int
    launchers: int = 20
    jobs: int = 100
    tries: int = 1
    """How often each launcher, having lost, sets out again."""
    losses: int = 4
    """Machines that each job loses meanwhile, so that there are epochs to be opened."""
    total_steps: int = 30
    homes: list[Journal] = field(default_factory=list)

    def run(self) -> Fought:
        self.homes = [
            Journal(self.folder / f"home-{number:02d}" / "journal.db") for number in range(self.launchers)
        ]
        rows = [self._fight(number) for number in range(self.jobs)]
        return Fought(
            seed=self.seed,
            launchers=self.launchers,
            jobs=self.jobs,
            begun=sum(r.begun for r in rows),
            held=sum(r.held for r in rows),
            lost=sum(r.lost for r in rows),
            calls_of_losers=sum(r.calls_of_losers for r in rows),
            epochs=sum(r.epochs for r in rows),
            turns=sum(r.turns for r in rows),
            violations=tuple(v for r in rows for v in r.violations),
        )

    def close(self) -> None:
        for journal in self.homes:
            journal.close()

    def _fight(self, number: int) -> Fought:
        rng = np.random.default_rng([self.seed, number])
        clock = ManualClock(BEGAN_S)
        job_id = f"fight-{self.seed & 0xFFFF:04x}{number:04x}"
        sky = Sky(clock=clock, rng=rng, hours=0.5, began_s=BEGAN_S, clear=True)
        mailbox = Mailbox(f"memory://jobs/{job_id}", clock=clock, ahead_s=0.0, loses=lambda: False)
        agents = [
            Agents(world=w, store=mailbox, job_id=job_id, total_steps=self.total_steps, checkpoint_every=5)
            for w in sky.worlds.values()
        ]

        lost = 0

        def each_second() -> None:
            nonlocal lost
            sky.step(1.0)
            for world in sky.worlds.values():
                for machine in world.alive_of(job_id):
                    if lost < self.losses and rng.random() < 0.1:
                        world.interrupt(machine.instance_id)
                        lost += 1
            for one in agents:
                one.step()

        first = self.homes[0]
        submitted = ev.JobSubmitted(
            spec=JobSpec(name="fight", run="python train.py"),
            prefix_uri=mailbox.uri,
            journal_id=first.journal_id,
            market_origin_s=0.0,
            market_scale=1.0,
        )
        first.append(job_id, clock.at_s, "cli", submitted, None, mirror=Line(mailbox, "cli"))
        calls: list[Call] = []
        turns = Turns(clock, rng, each_second, _second=BEGAN_S)
        for home, journal in enumerate(self.homes):
            sets_out = _launchers(turns, f"l-{home}", journal, job_id, mailbox, sky, calls, self.tries)
            turns.add(f"l-{home}", BEGAN_S + float(rng.exponential(10.0)), sets_out)
        turns.run()
        story = Story(
            job_id=job_id,
            records=tuple(ev.Record.from_bytes(body) for body in mailbox.journal()),
            local=max((home.records(job_id) for home in self.homes), key=len),
            written_s=dict(mailbox.written_s),
            documents=dict(mailbox.documents),
            authors=dict(mailbox.authors),
            calls=tuple(calls),
            machines=machines_of(sky, job_id, Timing().landing_s),
            runs=(),
            commits=tuple(mailbox.commits),
            total_steps=0,
            bugs=tuple(c.bug for c in turns.contenders if c.bug is not None),
        )
        held = {r.writer for r in story.records if isinstance(r.event, ev.LauncherStarted)}
        held = {writer.removesuffix("-adopts") for writer in held}
        refused = sum(c.conflicts for c in turns.contenders)
        return Fought(
            seed=self.seed,
            launchers=self.launchers,
            jobs=1,
            begun=refused + len(turns.contenders),
            held=len(held),
            lost=refused,
            calls_of_losers=sum(call.caller not in held for call in calls),
            epochs=len(mailbox.documents),
            turns=turns.turns,
            violations=check(story),
        )


def _launchers(
    turns: Turns,
    home: str,
    journal: Journal,
    job_id: str,
    mailbox: Mailbox,
    sky: Sky,
    calls: list[Call],
    tries: int,
) -> Callable[[Contender], None]:
    """A home that sets out for the job until it has lost ``tries`` times, then once more, patiently: by force
    (``adopt --force``), or as ``serve`` starts a launcher. One that ends with the job has not lost."""

    def work(one: Contender) -> None:
        def pause() -> None:
            turns.pause(one)

        clock = TurnClock(turns.clock, lambda seconds: turns.pause(one, seconds))
        for number in range(tries + 1):
            name, last = f"{home}-{number}", number == tries
            by_force = not last and bool(turns.rng.random() < 0.6)
            try:
                with journal.claim(job_id):
                    _run(
                        name, journal, job_id, Line(mailbox, name, pause), sky, calls, clock, pause, by_force
                    )
                return
            except ConflictError:
                one.conflicts += 1
            clock.sleep(float(turns.rng.exponential(12.0)))

    return work


def _run(
    name: str,
    journal: Journal,
    job_id: str,
    line: Line,
    sky: Sky,
    calls: list[Call],
    clock: TurnClock,
    pause: Callable[[], None],
    by_force: bool,
) -> None:
    """The whole of it. Raises ConflictError."""
    if by_force:
        take_over(journal, job_id, line, writer=f"{name}-adopts", wall_s=clock.now_s)
    worlds: dict[str, Provider] = dict(sky.worlds)
    ways = asked(worlds, caller=name, calls=calls, mailbox=line.mailbox, now_s=clock.now_s, pause=pause)
    launcher = build(
        job_id=job_id,
        writer=name,
        journal=journal,
        store=line,
        providers=ways,
        clock=clock,
        timing=Timing(),
        desire=lambda state, observed, now_s: _desired(sky, state, observed, now_s),
        probe=lambda _point: pause(),
        adopted=by_force,
    )
    launcher.run()


def _desired(sky: Sky, _state: JobState, _observed: Observed, _now_s: float) -> Desired:
    able = {name: world.capabilities() for name, world in sky.worlds.items()}
    return Desired(ranking=sky.ranking(), move=None, capabilities=able, timing=Timing())
