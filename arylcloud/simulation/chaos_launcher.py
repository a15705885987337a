"""One launcher's process in the chaos: the real ``JobLauncher`` with its real parts, dropped at any of its
crash points and begun again, on a home of its own, with a clock of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from arylcloud.core import events as ev
from arylcloud.core.clock import Clock
from arylcloud.core.errors import ArylError, ConflictError, StoreError
from arylcloud.core.offer import Offer
from arylcloud.core.ports import Capabilities, Machine, MachineSpec, ObjectStore, PricePoint, Provider
from arylcloud.launcher.actions import Timing
from arylcloud.launcher.executor import Boot, Executor
from arylcloud.launcher.fold import replay
from arylcloud.launcher.holder import take_over
from arylcloud.launcher.housekeeping import Housekeeper
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.listing import Ask, Lists
from arylcloud.launcher.loop import FATAL, Desire, JobLauncher
from arylcloud.launcher.observe import Observer
from arylcloud.launcher.probe import Probe, no_probe
from arylcloud.launcher.state import JobState
from arylcloud.simulation.chaos_store import Asleep, Line, Mailbox
from arylcloud.simulation.story import Call

log = logging.getLogger(__name__)


class Home(Journal):
    """A home's journal. What has been read of it once is neither read nor folded again by the next launcher:
    hundreds of them are begun on the same records. (Both are the same: tests of ``launcher``.)"""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._known: dict[str, list[ev.Record]] = {}
        self._states: dict[str, JobState] = {}

    def append(
        self,
        job_id: str,
        at_s: float,
        writer: str,
        event: ev.Event,
        cause_id: str | None = None,
        *,
        mirror: ObjectStore | None,
        strict: bool = True,
    ) -> ev.Record:
        """Nothing of the process that simulates is written: when a disk is full depends on each record's
        length, and the number of a process has one digit or seven."""
        if isinstance(event, ev.LauncherStarted):
            event = replace(event, host="chaos", pid=1)
        return super().append(job_id, at_s, writer, event, cause_id, mirror=mirror, strict=strict)

    def records(self, job_id: str, after: int = 0) -> tuple[ev.Record, ...]:
        known = self._known.setdefault(job_id, [])
        known += super().records(job_id, after=len(known))
        return tuple(known[after:])

    def state(self, job_id: str) -> JobState:
        before = self._states.get(job_id)
        after = 0 if before is None else before.seq
        self._states[job_id] = replay(self.records(job_id, after=after), before)
        return self._states[job_id]

    def catch_up(self, job_id: str, mirror: ObjectStore, *, take_over: bool = False) -> int:
        if take_over:  # some of ours may be set aside
            self._known.pop(job_id, None)
            self._states.pop(job_id, None)
        return super().catch_up(job_id, mirror, take_over=take_over)


class AtOnce(Lists[tuple[Machine, ...]]):
    """Clouds' lists without their threads: a cloud in memory answers at once."""

    def ask(self, asks: Mapping[str, Ask[tuple[Machine, ...]]]) -> dict[str, tuple[Machine, ...] | Exception]:
        found: dict[str, tuple[Machine, ...] | Exception] = {}
        for name, ask in asks.items():
            try:
                found[name] = ask.call()
            except Exception as error:  # noqa: BLE001 - as there: handed to whoever asked
                found[name] = error
        return found


class Killed(BaseException):
    """The process is no more. (Not an Exception: nothing may catch it.)"""


@dataclass(slots=True)
class Asked:
    """One launcher's way to one cloud: what it asks for is written down."""

    provider: Provider
    caller: str
    calls: list[Call]
    mailbox: Mailbox
    now_s: Callable[[], float]
    pause: Callable[[], None] = lambda: None

    @property
    def name(self) -> str:
        return self.provider.name

    def capabilities(self) -> Capabilities:
        return self.provider.capabilities()

    def quote(self, offer: Offer) -> Offer:
        return self.provider.quote(offer)

    def create(self, spec: MachineSpec) -> Machine:
        self.pause()
        self._log("create", spec.token, spec.lease_id)
        return self.provider.create(spec)

    def list_machines(self, *, journal_id: str | None, offers: Sequence[Offer] = ()) -> tuple[Machine, ...]:
        return self.provider.list_machines(journal_id=journal_id, offers=offers)

    def terminate(self, machine: Machine) -> None:
        self.pause()
        self._log("terminate", machine.token, machine.lease_id)
        self.provider.terminate(machine)

    def price_history(self, offer: Offer, from_s: float, to_s: float) -> tuple[PricePoint, ...]:
        return self.provider.price_history(offer, from_s, to_s)

    def _log(self, verb: str, token: str, lease_id: str) -> None:
        self.calls.append(
            Call(
                at_s=self.now_s(),
                caller=self.caller,
                verb="create" if verb == "create" else "terminate",
                token=token,
                lease_id=lease_id,
                head=self.mailbox.head,
            )
        )


