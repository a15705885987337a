"""The largest product of rates (Nash welfare; the Eisenberg–Gale program), many of them at a time.

    max  Σ_c n_c·log(Σ_j rate_jc·x_jc)                                       prices
    s.t. Σ_j x_jc ≤ 1                    per class                           α_c ≥ 0
         Σ_c n_c·gpus_c·x_jc ≤ W_j       per type                            λ_j ≥ 0
         x ≥ 0

c classes of n_c equal jobs each, x the time of one of them. The logarithm is strictly concave in the rate, so
equal jobs have equal rates at the optimum and may as well have equal time: a class is one block. ``counts``
holds a program per row: the same classes with other n (what leaving one job out makes). A class of n = 0 is
there and does nothing.

Primal–dual interior point with Mehrotra's corrector; ``β_c·rate_c = 1`` is an equation of its own, as steps
in which β were 1/rate would double a small rate at most. Only the m prices couple the classes: a class's
block is m × m, a diagonal and two rank-one terms (time; the curvature of the logarithm), and a step is
O(classes·m³) for each program. Iterates are feasible but for rounding, which is mended; with β_c = 1/rate_c
any λ ≥ 0 bounds every solution from above, ``log r ≤ log r_c + β_c·(r − r_c)``, and no optimum is better by
more than

    λ·W + Σ_c n_c·(max(0, max_j β_c·rate_jc − gpus_c·λ_j) − 1)

References: Eisenberg & Gale, Ann. Math. Stat. 30 (1959); Mehrotra, SIAM J. Optim. 2 (1992).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arylcloud.core.errors import ArylError
from arylcloud.planner.cluster import F, I

MOST_STEPS = 100
PATIENCE = 25
"""Steps without a better bound after which a program is left as it is."""
LOOSE = 1e-6
"""The absolute gap beyond which that is an error."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Point:
    """Iterates of B programs; primal x, spare time q, and their prices z, alpha; prices of types lam and of
    rates beta."""

    x: F
    """(m, B, c)."""
    q: F
    """(B, c)."""
    z: F
    alpha: F
    lam: F
    """(m, B)."""
    beta: F
    """(B, c), 1/rate at the optimum."""

    def at(self, which: I) -> Point:
        return Point(
            x=self.x[:, which],
            q=self.q[which],
            z=self.z[:, which],
            alpha=self.alpha[which],
            lam=self.lam[:, which],
            beta=self.beta[which],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Product:
    share: F
    """(m, B, c) time of one job of the class."""
    rate: F
    """(B, c)."""
    value: F
    """(B,) ``Σ n·log rate``."""
    gap: F
    """(B,) certified: the optimum is less than ``value + gap``."""
    inside: Point
    """An iterate well inside, where like programs may start."""
    steps: int


def solve(
    rate: F, gpus: F, capacity: F, counts: F, *, start: Point | None = None, gap: float = 1e-9
) -> Product:
    """``rate`` (m, c) ≥ 0, some > 0 in each class; ``gpus`` (c,); ``capacity`` (m,) > 0; ``counts`` (B, c).

    ``start``: of the same classes, B or one. ``gap``: absolute, that every program aims at; what was reached
    is in the answer. ArylError above :data:`LOOSE`.
    """
    scale = rate.max(axis=0)
    rate = rate / scale
    programs, m = len(counts), len(capacity)
    at = _begin(rate, gpus, capacity, counts) if start is None else _like(start, programs)
    inside = at
    share, sure = at.x.copy(), np.full(programs, np.inf)
    since, last = np.zeros(programs, dtype=np.int64), np.ones(programs)
    open_ = np.arange(programs)
    spare = capacity[:, None] - (at.x * (counts * gpus)).sum(axis=2)
    step = 0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # a broken step is seen by its bound
        for step in range(MOST_STEPS):
            own = counts[open_]
            fit, left = _certified(rate, gpus, capacity, own, at)
            better = left < sure[open_]
            share[:, open_[better]], sure[open_[better]] = fit[:, better], left[better]
            since[open_[better]] = step
            size = own.sum(axis=1) * (m + 1) + m
            mu = _complementarity(at, spare, own) / size
            rest = np.flatnonzero((sure[open_] > gap) & np.isfinite(mu) & (step - since[open_] < PATIENCE))
            if len(rest) < len(open_):
                open_, at, own, mu, size = open_[rest], at.at(rest), own[rest], mu[rest], size[rest]
                spare = spare[:, rest]
            if not len(open_):
                break
            if len(open_) == programs and mu.max() > 1e-3:
                inside = at
            system = _System(at, spare, rate, gpus, own * gpus, capacity)
            ahead = system.direction(np.zeros_like(mu), None)
            length = system.length(ahead)
            there = _complementarity(system.moved(ahead, length), spare + length * ahead[6], own) / size
            # where the last step was cut short, this one goes to the centre first, uncorrected
            calm = last[open_] > 0.1
            aim = np.where(calm, np.clip(there / mu, 0.0, 1.0) ** 3, 0.5)
            to = system.direction(mu * aim, ahead, np.where(calm, 1.0, 0.0))
            length = np.minimum(0.995 * system.length(to), 1.0)
            last[open_] = length
            at, spare = system.moved(to, length), spare + length * to[6]
    if (sure > max(gap, LOOSE)).any():
        raise ArylError(
            f"the largest product stood at a gap of {float(sure.max()):.1e} after {step} steps",
            hint="check the ranges of throughputs and GPUs: they differ by too many powers of ten",
        )
    true = (rate[:, None, :] * share).sum(axis=0) * scale
    value = (counts * np.log(true)).sum(axis=1)
    return Product(share=share, rate=true, value=value, gap=sure, inside=inside, steps=step)


def _certified(rate: F, gpus: F, capacity: F, counts: F, at: Point) -> tuple[F, F]:
    """(a feasible point beside the iterate, (B,) by how much the optimum can be better)."""
    got = (rate[:, None, :] * at.x).sum(axis=0)
    best = np.maximum((rate[:, None, :] / got - gpus * at.lam[:, :, None]).max(axis=0), 0.0)
    fit = _within(at.x, counts * gpus, capacity)
    lost = np.log(got / (rate[:, None, :] * fit).sum(axis=0))
    left: F = capacity @ at.lam + (counts * (best - 1.0 + lost)).sum(axis=1)
    return fit, np.where(np.isfinite(left), left, np.inf)


def _begin(rate: F, gpus: F, capacity: F, counts: F) -> Point:
    """Half of the time, spread evenly, as far as there are workers for it."""
    programs, (m, c) = len(counts), rate.shape
    x = np.full((m, programs, c), 0.5 / m)
    used = (x * (counts * gpus)).sum(axis=2)
    x = x * np.minimum(1.0, 0.5 * (capacity[:, None] / np.maximum(used, 1e-300)).min(axis=0))[:, None]
    slope = rate[:, None, :] / (rate[:, None, :] * x).sum(axis=0)
    # a price at which types would be sold out if everyone spent all, as they do at the optimum
    lam = np.repeat((counts.sum(axis=1) / capacity.sum())[None, :], m, axis=0)
    price = gpus * lam[:, :, None] - slope
    alpha = np.maximum(0.0, -price.min(axis=0)) + 1.0
    beta = 1.0 / (rate[:, None, :] * x).sum(axis=0)
    return Point(x=x, q=1.0 - x.sum(axis=0), z=price + alpha, alpha=alpha, lam=lam, beta=beta)


def _within(x: F, weight: F, capacity: F) -> F:
    """What rounding broke, mended: a feasible point beside the iterate."""
    x = x / np.maximum(x.sum(axis=0), 1.0)
    fit: F = x * np.minimum(1.0, capacity[:, None] / np.maximum((x * weight).sum(axis=2), 1e-300))[:, :, None]
    return fit


def _like(start: Point, programs: int) -> Point:
    if len(start.q) == programs:
        return start
    return start.at(np.zeros(programs, dtype=np.int64))


def _fields(at: Point) -> tuple[F, F, F, F, F, F]:
    return at.x, at.q, at.z, at.alpha, at.lam, at.beta


def _complementarity(at: Point, spare: F, counts: F) -> F:
    """(B,), each job's and each type's."""
    each: F = (at.x * at.z).sum(axis=0) + at.q * at.alpha
    total: F = (counts * each).sum(axis=1) + (spare * at.lam).sum(axis=0)
    return total


Move = tuple[F, F, F, F, F, F, F]
"""Steps of x, q, z, alpha, lam, beta and of the types' spare workers."""


class _System:
    """Newton's equations at a point: a block per class, m unknowns that couple them.

    A class's block is ``diag(z/x) + g·g' + (alpha/q)·1·1'``, g = rate·√(beta/rate_c), and alpha/q grows
    without limit where the time is all spent. In the unknowns "all of the time" and "time on each type but
    the main one" that factor stands in one place alone, and nothing is lost beside it: hence the change of
    unknowns.
    """

    def __init__(self, at: Point, spare: F, rate: F, gpus: F, weight: F, capacity: F) -> None:
        self._at, self._spare, self._gpus, self._weight = at, spare, gpus, weight
        self._rate, self._whole = rate[:, None, :], weight.sum(axis=1)
        self._got = (self._rate * at.x).sum(axis=0)
        m = len(spare)
        self._main = at.x.argmax(axis=0)[None]
        self._is_main = np.arange(m)[:, None, None] == self._main
        own = at.z / at.x
        bent = self._from_main(self._rate * np.sqrt(at.beta / self._got))
        sign = np.where(self._is_main, 1.0, -1.0)
        block = bent[:, None] * bent + np.take_along_axis(own, self._main, axis=0) * sign[:, None] * sign
        for j in range(m):
            block[j, j] += np.where(self._is_main[j], at.alpha / at.q, own[j])
        self._inverse = _inverted(block)
        inverse = np.where(
            self._is_main[:, None], 2 * self._inverse - self._inverse.sum(axis=0), self._inverse
        )
        inverse = np.where(self._is_main, 2 * inverse - inverse.sum(axis=1)[:, None], inverse)
        self._lost = self._rate * at.beta - at.alpha - gpus * at.lam[:, :, None] + at.z
        coupling = (inverse * (weight * gpus)).sum(axis=3).transpose(2, 0, 1)
        for j in range(m):
            coupling[:, j, j] += spare[j] / at.lam[j]
        self._scale = 1.0 / np.sqrt(np.diagonal(coupling, axis1=1, axis2=2)).T
        self._coupling = coupling * self._scale.T[:, :, None] * self._scale.T[:, None, :]
        # where types are worth the same to all, time flows freely between them, and only their sum is fixed
        self._coupling += 4e-15 * np.eye(m)
        # what rounding has made of the constraints; what is below it stays
        idle = 1.0 - at.x.sum(axis=0) - at.q
        self._idle = np.where(np.abs(idle) > 1e-14, idle, 0.0)
        free = capacity[:, None] - (at.x * weight).sum(axis=2) - spare
        self._free = np.where(np.abs(free) > 1e-13 * capacity[:, None], free, 0.0)

    def _from_main(self, vector: F) -> F:
        """(m, B, c) in the unknowns of the block: less the main type's entry, which stays itself."""
        main = np.take_along_axis(vector, self._main, axis=0)
        moved: F = np.where(self._is_main, vector, vector - main)
        return moved

    def _apart(self, right: F) -> F:
        """The block's solution for a right-hand side in its own unknowns, as time on each type."""
        v = (self._inverse * right).sum(axis=1)
        x: F = np.where(self._is_main, 2 * v - v.sum(axis=0), v)
        return x

    def direction(self, centre: F, ahead: Move | None, part: F | None = None) -> Move:
        """Towards complementarity ``centre`` (B,); ``ahead``: a first direction, whose bend is corrected for,
        by ``part`` (B,) of it.

        Of a slack and its price, the small one is computed from the other's step: as a difference of large
        numbers it would lose its digits near the optimum, and then the price with it.
        """
        at, spare = self._at, self._spare
        want = centre[:, None]
        cx, cq, cw = want - at.x * at.z, want - at.q * at.alpha, centre - spare * at.lam
        cr = 1.0 - at.beta * self._got
        if ahead is not None and part is not None:
            wide = part[:, None]
            cx, cq = cx - wide * ahead[0] * ahead[2], cq - wide * ahead[1] * ahead[3]
            cw = cw - part * ahead[6] * ahead[4]
            cr = cr - wide * ahead[5] * (self._rate * ahead[0]).sum(axis=0)
        b = self._from_main(self._lost + self._rate * (cr / self._got) + cx / at.x)
        b -= np.where(self._is_main, (cq - at.alpha * self._idle) / at.q, 0.0)
        free = self._apart(b)
        right = (free * self._weight).sum(axis=2) + cw / at.lam - self._free
        scale = self._scale
        lam = scale * np.linalg.solve(self._coupling, (scale * right).T[:, :, None])[:, :, 0].T
        paid = np.broadcast_to(self._gpus * lam[:, :, None], at.x.shape)
        x = self._apart(b - self._from_main(paid))
        z = (cx - at.z * x) / at.x
        q = self._idle - x.sum(axis=0)
        alpha = (cq - at.alpha * q) / at.q
        beta = (cr - at.beta * (self._rate * x).sum(axis=0)) / self._got
        stationary = self._lost + z + self._rate * beta - paid
        tight = at.q < at.alpha
        alpha = np.where(tight, np.take_along_axis(stationary, self._main, axis=0)[0], alpha)
        q = np.where(tight, (cq - at.q * alpha) / at.alpha, q)
        left = self._free - (x * self._weight).sum(axis=2)
        left = np.where(spare < at.lam * self._whole, (cw - spare * lam) / at.lam, left)
        return x, q, z, alpha, lam, beta, left

    def length(self, move: Move) -> F:
        """(B,) how far along ``move`` everything stays positive; at most 1/0.995."""
        at = self._at
        shrink = [-step / value for step, value in zip(move, (*_fields(at), self._spare), strict=True)]
        worst = np.maximum(shrink[0].max(axis=(0, 2)), shrink[2].max(axis=(0, 2)))
        worst = np.maximum(worst, np.maximum(np.maximum(shrink[1], shrink[3]), shrink[5]).max(axis=1))
        worst = np.maximum(worst, np.maximum(shrink[4], shrink[6]).max(axis=0))
        longest: F = 1.0 / np.maximum(worst, 0.995)
        return longest

    def moved(self, move: Move, length: F) -> Point:
        at, wide = self._at, length[:, None]
        return Point(
            x=at.x + wide * move[0],
            q=at.q + wide * move[1],
            z=at.z + wide * move[2],
            alpha=at.alpha + wide * move[3],
            lam=at.lam + length * move[4],
            beta=at.beta + wide * move[5],
        )


def _inverted(a: F) -> F:
    """The inverses of symmetric positive definite (m, m, …), by sweeping; destroys ``a``."""
    for k in range(len(a)):
        column = a[:, k].copy()
        scaled = column / column[k]
        a -= column[:, None] * scaled[None]
        a[:, k] = scaled
        a[k] = scaled
        a[k, k] = -1.0 / column[k]
    return -a
