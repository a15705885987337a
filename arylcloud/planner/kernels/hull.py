"""What one job does at given prices, for all jobs at once: the cheapest mix of types that keeps a pace.

    min  Σ_j price_ij·x_ij   s.t.  Σ_j rate_ij·x_ij ≥ level_i,  Σ_j x_ij ≤ 1,  x ≥ 0

The value is the lower convex hull of the points (rate_ij, price_ij) and of the origin (idle), read at
level_i; the answer mixes the two ends of one edge, and the edge's slope is what a unit of pace costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.kernels.jobform import F

IDLE = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Mix:
    """Shapes (n,). ``slow`` may be :data:`IDLE`; ``fast`` is IDLE only where the level is 0."""

    slow: NDArray[np.int64]
    fast: NDArray[np.int64]
    part: F
    """Of the time on ``fast``, in [0, 1]; the rest on ``slow``."""
    cost: F
    """inf where no mix reaches the level."""
    slope: F

    def shares(self, m: int) -> F:
        """(m, n)."""
        x = np.zeros((m, len(self.part)))
        jobs = np.arange(len(self.part))
        runs = self.fast != IDLE
        x[self.fast[runs], jobs[runs]] = self.part[runs]
        mixed = self.slow != IDLE
        x[self.slow[mixed], jobs[mixed]] = 1.0 - self.part[mixed]
        return x


def cheapest(rate: F, price: F, level: F) -> Mix:
    """The mix of each job; ``rate`` (m, n) ≥ 0, ``price`` (m, n), ``level`` (n,) ≥ 0, kept exactly:
    below 0 a price would make more than the level cheaper still.

    >>> mix = cheapest(np.array([[1.0], [4.0]]), np.array([[1.0], [10.0]]), np.array([2.0]))
    >>> int(mix.slow[0]), int(mix.fast[0]), round(float(mix.part[0]), 6), round(float(mix.cost[0]), 6)
    (0, 1, 0.333333, 4.0)
    """
    m, n = rate.shape
    cost = np.where(level > 0, np.inf, 0.0)
    code = np.zeros(n, dtype=np.int64)
    edges = [(IDLE, b) for b in range(m)] + list(combinations(range(m), 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        for number, (a, b) in enumerate(edges, start=1):
            if a == IDLE:
                would = price[b] * (level / rate[b])
                better = level <= rate[b]
            else:
                above = level - rate[a]
                would = price[a] + (price[b] - price[a]) * (above / (rate[b] - rate[a]))
                better = (above * (level - rate[b]) <= 0) & (rate[a] != rate[b])
            better &= would < cost
            np.copyto(cost, would, where=better)
            np.copyto(code, number, where=better)
    ends = np.array([(IDLE, IDLE), *edges])
    jobs = np.arange(n)
    low, high = ends[code, 0], ends[code, 1]
    low_rate = np.where(low == IDLE, 0.0, rate[low, jobs])
    high_rate = np.where(high == IDLE, 0.0, rate[high, jobs])
    turned = low_rate > high_rate
    slow, fast = np.where(turned, high, low), np.where(turned, low, high)
    gap = np.abs(high_rate - low_rate)
    slow_price = np.where(slow == IDLE, 0.0, price[slow, jobs])
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(gap > 0, (level - np.minimum(low_rate, high_rate)) / gap, 0.0)
        slope = np.where(gap > 0, (price[fast, jobs] - slow_price) / gap, 0.0)
    return Mix(slow=slow, fast=fast, part=np.minimum(part, 1.0), cost=cost, slope=slope)
