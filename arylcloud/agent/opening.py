"""How a machine opens its job's prefix: as what it runs as, or with what it was lent.

A machine of the store's own cloud has a role, a service account or a managed identity; obstore asks the
metadata service, and so renews it without anybody's help. To a machine of another cloud credentials are lent:
the first by way of the boot stub, the next by the mailbox, where the launcher lays them down in good time.
A folder may be on a disk that is mounted late.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from arylcloud.agent.config import EC2_METADATA_URL, LENT_FILE, Config
from arylcloud.checkpoint.store import open_store
from arylcloud.core.clock import Clock, SystemClock
from arylcloud.core.codec import loads
from arylcloud.core.errors import ArylError, StoreError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import LENT_KEY, LentDoc
from arylcloud.core.stores import cloud_of

LOOK_S = 60.0
"""The longest between two looks for newer ones: they come when half of the time is over."""
LEAST_S = 1.0
MARGIN_S = 600.0
"""Before a loan's end: to save, and to upload."""
STORE_WAIT_S = 300.0
"""For a folder that is not there when the machine boots: less than the launcher waits for a machine that is
not heard."""
MSI_PATH = "/metadata/identity/oauth2/token"


def open_prefix(config: Config, *, clock: Clock | None = None) -> tuple[ObjectStore, Lent | None]:
    """Never makes a folder: it is there, comes within ``STORE_WAIT_S`` and before the lease's end, or this is
    the wrong place. Where credentials are lent, the thread that renews them, to be started (``renew_from``).
    Raises UsageError, StoreError, IntegrityError."""
    options: dict[str, Any] = dict(config.store_options)
    file = config.home / LENT_FILE
    if not file.exists():
        options.update(_metadata(config))
        return _patiently(config, options, SystemClock() if clock is None else clock), None
    lent = Lent(loads(LentDoc, file.read_bytes(), what=LENT_FILE), log=_say)
    file.unlink()  # from here on in memory only
    return open_store(config.prefix_uri, create=False, credential_provider=lent, **options), lent


def _patiently(config: Config, options: dict[str, Any], clock: Clock) -> ObjectStore:
    began_s = clock.monotonic_s()
    pause_s, said = 0.5, False
    while True:
        try:
            return open_store(config.prefix_uri, create=False, **options)
        except StoreError as error:
            waited_s = clock.monotonic_s() - began_s
            left_s = STORE_WAIT_S - waited_s
            if config.until_s is not None:
                left_s = min(left_s, config.until_s - clock.now_s())
            if left_s <= 0.0:
                raise StoreError(
                    f"{error.message}: this machine has waited {waited_s:.0f} s for it",
                    hint="mount it before the machine starts, or name a store that its machines reach",
                ) from error
            if not said:
                _say(f"waiting for the store: {error.message}")
                said = True
            clock.sleep(min(pause_s, left_s))
            pause_s = min(10.0, 2 * pause_s)


def _metadata(config: Config) -> dict[str, str]:
    """Where the metadata service is not at the usual address, its credentials are there, too."""
    if config.metadata_url == EC2_METADATA_URL:
        return {}
    cloud = cloud_of(config.prefix_uri)
    if cloud == "aws" and config.metadata == "ec2":
        return {"metadata_endpoint": config.metadata_url}
    if cloud == "azure" and config.metadata == "azure":
        return {"msi_endpoint": config.metadata_url + MSI_PATH}
    return {}  # Google's is found by GCE_METADATA_HOST


def _say(text: str) -> None:
    sys.stderr.write(f"arylcloud: {text}\n")  # boot.log


class Lent(threading.Thread):
    """obstore's credential provider.

    A machine whose loan has ended can never be told of a new one: nothing that it computes could be kept, and
    it would be paid for. So, when a loan comes near its end and nobody has renewed it, ``on_end`` is called:
    there is time then to save, to upload, and to end the machine."""

    def __init__(self, first: LentDoc, *, log: Callable[[str], None]) -> None:
        super().__init__(name="lent", daemon=True)
        self.on_end: Callable[[str], None] = log
        self._take(first)
        self._log = log
        self._store: ObjectStore | None = None
        self._halt = threading.Event()
        self._said = ""

    def __call__(self) -> dict[str, Any]:
        current = self._current
        return {**current.secret, "expires_at": datetime.fromtimestamp(current.expires_s, UTC)}

    def _take(self, document: LentDoc) -> None:
        self._current = document
        lasts_s = document.expires_s - time.time()
        self._ends_s = document.expires_s - min(MARGIN_S, lasts_s / 5)

    @property
    def expires_s(self) -> float:
        return self._current.expires_s

    def renew_from(self, store: ObjectStore) -> None:
        self._store = store
        self.start()

    def stop(self) -> None:
        self._halt.set()

    def run(self) -> None:
        while not self._halt.wait(self._pause_s()):
            try:
                self.look()  # at the end, too: the next ones may lie there
                self._said = ""
            except ArylError as error:
                if error.message != self._said:
                    self._log(f"no new credentials: {error.message}")
                self._said = error.message
            except Exception as error:  # noqa: BLE001 - tried again: silence would cut the machine off
                self._log(f"no new credentials: {type(error).__name__}")
            if time.time() >= self._ends_s:
                self.on_end(
                    "what was lent to this machine to reach its store ends, and nobody has renewed it"
                )
                return

    def _pause_s(self) -> float:
        now_s = time.time()
        pause_s = min(LOOK_S, max(LEAST_S, (self._current.expires_s - now_s) / 8))
        return min(pause_s, max(0.0, self._ends_s - now_s))

    def look(self) -> bool:
        """Whether there were newer ones. Raises StoreError, IntegrityError."""
        assert self._store is not None
        data = self._store.get(LENT_KEY)
        if data is None:
            return False
        found = loads(LentDoc, data, what=LENT_KEY)
        newer = found.expires_s > self._current.expires_s
        if newer:
            self._take(found)
        return newer
