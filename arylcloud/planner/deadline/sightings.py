"""What a job has seen of its zones by having, trying and probing machines there: the memory of its policy.

A value that is folded over observations ``(job, zone, time, up)``; nothing else enters. Exposure is in
expected losses at frailty 1 (``survival``). A gap of more than 3 h between two sightings gives no credit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.deadline.survival import UNKNOWN_AGE_H, cumulated

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]

CREDIT_H: Final = 3.0


@dataclass(slots=True, kw_only=True)
class Sightings:
    """Arrays of shape (n, Z); ``note`` writes into them."""

    last_h: Floats
    """When last looked at; −inf = never."""
    up: Mask
    """What was seen then."""
    since_h: Floats
    """Since when it has been so, as far as one can tell."""
    deaths: Floats
    exposure: Floats

    @classmethod
    def none(cls, n: int, zones: int) -> Sightings:
        return cls(
            last_h=np.full((n, zones), -np.inf),
            up=np.zeros((n, zones), dtype=bool),
            since_h=np.zeros((n, zones)),
            deaths=np.zeros((n, zones)),
            exposure=np.zeros((n, zones)),
        )

    def rows(self, at: Rows) -> Sightings:
        """A copy of some jobs'."""
        return Sightings(
            last_h=self.last_h[at],
            up=self.up[at],
            since_h=self.since_h[at],
            deaths=self.deaths[at],
            exposure=self.exposure[at],
        )

    def note(self, job: Rows, zone: Rows, now_h: Floats, up: Mask) -> None:
        """Each (job, zone) at most once per call: at ``now_h`` it gave a machine (still), or did not."""
        last, was, since = self.last_h[job, zone], self.up[job, zone], self.since_h[job, zone]
        never = np.isneginf(last)
        gap = np.where(never, 0.0, now_h - last)
        credit = gap <= CREDIT_H
        # while up: exposure to the end of the gap, or to its middle where a loss ended it
        aged = last - since
        seen = was & credit
        lived = np.where(up, gap, gap / 2)
        before = np.where(seen, aged, 0.0)
        gained = np.where(seen, cumulated(before + lived) - cumulated(before), 0.0)
        self.exposure[job, zone] += gained
        self.deaths[job, zone] += was & ~up
        fresh = np.where(up & was, now_h - gap / 3, now_h - gap / 2)
        fresh = np.where(never, np.where(up, now_h - UNKNOWN_AGE_H, now_h), fresh)
        goes_on = ~never & (was == up) & (credit | ~up)
        self.since_h[job, zone] = np.where(goes_on, since, fresh)
        self.last_h[job, zone] = now_h
        self.up[job, zone] = up
