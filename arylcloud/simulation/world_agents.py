"""The machines' side of the hostile world: the real agent's decisions over a modelled command.

``agent.decide.step`` is the product's own; modelled are the effects: a restore that takes a second, a
command that counts steps while all its ranks run, a checkpoint that is one manifest (or, with ``disks``, the
agent's own ways with checkpoints: ``world_disks``). Everything goes through the mailbox, so that whoever
cuts the mailbox silences the machine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from arylcloud.agent import decide
from arylcloud.agent.pulse import Pulse
from arylcloud.checkpoint.manifest import manifest_bytes, read_manifest, seal
from arylcloud.core import protocol as mail
from arylcloud.core.codec import dumps, loads
from arylcloud.core.errors import IntegrityError, StoreError
from arylcloud.core.ports import ObjectStore
from arylcloud.simulation.world import World, WorldMachine
from arylcloud.simulation.world_disks import Disk

BOOT_S = 3.0
_WAITS = (mail.AgentPhase.SETUP, mail.AgentPhase.READY, mail.AgentPhase.DRAINED)


@dataclass(slots=True)
class Agent:
    """One machine's agent and the command under it."""

    machine: WorldMachine
    state: decide.State
    inputs: decide.Inputs = field(default_factory=decide.Inputs)
    clock_ahead_s: float = 0.0
    """What its machine's clock is ahead of the world's: all its documents have it."""
    boot_s: float = BOOT_S
    silent_until_s: float = 0.0
    """Cut off from the mailbox until then; the command goes on."""
    seq: int = 0
    running: mail.EpochDoc | None = None
    problem: str | None = None
    """It cannot do its work: why."""
    pulse: Pulse | None = None
    """Of its command, by the world's time."""
    step: int = 0
    """Of this machine's command."""
    epoch_first_step_s: float | None = None
    committed: str | None = None
    committed_step: int | None = None
    prefetched: str | None = None
    ends_at_s: float | None = None
    """The command has been asked to stop and will have ended then."""
    disk: Disk | None = None
    """None: a checkpoint is a manifest, and no more."""
    launcher: bytes | None = None
    """Its heartbeat, as last seen."""
    heard_s: float = 0.0
    """And when it was new."""
    silences: list[tuple[float, float]] = field(default_factory=list)
    """When it was cut off."""


