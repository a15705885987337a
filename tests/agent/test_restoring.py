"""What a waiting machine brings near is what its command finds, without a second way to the store."""

from __future__ import annotations

import os
import queue
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.harness import Harness, spec

from arylcloud.agent.ahead import PREFETCH_MOST_S
from arylcloud.agent.restoring import NO_SPACE_TRIES, Restorer
from arylcloud.agent.sync import CheckpointSync
from arylcloud.agent.waiting import HASTE_S
from arylcloud.checkpoint.drafts import Announcer
from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.checkpoint.store import LocalStoreError
from arylcloud.checkpoint.upload import Uploader
from arylcloud.core import events as ev
from arylcloud.core.clock import SystemClock
from arylcloud.core.errors import StoreError
from arylcloud.core.phases import JobPhase
from arylcloud.core.protocol import CHUNKS_PREFIX, AgentPhase, EpochDoc, Manifest
from arylcloud.launcher import actions as act
from arylcloud.launcher.reconcile import reconcile

from .conftest import wait_for


class Gate(MemoryStore):
    """Counts what is read of chunks; each read waits while the gate is shut."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0
        self.open = threading.Event()
        self.open.set()
        self.waits = threading.Event()

    def get(self, key: str) -> bytes | None:
        data = super().get(key)
        if key.startswith(CHUNKS_PREFIX):
            self.waits.set()
            assert self.open.wait(30)
            self.read += len(data or b"")
        return data


class Machine:
    def __init__(self, tmp_path: Path) -> None:
        self.store = Gate()
        self.source = tmp_path / "source"
        self.folder = tmp_path / "disk" / "checkpoints"
        self.cache = tmp_path / "disk" / "cache"
        self.uploader = Uploader(self.store)
        sync = CheckpointSync(
            self.store, self.folder, job_id="j", lease_id="l", clock=SystemClock(), log=lambda _: None
        )
        self.restorer = Restorer(
            self.store,
            sync,
            checkpoints=self.folder,
            cache=self.cache,
            job_id="j",
            log=lambda _: None,
            pace=0.02,
        )

    def commit(self, number: int, **files: bytes) -> Manifest:
        folder = self.source / f"step-{number}"
        folder.mkdir(parents=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)
        return self.uploader.commit(
            folder,
            job_id="j",
            lease_id="other",
            epoch=1,
            number=number,
            step=number,
            saved_at_s=0.0,
            clock=SystemClock(),
        )

    def ask(self, number: int, resume_from: str | None) -> None:
        assert self.problem(number, resume_from) is None

    def problem(self, number: int, resume_from: str | None) -> str | None:
        epoch = EpochDoc(
            job_id="j",
            number=number,
            attempt=number,
            opened_s=0.0,
            reason="",
            members=(),
            resume_from=resume_from,
        )
        self.restorer.ask(epoch)
        wait_for(lambda: self.restorer.outcome and self.restorer.outcome.epoch == number)
        assert self.restorer.outcome is not None
        return self.restorer.outcome.problem


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path)
    found.restorer.start()
    yield found
    found.store.open.set()
    found.restorer.stop()
    found.restorer.join(10)


def test_brought_near_once_and_only_the_difference_after_that(machine: Machine) -> None:
    frozen = os.urandom(1000)
    first = machine.commit(1, base=frozen, head=b"1" * 100)
    machine.restorer.prefetching.set()
    wait_for(lambda: machine.restorer.prefetched == first.key)
    second = machine.commit(2, base=frozen, head=b"2" * 100)
    wait_for(lambda: machine.restorer.prefetched == second.key)
    assert machine.store.read == 1200
    machine.ask(1, second.key)
    assert machine.store.read == 1200
    assert {p.name: p.read_bytes() for p in (machine.folder / "step-2").iterdir()} == {
        "base": frozen,
        "head": b"2" * 100,
    }
    wait_for(lambda: not machine.cache.exists())
    # and again, after an epoch of its own
    third = machine.commit(3, head=b"3" * 100)
    machine.restorer.prefetching.set()
    wait_for(lambda: machine.restorer.prefetched == third.key)


def test_what_is_still_being_sent_is_brought_near_and_used(machine: Machine, tmp_path: Path) -> None:
    data = os.urandom(100 * 64)
    (tmp_path / "step-5").mkdir()
    (tmp_path / "step-5/weights").write_bytes(data)
    uploader = Uploader(machine.store, chunk_bytes=64, threads=1)
    machine.restorer.draining(2)
    machine.restorer.prefetching.set()
    announcer = Announcer(machine.store, job_id="j", epoch=2)
    files = uploader.send(tmp_path / "step-5", name="step-5", clock=SystemClock(), announcer=announcer)
    wait_for(lambda: machine.store.read >= 96 * 64)  # before there is a manifest
    manifest = uploader.write_manifest(
        files,
        job_id="j",
        lease_id="other",
        epoch=1,
        number=1,
        step=5,
        saved_at_s=0.0,
        directory="step-5",
        clock=SystemClock(),
    )
    machine.ask(3, manifest.key)
    assert (machine.folder / "step-5/weights").read_bytes() == data
    assert machine.store.read == len(data)
    wait_for(lambda: not machine.cache.exists())


def _sent(machine: Machine, tmp_path: Path, step: int, data: bytes, number: int, drain: int = 2) -> Manifest:
    """A checkpoint that another machine sends during a drain."""
    folder = tmp_path / f"sent/step-{step}"
    folder.mkdir(parents=True)
    (folder / "weights").write_bytes(data)
    uploader = Uploader(machine.store, chunk_bytes=64, threads=1)
    announcer = Announcer(machine.store, job_id="j", epoch=drain)
    files = uploader.send(folder, name=folder.name, clock=SystemClock(), announcer=announcer)
    return uploader.write_manifest(
        files, job_id="j", lease_id="other", epoch=1, number=number, step=step, saved_at_s=0.0,
        directory=folder.name, clock=SystemClock(),
    )  # fmt: skip


def test_what_came_near_during_a_drain_stays_as_it_is_until_the_next_epoch(
    machine: Machine, tmp_path: Path
) -> None:
    """The launcher takes its time between the manifest and the epoch; and a second save may come."""
    data = os.urandom(100 * 64)
    machine.restorer.draining(2)
    machine.restorer.prefetching.set()
    first = _sent(machine, tmp_path, 5, data, 1)
    wait_for(lambda: machine.restorer.prefetched == first.key)
    more = data[: 90 * 64] + os.urandom(10 * 64)
    second = _sent(machine, tmp_path, 6, more, 2)
    wait_for(lambda: machine.restorer.prefetched == second.key)
    assert machine.store.read == 110 * 64
    machine.ask(3, second.key)
    assert machine.store.read == 110 * 64
    assert (machine.folder / "step-6/weights").read_bytes() == more


def test_who_has_sent_a_checkpoint_itself_fetches_nothing_of_it(machine: Machine, tmp_path: Path) -> None:
    machine.ask(1, None)
    manifest = _sent(machine, tmp_path, 5, os.urandom(10 * 64), 1)
    shutil.copytree(tmp_path / "sent/step-5", machine.folder / "step-5")
    machine.restorer._sync.resume(manifest)
    machine.restorer.draining(2)
    machine.restorer.prefetching.set()
    wait_for(lambda: machine.restorer.prefetched == manifest.key)
    machine.ask(3, manifest.key)
    assert machine.store.read == 0


def test_a_store_that_is_away_during_a_drain_is_asked_less_and_less(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    real = machine.restorer._queue
    enough = threading.Event()

    class Queue:
        def get(self, timeout: float) -> EpochDoc | None:
            waits.append(timeout)
            if len(waits) > 12:
                enough.set()
                return real.get()
            raise queue.Empty

        put = staticmethod(real.put)

    def away(*_: object, **__: object) -> None:
        raise StoreError("unreachable")

    said: list[str] = []
    monkeypatch.setattr(machine.store, "get", away)
    monkeypatch.setattr(machine.store, "list", away)
    monkeypatch.setattr(machine.restorer.ahead, "_log", said.append)
    machine.restorer.draining(2)
    machine.restorer.prefetching.set()
    monkeypatch.setattr(machine.restorer, "_queue", Queue())
    machine.restorer._queue.put(None)
    real.put(None)
    assert enough.wait(30)
    assert waits[-1] == 30.0
    assert sum("cannot be followed" in text for text in said) == 1


def test_a_drain_in_which_nothing_is_sent_is_looked_at_as_any_wait(machine: Machine) -> None:
    machine.restorer.ahead._pace = 1.0
    machine.restorer.draining(2)
    machine.restorer.prefetching.set()
    assert machine.restorer.ahead.hasty()
    machine.restorer.ahead._stirred_s -= HASTE_S
    assert not machine.restorer.ahead.hasty()
    machine.restorer.draining(2)
    assert not machine.restorer.ahead.hasty()
    machine.restorer.draining(4)
    assert machine.restorer.ahead.hasty()


def test_lists_are_seldom_where_no_checkpoint_comes(machine: Machine) -> None:
    restorer = machine.restorer
    restorer.stop()
    restorer.join(30)
    restorer._halt.clear()
    assert restorer.ahead.pause_s(hasty=False) == restorer.ahead.poll_s
    restorer.prefetching.set()
    assert restorer.ahead.pause_s(hasty=False) == restorer.ahead.poll_s, "it has just begun to look"
    restorer.ahead._news_s -= 3600.0
    assert restorer.ahead.pause_s(hasty=False) == pytest.approx(PREFETCH_MOST_S * restorer.ahead._pace)
    machine.commit(1, a=b"1" * 100)
    restorer.ahead.prefetch()
    assert restorer.ahead.pause_s(hasty=False) == restorer.ahead.poll_s, "one has come"


def test_a_drain_wakes_whoever_waits(tmp_path: Path) -> None:
    """Between two looks that are far apart."""
    machine = Machine(tmp_path)
    restorer = machine.restorer
    restorer.ahead.poll_s = 3600.0
    manifest = machine.commit(1, a=b"1" * 100)
    restorer.prefetching.set()
    restorer.start()
    try:
        restorer.draining(2)
        wait_for(lambda: restorer.prefetched == manifest.key)
    finally:
        restorer.stop()
        restorer.join(10)


def test_an_epoch_from_another_checkpoint_waits_for_no_prefetch(machine: Machine) -> None:
    first = machine.commit(1, a=b"1" * 100)
    machine.commit(2, **{f"f{n}": bytes([n]) * 100 for n in range(50)})
    machine.store.open.clear()
    machine.restorer.prefetching.set()
    assert machine.store.waits.wait(30)
    asked = threading.Thread(target=machine.ask, args=(1, first.key))
    asked.start()
    wait_for(lambda: machine.restorer._resume_from == first.key)
    machine.store.open.set()
    asked.join(30)
    assert [p.name for p in machine.folder.iterdir()] == ["step-1"]
    assert machine.store.read < 100 + 50 * 100


def test_what_is_under_way_is_waited_for_if_it_is_what_is_wanted(machine: Machine) -> None:
    first = machine.commit(1, **{f"f{n}": bytes([n]) * 100 for n in range(50)})
    machine.store.open.clear()
    machine.restorer.prefetching.set()
    assert machine.store.waits.wait(30)
    asked = threading.Thread(target=machine.ask, args=(1, first.key))
    asked.start()
    machine.store.open.set()
    asked.join(30)
    assert machine.store.read == 50 * 100
    assert len(list((machine.folder / "step-1").iterdir())) == 50


class Disk:
    """Of ``size`` bytes, as ``shutil.disk_usage`` tells of it; files with several names count once."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.size = size

    def usage(self, _: object) -> shutil._ntuple_diskusage:
        files = {p.stat().st_ino: p.stat().st_size for p in self.folder.rglob("*") if p.is_file()}
        used = sum(files.values())
        return shutil._ntuple_diskusage(self.size, used, self.size - used)


