"""Carrying actions out: intent journaled, effect, outcome journaled. Kill it anywhere.

Every effect is idempotent by our own token, so that a repeat after a crash changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from arylcloud.core import events as ev
from arylcloud.core import protocol as mail
from arylcloud.core.clock import Clock, SlewedClock
from arylcloud.core.errors import (
    AccessError,
    ArylError,
    CapacityError,
    CloudError,
    InfeasibleError,
    LocalStateError,
    QuotaError,
    StoreError,
    UsageError,
)
from arylcloud.core.offer import Offer
from arylcloud.core.phases import LeasePhase
from arylcloud.core.ports import Billing, Machine, MachineSpec, MachineState, ObjectStore, Provider
from arylcloud.launcher import actions as act
from arylcloud.launcher.epochdocs import publish
from arylcloud.launcher.fence import Fence
from arylcloud.launcher.fold import apply
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.pricecap import max_usd_per_hour
from arylcloud.launcher.prices import Prices
from arylcloud.launcher.probe import Probe, no_probe
from arylcloud.launcher.reconcile import bar_for
from arylcloud.launcher.state import JobState

log = logging.getLogger(__name__)

NOTHING_WAS_CREATED = (CapacityError, QuotaError, AccessError, UsageError, InfeasibleError)
"""By the port's contract (the last two: by our own checks), of the first call with a token. Any other
error of ``create``, and any of a repeated call, leaves it open what there is now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    user_data: str
    identity: str | None = None


