"""A launcher of one job, as a process: its cloud does not answer until it is told to.

    python -m support.slow_launcher FOLDER

``FOLDER/jobs`` is the store's prefix. ``FOLDER/asked`` appears when the cloud has been asked for a machine;
it answers (nothing to be had) when the FIFO ``FOLDER/answer`` is written to. ``FOLDER/lost`` appears when its
life sign has seen that another launcher has taken the job over; it exits 6 then.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

from arylcloud.checkpoint.store import open_store
from arylcloud.core import events as ev
from arylcloud.core.clock import ManualClock, SystemClock
from arylcloud.core.errors import CapacityError, ConflictError
from arylcloud.core.job import JobSpec
from arylcloud.core.ports import MachineSpec
from arylcloud.launcher import actions as act
from arylcloud.launcher.executor import Boot, Executor
from arylcloud.launcher.housekeeping import Housekeeper
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.lifesign import LifeSign
from arylcloud.launcher.loop import JobLauncher
from arylcloud.launcher.observe import Observer
from arylcloud.launcher.state import JobState
from arylcloud.simulation.world import World
from support.harness import JOB, OFFERS, TIMING

WRITER = "l-slow"


class Slow(World):
    folder: Path

    def create(self, spec: MachineSpec) -> NoReturn:
        (self.folder / "asked").touch()
        (self.folder / "answer").read_bytes()
        raise CapacityError(f"nothing for {spec.lease_id}")


class Watched(LifeSign):
    folder: Path

    def _ours(self) -> bool:
        found = super()._ours()
        if not found:
            (self.folder / "lost").touch()
        return found


def launcher(folder: Path, *, after_s: float) -> JobLauncher:
    store = open_store((folder / "jobs").as_uri(), create=True)
    journal = Journal(folder / "journal.db")
    submitted = ev.JobSubmitted(
        spec=JobSpec(name="digits", run="python train.py"),
        prefix_uri=store.uri,
        journal_id=journal.journal_id,
        market_origin_s=0.0,
        market_scale=1.0,
    )
    clock = SystemClock()
    journal.append(JOB, clock.now_s(), "cli", submitted, None, mirror=store)
    world = Slow(clock=ManualClock(clock.now_s()))
    world.folder = folder
    sign = Watched(store=store, writer=WRITER, clock=clock, after_s=after_s)
    sign.folder = folder
    executor = Executor(
        journal=journal,
        store=store,
        providers={"aws": world},
        writer=WRITER,
        clock=clock,
        timing=TIMING,
        boot=lambda action: Boot(user_data="stub"),
        notify=lambda topic, text: text,
        moved=sign.moved,
    )

    def desire(state: JobState, observed: act.Observed, now_s: float) -> act.Desired:
        able = {"aws": world.capabilities()}
        return act.Desired(ranking=OFFERS, move=None, capabilities=able, timing=TIMING)

    return JobLauncher(
        job_id=JOB,
        journal=journal,
        executor=executor,
        observer=Observer(store=store, providers={"aws": world}, clouds=("aws",)),
        desire=desire,
        clock=clock,
        timing=TIMING,
        housekeeper=Housekeeper(store=store),
        sign=sign,
    )


if __name__ == "__main__":
    try:
        launcher(Path(sys.argv[1]), after_s=0.05).run()
    except ConflictError as error:
        print(error.message, file=sys.stderr)
        sys.exit(6)
