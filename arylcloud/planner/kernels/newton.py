"""The iterate of :mod:`arylcloud.planner.kernels.interior` and its steps, once the jobs are eliminated.

Mehrotra's predictor and corrector on ``x·z = r·β = w·λ = μ``: z the reduced costs of x, r and w the slacks of
the rate rows and of the types. The jobs' part is :mod:`arylcloud.planner.kernels.blocks`; here are
the m prices, t, and how far to go. Points start dual feasible and stay so to rounding; primal residuals are
measured at every step.

Reference: Mehrotra, SIAM J. Optim. 2 (1992); Nocedal & Wright, Numerical Optimization, §14.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from arylcloud.planner.kernels.blocks import Ahead, Block, Totals
from arylcloud.planner.kernels.central import central
from arylcloud.planner.kernels.jobform import F, Scaled

BLOCK = 4096
"""Jobs at a time: a dozen arrays of (types + 1) × this many numbers stay in the processor's cache."""


class Search:
    """The whole iterate: blocks of jobs, slacks w and prices lam of the types, and t."""

    def __init__(self, p: Scaled) -> None:
        self.p, self.m = p, len(p.capacity)
        self.with_t = int(p.slope is not None)
        self.all_sloped = p.slope is not None and bool((p.slope > 0).all())
        self.size = (self.m + 2) * len(p.gpus) + self.m
        self.t = self.excess = 0.0
        self.w = self.lam = p.capacity
        self.blocks: list[Block] = []

    @classmethod
    def cold(cls, p: Scaled, start: F | None) -> Search:
        """A point off every boundary, dual feasible, primal feasible but for hard rows that ``start`` (m, n)
        does not meet, about as central as a closed form can be."""
        m, n = p.rate.shape
        self = cls(p)
        x = np.zeros((m, n)) if start is None else start
        # half of the time that is left, as far as half of the room that is left allows
        idle = np.maximum(1.0 - x.sum(axis=0), 1e-6) * (0.5 / m)
        room = np.maximum(p.capacity - x @ p.gpus, 1e-6 * p.capacity)
        x = x + idle * np.minimum(1.0, 0.5 * room / (idle @ p.gpus))[:, None]
        got = (p.rate * x).sum(axis=0)
        r = got - p.need
        slope = p.slope
        if slope is not None:
            self.t = p.reached(0.5 * got - p.need)
            ask, slope, _ = p.asked(self.t)
            r -= ask
        r = np.maximum(r, 1e-3 * np.maximum(np.abs(p.need), 1e-3))
        w = p.capacity - x @ p.gpus
        if p.drift is not None:
            w = w - p.drift * self.t
        self.w = np.maximum(w, 1e-3 * p.capacity)
        if slope is not None:
            mass = float((slope / r).sum())
            if p.drift is not None:
                mass += float((np.maximum(p.drift, 0.0) / self.w).sum())
            mu = 1.0 / mass
        else:
            assert p.gain is not None
            mu = 0.1 * float(np.abs(p.gain).max(axis=0).mean())
        beta, self.lam = mu / r, mu / self.w
        price = p.gpus * self.lam[:, None] - p.rate * beta
        if p.gain is not None:
            price -= p.gain
        idle = np.maximum(1.0 - x.sum(axis=0), 1e-6)
        alpha = np.maximum(0.0, -price.min(axis=0)) + mu / idle
        self._fill(np.vstack([x, idle]), np.vstack([alpha + price, alpha]), r, beta)
        return self

    @classmethod
    def warm(cls, p: Scaled, lam: F, t: float, mu: float) -> Search:
        """The jobs' places on the central path at prices ``lam`` (m,) ≥ 0 and at t."""
        self = cls(p)
        self.lam = np.maximum(lam, 2.0 * mu / p.capacity)
        self.w, self.t = mu / self.lam, t
        self._fill(*central(p, self.lam, t, mu))
        return self

    def _fill(self, x: F, z: F, r: F, beta: F) -> None:
        n = len(r)
        count = -(-n // BLOCK)
        for low, high in pairwise(n * k // count for k in range(count + 1)):
            jobs = slice(low, high)
            block = Block(self.p, jobs)
            block.x, block.z = x[:, jobs].copy(), z[:, jobs].copy()
            block.r, block.beta = r[jobs].copy(), beta[jobs].copy()
            self.blocks.append(block)

    def point(self) -> tuple[F, F]:
        """(x, β) of all jobs."""
        return (
            np.concatenate([block.x[: self.m] for block in self.blocks], axis=1),
            np.concatenate([block.beta for block in self.blocks]),
        )

    def measure(self) -> tuple[float, float]:
        """(objective, bound) but for rounding and primal residuals; the system is ready for :meth:`move`."""
        p, m = self.p, self.m
        sums = self.sums = Totals(m, self.with_t, self.all_sloped)
        for block in self.blocks:
            block.measure(self.t, sums)
        # where every job is at a corner, what is left of the sum is rounding: never less than that
        own = np.maximum(np.diagonal(sums.system)[:m] + sums.own, 1e-14 * sums.own) + self.w / self.lam
        sums.system[np.arange(m), np.arange(m)] = own
        sums.side[:m] -= p.capacity
        room = p.capacity if p.drift is None else p.capacity - p.drift * self.t
        self.excess = float(((sums.used - room) / p.capacity).max())
        bound = sums.bound + float(p.capacity @ self.lam)
        if self.with_t:
            if p.drift is not None:
                sums.system[:m, m] -= p.drift
                sums.mass += float(p.drift @ self.lam)
                sums.side[:m] += p.drift * self.t
            sums.system[m, :m] = sums.system[:m, m]
            sums.system[m, m] -= sums.bend
            sums.side[m] -= 1.0 - sums.mass
            bound = bound / sums.mass if sums.mass > 0 else np.inf
        return sums.objective, bound

    def move(self, floor: float) -> None:
        """One predictor-corrector step. ``floor`` × size is the total of products below which it does not
        aim: only rounding errors grow there."""
        p, m, w, lam = self.p, self.m, self.w, self.lam
        system = self.sums.system
        balance = 1.0 / np.sqrt(np.abs(np.diagonal(system)))
        system *= balance[:, None] * balance
        solved = balance * _solution(system, balance * self.sums.side)
        ahead = Ahead()
        for block in self.blocks:
            block.predict(solved[:m], float(solved[m]) if self.with_t else 0.0, ahead)
        ratio = solved[:m] / lam
        wl = w * lam
        ahead.add(ratio, float(wl.sum()), float(wl @ ratio), float(wl @ (ratio * ratio)))
        mu = ahead.plain / self.size
        primal = min(1.0, 1.0 / max(1e-12, 1.0 + ahead.largest))
        dual = min(1.0, 1.0 / max(1e-12, -ahead.smallest))
        aim = mu * min(1.0, max(ahead.after(primal, dual), 0.0) / ahead.plain) ** 3
        aim = max(aim, min(floor / self.size, mu))

        sums = Totals(m, self.with_t, self.all_sloped)
        for block in self.blocks:
            block.correct(aim, sums)
        miss = p.capacity - self.sums.used - w
        if p.drift is not None:
            miss -= p.drift * self.t
        h = (aim - wl * (1.0 - ratio - ratio * ratio)) / lam
        sums.side[:m] += h - miss
        if self.with_t:
            sums.side[m] -= 1.0 - self.sums.mass
        solved = balance * _solution(system, balance * sums.side)
        dlam, dt = solved[:m], float(solved[m]) if self.with_t else 0.0
        dw = h - dlam * (w / lam)
        primal, dual = max(1e-12, -float((dw / w).min())), max(1e-12, -float((dlam / lam).min()))
        for block in self.blocks:
            lost = block.turn(dlam, dt)
            primal, dual = max(primal, lost[0]), max(dual, lost[1])
        if p.fade is not None and dt > 0:
            # f has a pole: half of the way there at most
            primal = max(primal, 2.0 * dt / (1.0 / max(float(p.fade.max()), 1e-300) - self.t))
        keep = min(max(0.99, 1.0 - aim / mu), 0.9999)
        primal, dual = min(1.0, keep / primal), min(1.0, keep / dual)
        for block in self.blocks:
            block.go(primal, dual)
        self.w = w + primal * dw
        self.t += primal * dt
        self.lam = lam + dual * dlam


def _solution(system: F, side: F) -> F:
    """Of the balanced system (±1 on the diagonal); a little off it where jobs tie the prices together."""
    try:
        return np.asarray(np.linalg.solve(system, side), dtype=np.float64)
    except np.linalg.LinAlgError:
        near = system + 1e-13 * np.diag(np.diagonal(system))
        return np.asarray(np.linalg.solve(near, side), dtype=np.float64)