@dataclass(slots=True)
class Agents:
    """All machines' agents. :meth:`step` lets one second pass for each."""

    world: World
    store: ObjectStore
    job_id: str
    total_steps: int = 60
    checkpoint_every: int = 10
    hangs_at: int | None = None
    """Commands make no step beyond this one; one that hangs there saves nothing when it is asked to stop."""
    exit_code: int | None = None
    """Not None: the commands end by themselves with it, at their next step."""
    by_instance: dict[str, Agent] = field(default_factory=dict)
    clock_ahead_s: float = 0.0
    """Of the machines to come."""
    boot_s: float = BOOT_S
    """Likewise."""
    bad: int = 0
    """So many of the next machines find something wrong with their hardware."""
    duds: int = 0
    """So many of the next machines never come up: running for their cloud, never heard."""
    numbers: dict[int, int] = field(default_factory=dict)
    """Manifests written per epoch."""
    stop_takes_s: dict[str, float] = field(default_factory=dict)
    """Instance → how long its command takes from signal to end; without an entry a second."""
    collective: bool = False
    """Ranks wait for one another: asked to stop while one of them is gone, a command does not answer."""
    broken: set[int] = field(default_factory=set)
    """Epochs of which some rank has gone, never to come back."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Epoch → of how many ranks a command has been started."""
    disks: Path | None = None
    """Where machines have theirs."""
    shards: bool = False
    """Each rank saves a part (with ``disks``)."""

    def step(self) -> None:
        here_now = self.world.alive_of(self.job_id)
        if not here_now:
            return
        for machine in here_now:
            if machine.instance_id not in self.by_instance:
                state = decide.State(lease_id=machine.spec.lease_id)
                agent = Agent(
                    machine=machine, state=state, clock_ahead_s=self.clock_ahead_s, boot_s=self.boot_s
                )
                if self.bad:
                    self.bad -= 1
                    agent.problem = f"{mail.BAD_HARDWARE}GPU 0 has 3 memory errors"
                if self.duds:
                    self.duds -= 1
                    agent.silent_until_s = math.inf
                if self.disks is not None:
                    agent.disk = self._disk(agent, self.disks)
                self.by_instance[machine.instance_id] = agent
        alive = [self.by_instance[m.instance_id] for m in here_now]
        now_s = self.world.clock.at_s
        here = [agent for agent in alive if agent.running is not None]
        present = Counter(agent.running.number for agent in here if agent.running is not None)
        ranks = Counter(
            agent.running.number for agent in here if agent.running is not None and agent.ends_at_s is None
        )
        for agent in alive:
            epoch = agent.running if agent.epoch_first_step_s is not None else None
            if epoch is not None and present[epoch.number] < len(epoch.members):
                self.broken.add(epoch.number)
        for agent in alive:
            if now_s < agent.machine.lands_at_s + agent.boot_s:
                continue
            self._work(agent, ranks, now_s)
            self._decide(agent, now_s)
            self._beat(agent, now_s)

    def silence(self, instance_id: str, seconds: float) -> None:
        if (agent := self.by_instance.get(instance_id)) is not None:
            now_s = self.world.clock.at_s
            agent.silent_until_s = now_s + seconds
            agent.silences.append((now_s, now_s + seconds))

    def _disk(self, agent: Agent, folder: Path) -> Disk:
        return Disk(
            folder / f"{self.world.cloud}-{agent.machine.instance_id}",
            self.store,
            job_id=self.job_id,
            lease_id=agent.machine.spec.lease_id,
            world=self.world.clock,
            ahead_s=agent.clock_ahead_s,
            reach=lambda: self.world.clock.at_s >= agent.silent_until_s,
            shards=self.shards,
        )

    # ------------------------------------------------------------ the command

    def _work(self, agent: Agent, ranks: Counter[int], now_s: float) -> None:
        epoch = agent.running
        if epoch is None:
            return
        if agent.ends_at_s is not None:
            if now_s >= agent.ends_at_s:
                self._save(agent, epoch)
                self._ended(agent, 0)
            return
        if self.exit_code is not None:
            self._ended(agent, self.exit_code)
            return
        going = self.hangs_at is None or agent.step < self.hangs_at
        if ranks[epoch.number] == len(epoch.members) and agent.step < self.total_steps and going:
            agent.step += 1
            if agent.pulse is not None:
                agent.pulse.stepped(agent.step, now_s)
            if agent.epoch_first_step_s is None:
                agent.epoch_first_step_s = now_s + agent.clock_ahead_s
            if agent.step % self.checkpoint_every == 0:
                self._save(agent, epoch)
                if agent.disk is None:
                    self._commit(agent, epoch, now_s)
        if agent.step >= self.total_steps:
            self._save(agent, epoch)
            self._ended(agent, 0)

    def _save(self, agent: Agent, epoch: mail.EpochDoc) -> None:
        hung = self.hangs_at is not None and agent.step >= self.hangs_at
        if agent.disk is not None and agent.step and not hung:
            agent.disk.save(epoch.number, _rank(agent, epoch), agent.step)

    def _ended(self, agent: Agent, exit_code: int) -> None:
        assert agent.running is not None
        outcome = decide.Outcome(epoch=agent.running.number, exit_code=exit_code)
        agent.inputs = replace(agent.inputs, ended=outcome)
        agent.running, agent.ends_at_s = None, None

    def _commit(self, agent: Agent, epoch: mail.EpochDoc, now_s: float) -> bool:
        """Rank 0 commits. False: the mailbox cannot be reached, to be tried again."""
        rank0 = _rank(agent, epoch) == 0
        hung = self.hangs_at is not None and agent.step >= self.hangs_at
        if not rank0 or agent.step == agent.committed_step or agent.step == 0 or hung:
            return True
        number = self.numbers.get(epoch.number, 0) + 1
        manifest = seal(
            mail.Manifest(
                job_id=self.job_id,
                lease_id=agent.machine.spec.lease_id,
                epoch=epoch.number,
                number=number,
                step=agent.step,
                saved_at_s=now_s + agent.clock_ahead_s,
                committed_at_s=now_s + agent.clock_ahead_s,
                directory=f"step-{agent.step}",
                files=(),
                total_bytes=0,
                digest="",
            )
        )
        if not self._reach(agent, lambda: self.store.create(manifest.key, manifest_bytes(manifest))):
            return False
        self.numbers[epoch.number] = number
        agent.committed, agent.committed_step = manifest.key, agent.step
        return True

    # ------------------------------------------------------------ the agent

    def _decide(self, agent: Agent, now_s: float) -> None:
        known = agent.inputs
        notice, heard_s = known.notice, known.launcher_heard_s
        if agent.machine.acts_at_s is not None and notice is None:
            notice = mail.Notice(action="terminate", at_s=agent.machine.acts_at_s, seen_s=now_s)
            if agent.disk is not None:
                agent.disk.hurry(notice.at_s - now_s)
        if agent.disk is not None:
            heard_s = self._heard(agent, now_s)
        agent.inputs = replace(
            known,
            machine=mail.AgentPhase.READY if agent.problem is None else mail.AgentPhase.BROKEN,
            notice=notice,
            launcher_heard_s=heard_s,
            newest=self._newest(agent) or known.newest,
        )
        for _ in range(8):
            self._look_at_disk(agent)
            state, effects = decide.step(agent.state, agent.inputs, now_s)
            if state == agent.state and not effects:
                break
            agent.state = state
            for effect in effects:
                self._perform(agent, effect, now_s)
        self._retry(agent, now_s)

    def _heard(self, agent: Agent, now_s: float) -> float | None:
        """As ``agent.mailbox`` has it: when a launcher was heard; None: the mailbox does not answer."""
        seen: list[bytes | None] = []
        if not self._reach(agent, lambda: seen.append(self.store.get(mail.LAUNCHER_KEY))):
            return None
        if seen[0] is not None and seen[0] != agent.launcher:
            agent.launcher, agent.heard_s = seen[0], now_s
        return max(agent.heard_s, agent.machine.lands_at_s + agent.boot_s)

    def _look_at_disk(self, agent: Agent) -> None:
        if agent.disk is not None:
            agent.disk.turn()
            status, restored = agent.disk.status, agent.disk.restored
            if (agent.inputs.saved_epoch, agent.inputs.restored) != (status.saved_epoch, restored):
                agent.inputs = replace(agent.inputs, saved_epoch=status.saved_epoch, restored=restored)
            agent.committed, agent.committed_step = status.committed, status.committed_step

    def _newest(self, agent: Agent) -> mail.EpochDoc | None:
        number = agent.state.epoch.number if agent.state.epoch is not None else 0
        found: list[mail.EpochDoc] = []

        def look() -> None:
            for info in self.store.list(mail.EPOCHS_PREFIX, after=mail.epoch_key(number)):
                data = self.store.get(info.key)
                if data is not None:
                    found.append(loads(mail.EpochDoc, data))

        self._reach(agent, look)
        return found[-1] if found else None

    def _perform(self, agent: Agent, effect: decide.Effect, now_s: float) -> None:
        match effect:
            case decide.Restore():
                agent.epoch_first_step_s = None
                agent.running = None
                if agent.disk is not None:
                    agent.disk.restore(effect.epoch)
                    return
                agent.step, problem = self._restored(effect.epoch)
                agent.committed = effect.epoch.resume_from
                agent.committed_step = agent.step if agent.committed else None
                outcome = decide.Outcome(epoch=effect.epoch.number, problem=problem)
                agent.inputs = replace(agent.inputs, restored=outcome)
            case decide.Start():
                agent.running = effect.epoch
                self.sizes[effect.epoch.number] = len(effect.epoch.members)
                if agent.disk is not None:
                    agent.disk.begin(effect.epoch, effect.rank)
                    agent.step = agent.disk.status.committed_step or 0
                agent.pulse = Pulse(now_s, agent.step)
            case decide.Signal():
                number = agent.running.number if agent.running is not None else 0
                if not (self.collective and number in self.broken):
                    agent.ends_at_s = now_s + self.stop_takes_s.get(agent.machine.instance_id, 1.0)
            case decide.Kill():
                if agent.running is not None:
                    self._ended(agent, 137)
            case decide.Save() if agent.disk is not None:
                finished = agent.state.run is not None and agent.state.run.finished
                agent.disk.finish(effect.epoch, effect.rank, finished=finished)
            case decide.Save() | decide.Report():
                pass  # done in _retry, which goes on until the mailbox has it
            case decide.PowerOff():
                self.world.power_off(agent.machine.instance_id)

    def _retry(self, agent: Agent, now_s: float) -> None:
        run = agent.state.run
        if run is None:
            return
        modelled = agent.disk is None and run.stage is decide.Stage.SAVING
        if modelled and self._commit(agent, run.epoch, now_s):
            agent.inputs = replace(agent.inputs, saved_epoch=run.epoch.number)
        if run.stage is decide.Stage.REPORTING:
            finished = run.exit_code == 0 and (not run.signalled or agent.step >= self.total_steps)
            end = mail.EndDoc(
                epoch=run.epoch.number,
                rank=run.rank,
                lease_id=agent.machine.spec.lease_id,
                exit_code=run.exit_code or 0,
                signalled=run.signalled,
                finished=finished,
                step=agent.step,
                at_s=now_s + agent.clock_ahead_s,
            )
            if self._reach(agent, lambda: self.store.create(mail.end_key(end.epoch, end.rank), dumps(end))):
                agent.inputs = replace(agent.inputs, reported_epoch=run.epoch.number)

    def _restored(self, epoch: mail.EpochDoc) -> tuple[int, str | None]:
        if epoch.resume_from is None:
            return 0, None
        try:
            return read_manifest(self.store, epoch.resume_from).step, None
        except IntegrityError as error:
            return 0, f"cannot restore {epoch.resume_from}: {error.message}"
        except StoreError as error:
            return 0, f"cannot restore: {error.message}"

    def _beat(self, agent: Agent, now_s: float) -> None:
        agent.seq += 1

        phase = decide.phase(agent.state, agent.inputs)

        def write() -> None:
            if agent.disk is None:
                manifests = [info.key for info in self.store.list(mail.MANIFESTS_PREFIX)]
                agent.prefetched = manifests[-1] if manifests else agent.prefetched
            else:
                if phase in _WAITS and agent.inputs.notice is None and agent.state.ending is None:
                    agent.disk.prefetch()
                agent.prefetched = agent.disk.prefetched or agent.committed
            beat = mail.Heartbeat(
                lease_id=agent.machine.spec.lease_id,
                seq=agent.seq,
                at_s=now_s + agent.clock_ahead_s,
                phase=phase,
                epoch=agent.state.epoch.number if agent.state.epoch is not None else 0,
                drained_epoch=agent.state.drained_epoch,
                step=agent.step,
                total_steps=self.total_steps,
                first_step_s=agent.epoch_first_step_s,
                step_age_s=agent.pulse.step_age_s(now_s) if agent.pulse is not None else None,
                step_gap_s=agent.pulse.step_gap_s() if agent.pulse is not None else None,
                quiet_s=agent.pulse.quiet_s(now_s) if agent.pulse is not None else None,
                committed=agent.committed,
                committed_step=agent.committed_step,
                prefetched=agent.prefetched,
                notice=agent.inputs.notice,
                message=agent.problem or (agent.state.run.problem if agent.state.run is not None else None),
            )
            self.store.put(mail.beat_key(agent.machine.spec.lease_id), dumps(beat))

        self._reach(agent, write)

    def _reach(self, agent: Agent, call: Callable[[], object]) -> bool:
        """Whether the mailbox could be reached, and the call made."""
        if self.world.clock.at_s < agent.silent_until_s:
            return False
        try:
            call()
        except StoreError:
            return False
        return True


def _rank(agent: Agent, epoch: mail.EpochDoc) -> int:
    return next(m.rank for m in epoch.members if m.lease_id == agent.machine.spec.lease_id)
