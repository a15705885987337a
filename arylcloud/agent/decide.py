"""What the agent does next: ``step(state, inputs, now_s) -> (state, effects)``. No I/O, no clock.

Inputs are facts that last (the newest epoch, a notice, how the command ended), so that a step may
be repeated or left out without harm. One command runs at a time, in a slot that goes

    RESTORING → RUNNING → STOPPING → SAVING → REPORTING → OVER
        └─────────┴─ ends by itself ──┘ (without STOPPING)

An effect is asked for once, on the way into the stage that waits for its outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from arylcloud.core.protocol import AgentPhase, EpochDoc, Notice

SAVE_LIMIT_S = 300.0
"""At the end of its lease, a machine goes on this long beyond the grace to upload; then it ends."""
KILL_AGAIN_S = 5.0
NOTICE_MARGIN_S = 3.0
"""Kept free before the cloud acts: to see the command end, look at the disk, say the end; of a short
notice not more than its share, or nothing would be left for the save itself."""
NOTICE_MARGIN_SHARE = 0.15


class Stage(StrEnum):
    RESTORING = "restoring"
    RUNNING = "running"
    STOPPING = "stopping"
    """Signalled; it may take its grace."""
    SAVING = "saving"
    """The command is gone; its last complete checkpoint is being committed."""
    REPORTING = "reporting"
    """Committed; the EndDoc and the last lines of the log are on their way."""
    OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The command of one epoch."""

    epoch: EpochDoc
    rank: int
    stage: Stage = Stage.RESTORING
    signalled: bool = False
    kill_at_s: float | None = None
    killed: bool = False
    """Its grace is over: it has been killed, and ``kill_at_s`` is when it is killed again."""
    exit_code: int | None = None
    problem: str | None = None
    """It could not be started here: why. The machine is BROKEN until a newer epoch."""

    @property
    def finished(self) -> bool:
        """The command has ended by itself, and well."""
        return self.exit_code == 0 and not self.signalled


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    lease_id: str
    epoch: EpochDoc | None = None
    """The newest that has been seen: the only one that counts."""
    run: Run | None = None
    drained_epoch: int = 0
    ending: str | None = None
    """Why this machine is about to end itself."""
    idle_since_s: float | None = None
    """Set up (or broken) and running nothing since then."""
    off: bool = False
    """PowerOff has been asked for."""

    @property
    def busy(self) -> bool:
        return self.run is not None and self.run.stage is not Stage.OVER


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of something asked for one epoch; ``problem`` None = it went well."""

    epoch: int
    problem: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    newest: EpochDoc | None = None
    machine: AgentPhase = AgentPhase.BOOTING
    """BOOTING, SETUP, READY or BROKEN: how far this machine's own preparation is."""
    notice: Notice | None = None
    restored: Outcome | None = None
    started: Outcome | None = None
    """Only failures count: a started command is known by how it ends."""
    ended: Outcome | None = None
    saved_epoch: int = 0
    """Newest epoch whose final checkpoint is committed (or there was none to commit)."""
    reported_epoch: int = 0
    grace_s: float = 25.0
    upload_s: float | None = None
    """Measured time of the last upload."""
    until_s: float | None = None
    until_why: str = ""
    """Which limit that is."""
    shutdown: str | None = None
    """The machine is being shut down from outside: why."""
    launcher_heard_s: float | None = None
    """Wall seconds of the last sign of a launcher; None = the mailbox does not answer: unknown."""
    linger_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    epoch: EpochDoc


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    epoch: EpochDoc
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Ask every process of the command to stop; with a notice, it is told why beforehand."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """Commit the newest complete checkpoint of this epoch's command, which is gone."""

    epoch: int
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerOff:
    why: str


Effect = Restore | Start | Signal | Kill | Save | Report | PowerOff


