"""The agent's decisions, without a machine: laws over random histories, and the cases by name."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from arylcloud.agent import decide
from arylcloud.agent.decide import (
    Inputs,
    Kill,
    Outcome,
    PowerOff,
    Report,
    Restore,
    Save,
    Signal,
    Stage,
    Start,
    State,
)
from arylcloud.core.protocol import AgentPhase, EpochDoc, Member, Notice

ME = "me"


def epoch(number: int, *, mine: bool) -> EpochDoc:
    members = (Member(lease_id=ME, rank=0, address="127.0.0.2"),) if mine else ()
    return EpochDoc(
        job_id="j", number=number, attempt=number, opened_s=0.0, reason="r", members=members, resume_from=None
    )


class World:
    """A machine that does what it is asked, whenever the history says so."""

    def __init__(self) -> None:
        self.state = State(lease_id=ME)
        self.inputs = Inputs(machine=AgentPhase.READY, grace_s=10.0, launcher_heard_s=0.0, linger_s=1e9)
        self.now_s = 0.0
        self.effects: list[decide.Effect] = []
        self.running: int | None = None
        self.restoring: int | None = None
        self.saving: int | None = None
        self.reporting: int | None = None
        self.signalled_s: float | None = None
        self.killed_s = float("-inf")

    def step(self) -> None:
        for _ in range(10):
            before = self.state
            self.state, effects = decide.step(before, self.inputs, self.now_s)
            for effect in effects:
                self.effects.append(effect)
                self.take(effect)
            self.check(before)
            if not effects and self.state == before:
                return
        raise AssertionError("it never comes to rest")

    def take(self, effect: decide.Effect) -> None:
        match effect:
            case Restore():
                assert self.running is None, "a restore under a running command"
                assert self.saving is None
                self.restoring = effect.epoch.number
            case Start():
                assert self.running is None, "two commands at once"
                assert self.restoring == effect.epoch.number
                assert effect.epoch == self.state.epoch, "an older epoch was started"
                assert self.inputs.notice is None
                self.restoring, self.running, self.signalled_s = None, effect.epoch.number, None
                self.killed_s = float("-inf")
            case Signal():
                assert self.running == effect.epoch
                assert self.signalled_s is None, "asked to stop twice"
                self.signalled_s = self.now_s
            case Kill():
                assert self.running == effect.epoch
                assert self.signalled_s is not None, "killed without having been asked"
                notice = self.inputs.notice
                assert self.now_s >= self.signalled_s + self.inputs.grace_s or notice is not None
                assert self.now_s >= self.killed_s + decide.KILL_AGAIN_S, "killed again and again"
                self.killed_s = self.now_s
            case Save():
                assert self.running is None, "the last save was taken while the command still ran"
                self.saving = effect.epoch
            case Report():
                assert self.inputs.saved_epoch >= effect.run.epoch.number, "reported before committed"
                self.reporting = effect.run.epoch.number
            case PowerOff():
                assert self.running is None or self.now_s > (self.inputs.until_s or 0.0)

    def check(self, before: State) -> None:
        state = self.state
        assert state.drained_epoch >= before.drained_epoch
        if state.drained_epoch > before.drained_epoch:
            assert self.running is None
            assert self.saving is None, "drained before everything was committed"
            assert self.reporting is None
            assert state.epoch is not None
            assert state.drained_epoch == state.epoch.number
        phase = decide.phase(state, self.inputs)
        if phase in (AgentPhase.DRAINED, AgentPhase.EXITED, AgentPhase.READY):
            assert self.running is None

    def happen(self, what: str) -> None:
        number = self.inputs.newest.number if self.inputs.newest is not None else 0
        inputs = self.inputs
        if what in ("join", "drain"):
            inputs = replace(inputs, newest=epoch(number + 1, mine=what == "join"))
        elif what == "notice" and inputs.notice is None:
            notice = Notice(action="terminate", at_s=self.now_s + 20, seen_s=self.now_s)
            inputs = replace(inputs, notice=notice)
        elif what in ("restored", "damaged") and self.restoring is not None:
            problem = "damaged" if what == "damaged" else None
            inputs = replace(inputs, restored=Outcome(epoch=self.restoring, problem=problem))
        elif what in ("exit 0", "exit 1") and self.running is not None:
            inputs = replace(inputs, ended=Outcome(epoch=self.running, exit_code=int(what[-1])))
            self.running = None
        elif what == "saved" and self.saving is not None:
            inputs = replace(inputs, saved_epoch=self.saving)
            self.saving = None
        elif what == "reported" and self.reporting is not None:
            inputs = replace(inputs, reported_epoch=self.reporting)
            self.reporting = None
        elif what == "time":
            self.now_s += 3.0
        elif what == "lease over" and inputs.until_s is None:
            inputs = replace(inputs, until_s=self.now_s)
        elif what == "unready":
            inputs = replace(inputs, machine=AgentPhase.SETUP)
        elif what == "ready":
            inputs = replace(inputs, machine=AgentPhase.READY)
        self.inputs = inputs
        self.step()


HAPPENINGS = [
    *("join", "join", "join", "drain", "restored", "restored", "restored", "damaged", "exit 0", "exit 1"),
    *("saved", "saved", "saved", "reported", "reported", "time", "time", "unready", "ready"),
]
RARE = ["notice", "lease over"]


@settings(max_examples=300, deadline=None)
@given(history=st.lists(st.sampled_from([*HAPPENINGS, *HAPPENINGS, *RARE]), max_size=60))
def test_laws_of_any_history(history: list[str]) -> None:
    world = World()
    for what in history:
        world.happen(what)
    # whatever has happened: once a drain is called and everybody answers, it comes to its end
    world.happen("ready")
    world.happen("drain")
    for _ in range(4):
        for what in ("exit 1", "saved", "reported", "time"):
            world.happen(what)
    assert world.running is None
    assert world.inputs.newest is not None
    assert world.state.drained_epoch == world.inputs.newest.number
    # each command that was started was saved and reported, once
    started = [e.epoch.number for e in world.effects if isinstance(e, Start)]
    reported = [e.run.epoch.number for e in world.effects if isinstance(e, Report)]
    assert started == reported


def run_to(stage: Stage) -> World:
    world = World()
    world.happen("join")
    if stage is not Stage.RESTORING:
        world.happen("restored")
    assert world.state.run is not None
    assert world.state.run.stage is stage
    return world


def test_an_exit_seen_before_the_drain_is_the_commands_own() -> None:
    world = run_to(Stage.RUNNING)
    world.inputs = replace(world.inputs, newest=epoch(2, mine=False), ended=Outcome(epoch=1, exit_code=0))
    world.running = None
    world.step()
    for what in ("saved", "reported"):
        world.happen(what)
    report = next(e for e in world.effects if isinstance(e, Report))
    assert not report.run.signalled
    assert not any(isinstance(e, Signal) for e in world.effects)
    assert world.state.drained_epoch == 2


def test_a_restore_that_is_overtaken_starts_nothing() -> None:
    world = run_to(Stage.RESTORING)
    world.happen("drain")
    assert world.state.drained_epoch == 2
    world.inputs = replace(world.inputs, restored=Outcome(epoch=1))
    world.step()
    assert not any(isinstance(e, Start) for e in world.effects)


def test_broken_by_a_manifest_until_the_next_epoch() -> None:
    world = run_to(Stage.RESTORING)
    world.happen("damaged")
    assert decide.phase(world.state, world.inputs) is AgentPhase.BROKEN
    assert world.state.drained_epoch == 0
    world.happen("join")
    assert decide.phase(world.state, world.inputs) is AgentPhase.RESTORING


def test_notice_shortens_the_grace_that_has_begun() -> None:
    world = run_to(Stage.RUNNING)
    world.inputs = replace(world.inputs, grace_s=1000.0, upload_s=4.0)
    world.happen("drain")
    world.happen("notice")  # acts in 20 s; 3 s margin, 4 s for the upload
    world.now_s = 12.9
    world.step()
    assert not any(isinstance(e, Kill) for e in world.effects)
    world.now_s = 13.0
    world.step()
    assert any(isinstance(e, Kill) for e in world.effects)


def test_under_notice_a_command_is_killed_once_and_then_given_time_to_die() -> None:
    """A dozen blows a turn would only keep the machine from reaping it."""
    world = run_to(Stage.RUNNING)
    world.inputs = replace(world.inputs, grace_s=1000.0, upload_s=4.0)
    world.happen("notice")
    world.now_s = 13.0
    for _ in range(20):
        world.step()
        world.now_s += 0.1
    assert sum(isinstance(e, Kill) for e in world.effects) == 1
    world.now_s = 13.0 + decide.KILL_AGAIN_S
    world.step()
    assert sum(isinstance(e, Kill) for e in world.effects) == 2


def test_an_upload_that_takes_longer_than_what_is_left_gets_half() -> None:
    world = run_to(Stage.RUNNING)
    world.inputs = replace(world.inputs, grace_s=1000.0, upload_s=500.0)
    world.happen("notice")
    world.now_s = 8.4
    world.step()
    assert not any(isinstance(e, Kill) for e in world.effects)
    world.now_s = 8.5
    world.step()
    assert any(isinstance(e, Kill) for e in world.effects)


def test_power_off_waits_for_the_last_checkpoint_but_not_for_ever() -> None:
    world = run_to(Stage.RUNNING)
    world.happen("lease over")
    world.happen("exit 0")
    assert not world.state.off
    world.now_s = 10.0 + decide.SAVE_LIMIT_S
    world.step()
    assert world.state.off
    assert sum(isinstance(e, PowerOff) for e in world.effects) == 1


def test_idle_without_a_launcher_counts_from_when_it_became_idle() -> None:
    world = run_to(Stage.RUNNING)
    world.inputs = replace(world.inputs, linger_s=600.0)
    world.now_s = 5000.0
    world.step()
    assert world.state.ending is None  # at work
    for what in ("exit 0", "saved", "reported"):
        world.happen(what)
    world.now_s += 599.0
    world.step()
    assert world.state.ending is None
    world.inputs = replace(world.inputs, launcher_heard_s=None)  # the mailbox is away: cannot tell
    world.now_s += 5.0
    world.step()
    assert world.state.ending is None
    world.inputs = replace(world.inputs, launcher_heard_s=0.0)
    world.step()
    assert world.state.off
