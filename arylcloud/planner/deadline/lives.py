"""Lives of machines as SkyNomad counts them: by zone and age, how often a machine was watched and lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]

BIN_H: Final = 1.0
BINS: Final = 24
"""Ages beyond the last bin count as in it."""


@dataclass(slots=True, kw_only=True)
class Lives:
    """Virtual instances: a streak of sightings "up" is a life, a sighting "down" after it a loss."""

    watched_h: Floats
    """Hours at risk by age, (n, Z, BINS)."""
    losses: Floats
    """(n, Z, BINS)."""

    @classmethod
    def none(cls, n: int, zones: int) -> Lives:
        return cls(watched_h=np.zeros((n, zones, BINS)), losses=np.zeros((n, zones, BINS)))

    def rows(self, at: Rows) -> Lives:
        return Lives(watched_h=self.watched_h[at], losses=self.losses[at])

    def note(self, job: Rows, zone: Rows, age_h: Floats, gap_h: Floats, lost: Mask) -> None:
        """A life of ``age_h`` was watched for ``gap_h`` more, and may have been lost in it."""
        bins = np.minimum((age_h / BIN_H).astype(np.intp), BINS - 1)
        np.add.at(self.watched_h, (job, zone, bins), np.where(lost, gap_h / 2, gap_h))
        np.add.at(self.losses, (job, zone, bins), lost.astype(float))