def step(state: State, inputs: Inputs, now_s: float) -> tuple[State, tuple[Effect, ...]]:
    """One decision. Apply until it returns no effect and the same state."""
    if inputs.newest is not None and (state.epoch is None or inputs.newest.number > state.epoch.number):
        state = replace(state, epoch=inputs.newest)
    state = _dead_man(_idle(state, inputs, now_s), inputs, now_s)
    wanted = _rank_wanted(state, inputs)
    effects: tuple[Effect, ...] = ()
    if state.busy:
        assert state.run is not None
        run, effects = _advance(state.run, state, inputs, now_s, wanted=wanted is not None)
        state = state if run is state.run else replace(state, run=run)
    elif wanted is not None and inputs.machine is AgentPhase.READY:
        assert state.epoch is not None
        run = Run(epoch=state.epoch, rank=wanted)
        return replace(state, run=run), (Restore(epoch=run.epoch),)
    state = _drained(state, inputs)
    if state.ending and not state.off and (not state.busy or _overdue(inputs, now_s)):
        return replace(state, off=True), (*effects, PowerOff(why=state.ending))
    return state, effects


def phase(state: State, inputs: Inputs) -> AgentPhase:
    """What the heartbeat says."""
    run = state.run
    if run is not None and run.stage is not Stage.OVER:
        if run.stage in (Stage.RESTORING, Stage.RUNNING):
            return AgentPhase(run.stage.value)
        return AgentPhase.SAVING
    if inputs.machine is AgentPhase.BROKEN:
        return AgentPhase.BROKEN
    if run is None:
        doomed = inputs.notice is not None or state.ending is not None
        return AgentPhase.DRAINED if doomed and inputs.machine is AgentPhase.READY else inputs.machine
    if state.epoch is not None and state.epoch.number == run.epoch.number:
        if run.problem is not None:
            return AgentPhase.BROKEN
        if not run.signalled and run.exit_code is not None:
            return AgentPhase.EXITED
    return AgentPhase.DRAINED


def _rank_wanted(state: State, inputs: Inputs) -> int | None:
    """The rank that this machine should run now; None = it should run nothing."""
    epoch = state.epoch
    if epoch is None or inputs.notice is not None or state.ending is not None:
        return None
    if inputs.machine is AgentPhase.BROKEN:
        return None
    run = state.run
    if run is not None and run.epoch.number == epoch.number:
        return None if run.stage is Stage.OVER else run.rank
    return next((m.rank for m in epoch.members if m.lease_id == state.lease_id), None)


def _advance(
    run: Run, state: State, inputs: Inputs, now_s: float, *, wanted: bool
) -> tuple[Run, tuple[Effect, ...]]:
    number = run.epoch.number
    wanted = wanted and state.epoch is not None and state.epoch.number == number
    match run.stage:
        case Stage.RESTORING:
            if not wanted:  # nothing has run: nothing to save (the restore ends by itself)
                return replace(run, stage=Stage.OVER, signalled=True), ()
            restored = _of(inputs.restored, number)
            if restored is None:
                return run, ()
            if restored.problem is not None:
                return replace(run, stage=Stage.OVER, problem=restored.problem), ()
            return replace(run, stage=Stage.RUNNING), (Start(epoch=run.epoch, rank=run.rank),)
        case Stage.RUNNING | Stage.STOPPING:
            started = _of(inputs.started, number)
            if started is not None and started.problem is not None:
                return replace(run, stage=Stage.OVER, problem=started.problem), ()
            ended = _of(inputs.ended, number)
            if ended is not None:  # first: what has ended by itself was not ended by us
                run = replace(run, stage=Stage.SAVING, exit_code=ended.exit_code)
                return run, (Save(epoch=number, rank=run.rank),)
            if run.stage is Stage.RUNNING:
                if wanted:
                    return run, ()
                kill_at_s = _kill_at(state, inputs, now_s)
                run = replace(run, stage=Stage.STOPPING, signalled=True, kill_at_s=kill_at_s)
                return run, (Signal(epoch=number),)
            assert run.kill_at_s is not None
            hurried = inputs.notice is not None or _grace(state) is not None
            if hurried and not run.killed:  # it may have come after the signal
                run = replace(run, kill_at_s=min(run.kill_at_s, _kill_at(state, inputs, now_s)))
            assert run.kill_at_s is not None
            if now_s >= run.kill_at_s:  # and again, should anything of it still be there
                run = replace(run, kill_at_s=now_s + KILL_AGAIN_S, killed=True)
                return run, (Kill(epoch=number),)
            return run, ()
        case Stage.SAVING:
            if inputs.saved_epoch < number:
                return run, ()
            run = replace(run, stage=Stage.REPORTING)
            return run, (Report(run=run),)
        case Stage.REPORTING if inputs.reported_epoch >= number:
            return replace(run, stage=Stage.OVER), ()
        case _:
            return run, ()


