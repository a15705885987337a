"""EndDocs: how a command ended, said once and for certain, after the last line of its log."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from arylcloud.agent.shipper import Shipper, one_line
from arylcloud.core.codec import dumps, loads
from arylcloud.core.errors import IntegrityError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import EndDoc, end_key

LOG_TRIES = 3
_MAX_RANK = 99


class Reporter:
    """Writes in the background and tries until the store has taken it."""

    def __init__(self, store: ObjectStore, shipper: Shipper, *, log: Callable[[str], None]) -> None:
        self._store = store
        self._shipper = shipper
        self._log = log
        self._lock = threading.Lock()
        self._halt = threading.Event()
        self._reported = 0
        self._pending = 0

    @property
    def reported_epoch(self) -> int:
        with self._lock:
            return self._reported

    @property
    def pending(self) -> bool:
        with self._lock:
            return self._pending > 0

    def report(self, end: EndDoc) -> None:
        with self._lock:
            self._pending += 1
        threading.Thread(target=self._run, args=(end,), name="report", daemon=True).start()

    def stop(self) -> None:
        self._halt.set()

    def _run(self, end: EndDoc) -> None:
        self._flush_logs()
        wait_s = 0.5
        while not self._halt.is_set():
            try:
                self.write(end)
                break
            except Exception as error:  # noqa: BLE001 - until it is said, the machine is not done
                self._log(f"the end of the command is not reported yet: {one_line(error)}")
                self._halt.wait(wait_s)
                wait_s = min(10.0, wait_s * 2)
        with self._lock:
            self._pending -= 1
            self._reported = max(self._reported, end.epoch)

    def _flush_logs(self) -> None:
        """First: whoever reads the EndDoc may end this machine at once."""
        for attempt in range(LOG_TRIES):
            try:
                self._shipper.flush()
                return
            except Exception as error:  # noqa: BLE001 - the log matters less than the end of the job
                self._log(f"the last lines of the log wait: {one_line(error)}")
                self._halt.wait(0.5 * (attempt + 1))

    def write(self, end: EndDoc) -> None:
        """Create-only. A failed ``setup`` has no rank yet, and other machines of the job may have
        failed likewise: it takes the first free number. Raises StoreError."""
        for rank in range(end.rank, _MAX_RANK + 1 if end.in_setup else end.rank + 1):
            document = replace(end, rank=rank)
            key = end_key(end.epoch, rank)
            if self._store.create(key, dumps(document)):
                return
            data = self._store.get(key)
            if data is not None and _same(data, document, key):
                return
        self._log(f"{end_key(end.epoch, end.rank)} exists already and is another machine's")


def _same(data: bytes, document: EndDoc, key: str) -> bool:
    try:
        return loads(EndDoc, data, what=key).lease_id == document.lease_id
    except IntegrityError:
        return False