def build(
    *,
    job_id: str,
    writer: str,
    journal: Journal,
    store: ObjectStore,
    providers: Mapping[str, Provider],
    clock: Clock,
    timing: Timing,
    desire: Desire,
    probe: Probe,
    adopted: bool = False,
) -> JobLauncher:
    """As ``cli/assemble`` builds one, of parts that need no cloud and no planner."""
    executor = Executor(
        journal=journal,
        store=store,
        providers=providers,
        writer=writer,
        clock=clock,
        timing=timing,
        boot=lambda _action: Boot(user_data="stub"),
        notify=lambda _topic, text: text,
        probe=probe,
    )
    observer = Observer(
        store=store, providers=providers, clouds=tuple(providers), clock=clock, calm_every_s=6.0
    )
    observer._lists = AtOnce(clock=clock)
    return JobLauncher(
        job_id=job_id,
        journal=journal,
        executor=executor,
        observer=observer,
        desire=desire,
        clock=clock,
        timing=timing,
        housekeeper=Housekeeper(store=store, every_s=120.0),
        beat_every_s=6.0,
        adopted=adopted,
    )


@dataclass(slots=True)
class Tally:
    """What has become of processes."""

    begun: int = 0
    killed: int = 0
    refused: int = 0
    """Ended by a ConflictError: exit code 6."""
    disk_full: int = 0
    bugs: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Process:
    """A home's launcher of one job, and whoever starts it again (``serve``)."""

    home: str
    journal: Journal
    mailbox: Mailbox
    make: Callable[[str, Journal, Line, Probe, bool], JobLauncher]
    """(writer, journal, line, probe, adopted)."""
    tally: Tally
    clock: Clock
    adopts: bool = False
    """It begins by taking the job over."""
    state: JobState | None = None
    not_before_s: float = 0.0
    kill_in: int | None = None
    """At so many crash points from now."""
    over: bool = False
    """The job has ended, and its prefix is tidy."""
    lost: bool = False
    """The job is another's, whose it will be for good if this home has journaled what the mailbox lacks."""
    _launcher: JobLauncher | None = None
    _number: int = 0

    def step(self, now_s: float) -> None:
        """One pass of its loop, or one try to begin: ``JobLauncher.run``, a step at a time."""
        if self.over or now_s < self.not_before_s:
            return
        self.journal.probe = self._probe
        try:
            if self._launcher is None:
                self._begin()
            launcher, state = self._launcher, self.state
            assert launcher is not None
            assert state is not None
            if state.phase.ended:
                launcher._finish(state)
                self.over = True
            else:
                self.state = self._tick(launcher, state)
        except Killed:
            self.kill(now_s, 5.0)
        except Asleep:  # the end's tidying has to wait for the mailbox
            return
        except ConflictError:
            self.tally.refused += 1
            self.lost = True
            self._drop(now_s, 60.0)
        except StoreError:  # cannot begin yet
            self._drop(now_s, 5.0)
        except ArylError as error:
            if not isinstance(error, FATAL):
                raise
            self.tally.disk_full += 1
            self._drop(now_s, 10.0)
        finally:  # the home's other launchers have probes of their own
            self.journal.probe = no_probe

    def kill(self, now_s: float, away_s: float) -> None:
        self.tally.killed += 1
        self._drop(now_s, away_s)

    @property
    def alive(self) -> bool:
        return self._launcher is not None

    def _drop(self, now_s: float, away_s: float) -> None:
        self._launcher, self.kill_in = None, None
        self.not_before_s = now_s + away_s

    def _begin(self) -> None:
        self._number += 1
        self.tally.begun += 1
        writer = f"l-{self.home}-{self._number}"
        line = Line(self.mailbox, writer)
        job_id = self.mailbox.uri.rpartition("/")[2]
        if self.adopts:
            take_over(self.journal, job_id, line, writer=f"{writer}-adopts", wall_s=self.clock.now_s)
        launcher = self.make(writer, self.journal, line, self._probe, self.adopts)
        self.state = launcher.start()
        self.adopts, self.lost = False, False
        self._launcher = launcher

    def _tick(self, launcher: JobLauncher, state: JobState) -> JobState:
        """With the loop's own rules for errors."""
        try:
            return launcher.tick(state)
        except ArylError as error:
            if isinstance(error, FATAL) and not isinstance(error, StoreError):
                raise
            return launcher.refold(state)
        except Exception as error:
            log.exception("a bug")
            self.tally.bugs.append(f"{type(error).__name__}: {error}")
            return launcher.refold(state)

    def _probe(self, _point: str) -> None:
        if self.kill_in is not None:
            self.kill_in -= 1
            if self.kill_in <= 0:
                self.kill_in = None
                raise Killed


def asked(
    worlds: Mapping[str, Provider],
    *,
    caller: str,
    calls: list[Call],
    mailbox: Mailbox,
    now_s: Callable[[], float],
    pause: Callable[[], None] = lambda: None,
) -> dict[str, Provider]:
    return {name: Asked(provider, caller, calls, mailbox, now_s, pause) for name, provider in worlds.items()}
