"""The launcher of one job: observe → reconcile → act, until the job has ended.

All that it knows lies in the journal and the mailbox; stopping it at any moment, and starting it
again here or elsewhere, changes nothing but time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from arylcloud.checkpoint.store import sweep_partials
from arylcloud.core import events as ev
from arylcloud.core import protocol as mail
from arylcloud.core.clock import Clock
from arylcloud.core.codec import dumps
from arylcloud.core.errors import ArylError, ConflictError, IntegrityError, LocalStateError, StoreError
from arylcloud.launcher import actions as act
from arylcloud.launcher.charges import Charges
from arylcloud.launcher.executor import Executor
from arylcloud.launcher.fold import replay
from arylcloud.launcher.handout import Handout
from arylcloud.launcher.holder import refuse_beside_another
from arylcloud.launcher.housekeeping import Housekeeper
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.journaltime import journal_now_s
from arylcloud.launcher.lifesign import LifeSign
from arylcloud.launcher.limits import burn_usd_per_hour, hard_left_s, reserve_usd
from arylcloud.launcher.observe import Observer
from arylcloud.launcher.reconcile import reconcile
from arylcloud.launcher.spent import spent_for_limits_usd
from arylcloud.launcher.state import JobState

log = logging.getLogger(__name__)

FINISH_S = 600.0
"""How long the launcher of an ended job waits for a mailbox that is away: nothing is paid for meanwhile."""

SHORT_S = 20.0
"""So long after all were asked to hand over, it is looked for their answers more often."""

PARTIAL_S = 60.0
"""After the end nobody writes: a half-written object of this age will never be a whole one."""

Desire = Callable[[JobState, act.Observed, float], act.Desired]
"""(state, observed, now) → what should be; asks the planner, caches what it may."""

FATAL = (ConflictError, IntegrityError, LocalStateError)
"""Going on would act on a history that is not ours, or could not be written down. (A mailbox on a full
disk is a StoreError first: machines go on, and it is tried again.)"""


@dataclass(slots=True)
class JobLauncher:
    job_id: str
    journal: Journal
    executor: Executor
    observer: Observer
    desire: Desire
    clock: Clock
    timing: act.Timing
    housekeeper: Housekeeper
    charges: Charges | None = None
    """None: nothing is owed beside machines."""
    beat_every_s: float = 2.0
    handout: Handout | None = None
    """None: the store is a folder."""
    sign: LifeSign | None = None
    """None: nobody hears of this launcher while it is in a call (simulations have one thread)."""
    adopted: bool = False
    admit: Callable[[JobState], None] = lambda _state: None
    """Asked once, before this launcher says that it is at work; raises where it must not be."""
    _last_beat_s: float | None = None
    """Monotonic seconds."""

    def run(self) -> JobState:
        """Until the job has ended. Raises what is FATAL; everything else is logged and tried again:
        an error of ours never ends a workload."""
        state = self._start_patiently()
        with self.sign.kept() if self.sign is not None else contextlib.nullcontext():
            state = self._to_the_end(state)
        self._finish(state)
        return state

    def _to_the_end(self, state: JobState) -> JobState:
        while not state.phase.ended:
            began_s = self.clock.monotonic_s()
            before = state.seq
            try:
                state = self.tick(state)
            except ArylError as error:
                if isinstance(error, FATAL) and not isinstance(error, StoreError):
                    raise
                log.warning("tick failed, trying again: %s", error.message)
                state = self.refold(state)
            except Exception:
                log.exception("tick failed by a bug of ours, trying again")
                state = self.refold(state)
            pause_s = self.pause_s(state, news=state.seq != before)
            self.clock.sleep(began_s + pause_s - self.clock.monotonic_s())
        return state

    def pause_s(self, state: JobState, *, news: bool) -> float:
        """Until the next look, from the beginning of this one. ``news``: this one journaled something."""
        if news:
            return self.timing.tick_s / 10
        epoch = state.epoch
        if epoch is None or not epoch.drain:
            return self.timing.tick_s
        still = self.executor.steady.now_s() - epoch.opened_at_s < SHORT_S  # all machines wait for us
        return self.timing.tick_s / 4 if still else self.timing.tick_s

    def _start_patiently(self) -> JobState:
        """A mailbox that is away for a while is no reason to die: machines may have to be ended."""
        while True:
            try:
                return self.start()
            except StoreError as error:
                log.warning("cannot start yet: %s", error.message)
            self.clock.sleep(5 * self.timing.tick_s)

    def start(self) -> JobState:
        self.executor.probe("before catching up")
        self.journal.catch_up(self.job_id, self.executor.store)
        self.executor.probe("after catching up")
        state = self.refold()
        if not state.phase.ended:
            refuse_beside_another(self.executor.store, state, self.journal.journal_id)
            now_s = journal_now_s(self.journal, self.job_id, self.executor.store, self.clock.now_s())
            self.executor.steady.go_on_from(now_s)
            self.admit(state)
            started = ev.LauncherStarted(
                launcher_id=self.executor.writer,
                host=socket.gethostname(),
                pid=os.getpid(),
                adopted=self.adopted,
                home=self.journal.journal_id,
            )
            state = self.executor.note(state, started)
        return state

    def refold(self, known: JobState | None = None) -> JobState:
        """As the journal has it; ``known``: how it was a moment ago, to go on from."""
        if known is None:
            return self.journal.state(self.job_id)
        return replay(self.journal.records(self.job_id, after=known.seq), known)

    def tick(self, state: JobState) -> JobState:
        if not self.journal.path.exists():  # SQLite would go on writing to a file that nobody can see
            raise LocalStateError(
                f"{self.journal.path} has been removed while {self.job_id} runs",
                hint=f"`arylcloud adopt {self.executor.store.uri}` takes the job over; its machines go on",
            )
        ours = self.executor.fence.look(self.job_id)
        self._beat(state)
        observed = self.observer.observe(state)
        self.executor.moved()
        if ours:
            state = self._price(state, observed)
        now_s = self.executor.steady.now_s()
        desired = self.desire(state, observed, now_s)
        self.executor.checkpoint_interval_s = desired.checkpoint_interval_s
        self.executor.losses_per_hour = desired.losses_per_hour
        state = self.executor.run(state, reconcile(state, observed, desired, now_s))
        if ours:
            self.housekeeper.tidy(state, self.clock.monotonic_s())
            if self.handout is not None:
                self.handout.tidy(state)
        return state

    def _price(self, state: JobState, observed: act.Observed) -> JobState:
        """The ledger needs each price step of what is running: asked for when the price moved; and again of
        what has ended, as long as some are missing."""
        for machine in observed.machines:
            lease = state.leases.get(machine.lease_id)
            if lease is None or not lease.open or lease.launched_s is None or machine.usd_per_hour is None:
                continue
            state = self.executor.prices.moved(state, lease, machine.usd_per_hour)
        state = self.executor.prices.complete(state)
        for charge in self.charges.due(state, self.executor.steady.now_s()) if self.charges else ():
            state = self.executor.note(state, charge, strict=False)
        return state

    def _beat(self, state: JobState) -> None:
        """Agents count ``unattended`` from it, and are told how long the limits last that nobody renews;
        ``adopt`` asks it whether somebody is at work."""
        now_s, read_s = self.executor.steady.now_s(), self.clock.monotonic_s()
        if self._last_beat_s is not None and read_s - self._last_beat_s < self.beat_every_s:
            return
        self._last_beat_s = read_s  # also of one that fails: an outage is no reason to try more often
        limited = state.spec.constraints.budget_usd is not None
        beat = mail.LauncherBeat(
            launcher_id=self.executor.writer,
            host=socket.gethostname(),
            pid=os.getpid(),
            at_s=self.clock.now_s(),
            hard_left_s=hard_left_s(
                state,
                now_s,
                spent_usd=spent_for_limits_usd(state, now_s) if limited else None,
                usd_per_hour=burn_usd_per_hour(state),
                boot_s=self.timing.boot_timeout_s,
                reserve_usd=reserve_usd(state, burn_usd_per_hour(state)),
            ),
        )
        if self.sign is not None:
            waiting = self.journal.unmirrored(self.job_id)
            self.sign.told(beat, self.journal.head(self.job_id) - waiting + 1)
        try:
            self.executor.store.put(mail.LAUNCHER_KEY, dumps(beat))
        except StoreError as error:
            log.warning("the mailbox cannot be written: %s", error.message)

    def _finish(self, state: JobState) -> None:
        """What the mailbox lacks of the journal first: by records that end before the job does, another
        home would run it again. Then secrets and beat go, and what killed writers have left."""
        self.executor.probe("before tidying")
        store = self.executor.store
        give_up_s, pause_s = self.clock.monotonic_s() + FINISH_S, 5 * self.timing.tick_s
        while True:
            try:
                self.journal.flush(state.job_id, store)
                store.delete([mail.SECRETS_KEY, mail.LAUNCHER_SECRETS_KEY, mail.LAUNCHER_KEY])
                sweep_partials(store, now_s=self.clock.now_s(), older_than_s=PARTIAL_S)
                if self.handout is not None:
                    self.handout.end()
                break
            except StoreError as error:
                log.warning("the job has ended, but its prefix could not be tidied: %s", error.message)
            left_s = give_up_s - self.clock.monotonic_s()
            if left_s <= 0:
                break
            self.clock.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, 30.0)
        self.executor.probe("after tidying")
