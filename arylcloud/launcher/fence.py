"""Whether the job is still ours: looked at once per tick, and again where that has grown old."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from arylcloud.core.clock import Clock
from arylcloud.core.errors import StoreError
from arylcloud.core.ports import ObjectStore
from arylcloud.launcher.journal import Journal

log = logging.getLogger(__name__)

FRESH_S: Final = 5.0
"""A look that is older (a slow cloud, a suspended laptop) says nothing about now."""


@dataclass(slots=True, kw_only=True)
class Fence:
    """The next record of the job's journal, in its mailbox: another launcher that takes over writes it."""

    journal: Journal
    store: ObjectStore
    writer: str
    clock: Clock
    _last: tuple[float, bool] | None = None
    """The last look: monotonic seconds, and whether it could be read (it was ours then)."""

    def look(self, job_id: str) -> bool:
        """Whether the job is known to be ours still; False = that cannot be read now. Raises ConflictError
        where another launcher has taken it over."""
        try:
            self.journal.check_fence(job_id, self.store, self.writer)
        except StoreError as error:
            log.warning("only ends that are journaled go on: the fence cannot be read: %s", error.message)
            self._last = (self.clock.monotonic_s(), False)
            return False
        self._last = (self.clock.monotonic_s(), True)
        return True

    def is_ours(self, job_id: str) -> bool:
        """By this tick's look, or by another one where that has grown old."""
        if self._last is not None and self.clock.monotonic_s() - self._last[0] <= FRESH_S:
            return self._last[1]
        return self.look(job_id)