def test_a_disk_too_small_costs_no_checkpoint(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the agent says of it is read by the launcher: the machine is at fault, not the checkpoint."""
    made = machine.commit(1, a=b"1" * 1000)
    monkeypatch.setattr("shutil.disk_usage", Disk(machine.folder, 999).usage)
    monkeypatch.setattr(machine.restorer._halt, "wait", lambda _: False)
    said = machine.problem(1, made.key)
    assert said is not None
    assert "GB in" in said
    monkeypatch.undo()
    h = Harness(tmp_path / "launcher", spec=spec(1))
    h.agents.total_steps = 500
    h.until(JobPhase.RUNNING)
    h.tick(12)
    h.world.interrupt(h.running[0].instance_id)
    h.until(JobPhase.RECOVERING)
    h.until(JobPhase.RUNNING)
    epoch = h.state.epochs[-1]
    assert epoch.resume_from is not None

    def rejected(message: str) -> bool:
        seen = h.launcher.observer.observe(h.state)
        lease = epoch.members[0].lease_id
        beat = replace(seen.beats[lease], phase=AgentPhase.BROKEN, epoch=epoch.number, message=message)
        seen = replace(seen, beats={**seen.beats, lease: beat})
        actions = reconcile(h.state, seen, h._desire(h.state, seen, h.clock.at_s), h.clock.at_s)
        return any(isinstance(a, act.Note) and isinstance(a.event, ev.CheckpointRejected) for a in actions)

    assert not rejected(said.replace(made.key, epoch.resume_from))
    assert rejected(f"cannot restore {epoch.resume_from}: a chunk is missing")


def test_a_store_that_this_machine_may_not_read_costs_no_checkpoint(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its errors name what was to be read."""
    made = machine.commit(1, a=b"1")
    tries: list[str] = []

    def refuse(_: object, key: str, **__: object) -> Manifest:
        tries.append(key)
        raise LocalStoreError(f"cannot read {key} in file:///store: Permission denied")

    monkeypatch.setattr("arylcloud.agent.restoring.read_manifest", refuse)
    monkeypatch.setattr(machine.restorer._halt, "wait", lambda _: False)
    said = machine.problem(1, made.key)
    assert said == (
        "this machine cannot restore a checkpoint: "
        "cannot read the checkpoint in file:///store: Permission denied"
    )
    assert len(tries) == NO_SPACE_TRIES


def test_what_was_brought_near_takes_no_room_twice(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A disk that holds one and a half of it."""
    first = machine.commit(1, base=os.urandom(1000), head=b"1" * 100)
    monkeypatch.setattr("shutil.disk_usage", Disk(tmp_path / "disk", 1700).usage)
    machine.restorer.prefetching.set()
    wait_for(lambda: machine.restorer.prefetched == first.key)
    machine.ask(1, first.key)
    assert machine.store.read == 1100


def test_room_is_made_where_another_was_brought_near(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """… and where an older one lies that nobody goes back to."""
    monkeypatch.setattr("shutil.disk_usage", Disk(tmp_path / "disk", 1700).usage)
    first = machine.commit(1, base=os.urandom(1000))
    machine.restorer.prefetching.set()
    wait_for(lambda: machine.restorer.prefetched == first.key)
    (machine.folder / "step-0").mkdir()
    (machine.folder / "step-0" / "base").write_bytes(bytes(600))
    machine.restorer.prefetching.clear()
    other = machine.commit(2, base=os.urandom(1200))
    machine.ask(1, other.key)
    assert [p.name for p in machine.folder.iterdir()] == ["step-2"]