def _grace(state: State) -> float | None:
    """Of the newest epoch, for a command of an older one whose peers are gone."""
    return state.epoch.grace_s if state.epoch is not None else None


def _kill_at(state: State, inputs: Inputs, now_s: float) -> float:
    """End of the grace. Under notice it leaves the measured upload time before the cloud acts,
    but never takes more than half of what remains: a checkpoint not yet saved is worth nothing."""
    grace_s = _grace(state)
    kill_at_s = now_s + (inputs.grace_s if grace_s is None else min(grace_s, inputs.grace_s))
    if inputs.notice is None:
        return kill_at_s
    lead_s = inputs.notice.at_s - inputs.notice.seen_s
    margin_s = min(NOTICE_MARGIN_S, NOTICE_MARGIN_SHARE * lead_s)
    left_s = max(0.0, inputs.notice.at_s - now_s - margin_s)
    upload_s = min(inputs.upload_s if inputs.upload_s is not None else 2.0, left_s / 2)
    return min(kill_at_s, now_s + left_s - upload_s)


def _drained(state: State, inputs: Inputs) -> State:
    """Nothing runs, everything is committed, and the newest epoch does not want us to run."""
    if state.epoch is None or state.busy or _rank_wanted(state, inputs) is not None:
        return state
    run = state.run
    if run is not None and run.problem is not None and run.epoch.number == state.epoch.number:
        return state  # it could not run what was asked for: BROKEN, not handed over
    drained = max(state.drained_epoch, state.epoch.number)
    return state if drained == state.drained_epoch else replace(state, drained_epoch=drained)


def _dead_man(state: State, inputs: Inputs, now_s: float) -> State:
    if state.ending is not None:
        return state
    if inputs.until_s is not None and now_s >= inputs.until_s:
        return replace(state, ending=f"this machine's lease has run out: {inputs.until_why}")
    if inputs.shutdown is not None:
        return replace(state, ending=inputs.shutdown)
    if state.idle_since_s is None or inputs.launcher_heard_s is None:
        return state
    silent_s = now_s - max(state.idle_since_s, inputs.launcher_heard_s)
    if silent_s >= inputs.linger_s:
        return replace(state, ending=f"nothing to run, and no launcher heard for {silent_s:.0f} s")
    return state


def _idle(state: State, inputs: Inputs, now_s: float) -> State:
    preparing = inputs.machine in (AgentPhase.BOOTING, AgentPhase.SETUP)
    if state.busy or preparing:
        return state if state.idle_since_s is None else replace(state, idle_since_s=None)
    return state if state.idle_since_s is not None else replace(state, idle_since_s=now_s)


def _overdue(inputs: Inputs, now_s: float) -> bool:
    return inputs.until_s is not None and now_s >= inputs.until_s + inputs.grace_s + SAVE_LIMIT_S


def _of(outcome: Outcome | None, epoch: int) -> Outcome | None:
    return outcome if outcome is not None and outcome.epoch == epoch else None
