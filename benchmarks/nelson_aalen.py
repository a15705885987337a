"""Survival of machines by Nelson–Aalen: the yardstick that own rates are measured against.

It assumes nothing, and needs some twenty losses to say anything. From there on, too, the corrected rates of
``arylcloud/pricing/ownrates`` foretell losses better (ADR-0007, docs/results/hazards.md): the product plans
by those, and this is here to be compared with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Quantile = Literal["mean", "p90"]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalEstimate:
    """Nelson–Aalen: H(t) = Σ_{t_i ≤ t} d_i / n_i, variance Σ d_i / n_i² (Aalen 1978)."""

    times_h: Floats
    """Distinct times of losses, ascending, shape (k,)."""
    cumulative: Floats
    variance: Floats
    at_risk: NDArray[np.int64]
    losses: int

    def per_hour(self, quantile: Quantile = "mean") -> float:
        """H(t)/t at the last loss that at least a tenth of all machines (and ≥ 5) lived to see: beyond
        it single machines move the curve. p90: H plus 1.2816 standard errors."""
        enough = np.flatnonzero(self.at_risk >= max(5.0, 0.1 * float(self.at_risk[0])))
        at = int(enough[-1]) if enough.size else 0
        total = float(self.cumulative[at])
        if quantile == "p90":
            total += 1.2816 * float(np.sqrt(self.variance[at]))
        return total / float(self.times_h[at])


def nelson_aalen(lives_h: Floats, lost: NDArray[np.bool_]) -> SurvivalEstimate:
    """Survival of machines. ``lives_h[i]`` > 0: hours that machine i was watched; ``lost[i]``: the cloud
    took it then (False: we ended it, or it still runs: censored). ValueError where nothing was lost.

    >>> estimate = nelson_aalen(np.array([1.0, 2.0, 2.0, 4.0]), np.array([True, True, False, True]))
    >>> estimate.cumulative.round(4).tolist()
    [0.25, 0.5833, 1.5833]
    """
    lives = np.asarray(lives_h, dtype=float)
    if lives.shape != np.shape(lost) or not np.all(lives > 0) or not np.all(np.isfinite(lives)):
        raise ValueError("lives_h and lost need one shape, and lives must be positive hours")
    times, events = np.unique(lives[lost], return_counts=True)
    if times.size == 0:
        raise ValueError("without a loss there is no hazard to estimate")
    at_risk = lives.size - np.searchsorted(np.sort(lives), times, side="left")
    return SurvivalEstimate(
        times_h=times,
        cumulative=np.cumsum(events / at_risk),
        variance=np.cumsum(events / at_risk**2),
        at_risk=at_risk.astype(np.int64),
        losses=int(events.sum()),
    )
