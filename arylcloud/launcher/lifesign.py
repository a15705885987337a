"""A launcher's heartbeat while it waits for one long call.

A cloud may take a minute and a half to answer ``create``; nobody may take the launcher for dead meanwhile
(``holder.FRESH_S``). A thread repeats the last beat then. It does no more than that, and not for ever: the
job must still be ours by its journal, and the launcher must have done something within ``STUCK_S``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from arylcloud.core import protocol as mail
from arylcloud.core.clock import Clock
from arylcloud.core.codec import dumps
from arylcloud.core.errors import ArylError
from arylcloud.core.events import Record
from arylcloud.core.ports import ObjectStore
from arylcloud.launcher.holder import FRESH_S

log = logging.getLogger(__name__)

AFTER_S: Final = FRESH_S / 3
"""Without a beat of the launcher's own: it is in a long call."""
STUCK_S: Final = 300.0
"""No single call to a cloud takes so long: the launcher hangs, and whoever asks may take the job over."""


@dataclass(slots=True, kw_only=True)
class LifeSign:
    """``told`` and ``moved`` are the launcher's; ``look`` is the thread's, every quarter of ``after_s``."""

    store: ObjectStore
    writer: str
    clock: Clock
    after_s: float = AFTER_S
    stuck_s: float = STUCK_S
    _beat: mail.LauncherBeat | None = None
    _next_seq: int = 0
    """Of the first record that may not be ours in the mailbox."""
    _told_s: float = 0.0
    """When the launcher's own last beat was made; monotonic seconds, as all that follow."""
    _beaten_s: float = 0.0
    _moved_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ending: threading.Event = field(default_factory=threading.Event)

    def told(self, beat: mail.LauncherBeat, next_seq: int) -> None:
        """The launcher beats by itself. ``next_seq``: of the first record of the job that is not in the
        mailbox by our doing: whoever takes the job over writes it."""
        now_s = self.clock.monotonic_s()
        with self._lock:
            self._beat, self._next_seq = beat, next_seq
            self._told_s = self._beaten_s = self._moved_s = now_s

    def moved(self) -> None:
        """One step has been done, and the next begins."""
        self._moved_s = self.clock.monotonic_s()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """While the block runs; nothing is written after it."""
        thread = threading.Thread(target=self._run, name="life sign", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            thread.join()

    def _run(self) -> None:
        while not self._ending.wait(self.after_s / 4):
            try:
                self.look()
            except ArylError as error:  # as with the launcher's own: an outage of the mailbox is no end
                log.warning("no life sign can be given: %s", error.message)

    def look(self) -> bool:
        """Beat if that is due; whether it was done. Raises StoreError, IntegrityError."""
        with self._lock:
            now_s = self.clock.monotonic_s()
            beat, told_s = self._beat, self._told_s
            if beat is None or now_s - self._beaten_s < self.after_s or now_s - self._moved_s >= self.stuck_s:
                return False
            self._beaten_s = now_s
            if not self._ours():
                return False
            left_s = beat.hard_left_s
            if left_s is not None:  # limits go on towards their end
                left_s = max(0.0, left_s - (now_s - told_s))
            said = replace(beat, at_s=self.clock.now_s(), hard_left_s=left_s)
            self.store.put(mail.LAUNCHER_KEY, dumps(said))
            return True

    def _ours(self) -> bool:
        """By the rule of ``Journal.check_fence``, without the journal, which is the other thread's."""
        while (data := self.store.get(mail.journal_key(self._next_seq))) is not None:
            if Record.from_bytes(data, what=mail.journal_key(self._next_seq)).writer != self.writer:
                return False
            self._next_seq += 1
        return True
