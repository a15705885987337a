"""Log lines to the mailbox: numbered, create-only segments of each stream.

Output is spooled to a file on this machine and shipped from there, so that an outage of the store
costs disk, not memory and not the command. The spool is bounded: beyond it the oldest unshipped
bytes are dropped, and the log says how many. A full disk loses log lines, never the command.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from arylcloud.core.errors import ArylError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import LOGS_PREFIX, log_key

SEGMENT_BYTES = 256_000
FLUSH_BYTES = 64_000
FLUSH_S = 0.5
SPOOL_BYTES = 64_000_000
TAIL_BYTES = 2_000


class Stream:
    """One stream of a machine's output. Written by any thread, shipped by one."""

    def __init__(self, name: str, spool: Path, *, spool_bytes: int = SPOOL_BYTES) -> None:
        self.name = name
        self._path = spool
        self._limit = spool_bytes
        self._lock = threading.Lock()
        self._file = spool.open("w+b", buffering=0)
        self._written = 0
        self._shipped = 0
        self._lost = 0
        self._tail = b""
        self.full = threading.Event()
        """More than one segment waits."""

    def write(self, data: bytes) -> None:
        with self._lock:
            self._tail = (self._tail + data)[-TAIL_BYTES:]
            try:
                self._file.seek(self._written)
                self._file.write(data)
                self._written += len(data)
            except OSError:  # a full disk: counted, and said in the log once there is room
                self._lost += len(data)
            waiting = self._written - self._shipped
            if waiting > self._limit:
                dropped = waiting - self._limit // 2
                self._lost += dropped
                self._shipped += dropped
                self._compact()
            if waiting >= FLUSH_BYTES:
                self.full.set()

    def tail(self) -> str:
        """The last lines, at most 2 kB."""
        with self._lock:
            text = self._tail.decode(errors="replace")
        return text if len(text) < TAIL_BYTES else text.partition("\n")[2] or text

    def peek(self) -> bytes:
        """The next segment's bytes; empty = all has been shipped."""
        with self._lock:
            if self._lost:
                note = f"\n[arylcloud: {self._lost} bytes of output could not be kept]\n".encode()
            else:
                note = b""
            self._file.seek(self._shipped)
            return note + self._file.read(SEGMENT_BYTES)

    def shipped(self, segment: bytes) -> None:
        with self._lock:
            note = segment.startswith(b"\n[arylcloud: ") and self._lost > 0
            size = len(segment)
            if note:
                size -= segment.index(b"]\n") + 2
                self._lost = 0
            self._shipped += size
            if self._shipped == self._written:
                self._file.truncate(0)
                self._written = self._shipped = 0

    def close(self) -> None:
        self._file.close()

    def _compact(self) -> None:
        """Move what is left to the beginning of the file."""
        self._file.seek(self._shipped)
        rest = self._file.read(self._written - self._shipped)
        self._file.seek(0)
        self._file.write(rest)
        self._file.truncate(len(rest))
        self._written, self._shipped = len(rest), 0


class Shipper(threading.Thread):
    """Ships every stream every ``FLUSH_S``, or sooner when much waits."""

    def __init__(self, store: ObjectStore, folder: Path, *, on_error: Callable[[str], None]) -> None:
        super().__init__(name="shipper", daemon=True)
        self._store = store
        self._folder = folder
        self._on_error = on_error
        self._streams: dict[str, Stream] = {}
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()
        self._shipping = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        folder.mkdir(parents=True, exist_ok=True)

    def stream(self, name: str) -> Stream:
        with self._lock:
            if name not in self._streams:
                stream = Stream(name, self._folder / f"{name}.log")
                stream.full = self._wake
                self._streams[name] = stream
            return self._streams[name]

    def run(self) -> None:
        wait_s = FLUSH_S
        while not self._stop.is_set():
            self._wake.wait(wait_s)
            self._wake.clear()
            try:
                self.flush()
                wait_s = FLUSH_S
            except Exception as error:  # noqa: BLE001 - logs must not end anything
                self._on_error(f"logs cannot be shipped: {error}")
                wait_s = min(10.0, wait_s * 2)

    def flush(self) -> None:
        """Ship all that waits. Raises StoreError."""
        with self._lock:
            streams = list(self._streams.values())
        with self._shipping:
            for stream in streams:
                while segment := stream.peek():
                    self._ship(stream.name, segment)
                    stream.shipped(segment)

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()

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