@dataclass(slots=True)
class Executor:
    journal: Journal
    store: ObjectStore
    """The job's prefix: the mailbox, and the journal's mirror."""
    providers: Mapping[str, Provider]
    writer: str
    clock: Clock
    timing: act.Timing
    boot: Callable[[act.CreateLease], Boot]
    """What a machine is made with; raises what the store's cloud says."""
    notify: Callable[[str, str], str]
    """(topic, text) → what became of it; raises ArylError when it could not be sent."""
    checkpoint_interval_s: float | None = None
    losses_per_hour: float | None = None
    """With the interval: what epoch documents advise."""
    probe: Probe = no_probe
    moved: Callable[[], None] = lambda: None
    """Called as each step begins: this launcher does not hang."""
    steady: SlewedClock = field(init=False)
    """What the journal's moments and all decisions are by: a wall clock that is set must not make an
    interval of ours pass at once, nor stand still."""
    fence: Fence = field(init=False)
    prices: Prices = field(init=False)
    _last_end_s: dict[str, float] = field(default_factory=dict)
    _unasked: set[str] = field(default_factory=set)
    """Leases of this launcher that are journaled, and of which no cloud has been asked yet."""
    _boot_failed_s: float | None = None
    """Monotonic seconds."""

    def __post_init__(self) -> None:
        self.steady = SlewedClock(self.clock)
        self.fence = Fence(journal=self.journal, store=self.store, writer=self.writer, clock=self.clock)

        def note(state: JobState, event: ev.Event) -> JobState:
            return self.note(state, event, strict=False)

        self.prices = Prices(note=note, providers=self.providers, clock=self.steady)

    # ------------------------------------------------------------ journal

    def note(
        self, state: JobState, event: ev.Event, *, cause: str | None = None, strict: bool = True
    ) -> JobState:
        """Journal one event and fold it. Not strict: may be mirrored later, when the store is down."""
        kind = type(event).__name__
        self.probe(f"before journal {kind}")
        record = self.journal.append(
            state.job_id,
            at_s=self.steady.now_s(),
            writer=self.writer,
            event=event,
            cause_id=cause,
            mirror=self.store,
            strict=strict,
        )
        self.probe(f"after journal {kind}")
        return apply(state, record)

    # ------------------------------------------------------------ actions

    def run(self, state: JobState, actions: tuple[act.Action, ...]) -> JobState:
        """Without a look at the fence nothing new is begun, and nothing new journaled: what is decided
        here may be about a job that has been another launcher's for hours."""
        for action in actions:
            self.moved()
            if _journaled_end(state, action) or self.fence.is_ours(state.job_id):
                state = self.run_one(state, action)
        return state

    def run_one(self, state: JobState, action: act.Action) -> JobState:
        match action:
            case act.CreateLease():
                return self._create(state, action)
            case act.EndLease():
                return self._end(state, action)
            case act.SweepMachine():
                self._sweep(state, action)
                return state
            case act.OpenEpoch():
                event = ev.EpochOpened(
                    number=action.number,
                    attempt=action.attempt,
                    members=action.members,
                    resume_from=action.resume_from,
                    resume_step=action.resume_step,
                    reason=action.reason,
                    grace_s=action.grace_s,
                    pipelines=action.pipelines,
                )
                state = self.note(state, event)
                self._publish(state, action.number)
                return state
            case act.PublishEpoch():
                self.journal.flush(state.job_id, self.store)
                self._publish(state, action.number)
                return state
            case act.Note():
                if isinstance(action.event, ev.LeaseReleased):
                    state = self.prices.at_the_end(state, action.event)
                if isinstance(action.event, ev.JobPhaseChanged) and action.event.phase.ended:
                    state = self.prices.of_the_fixed_zone(state)
                if isinstance(action.event, ev.JobPhaseChanged) and action.event.phase.ended:
                    self._forget_secrets()
                return self.note(state, action.event, cause=action.cause_id, strict=False)
            case act.Notify():
                return self._notify(state, action)

    def _create(self, state: JobState, action: act.CreateLease) -> JobState:
        new = action.lease_id not in state.leases
        if new:
            state = self.note(
                state,
                ev.LeaseIntended(
                    lease_id=action.lease_id,
                    token=action.token,
                    offer=action.offer,
                    index=action.index,
                    attempt=action.attempt,
                    purpose=action.purpose,
                    until_s=action.until_s,
                    why=action.why,
                ),
            )
        else:  # intended before a crash, or before a mailbox that did not answer: it has it first
            self.journal.flush(state.job_id, self.store)
        first = new or action.lease_id in self._unasked
        if first:
            self._unasked.add(action.lease_id)
        provider = self.providers[action.offer.cloud]
        try:
            boot = self._booted(action)
        except LocalStateError:  # of our own disk
            raise
        except (AccessError, UsageError) as error:  # no machine has been asked for, this time
            return self._refused(state, action, error) if first else self._uncertain(state, action, error)
        if boot is None:  # the lease stays INTENDED: the same again at a later tick
            return state
        spec = MachineSpec(
            token=action.token,
            journal_id=state.journal_id,
            job_id=state.job_id,
            lease_id=action.lease_id,
            offer=action.offer,
            user_data=boot.user_data,
            identity=boot.identity,
            until_s=action.until_s,
            max_usd_per_hour=max_usd_per_hour(state, action.offer),
            disk_gb=state.spec.resources.disk_gb,
            image=state.spec.resources.image,
            nodes=state.wanted,
            gang=state.spec.nodes_max > 1,
        )
        self.journal.check_fence(state.job_id, self.store, self.writer)  # whatever this tick has read
        self.probe("before create")
        self._unasked.discard(action.lease_id)
        try:
            machine = provider.create(spec)
        except LocalStateError:  # of our own disk
            raise
        except (CloudError, *NOTHING_WAS_CREATED) as error:
            if first and isinstance(error, NOTHING_WAS_CREATED):
                return self._refused(state, action, error)
            return self._uncertain(state, action, error)
        self.probe("after create")
        billing = provider.capabilities().billing
        return self.note(state, created_event(action.lease_id, machine, billing), strict=False)

    def _publish(self, state: JobState, number: int) -> None:
        publish(
            self.store,
            state,
            number,
            checkpoint_interval_s=self.checkpoint_interval_s,
            losses_per_hour=self.losses_per_hour,
            probe=self.probe,
        )

    def _booted(self, action: act.CreateLease) -> Boot | None:
        """What the machine is made with. None: the store, or its cloud, has no answer at present, which says
        nothing about the offer. Raises LocalStateError, and with words of its own what no waiting mends."""
        last = self._boot_failed_s
        if last is not None and self.clock.monotonic_s() - last < self.timing.end_retry_s:
            return None
        try:
            boot = self.boot(action)
        except CloudError as error:  # a store that is full or refuses us is one, too
            log.warning("no machine can be given access to the store yet: %s", error.message)
            self._boot_failed_s = self.clock.monotonic_s()
            return None
        except LocalStateError:
            raise
        except (AccessError, UsageError) as error:
            said = f"machines on {action.offer.cloud} cannot be given access to {self.store.uri}: "
            raise type(error)(
                said + error.message, hint=error.hint, code=error.code, scope=error.scope
            ) from error
        self._boot_failed_s = None
        return boot

    def _refused(self, state: JobState, action: act.CreateLease, error: ArylError) -> JobState:
        state = self.note(
            state,
            ev.LeaseRefused(
                lease_id=action.lease_id,
                kind=error.kind,
                code=error.code,
                message=error.message,
                hint=error.hint,
            ),
            strict=False,
        )
        return self._bar(state, action.offer, error)

    def _uncertain(self, state: JobState, action: act.CreateLease, error: ArylError) -> JobState:
        """There may be a machine: nothing new for this slot until a list has told."""
        uncertain = ev.CreateUncertain(lease_id=action.lease_id, kind=error.kind, message=error.message)
        state = self.note(state, uncertain, strict=False)
        if error.kind in ("capacity", "quota", "throttled"):  # what it says of the market holds
            return self._bar(state, action.offer, error)
        return state

    def _bar(self, state: JobState, offer: Offer, error: ArylError) -> JobState:
        bar = bar_for(
            error.kind,
            offer,
            state.market_clock.market_s(self.steady.now_s()),
            self.timing,
            scope=error.scope,
            elsewhere=error.elsewhere,
            in_use=error.in_use,
            before=state.bars,
        )
        return state if bar is None else self.note(state, bar, strict=False)

    def _end(self, state: JobState, action: act.EndLease) -> JobState:
        lease = state.leases[action.lease_id]
        if lease.phase is not LeasePhase.ENDING:
            if not self.fence.is_ours(state.job_id):
                return state
            # strict=False: a machine is never kept running because the mailbox is down
            state = self.note(
                state,
                ev.LeaseEnding(lease_id=action.lease_id, code=action.code, why=action.why),
                strict=False,
            )
        if action.machine is not None:
            last = self._last_end_s.get(action.lease_id)
            now = self.clock.monotonic_s()
            if last is None or now - last >= self.timing.end_retry_s:
                self._last_end_s[action.lease_id] = now
                self._terminate(action.machine, action.why)
        return state

    def _sweep(self, state: JobState, action: act.SweepMachine) -> None:
        """A machine that *this* journal does not know may be that of a launcher which has taken the
        job over: nothing is swept before the fence has been looked at."""
        if self.fence.is_ours(state.job_id):
            self._terminate(action.machine, action.why)

    def _terminate(self, machine: Machine, why: str) -> None:
        if machine.state is MachineState.GONE:
            return
        self.probe("before terminate")
        try:
            self.providers[machine.cloud].terminate(machine)
        except (CloudError, AccessError) as error:
            log.warning("%s is not ended yet (%s): %s", machine.instance_id, why, error.message)
        self.probe("after terminate")

    def _notify(self, state: JobState, action: act.Notify) -> JobState:
        self.probe("before notify")
        try:
            text, ok = self.notify(action.topic, action.text), True
        except Exception as error:  # noqa: BLE001 - whatever a receiver does, what stands behind it goes on
            text, ok = (
                error.message if isinstance(error, ArylError) else f"{type(error).__name__}: {error}",
                False,
            )
            log.warning("%s was not told: %s", action.topic, text)
        self.probe("after notify")
        return self.note(state, ev.Notified(topic=action.topic, ok=ok, text=text), strict=False)

    def _forget_secrets(self) -> None:
        """Before the record that ends the job: after it, nobody would come to do it."""
        self.probe("before secrets are removed")
        try:
            self.store.delete([mail.SECRETS_KEY, mail.LAUNCHER_SECRETS_KEY])
        except StoreError as error:
            log.warning("the secrets are not removed yet: %s", error.message)
        self.probe("after secrets are removed")


def created_event(lease_id: str, machine: Machine, billing: Billing) -> ev.LeaseCreated:
    return ev.LeaseCreated(
        lease_id=lease_id,
        instance_id=machine.instance_id,
        launched_s=machine.launched_s,
        usd_per_hour=machine.usd_per_hour,
        address=machine.address,
        billing=billing,
    )


def _journaled_end(state: JobState, action: act.Action) -> bool:
    """An end that was ours to decide, and is only to be seen through."""
    return isinstance(action, act.EndLease) and state.leases[action.lease_id].phase is LeasePhase.ENDING
