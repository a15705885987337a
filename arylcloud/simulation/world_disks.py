"""A machine's disk in the hostile world: the agent's real ways with checkpoints, without its threads.

``CheckpointSync`` (with its sender, uploader, snapshots and gathering) and ``Restorer`` are the product's
own, over real files and the mailbox of the world; each gets turns within a step of it instead of a thread.
Modelled are the files that a command writes, and time: an upload takes none, and who would wait is asked
again at the next step. So no upload is cut in the middle here, and none is too slow for its notice.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from arylcloud.agent.decide import Outcome
from arylcloud.agent.restoring import Restorer
from arylcloud.agent.sync import COMPLETE, CheckpointSync, SyncStatus
from arylcloud.checkpoint.sharding import SHARDED
from arylcloud.core import protocol as mail
from arylcloud.core.clock import ManualClock
from arylcloud.core.errors import StoreError
from arylcloud.core.ports import ObjectInfo, ObjectStore

KEPT = 2
"""Saves that the command leaves on the disk."""
LOOKS = 4
"""Of ``CheckpointSync`` in one step of the world: it asks to be asked again at once after each commit."""


class _LaterError(BaseException):
    """It would wait now. (Not an Exception: nothing may catch it.)"""


class _Impatient(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        raise _LaterError(timeout)


@dataclass(frozen=True, slots=True)
class _Clock:
    """The machine's own. Nobody else acts while it uploads: to wait for others is to go on."""

    world: ManualClock
    ahead_s: float

    def now_s(self) -> float:
        return self.world.at_s + self.ahead_s

    def monotonic_s(self) -> float:
        return self.world.monotonic_s()

    def sleep(self, seconds: float) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A whole checkpoint (or a rank's part of it) on a machine's disk."""

    rank: int
    step: int
    at_s: float
    """By the world's clock."""


class _Way:
    """The machine's way to the store, which may be cut."""

    def __init__(self, store: ObjectStore, reach: Callable[[], bool]) -> None:
        self._store, self._reach = store, reach

    @property
    def uri(self) -> str:
        return self._store.uri

    def create(self, key: str, data: bytes) -> bool:
        return self._open().create(key, data)

    def put(self, key: str, data: bytes) -> None:
        self._open().put(key, data)

    def get(self, key: str) -> bytes | None:
        return self._open().get(key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        return self._open().list(prefix, after=after)

    def delete(self, keys: Sequence[str]) -> None:
        self._open().delete(keys)

    def _open(self) -> ObjectStore:
        if not self._reach():
            raise StoreError("this machine is cut off")
        return self._store


class Disk:
    """What one machine has, has sent, and has been sent."""

    def __init__(
        self,
        folder: Path,
        store: ObjectStore,
        *,
        job_id: str,
        lease_id: str,
        world: ManualClock,
        ahead_s: float,
        reach: Callable[[], bool],
        shards: bool,
    ) -> None:
        """``reach``: whether the machine can reach the store just now. ``shards``: each rank saves a part."""
        self.shards = shards
        self._folder = folder / "checkpoints"
        self._clock = _Clock(world, ahead_s)
        way = _Way(store, reach)
        self.said: deque[str] = deque(maxlen=50)
        """The agent's own words of late."""
        log = self.said.append
        self._sync = CheckpointSync(
            way, self._folder, job_id=job_id, lease_id=lease_id, clock=self._clock, log=log
        )
        self._sync._renames.close()  # a host has few; ``COMPLETE`` says it as well
        self._restorer = Restorer(
            way, self._sync, checkpoints=self._folder, cache=folder / "cache", job_id=job_id, log=log
        )
        self._restorer._halt = _Impatient()
        self._restoring: mail.EpochDoc | None = None
        self._busy = False
        self._failed_s: float | None = None
        """At this moment of the world it did not go through: nor will it again."""
        self.saves: dict[int, Save] = {}
        """The newest one of each epoch's command."""
        self.bugs: list[str] = []
        """What the agent's threads would have logged, and gone on: nobody meant it."""

    @property
    def status(self) -> SyncStatus:
        return self._sync.status

    @property
    def restored(self) -> Outcome | None:
        return self._restorer.outcome

    @property
    def prefetched(self) -> str | None:
        return self._restorer.prefetched

    # ------------------------------------------------------------ the command's side

    def save(self, epoch: int, rank: int, step: int) -> None:
        """As a command does: whole, by one rename; older ones go."""
        if rank and not self.shards:
            return
        names = [p for p in self._folder.iterdir() if p.name.startswith("step-")]
        path = self._folder / f"step-{step}"
        if path in names:
            return
        part = self._folder / f"part-{step}"
        part.mkdir()
        (part / f"weights-{rank}").write_bytes(f"epoch {epoch} rank {rank} step {step}".encode())
        if rank == 0:
            (part / "tokenizer").write_bytes(b"the same at every step")
        for mark in (SHARDED, COMPLETE) if self.shards else (COMPLETE,):
            (part / mark).touch()
        now_s = self._clock.now_s()
        os.utime(part / COMPLETE, (now_s, now_s))
        part.rename(path)
        for old in sorted(names, key=lambda p: int(p.name[5:]))[: -(KEPT - 1)]:
            _remove(old)
        self.saves[epoch] = Save(rank=rank, step=step, at_s=self._clock.world.at_s)
        self._busy = True

    # ------------------------------------------------------------ the agent's side

    def restore(self, epoch: mail.EpochDoc) -> None:
        self._restoring = epoch
        self._restorer.ask(epoch)

    def begin(self, epoch: mail.EpochDoc, rank: int) -> None:
        leases = tuple(m.lease_id for m in sorted(epoch.members, key=lambda m: m.rank))
        self._sync.begin(epoch.number, rank=rank, leases=leases)

    def finish(self, epoch: int, rank: int, *, finished: bool) -> None:
        self._sync.finish(epoch, commits=rank == 0, finished=finished)
        self._busy = True

    def hurry(self, left_s: float) -> None:
        self._sync.hurry(left_s)

    def turn(self) -> None:
        """All that the threads would do now."""
        if self._restoring is not None:
            try:
                self._restorer.serve(self._restoring)
            except _LaterError:
                return
            self._restoring = None
        if not self._busy or self._failed_s == self._clock.world.at_s:
            return
        for _ in range(LOOKS):
            self._sync._wake.clear()
            try:
                went = self._sync._turn()
            except Exception as error:  # noqa: BLE001 - as its thread does
                self.bugs.append(f"{type(error).__name__}: {error}")
                went = False
            if not went:
                self._failed_s = self._clock.world.at_s
            if not went or not self._sync._wake.is_set():
                self._busy = not went or bool(self._sync._fresh()) or self._sync._final is not None
                break

    def prefetch(self) -> None:
        """Raises StoreError."""
        self._restorer.ahead.prefetch()


def _remove(path: Path) -> None:
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
