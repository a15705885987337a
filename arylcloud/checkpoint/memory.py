"""An object store in memory: the port's whole meaning, for tests and simulations."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from arylcloud.checkpoint.keys import checked_key, checked_prefix
from arylcloud.core.clock import Clock, ManualClock
from arylcloud.core.ports import ObjectInfo


class MemoryStore:
    """Thread-safe. ``modified_s`` comes from ``clock``, so that retention can be tested."""

    def __init__(self, uri: str = "memory://", *, clock: Clock | None = None) -> None:
        self._uri = uri
        self._clock = clock if clock is not None else ManualClock()
        self._objects: dict[str, tuple[bytes, float]] = {}
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        return self._uri

    def create(self, key: str, data: bytes) -> bool:
        checked_key(key)
        with self._lock:
            if key in self._objects:
                return False
            self._objects[key] = (bytes(data), self._clock.now_s())
            return True

    def put(self, key: str, data: bytes) -> None:
        checked_key(key)
        with self._lock:
            self._objects[key] = (bytes(data), self._clock.now_s())

    def get(self, key: str) -> bytes | None:
        checked_key(key)
        with self._lock:
            found = self._objects.get(key)
        return None if found is None else found[0]

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        checked_prefix(prefix)
        with self._lock:
            found = [
                ObjectInfo(key=key, size=len(data), modified_s=modified_s)
                for key, (data, modified_s) in self._objects.items()
                if key.startswith(prefix) and key > after
            ]
        yield from sorted(found, key=lambda info: info.key)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            checked_key(key)
        with self._lock:
            for key in keys:
                self._objects.pop(key, None)
