"""How long a spot machine lives: one shape of hazard for all zones, scaled by one frailty per zone.

f(age) = .9, .25, .12, .06 losses per hour at ages 0–1, 1–3, 3–8 and over 8 h; Λ(a) = ∫₀ᵃ f. A zone of frailty
θ survives from age a to a + u with probability exp(−θ(Λ(a+u) − Λ(a))). The shape is of public traces of
several GPUs and years; only θ is learned.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RATES: Final = (0.9, 0.25, 0.12, 0.06)
BOUNDS_H: Final = (1.0, 3.0, 8.0)
PRIOR_FRAILTY: Final = 0.7
PRIOR_WEIGHT: Final = 4.0
"""Expected losses (at frailty 1) that the prior counts for."""
UNKNOWN_AGE_H: Final = 3.0
"""Of capacity in a zone that nobody has looked at."""


def cumulated(age_h: Floats) -> Floats:
    """Λ(age), any shape.

    >>> cumulated(np.array([0.5, 1.0, 3.0, 10.0])).round(3).tolist()
    [0.45, 0.9, 1.4, 2.12]
    """
    found = RATES[-1] * age_h
    for i, bound in enumerate(BOUNDS_H):
        found += (RATES[i] - RATES[i + 1]) * np.minimum(age_h, bound)
    return found


def expected_life(age_h: Floats, frailty: Floats, horizon_h: Floats) -> tuple[Floats, Floats]:
    """(L, S): L = ∫₀ᴴ exp(−θ(Λ(a+u) − Λ(a))) du hours and S = the integrand at H, shapes broadcast.

    Exact: the hazard is constant in each of the four bands of age. Needs θ > 0, H > 0.

    >>> life, survival = expected_life(np.array([20.0]), np.array([1.0]), np.array([10.0]))
    >>> life.round(4).tolist(), survival.round(4).tolist()
    ([7.5198], [0.5488])
    """
    end = age_h + horizon_h
    left = np.ones(np.broadcast_shapes(age_h.shape, frailty.shape, horizon_h.shape))
    life = np.zeros_like(left)
    begin = age_h
    for i, rate in enumerate(RATES):
        stop = end if i == len(BOUNDS_H) else np.clip(end, None, BOUNDS_H[i])
        span = np.maximum(stop - begin, 0.0)
        begin = begin + span
        loss = frailty * rate
        kept = np.exp(-loss * span)
        life += left * (1.0 - kept) / loss
        left = left * kept
    return life, left


def frailties(deaths: Floats, exposure: Floats) -> Floats:
    """θ of every zone, shrunk to what the job's zones have in common, and that to the prior: shapes (n, Z).

    θ0 = (4·.7 + Σn)/(4 + Σx), θ_z = (4·θ0 + n_z)/(4 + x_z); x = ∫ f(age) over the time that it was seen up.
    """
    w = PRIOR_WEIGHT
    common = (w * PRIOR_FRAILTY + deaths.sum(axis=1)) / (w + exposure.sum(axis=1))
    found: Floats = (w * common[:, None] + deaths) / (w + exposure)
    return found
