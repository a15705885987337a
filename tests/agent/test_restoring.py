"""What a waiting machine brings near is what its command finds, without a second way to the store."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from arylcloud.agent.restoring import Restorer
from arylcloud.agent.sync import CheckpointSync
from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.checkpoint.upload import Uploader
from arylcloud.core.clock import SystemClock
from arylcloud.core.protocol import CHUNKS_PREFIX, EpochDoc, Manifest

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
        self.folder = tmp_path / "checkpoints"
        self.cache = tmp_path / "cache"
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
        assert self.restorer.outcome.problem is None


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
