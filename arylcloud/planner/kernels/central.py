"""Every job's place on the central path at given prices: a start for who knows roughly what to find.

At prices λ and a level of t each job stands alone: its α, β solve the two equations::

    Σ_j μ/z_ij = 1      Σ_j rate_ij·μ/z_ij − μ/β_i = asked_i
    z_ij = α_i + gpus_i·λ_j − rate_ij·β_i − gain_ij

(idle is a type of rate and price 0). They say where a convex barrier is least: Newton's method, damped for
each job by its own decrement, for all jobs at once. Then ``x = μ/z`` is central in every job by construction,
and what the interior point has left to do is to make the types' rows agree.
"""

from __future__ import annotations

import numpy as np

from arylcloud.planner.kernels.hull import cheapest
from arylcloud.planner.kernels.jobform import F, Scaled

STEPS = 25
ENOUGH = 0.3
"""Newton decrement, relative to sqrt(μ), from which the interior point's own steps do better."""


def central(p: Scaled, lam: F, t: float, mu: float) -> tuple[F, F, F, F]:
    """(x, z, r, β) for prices ``lam`` (m,) > 0; x and z (m + 1, n), idle last. Dual feasible in any case."""
    m, n = p.rate.shape
    rate, price = np.zeros((m + 1, n)), np.zeros((m + 1, n))
    rate[:m] = p.rate
    np.multiply(p.gpus, lam[:, None], out=price[:m])
    if p.gain is not None:
        price[:m] -= p.gain
    asked = p.need
    if p.slope is not None:
        asked = asked + p.asked(t)[0]
    if p.slope is None:
        beta = np.ptp(price, axis=0) + mu
    else:
        level = np.clip(asked, 0.0, (1.0 - 1e-9) * p.rate.max(axis=0))
        beta = cheapest(p.rate, price[:m], level).slope + mu / np.maximum(level, 0.05)
    least = (price - rate * beta).min(axis=0)
    alpha = np.maximum(0.0, -least) + 2.0 * mu
    for _ in range(STEPS):
        z = price + alpha - rate * beta
        x = mu / z
        d = x / z
        slack = mu / beta
        over = x.sum(axis=0) - 1.0
        miss = (rate * x).sum(axis=0) - slack - asked
        total = d.sum(axis=0)
        mean = (d * rate).sum(axis=0) / total
        away = mean - rate
        d *= away
        d *= away
        dbeta = (mean * over - miss) / (d.sum(axis=0) + slack / beta)
        dalpha = over / total + mean * dbeta
        decrement = np.sqrt(np.maximum(over * dalpha - miss * dbeta, 0.0) / mu)
        if decrement.max() < ENOUGH:
            break
        dz = dalpha - rate * dbeta
        loss = np.maximum((dz / z).min(axis=0) * -1.0, dbeta / -beta)
        step = np.where(decrement < ENOUGH, 1.0, 0.9 / np.maximum(loss, 0.9))
        step = np.minimum(step, 0.99 / np.maximum(loss, 1e-9))
        alpha = alpha + step * dalpha
        beta = beta + step * dbeta
    z = price + alpha - rate * beta
    return mu / z, z, mu / beta, beta
