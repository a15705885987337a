"""One job on machines in namespaces, what is done to it, and what its training must have seen."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from e2e.market import job, market, spot, strike
from e2e.support import Child, Home, wait_for
from netns.hub import Fleet, Hub

from arylcloud.core import events as ev
from arylcloud.launcher.state import JobState

TRAIN = Path(__file__).with_name("job")
RELATIVE, ABSOLUTE = 1e-9, 1e-12
"""Sums in another order: 53 bits, a few hundred steps."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """Of the training's own log."""

    attempt: int
    epoch: int
    rank: int
    at_s: float
    """Monotonic: the same clock for all machines, which are one host's processes."""
    what: str
    rest: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A step, as rank 0 says it."""

    epoch: int
    step: int
    seen: int
    loss: float
    samples: int
    """Sum of the indices of its samples."""
    at_s: float


class Story:
    """``with Story(folder, hub, nodes="1..4", steps=300) as story: story.until_step(40); story.kill(1)``"""

    def __init__(
        self,
        folder: Path,
        hub: Hub,
        *,
        nodes: str,
        steps: int,
        step_s: float = 0.02,
        save_every: int = 20,
        hold: int | None = None,
        capacity: int = 4,
        later: tuple[float, int] | None = None,
        noticed: tuple[float, float] | None = None,
        envs: dict[str, str] | None = None,
        run: str = "python3 -m arylcloud.training.warm train.py",
        setup: str | None = None,
        train: Path = TRAIN,
        **aryl: Any,
    ) -> None:
        """``later``: (seconds, capacity) of the market from then on; ``noticed``: (age, notice) of the first
        machine that is so old."""
        offer = spot(
            "zone-a",
            0.10,
            *([strike(age_s=noticed[0], notice_s=noticed[1])] if noticed else []),
            capacity=capacity,
            steps=[[later[0], 0.10, later[1]]] if later else None,
        )
        self.hub = hub
        self.home = Home(folder, market(offer, time_scale=1.0, notice_s=10.0), warm=hub)
        plain = self.home.env
        self.home.env = lambda **more: plain(  # type: ignore[method-assign]
            **{"ARYLCLOUD_LOCAL__NETWORK": "namespaces", **more}
        )
        self.fleet = Fleet(self.home)
        self.steps = steps
        self.job_id = self.home.submit(
            job(
                steps=steps,
                step_s=step_s,
                save_every=save_every,
                hold=hold,
                run=run,
                nodes=nodes,
                envs=envs,
                top={"workdir": str(train), **({"setup": setup} if setup else {})},
                **aryl,
            )
        )
        self.launcher: Child = self.home.serve(self.job_id)
        self.faults: list[Fault] = []

    def __enter__(self) -> Story:
        return self

    def __exit__(self, *_: object) -> None:
        self.home.close()

    # ------------------------------------------------------------ looking

    @property
    def state(self) -> JobState:
        return self.home.state(self.job_id)

    def lines(self) -> list[Line]:
        if not self.home.steps_log.exists():
            return []
        found = []
        for text in self.home.steps_log.read_text().splitlines():
            attempt, epoch, rank, at_s, what, *rest = text.split()
            found.append(
                Line(
                    attempt=int(attempt),
                    epoch=int(epoch),
                    rank=int(rank),
                    at_s=float(at_s),
                    what=what,
                    rest=tuple(rest),
                )
            )
        return found

    def seen(self) -> list[Seen]:
        return [
            Seen(
                epoch=line.epoch,
                step=int(line.rest[0]),
                seen=int(line.rest[1]),
                loss=float.fromhex(line.rest[2]),
                samples=int(line.rest[3]),
                at_s=line.at_s,
            )
            for line in self.lines()
            if line.what == "step" and line.rank == 0
        ]

    def lease(self, rank: int) -> str:
        """Who has this rank in the newest epoch with members."""
        epoch = [e for e in self.state.epochs if e.members][-1]
        return next(m.lease_id for m in epoch.members if m.rank == rank)

    def world(self) -> int:
        """Of the newest epoch of which a step has been seen."""
        newest = max((s.epoch for s in self.seen()), default=0)
        return next((len(e.members) for e in self.state.epochs if e.number == newest), 0)

    def wait(self, true: Callable[[], Any], what: str, timeout_s: float = 180.0) -> None:
        def looked() -> bool:
            assert self.launcher.running or true(), (
                f"no launcher, and not: {what}\n{self.launcher.err[-3000:]}"
            )
            return bool(true())

        wait_for(looked, what, timeout_s)

    def until_step(self, step: int) -> None:
        self.wait(lambda: any(s.step >= step for s in self.seen()), f"step {step}")

    def until_world(self, nodes: int) -> None:
        self.wait(lambda: self.world() == nodes, f"a world of {nodes}")

    def done(self) -> JobState:
        code = self.launcher.wait(240)
        assert code == 0, self.launcher.err[-3000:]
        return self.state

    # ------------------------------------------------------------ doing

    def kill(self, rank: int) -> None:
        """A host that fails: every process of the machine at once."""
        lease = self.lease(rank)
        with self._fault(f"kill -9 of rank {rank}'s machine"):
            self.home.kill_machine(self.fleet.machine(lease).instance_id)

    def kill_agent(self, rank: int) -> None:
        agent = self.fleet.agent(self.lease(rank))
        with self._fault(f"kill -9 of rank {rank}'s agent"):
            os.kill(agent, signal.SIGKILL)

    def pause_agent(self, rank: int, lease: str | None = None) -> Callable[[], None]:
        """SIGSTOP; what is returned lets it go on."""
        agent = self.fleet.agent(lease or self.lease(rank))
        with self._fault(f"rank {rank}'s agent is paused"):
            os.kill(agent, signal.SIGSTOP)
        return lambda: os.kill(agent, signal.SIGCONT)

    def freeze(self, rank: int) -> Callable[[], None]:
        """Nothing of the machine says anything any more, and nothing of it ends: a host that hangs."""
        pids = self.fleet.pids(self.lease(rank))
        with self._fault(f"rank {rank}'s machine is frozen"):
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)

        def go_on() -> None:
            for pid in pids:
                if Path(f"/proc/{pid}").exists():
                    os.kill(pid, signal.SIGCONT)

        return go_on

    def cut_off(self, rank: int) -> Callable[[], None]:
        """A partition: the cable is down, and the mailbox (a folder, which no cable reaches) is out of the
        agent's reach because it is paused. Its training runs on, alone. What is returned mends it."""
        lease = self.lease(rank)
        instance, agent = self.fleet.machine(lease).instance_id, self.fleet.agent(lease)
        with self._fault(f"rank {rank}'s machine is cut off"):
            self.hub.cable(instance, "down")
            os.kill(agent, signal.SIGSTOP)

        def mend() -> None:
            self.hub.cable(instance, "up")
            os.kill(agent, signal.SIGCONT)

        return mend

    def _fault(self, name: str) -> Fault:
        fault = Fault(name=name, epoch=max((s.epoch for s in self.seen()), default=0))
        self.faults.append(fault)
        return fault

    # ------------------------------------------------------------ what must hold

    def outage_s(self, fault: Fault) -> float | None:
        """From the fault to the next step of a later epoch; None = there was none."""
        after = [s.at_s for s in self.seen() if s.epoch > fault.epoch and s.at_s > fault.at_s]
        return min(after) - fault.at_s if after else None

    def check(self) -> None:
        """The curve is a fixed world's; nothing is lost or repeated beyond the last checkpoint."""
        found = self.seen()
        fixed = reference(self.steps)
        last = {one.step: one for one in found}
        assert sorted(last) == list(range(1, self.steps + 1))
        for step, one in last.items():
            assert (one.seen, one.samples) == (fixed[step].seen, fixed[step].samples), one
            assert math.isclose(one.loss, fixed[step].loss, rel_tol=RELATIVE, abs_tol=ABSOLUTE), (
                one,
                fixed[step],
            )
        opened = {
            r.event.number: r.event
            for r in self.home.events(self.job_id)
            if isinstance(r.event, ev.EpochOpened)
        }
        by_epoch: dict[int, list[Seen]] = {}
        for one in found:
            by_epoch.setdefault(one.epoch, []).append(one)
        ended_s = -math.inf
        for number in sorted(by_epoch):
            steps = by_epoch[number]
            first = opened[number].resume_step + 1
            assert [s.step for s in steps] == list(range(first, first + len(steps))), f"epoch {number}"
            assert steps[0].at_s > ended_s, f"epoch {number} ran beside the one before it"
            ended_s = steps[-1].at_s
        self._resumed_from_the_last(opened)

    def _resumed_from_the_last(self, opened: dict[int, ev.EpochOpened]) -> None:
        """Each epoch goes on from the newest checkpoint that was committed when it was opened."""
        committed = 0
        for record in self.home.events(self.job_id):
            match record.event:
                case ev.CheckpointCommitted() as event:
                    committed = max(committed, event.step)
                case ev.EpochOpened() as event if event.members:
                    assert event.resume_step == committed, f"epoch {event.number}"

    def figures(self) -> str:
        lines = []
        for fault in self.faults:
            outage_s = self.outage_s(fault)
            lines.append(f"{fault.name}: " + ("no later epoch" if outage_s is None else f"{outage_s:.1f} s"))
        return "\n".join(lines)


@dataclass
class Fault:
    name: str
    epoch: int
    at_s: float = field(default=math.nan)

    def __enter__(self) -> None:
        self.at_s = time.monotonic()

    def __exit__(self, *_: object) -> None:
        pass


@cache
def reference(steps: int) -> dict[int, Seen]:
    """The same training in one process that nothing happens to."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("ARYL_", "E2E_"))}
        env |= {"E2E_LOG": str(folder / "log"), "E2E_STEPS": str(steps), "E2E_STEP_S": "0"}
        subprocess.run(
            [sys.executable, str(TRAIN / "train.py")],
            cwd=folder,
            env=env | {"E2E_SAVE_EVERY": "1000000"},
            check=True,
        )
        story = object.__new__(Story)
        story.home = _Logged(folder / "log")  # type: ignore[assignment]
        return {one.step: one for one in story.seen()}


@dataclass
class _Logged:
    steps_log: Path
