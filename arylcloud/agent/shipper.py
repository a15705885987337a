"""Log lines to the mailbox: numbered, create-only segments of each stream.

Output is spooled to a file on this machine and shipped from there, so that an outage of the store
costs disk, not memory and not the command. The spool is bounded: beyond it the oldest unshipped
bytes are dropped, and the log says how many. A full disk loses log lines, never the command.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from arylcloud.core.errors import ArylError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import LOGS_PREFIX, log_key

SEGMENT_BYTES = 256_000
FLUSH_BYTES = 64_000
FLUSH_S = 0.5
SPOOL_BYTES = 64_000_000
TAIL_BYTES = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    data: bytes
    upto: int
    """Of the stream's bytes, all before this one are in this segment or in an earlier one."""
    lost: int
    """Bytes that ``data`` says are missing."""


class Stream:
    """One stream of a machine's output. Written by any thread, shipped by one.

    Positions count all bytes ever written; the spool's file begins at ``_base``."""

    def __init__(
        self, name: str, spool: Path, *, spool_bytes: int = SPOOL_BYTES, full: threading.Event | None = None
    ) -> None:
        self.name = name
        self._limit = spool_bytes
        self._full = full
        self._lock = threading.Lock()
        self._file = spool.open("w+b", buffering=0)
        self._base = self._written = self._shipped = 0
        self._lost = 0
        self._tail = b""
        self._pending: Segment | None = None

    def write(self, data: bytes) -> None:
        with self._lock:
            self._tail = (self._tail + data)[-TAIL_BYTES:]
            kept = 0
            try:
                self._file.seek(self._written - self._base)
                kept = self._file.write(data)  # a disk that fills takes a part
                self._written += kept
                waiting = self._written - self._shipped
                if waiting > self._limit:
                    self._drop(waiting - self._limit // 2)
            except (OSError, ValueError):  # a full disk, or closed: said in the log once there is room
                self._lost += len(data) - kept
                return
            self._lost += len(data) - kept
            if waiting >= FLUSH_BYTES and self._full is not None:
                self._full.set()

    @property
    def written(self) -> int:
        """Bytes that were ever written, and kept."""
        with self._lock:
            return self._written

    def shipped_to(self, position: int) -> bool:
        with self._lock:
            return self._pending is None and self._shipped >= position

    def tail(self) -> str:
        """The last lines, at most 2 kB."""
        with self._lock:
            text = self._tail.decode(errors="replace")
        return text if len(self._tail) < TAIL_BYTES else text.partition("\n")[2] or text

    def peek(self) -> Segment | None:
        """The next segment; the same one until it is ``shipped`` (a write whose answer was lost is
        repeated to the byte). None = all has been shipped."""
        with self._lock:
            if self._pending is None:
                self._file.seek(self._shipped - self._base)
                data = self._file.read(min(SEGMENT_BYTES, self._written - self._shipped))
                upto, lost = self._shipped + len(data), self._lost
                if lost:
                    data = f"\n[arylcloud: {lost} bytes of output could not be kept]\n".encode() + data
                if data:
                    self._pending = Segment(data=data, upto=upto, lost=lost)
            return self._pending

    def shipped(self, segment: Segment) -> None:
        with self._lock:
            self._pending = None
            self._lost -= segment.lost
            self._shipped = max(self._shipped, segment.upto)
            gone = self._shipped - self._base
            if gone and (self._shipped == self._written or gone >= self._limit // 2):
                self._begin_at(self._shipped)

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _drop(self, count: int) -> None:
        """Forget the oldest bytes that wait, but for those of the pending segment: it holds them."""
        held = max(self._shipped, self._pending.upto if self._pending is not None else 0)
        keep_from = max(held, self._shipped + count)
        self._begin_at(keep_from)
        self._lost += keep_from - held
        self._shipped = keep_from

    def _begin_at(self, position: int) -> None:
        """Let the file forget what comes before. Raises OSError."""
        self._file.seek(position - self._base)
        rest = self._file.read(self._written - position)
        self._file.seek(0)
        self._file.write(rest)
        self._file.truncate(len(rest))
        self._base = position


class Shipper(threading.Thread):
    """Ships every stream every ``FLUSH_S``, or sooner when much waits."""

    def __init__(
        self, store: ObjectStore, folder: Path, *, on_error: Callable[[str], None], pace: float = 1.0
    ) -> None:
        super().__init__(name="shipper", daemon=True)
        self._store = store
        self._folder = folder
        self._on_error = on_error
        self._flush_s = FLUSH_S * pace
        self._streams: dict[str, Stream] = {}
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()
        self._shipping = threading.Lock()
        self._wake = threading.Event()
        self._halt = threading.Event()
        folder.mkdir(parents=True, exist_ok=True)

    def stream(self, name: str) -> Stream:
        with self._lock:
            if name not in self._streams:
                self._streams[name] = Stream(name, self._folder / f"{name}.log", full=self._wake)
            return self._streams[name]

    def run(self) -> None:
        wait_s = self._flush_s
        while not self._halt.is_set():
            self._wake.wait(wait_s)
            self._wake.clear()
            try:
                self.flush()
                wait_s = self._flush_s
            except Exception as error:  # noqa: BLE001 - logs must not end anything
                self._on_error(f"logs cannot be shipped: {error}")
                wait_s = min(10.0, wait_s * 2)

    def flush(self) -> None:
        """Ship all that waits now, a segment of each stream in turn. What is written meanwhile goes along
        where there is room, and else waits for the next time: a line a write would be dear. Raises
        StoreError."""
        with self._lock:
            waiting = [(stream, stream.written) for stream in self._streams.values()]
        with self._shipping:
            while waiting:
                left = []
                for stream, upto in waiting:
                    if (segment := stream.peek()) is None:
                        continue  # all of it, or somebody has cut the spool
                    self._ship(stream.name, segment.data)
                    stream.shipped(segment)
                    if not stream.shipped_to(upto):
                        left.append((stream, upto))
                waiting = left

    def stop(self) -> None:
        self._halt.set()
        self._wake.set()

    def close(self) -> None:
        """Lets go of the spools; what has not been flushed stays on disk."""
        with self._lock:
            for stream in self._streams.values():
                stream.close()

    def _ship(self, name: str, segment: bytes) -> None:
        if name not in self._numbers:
            # numbers go on after those of a predecessor on this machine
            keys = [info.key for info in self._store.list(f"{LOGS_PREFIX}{name}/")]
            self._numbers[name] = int(Path(keys[-1]).stem) + 1 if keys else 1
        while True:
            key = log_key(name, self._numbers[name])
            # a create whose answer was lost finds itself there at the second try
            if self._store.create(key, segment) or self._store.get(key) == segment:
                self._numbers[name] += 1
                return
            self._numbers[name] += 1


def one_line(error: BaseException) -> str:
    """For a log: our errors say enough themselves, others need their class."""
    if isinstance(error, ArylError):
        return error.message
    return f"{type(error).__name__}: {error}"
