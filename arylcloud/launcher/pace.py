"""How often a cloud is asked for its machines, and where.

A list is a call for each region. While machines come, go or are silent, it is asked for at every look; while
all is well, every ``Capabilities.list_every_s``, and then only where there may be something: regions of
machines that have been gone for long are looked at once a minute, as are clouds that have none of the job's.
A look without a list concludes nothing about machines (``Observed.listed``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from arylcloud.core.offer import Offer
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.launcher.state import JobState, Lease

EVERYWHERE_S: Final = 60.0
FRESH_S: Final = 30.0
"""So long after a lease has changed, its cloud is asked at every look."""
_COMING_OR_GOING: Final = frozenset(
    {LeasePhase.INTENDED, LeasePhase.ENDING, LeasePhase.DOOMED, LeasePhase.SUSPECT}
)


@dataclass(slots=True)
class Pace:
    """Of one cloud; an observer's own, so that the first look of a launcher is at everything."""

    every_s: float
    _asked_s: float = -math.inf
    """Monotonic seconds, as is the next."""
    _everywhere_s: float = -math.inf

    def concerned(
        self, state: JobState, cloud: str, *, now_s: float, read_s: float
    ) -> tuple[Offer, ...] | None:
        """Offers whose regions are to be listed now (none of them: every region); None = not now.

        ``now_s``: wall seconds, as the journal has them; ``read_s``: monotonic.
        """
        leases = [lease for lease in state.leases.values() if lease.offer.cloud == cloud]
        everywhere = state.phase is JobPhase.STOPPING or self.every_s <= 0
        if everywhere or read_s - self._everywhere_s >= max(self.every_s, EVERYWHERE_S):
            self._asked_s = self._everywhere_s = read_s
            return _offers(leases)
        recent = [x for x in leases if x.open or _gone_s(x, now_s) < EVERYWHERE_S]
        if not recent:
            return None
        urgent = any(x.phase in _COMING_OR_GOING or (x.open and now_s - x.since_s < FRESH_S) for x in recent)
        if not urgent and read_s - self._asked_s < self.every_s:
            return None
        self._asked_s = read_s
        return _offers(recent)


def _gone_s(lease: Lease, now_s: float) -> float:
    return now_s - (lease.since_s if lease.ended_at_s is None else lease.ended_at_s)


def _offers(leases: list[Lease]) -> tuple[Offer, ...]:
    return tuple({lease.offer.key: lease.offer for lease in leases}.values())
