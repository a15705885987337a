"""How often to checkpoint (Young 1974; Daly 2006, eq. 37)."""

from __future__ import annotations

import math


def daly_interval_s(save_s: float, mtbf_s: float) -> float:
    """Compute time between checkpoints that minimises expected lost time.

    With δ = ``save_s`` (what a checkpoint costs the training) and M = ``mtbf_s`` (mean time between
    losses): τ = √(2δM)·[1 + ⅓√(δ/2M) + (δ/2M)/9] − δ for δ < 2M, else M (Daly, FGCS 22 (2006) 303).
    Rises with both arguments while δ < 2M; never below δ, so that saving cannot eat all the time.

    >>> round(daly_interval_s(10.0, 3600.0), 1)
    261.7
    """
    if not save_s > 0 or not mtbf_s > 0:
        raise ValueError("save_s and mtbf_s must be positive seconds")
    if math.isinf(mtbf_s):
        return math.inf
    if save_s >= 2 * mtbf_s:
        return max(mtbf_s, save_s)
    x = save_s / (2 * mtbf_s)
    tau = math.sqrt(2 * save_s * mtbf_s) * (1 + math.sqrt(x) / 3 + x / 9) - save_s
    return max(tau, save_s)
