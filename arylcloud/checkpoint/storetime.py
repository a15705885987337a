"""The object store's own clock: the one that all machines share, whatever their own clocks say."""

from __future__ import annotations

from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import CLOCK_KEY


def store_now_s(store: ObjectStore) -> float:
    """The store's own time, from an (empty) object written just now. Raises StoreError."""
    store.put(CLOCK_KEY, b"")
    return next(info.modified_s for info in store.list(CLOCK_KEY))


def age_s(store: ObjectStore, key: str) -> float | None:
    """Seconds since ``key`` was written, by the store's clock alone; None: there is no such object.
    Raises StoreError."""
    # listed from just before its name on: at a prefix's root, there may be thousands of keys before it
    found = (info.modified_s for info in store.list(key, after=key[:-1]) if info.key == key)
    written_s = next(found, None)
    return None if written_s is None else max(0.0, store_now_s(store) - written_s)
