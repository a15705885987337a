"""A machine for tests: the real agent in a process of its own, a ``file://`` mailbox, no launcher."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from arylcloud.agent.config import Config
from arylcloud.agent.loop import Agent
from arylcloud.checkpoint.store import file_uri, open_store
from arylcloud.core.codec import dumps, loads
from arylcloud.core.job import JobSpec
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import (
    ENDS_PREFIX,
    JOB_KEY,
    LOGS_PREFIX,
    MANIFESTS_PREFIX,
    EndDoc,
    EpochDoc,
    Heartbeat,
    JobDoc,
    Manifest,
    Member,
    beat_key,
    end_key,
    epoch_key,
)

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]

TRAIN = '''\
"""Counts to TOTAL (+N: N more), saves every EVERY steps and when asked to stop, goes on from the newest."""
import os, signal, sys, time
from pathlib import Path
folder = Path(os.environ["ARYL_CHECKPOINT_DIR"])
total, every, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
have = sorted(int(p.name[5:]) for p in folder.glob("step-*"))
step = have[-1] if have else 0
total = int(total) + step * total.startswith("+")
print("begin at", step, flush=True)
def save():
    new = folder / ("new-%d" % step)
    new.mkdir()
    (new / "weights").write_text(str(step) * 1000)
    if not (folder / ("step-%d" % step)).exists():
        new.rename(folder / ("step-%d" % step))
while step < total and not stop:
    step += 1
    time.sleep(pause)
    if step % every == 0:
        save()
if stop:
    print("asked to stop at", step, flush=True)
    save()
'''


WAIT_S = 120.0
"""For anything that must happen at all. No test says how fast; a machine may be busy."""


def wait_for(what: Callable[[], T | None], *, timeout_s: float = WAIT_S, why: str = "") -> T:
    """The first true answer; a test that waits in vain says for what."""
    give_up = time.monotonic() + timeout_s
    while time.monotonic() < give_up:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not seen in {timeout_s} s: {why or what}")


@dataclass
class Job:
    folder: Path
    store: ObjectStore
    job_id: str = "job-1"
    epoch: int = 0
    machines: list[Machine] = field(default_factory=list)

    def submit(self, spec: JobSpec, files: dict[str, str] | None = None) -> None:
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as archive:
            for name, text in {"train.py": TRAIN, **(files or {})}.items():
                info = tarfile.TarInfo(name)
                info.size = len(text.encode())
                archive.addfile(info, io.BytesIO(text.encode()))
        digest = hashlib.sha256(data.getvalue()).hexdigest()
        self.store.create(f"workdir-{digest}.tar.gz", data.getvalue())
        document = JobDoc(
            job_id=self.job_id,
            journal_id="journal",
            spec=spec,
            submitted_s=time.time(),
            workdir_sha256=digest,
        )
        self.store.create(JOB_KEY, dumps(document))

    def open_epoch(self, *leases: str, resume_from: str | None = None, **more: float | None) -> EpochDoc:
        self.epoch += 1
        document = EpochDoc(
            job_id=self.job_id,
            number=self.epoch,
            attempt=self.epoch,
            opened_s=time.time(),
            reason="test",
            members=tuple(
                Member(lease_id=lease, rank=rank, address=f"127.0.0.{rank + 2}")
                for rank, lease in enumerate(leases)
            ),
            resume_from=resume_from,
            **more,  # type: ignore[arg-type]
        )
        assert self.store.create(epoch_key(self.epoch), dumps(document))
        return document

    def machine(self, lease_id: str = "lease-a", **env: str) -> Machine:
        home = self.folder / lease_id
        home.mkdir()
        machine = Machine(job=self, lease_id=lease_id, home=home)
        machine.start(env)
        self.machines.append(machine)
        return machine

    def end(self, epoch: int, rank: int = 0) -> EndDoc | None:
        data = self.store.get(end_key(epoch, rank))
        return None if data is None else loads(EndDoc, data)

    def ends(self) -> list[EndDoc]:
        return [loads(EndDoc, self.store.get(i.key) or b"") for i in self.store.list(ENDS_PREFIX)]

    def manifests(self) -> list[Manifest]:
        return [loads(Manifest, self.store.get(i.key) or b"") for i in self.store.list(MANIFESTS_PREFIX)]

    def log(self, stream: str) -> str:
        keys = [i.key for i in self.store.list(f"{LOGS_PREFIX}{stream}/")]
        return b"".join(self.store.get(key) or b"" for key in keys).decode()


@dataclass
class Machine:
    job: Job
    lease_id: str
    home: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self, env: dict[str, str]) -> None:
        base = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
            "ARYL_PREFIX_URI": self.job.store.uri,
            "ARYL_JOB_ID": self.job.job_id,
            "ARYL_LEASE_ID": self.lease_id,
            "ARYL_JOURNAL_ID": "journal",
            "ARYL_METADATA": "none",
            "ARYL_UNTIL_S": str(time.time() + 3600),
        }
        with (self.home / "console").open("wb") as console:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "arylcloud.agent"],
                cwd=self.home,
                env={**base, **env},
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def beat(self) -> Heartbeat | None:
        data = self.job.store.get(beat_key(self.lease_id))
        return None if data is None else loads(Heartbeat, data)

    def until(self, what: Callable[[Heartbeat], object], why: str = "") -> Heartbeat:
        """The first heartbeat of which ``what`` is true."""

        def look() -> Heartbeat | None:
            assert self.process is not None
            beat = self.beat()
            if beat is not None and what(beat):
                return beat
            if self.process.poll() is not None:
                raise AssertionError(f"the agent has ended: {(self.home / 'console').read_text()}")
            return None

        return wait_for(look, why=why or f"{self.lease_id}: {self.beat()}")

    def phase(self, name: str) -> Heartbeat:
        return self.until(lambda b: b.phase == name, f"phase {name}; now {self.beat()}")

    @property
    def checkpoints(self) -> Path:
        return self.home / "checkpoints"

    def write_file(self, name: str, text: str) -> None:
        (self.home / name).write_text(text)

    def kill(self) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@dataclass
class Ahead:
    """The system's clock, later by what a test says: nobody waits for a lease's end, nor has to be quick."""

    ahead_s: float = 0.0

    def now_s(self) -> float:
        return time.time() + self.ahead_s

    def monotonic_s(self) -> float:
        return time.monotonic() + self.ahead_s

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Near:
    """A machine whose agent runs in a thread of this process, by a clock of the test's. Its command is a real
    one."""

    def __init__(self, job: Job, *, lasts_s: float, metadata_url: str | None = None) -> None:
        self.job = job
        self.clock = Ahead()
        self.until_s = self.clock.now_s() + lasts_s
        home = job.folder / "near"
        home.mkdir()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        config = Config(
            prefix_uri=job.store.uri,
            job_id=job.job_id,
            lease_id="lease-a",
            journal_id="journal",
            until_s=self.until_s,
            home=home,
            environ={"PATH": path, "HOME": str(home)},
            metadata="none" if metadata_url is None else "ec2",
            **({} if metadata_url is None else {"metadata_url": metadata_url, "metadata_poll_s": 0.1}),
        )
        self.checkpoints = config.checkpoints
        self.agent = Agent(config, job.store, clock=self.clock)
        self.agent.lifeline.keep = lambda off_s: None  # type: ignore[method-assign] # it would end the tests
        self._thread = threading.Thread(target=self.agent.run, name="agent")
        self._thread.start()

    def until(self, what: Callable[[Heartbeat], object]) -> Heartbeat:
        """The first heartbeat of which ``what`` is true."""

        def look() -> Heartbeat | None:
            data = self.job.store.get(beat_key("lease-a"))
            beat = None if data is None else loads(Heartbeat, data)
            if beat is not None and what(beat):
                return beat
            assert self._thread.is_alive(), f"the agent has ended: {self.job.log('boot-lease-a')}"
            return None

        return wait_for(look)

    def ends(self) -> bool:
        """By itself."""
        self._thread.join(WAIT_S)
        return not self._thread.is_alive()

    def close(self) -> None:
        self.agent.shutdown = "the test is over"
        self.clock.ahead_s += 1e6  # whatever it waits for
        assert self.ends()


@pytest.fixture
def near(job: Job) -> Iterator[Callable[..., Near]]:
    found: list[Near] = []

    def make(**options: Any) -> Near:
        found.append(Near(job, **options))
        return found[-1]

    yield make
    for machine in found:
        machine.close()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    store = open_store(file_uri(tmp_path / "store" / "jobs" / "job-1"))
    found = Job(folder=tmp_path, store=store)
    yield found
    for machine in found.machines:
        machine.kill()


def spec(run: str, **more: object) -> JobSpec:
    return replace(JobSpec(name="test", run=run, grace_s=10.0), **more)  # type: ignore[arg-type]


def alive(pid: int) -> bool:
    """It exists and is no zombie."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def read_json(path: Path) -> dict[str, object]:
    return dict(json.loads(path.read_text()))
