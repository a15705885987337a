"""What the launcher writes, read by one thread: epoch documents and the launcher's own heartbeat."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from arylcloud.agent.shipper import one_line
from arylcloud.agent.waiting import HASTE_S, pause_s
from arylcloud.checkpoint.storetime import age_s
from arylcloud.core.clock import Clock
from arylcloud.core.codec import loads
from arylcloud.core.errors import IntegrityError
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import EPOCHS_PREFIX, LAUNCHER_KEY, EpochDoc, LauncherBeat, epoch_key

EPOCH_POLL_S = 0.3
LAUNCHER_POLL_S = 2.0
MOST_S = 1.8
"""However long a job waits: what it waits for is seen within two seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    epoch: EpochDoc | None = None
    """The newest."""
    launcher_heard_s: float | None = None
    """By this machine's clock, of the last sign of a launcher: two clocks need not agree."""
    hard_until_s: float | None = None
    """By this machine's clock: the newest that a launcher has named (see ``LauncherBeat``)."""
    answered_s: float | None = None
    """When the mailbox last answered; None = never yet."""
    problem: str | None = None

    @property
    def drain(self) -> int | None:
        """Number of the newest epoch, if it is a drain."""
        return self.epoch.number if self.epoch is not None and not self.epoch.members else None


class Mailbox(threading.Thread):
    """Polls for epoch N + 1: one small get, cheap on every store."""

    def __init__(
        self, store: ObjectStore, *, job_id: str, clock: Clock, log: Callable[[str], None], pace: float = 1.0
    ) -> None:
        super().__init__(name="mailbox", daemon=True)
        self._store = store
        self._job_id = job_id
        self._poll_s = EPOCH_POLL_S * pace
        self._launcher_poll_s = LAUNCHER_POLL_S * pace
        self._clock = clock
        self._log = log
        self._lock = threading.Lock()
        self._halt = threading.Event()
        self._seen = Seen()
        self._next = 0
        self._drain: int | None = None
        self._drain_since_s = 0.0
        """When (monotonic) it was first seen."""
        self._haste_s = HASTE_S * pace
        self._launcher_read_s = float("-inf")
        self._launcher_at_s: float | None = None
        self._hard_until_s: float | None = None

    @property
    def seen(self) -> Seen:
        with self._lock:
            return self._seen

    def stop(self) -> None:
        self._halt.set()

    def run(self) -> None:
        wait_s = self._poll_s
        while not self._halt.is_set():
            try:
                self.poll()
                wait_s = self._pause_s()
            except Exception as error:  # noqa: BLE001 - training goes on without a mailbox
                problem = f"the mailbox cannot be read: {one_line(error)}"
                with self._lock:
                    known, self._seen = self._seen.problem, replace(self._seen, problem=problem)
                if known is None:
                    self._log(problem)
                wait_s = min(5.0, wait_s * 2)
            self._halt.wait(wait_s)

    def _pause_s(self) -> float:
        """Between a drain and the epoch after it, a whole job waits."""
        drain, now_s = self.seen.drain, self._clock.monotonic_s()
        if drain != self._drain:
            self._drain, self._drain_since_s = drain, now_s
        if drain is None:
            return self._poll_s
        still_s = now_s - self._drain_since_s
        if still_s < self._haste_s:
            return self._poll_s / 3
        return pause_s(self._poll_s, still_s, most_s=MOST_S, haste_s=self._haste_s)

    def poll(self) -> None:
        """Raises StoreError."""
        if self._next == 0:
            keys = [info.key for info in self._store.list(EPOCHS_PREFIX)]
            numbers = (Path(key).stem.rpartition("-")[2] for key in keys)
            # whatever else lies there is no epoch document, and no reason to wait for one in vain
            self._next = max((int(n) for n in numbers if n.isascii() and n.isdigit()), default=1) or 1
        newest_doc = None
        while (data := self._store.get(epoch_key(self._next))) is not None:
            document = self._epoch(data)
            self._next += 1
            newest_doc = document or newest_doc
        now_s = self._clock.now_s()
        heard_s = self._launcher(now_s)
        with self._lock:
            if self._seen.problem is not None:
                self._log("the mailbox can be read again")
            self._seen = Seen(
                epoch=newest_doc or self._seen.epoch,
                launcher_heard_s=heard_s if heard_s is not None else self._seen.launcher_heard_s,
                hard_until_s=self._hard_until_s,
                answered_s=now_s,
            )

    def _epoch(self, data: bytes) -> EpochDoc | None:
        try:
            document = loads(EpochDoc, data, what=epoch_key(self._next))
        except IntegrityError as error:
            self._log(f"{error.message}: passed over, waiting for the next")
            return None
        if document.job_id != self._job_id or document.number != self._next:
            self._log(f"{epoch_key(self._next)} is another job's, or another epoch's: passed over")
            return None
        return document

    def _launcher(self, now_s: float) -> float | None:
        """When it was heard, if that is news."""
        if now_s - self._launcher_read_s < self._launcher_poll_s:
            return None
        data = self._store.get(LAUNCHER_KEY)
        self._launcher_read_s = now_s
        if data is None:
            return None
        try:
            beat = loads(LauncherBeat, data, what=LAUNCHER_KEY)
        except IntegrityError as error:
            self._log(error.message)
            return None
        known = self._launcher_at_s
        if beat.at_s == known:
            return None
        heard_s = now_s
        if known is None:  # it may have been lying there for long
            heard_s -= age_s(self._store, LAUNCHER_KEY) or 0.0
        self._launcher_at_s = beat.at_s
        if beat.hard_left_s is not None:  # a budget does not go away because a price is not known just now
            self._hard_until_s = heard_s + beat.hard_left_s
        return heard_s
