"""A job's mailbox for chaos: it can be away, lose an answer, run by a clock of its own; and it remembers who
wrote what of the fence, and when, whatever is deleted later."""

from __future__ import annotations

import errno
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.checkpoint.store import StoreAccessError, map_error
from arylcloud.core import protocol as mail
from arylcloud.core.clock import ManualClock
from arylcloud.core.codec import loads
from arylcloud.core.errors import StoreError
from arylcloud.core.ports import ObjectInfo
from arylcloud.simulation.story import Commit


def _mapped(number: int) -> StoreError:
    error = map_error(OSError(number, ""), "cannot write to the mailbox")
    assert isinstance(error, StoreError)
    return error


OUTAGES: Final[Mapping[str, Callable[[], StoreError]]] = {
    "the store is away": lambda: StoreError("the mailbox cannot be reached"),
    "the store is full": lambda: _mapped(errno.ENOSPC),
    "the store is read-only": lambda: _mapped(errno.EROFS),
    "credentials have expired": lambda: StoreAccessError("the store refuses these credentials"),
}
"""As the product's own table has them: by their remedies they are errors of very different classes."""
READABLE: Final = frozenset({"the store is full", "the store is read-only"})
"""With these it answers reads."""


class Asleep(BaseException):
    """Whoever slept would hold up the whole world: it is asked again at the world's next step. (Not an
    Exception: nothing may catch it.)"""


@dataclass(slots=True)
class Skewed:
    """Somebody's own clock: the world's time goes on, its wall may be set."""

    clock: ManualClock
    ahead_s: float = 0.0

    def now_s(self) -> float:
        return self.clock.at_s + self.ahead_s

    def monotonic_s(self) -> float:
        return self.clock.monotonic_s()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            raise Asleep


class Mailbox(MemoryStore):
    """The machines' side of it; launchers have a :class:`Line` each."""

    def __init__(self, uri: str, *, clock: ManualClock, ahead_s: float, loses: Callable[[], bool]) -> None:
        super().__init__(uri, clock=Skewed(clock, ahead_s))
        self._world = clock
        self._sorted: list[str] = []
        self._loses = loses
        """Whether the answer to a create is lost, which has been carried out."""
        self.outage: str | None = None
        """One of ``OUTAGES``."""
        self.head = 0
        """The newest record of the journal."""
        self.written_s: dict[int, float] = {}
        self.authors: dict[int, str] = {}
        self.documents: dict[int, mail.EpochDoc] = {}
        self.commits: list[Commit] = []

    def create(self, key: str, data: bytes) -> bool:
        return self.create_by("a machine", key, data)

    def create_by(self, who: str, key: str, data: bytes) -> bool:
        self._up(writes=True)
        created = super().create(key, data)
        if created:
            insort(self._sorted, key)
            self._remember(who, key, data)
        if self._loses():
            raise StoreError("the answer was lost")
        return created

    def put(self, key: str, data: bytes) -> None:
        self._up(writes=True)
        if key not in self._objects:
            insort(self._sorted, key)
        super().put(key, data)

    def get(self, key: str) -> bytes | None:
        self._up()
        return super().get(key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        self._up()
        for key in self._sorted[bisect_left(self._sorted, max(prefix, after)) :]:
            if not key.startswith(prefix):
                return
            if key > after:
                data, modified_s = self._objects[key]
                yield ObjectInfo(key=key, size=len(data), modified_s=modified_s)

    def delete(self, keys: Sequence[str]) -> None:
        self._up(writes=self.outage != "the store is full")
        super().delete(keys)
        gone = set(keys)
        self._sorted = [key for key in self._sorted if key not in gone]

    def journal(self) -> tuple[bytes, ...]:
        """Its records, whether it can be reached or not."""
        keys = [key for key in self._sorted if key.startswith(mail.JOURNAL_PREFIX)]
        return tuple(self._objects[key][0] for key in keys)

    def _up(self, *, writes: bool = False) -> None:
        if self.outage is not None and (writes or self.outage not in READABLE):
            raise OUTAGES[self.outage]()

    def _remember(self, who: str, key: str, data: bytes) -> None:
        now_s = self._world.at_s
        if key.startswith(mail.JOURNAL_PREFIX):
            self.head += 1
            self.written_s[self.head] = now_s
        elif key.startswith(mail.EPOCHS_PREFIX):
            document = loads(mail.EpochDoc, data, what=key)
            self.documents[document.number], self.authors[document.number] = document, who
        elif key.startswith(mail.MANIFESTS_PREFIX):
            manifest = loads(mail.Manifest, data, what=key)
            self.commits.append(Commit(manifest=key, epoch=manifest.epoch, step=manifest.step, at_s=now_s))


@dataclass(slots=True)
class Line:
    """One launcher's way to the mailbox. ``pause`` comes before each call: others may go first."""

    mailbox: Mailbox
    who: str
    pause: Callable[[], None] = lambda: None

    @property
    def uri(self) -> str:
        return self.mailbox.uri

    def create(self, key: str, data: bytes) -> bool:
        self.pause()
        return self.mailbox.create_by(self.who, key, data)

    def put(self, key: str, data: bytes) -> None:
        self.pause()
        self.mailbox.put(key, data)

    def get(self, key: str) -> bytes | None:
        self.pause()
        return self.mailbox.get(key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        self.pause()
        return self.mailbox.list(prefix, after=after)

    def delete(self, keys: Sequence[str]) -> None:
        self.pause()
        self.mailbox.delete(keys)
