"""One job of the chaos: its mailbox, its machines' agents, its launchers, and what is done to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.core import events as ev
from arylcloud.core import protocol as mail
from arylcloud.core.codec import dumps
from arylcloud.core.errors import ArylError
from arylcloud.core.job import JobSpec
from arylcloud.core.phases import JobPhase
from arylcloud.launcher.actions import Desired, Observed, Timing
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.loop import JobLauncher
from arylcloud.launcher.probe import Probe
from arylcloud.launcher.resuming import resume
from arylcloud.launcher.spent import spent_for_limits_usd
from arylcloud.launcher.state import JobState
from arylcloud.simulation.chaos_launcher import Process, Tally, asked, build
from arylcloud.simulation.chaos_sky import REGIONS, Sky, machines_of
from arylcloud.simulation.chaos_store import Line, Mailbox, Skewed
from arylcloud.simulation.chaos_truth import kept_of
from arylcloud.simulation.story import Call, Ran, Story
from arylcloud.simulation.world_agents import Agents

Deed = Literal[
    "kill",
    "kill soon",
    "set clock",
    "cut off",
    "migrate",
    "scale",
    "stop",
    "fail",
    "adopt",
    "adopt by force",
]
EVERY_S: dict[Deed, float] = {"kill": 420.0, "kill soon": 300.0, "set clock": 900.0, "cut off": 600.0}
"""Mean time between two of them, for each job."""
SOME: dict[Deed, float] = {
    "migrate": 0.3,
    "scale": 0.3,
    "stop": 0.12,
    "fail": 0.05,
    "adopt": 0.1,
    "adopt by force": 0.1,
}
"""Share of jobs to which it happens once."""


@dataclass(slots=True)
class ChaosJob:
    job_id: str
    spec: JobSpec
    sky: Sky
    journal: Journal
    """Its home's."""
    spare: Callable[[], Journal]
    """A home of somebody who adopts."""
    rng: np.random.Generator
    total_steps: int
    timing: Timing
    begins_s: float
    tally: Tally
    folder: Path
    """Its machines' disks."""
    mailbox: Mailbox = field(init=False)
    agents: tuple[Agents, ...] = field(init=False)
    watch: Skewed = field(init=False)
    processes: list[Process] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    may_end: set[JobPhase] = field(default_factory=lambda: {JobPhase.SUCCEEDED})
    deeds: list[tuple[float, Deed]] = field(default_factory=list)
    resume_s: float | None = None
    requests: int = 0
    over: bool = False
    _runs: dict[tuple[int, str], Ran] = field(default_factory=dict)
    _written_s: dict[tuple[str, int], float] = field(default_factory=dict)
    """By home: one that has lost the job may have journaled what never was."""

    def __post_init__(self) -> None:
        clock, rng = self.sky.clock, self.rng
        self.watch = Skewed(clock, float(rng.uniform(-60, 60)))
        self.mailbox = Mailbox(
            f"memory://jobs/{self.job_id}",
            clock=clock,
            ahead_s=float(rng.uniform(-60, 60)),
            loses=lambda: not self.sky.clear and bool(rng.random() < 0.003),
        )
        shards = self.spec.nodes_max > 1 and bool(rng.random() < 0.5)
        self.agents = tuple(
            Agents(
                world=world,
                store=self.mailbox,
                job_id=self.job_id,
                total_steps=self.total_steps,
                checkpoint_every=20,
                collective=self.spec.nodes_max > 1,
                disks=self.folder,
                shards=shards,
                clock_ahead_s=float(rng.uniform(-60, 60)),
            )
            for world in self.sky.worlds.values()
        )
        end_s = self.begins_s + 3600 * self.sky.hours
        for deed, mean_s in EVERY_S.items():
            at_s = self.begins_s + float(rng.exponential(mean_s))
            while at_s < end_s:
                self.deeds.append((at_s, deed))
                at_s += float(rng.exponential(mean_s))
        for deed, share in SOME.items():
            if rng.random() < share:
                self.deeds.append(
                    (self.begins_s + 3600 * self.sky.hours * float(rng.uniform(0.05, 0.5)), deed)
                )
        self.deeds.sort(reverse=True)

    # ------------------------------------------------------------ time

    def step(self) -> None:
        now_s = self.sky.clock.at_s
        if self.over:
            for agents in self.agents:  # one that its cloud had denied may come after the end
                agents.step()
            return
        if now_s < self.begins_s:
            return
        if not self.processes:
            self._submit()
            return
        for agents in self.agents:
            agents.step()
        self._watch_runs(now_s)
        while self.deeds and self.deeds[-1][0] <= now_s:
            deed = self.deeds.pop()[1]
            if not self.sky.clear:
                self._do(deed, now_s)
        for process in self.processes:
            process.step(now_s)
            self._watch_records(process, now_s)
        ended = all(p.over or (p.lost and not p.alive) for p in self.processes) and self.holder.over
        if ended and self.resume_s is not None:
            if now_s >= self.resume_s:
                self._resume(self.holder)
        elif ended and not any(world.landing for world in self.sky.worlds.values()):
            self.over = True

    @property
    def gone(self) -> bool:
        """It is over, and so are all its machines."""
        return self.over and not any(world.alive_of(self.job_id) for world in self.sky.worlds.values())

    @property
    def holder(self) -> Process:
        """Whoever has the job, or had it when it ended: of several homes the last that is not refused."""
        kept = [process for process in self.processes if not process.lost]
        return (kept or self.processes)[-1]

    def _submit(self) -> None:
        event = ev.JobSubmitted(
            spec=self.spec,
            prefix_uri=self.mailbox.uri,
            journal_id=self.journal.journal_id,
            market_origin_s=0.0,
            market_scale=1.0,
        )
        try:
            self.journal.append(
                self.job_id, self.watch.now_s(), "cli", event, None, mirror=Line(self.mailbox, "cli")
            )
        except ArylError:  # no disk, or no mailbox: the user launches it again a little later
            self.begins_s += 5.0
            return
        self.processes.append(self._process(self.journal, "h", adopts=False))

    def _process(self, journal: Journal, home: str, *, adopts: bool) -> Process:
        watch = self.watch if not adopts else Skewed(self.sky.clock, float(self.rng.uniform(-60, 60)))

        def make(writer: str, journal: Journal, line: Line, probe: Probe, adopted: bool) -> JobLauncher:
            providers = asked(
                self.sky.worlds,
                caller=writer,
                calls=self.calls,
                mailbox=self.mailbox,
                now_s=lambda: self.sky.clock.at_s,
            )
            return build(
                job_id=self.job_id,
                writer=writer,
                journal=journal,
                store=line,
                providers=providers,
                clock=watch,
                timing=self.timing,
                desire=self._desire,
                probe=probe,
                adopted=adopted,
            )

        return Process(
            home=home,
            journal=journal,
            mailbox=self.mailbox,
            make=make,
            tally=self.tally,
            clock=watch,
            adopts=adopts,
        )

    def _desire(self, state: JobState, _observed: Observed, now_s: float) -> Desired:
        return Desired(
            ranking=self.sky.ranking(),
            move=None,
            capabilities={name: world.capabilities() for name, world in self.sky.worlds.items()},
            timing=self.timing,
            spent_usd=spent_for_limits_usd(state, now_s) if state.spec.constraints.budget_usd else None,
        )

    # ------------------------------------------------------------ what is done to it

    def _do(self, deed: Deed, now_s: float) -> None:
        rng, holder = self.rng, self.holder
        state = holder.state
        ended = state is not None and state.phase.ended
        match deed:
            case "kill":
                away_s = 300.0 if rng.random() < 0.05 else float(rng.uniform(1, 40))
                holder.kill(now_s, away_s)
                if rng.random() < 0.3:
                    self.watch.ahead_s = float(rng.uniform(-60, 60))
            case "kill soon":
                holder.kill_in = int(rng.integers(1, 12))
            case "set clock":
                self.watch.ahead_s = float(rng.uniform(-60, 60))
            case "cut off":
                for agents in self.agents:
                    for machine in agents.world.alive_of(self.job_id):
                        if rng.random() < 0.5:
                            agents.silence(machine.instance_id, float(rng.uniform(5, 200)))
            case "migrate" if not ended:
                cloud = str(rng.choice(list(REGIONS)))
                self._request("migrate", to=f"{cloud}/{rng.choice(REGIONS[cloud])}")
            case "scale" if not ended:
                self._request("scale", nodes=int(rng.integers(self.spec.nodes_min, self.spec.nodes_max + 1)))
            case "stop" if not ended:
                self._request("stop")
                self.may_end.add(JobPhase.STOPPED)
                self.resume_s = now_s + 200.0
            case "fail" if not ended:
                for agents in self.agents:
                    agents.exit_code = 3
                self.may_end = {JobPhase.FAILED, JobPhase.SUCCEEDED, JobPhase.STOPPED}
            case "adopt" | "adopt by force" if not ended:
                if deed == "adopt":
                    holder.kill(now_s, 3600.0)
                self.processes.append(self._process(self.spare(), f"s{len(self.processes)}", adopts=True))
            case _:
                pass

    def _request(self, verb: Literal["stop", "migrate", "scale"], **args: object) -> None:
        self.requests += 1
        document = mail.RequestDoc(
            number=self.requests,
            verb=verb,
            args=dict(args),
            at_s=self.watch.now_s(),
            by="user@host",
        )
        MemoryStore.create(self.mailbox, mail.request_key(self.requests), dumps(document))

    def _resume(self, holder: Process) -> None:
        assert holder.state is not None
        if holder.state.phase is not JobPhase.STOPPED:
            self.resume_s = None
            return
        try:
            line = Line(self.mailbox, "cli")
            resume(holder.journal, self.job_id, line, writer="cli", wall_s=self.watch.now_s)
        except ArylError:
            return  # the user tries again
        self.resume_s, holder.over, holder.state = None, False, None
        holder._launcher = None
        self.may_end.discard(JobPhase.STOPPED)

    # ------------------------------------------------------------ what really happened

    def _watch_runs(self, now_s: float) -> None:
        for agents in self.agents:
            for agent in agents.by_instance.values():
                run = agent.state.run
                if run is None or agent.machine.ended_s is not None:
                    continue
                lease_id, step = agent.machine.spec.lease_id, agent.step
                known = self._runs.get((run.epoch.number, lease_id))
                if agent.running is not None and known is None:
                    known = Ran(
                        epoch=run.epoch.number,
                        lease_id=lease_id,
                        from_s=now_s,
                        to_s=now_s,
                        first_step=step,
                        last_step=step,
                    )
                elif known is None:
                    continue
                to_s = known.to_s if agent.running is None else now_s
                self._runs[known.epoch, lease_id] = replace(
                    known, to_s=to_s, last_step=max(known.last_step, step)
                )

    def _watch_records(self, process: Process, now_s: float) -> None:
        if process.state is not None:
            seq = process.state.seq
            while seq and (process.home, seq) not in self._written_s:
                self._written_s[process.home, seq] = now_s
                seq -= 1

    def story(self, resolution_s: float) -> Story:
        holder = self.holder
        written_s = {
            seq: min(at_s, self._written_s.get((holder.home, seq), at_s))
            for seq, at_s in self.mailbox.written_s.items()
        }
        return Story(
            job_id=self.job_id,
            records=tuple(ev.Record.from_bytes(body) for body in self.mailbox.journal()),
            local=holder.journal.records(self.job_id),
            written_s=written_s,
            documents=dict(self.mailbox.documents),
            authors=dict(self.mailbox.authors),
            calls=tuple(self.calls),
            machines=machines_of(self.sky, self.job_id, self.timing.landing_s),
            runs=tuple(self._runs.values()),
            commits=tuple(self.mailbox.commits),
            total_steps=self.total_steps,
            kept=kept_of(self.agents, self.sky),
            may_end=frozenset(self.may_end),
            resolution_s=resolution_s,
            drain_timeout_s=self.timing.drain_timeout_s,
            bugs=tuple(
                bug
                for a in self.agents
                for one in a.by_instance.values()
                if one.disk
                for bug in one.disk.bugs
            ),
        )
