"""The jobs' part of an interior point's step: 2×2 blocks in closed form, many jobs at a time.

z are the reduced costs of x, r the slacks of the rate rows. Idle time is a type of rate 0 without a capacity;
its reduced cost is α, the value of a job's time. With ``d = x/z`` a job's 2×2 block is a weighted mean and
spread, ``mean = Σ d·rate / Σ d`` and ``κ = 1/(Σ d·(rate − mean)² + r/β)``, and its solution::

    β = κ·(mean·g1 + g2 + Σ (mean − rate)·h)            α = mean·β + (g1 + Σ h)/Σ d

for right-hand sides g1 (time), g2 (rate), h (types). No difference of large numbers is taken: d spans 1e12
near the optimum, and the plain determinant loses its last digit there.
"""

from __future__ import annotations

import numpy as np

from arylcloud.planner.kernels.jobform import F, Scaled


class Block:
    """Some of the jobs: data, their part of the iterate, and what a step hands from one pass to the next.

    Arrays are (m + 1, b), the types and then idle; (m, b), the types; or (b,).
    """

    x: F
    z: F
    r: F
    beta: F
    slope: F | None
    fade: F | None
    ask_slope: F
    """f'(t)."""
    mean: F
    kappa: F
    total: F
    miss_time: F
    miss_rate: F
    flat: F
    """(g1 + Σ h)/Σ d."""
    steep: F
    """β before prices and t move."""
    h_rate: F
    rest_rate: F
    dr: F
    dbeta: F

    def __init__(self, p: Scaled, jobs: slice) -> None:
        m, b = len(p.capacity), jobs.stop - jobs.start
        self.jobs, self.m = jobs, m
        self.rate = np.zeros((m + 1, b))
        self.rate[:m] = p.rate[:, jobs]
        self.gpus, self.need = p.gpus[jobs], p.need[jobs]
        self.single = bool((self.gpus == 1.0).all())
        self.gain = None if p.gain is None else p.gain[:, jobs]
        self.slope = None if p.slope is None else p.slope[jobs]
        self.fade = None if p.fade is None else p.fade[jobs]
        self.d, self.away, self.h, self.dx, self.dz, self.rest = (np.empty((m + 1, b)) for _ in range(6))
        self.sd, self.y = np.empty((m, b)), np.empty((m, b))
        self.wide = np.empty((2, m, b))

    def measure(self, t: float, into: Totals) -> None:
        """What the iterate certifies, and the block's part of the system and of the predictor's side."""
        m, x, z, h, d, away = self.m, self.x, self.z, self.h, self.d, self.away
        np.multiply(self.rate, x, out=h)
        got = h.sum(axis=0)
        self.miss_time = 1.0 - x.sum(axis=0)
        into.used += x[:m] @ self.gpus
        asked = self.need
        offset = self.need
        if self.slope is not None:
            if self.fade is None:
                ask, self.ask_slope = self.slope * t, self.slope
                reach = (got - self.need) / self.slope if into.all_sloped else _reached(self, got)
            else:
                left = 1.0 / (1.0 - self.fade * t)
                bent = self.slope * left
                ask, self.ask_slope = bent * t, bent * left
                into.bend += 2.0 * float((self.fade * left * self.ask_slope) @ self.beta)
                offset = self.need + (ask - self.ask_slope * t)
                reach = _reached(self, got)
            asked = self.need + ask
            into.objective = min(into.objective, float(reach.min()))
            into.mass += float(self.ask_slope @ self.beta)
        else:
            assert self.gain is not None
            into.objective += float(np.vdot(self.gain, x[:m]))
        self.miss_rate = asked + self.r - got
        # a job's time is worth what its best type leaves
        into.bound += float(np.maximum(z[m] - z[:m].min(axis=0), 0.0).sum()) - float(offset @ self.beta)

        np.divide(x, z, out=d)
        self.total = d.sum(axis=0)
        np.multiply(d, self.rate, out=h)
        self.mean = h.sum(axis=0) / self.total
        np.subtract(self.mean, self.rate, out=away)
        np.multiply(d, away, out=h)
        h *= away
        self.kappa = 1.0 / (h.sum(axis=0) + self.r / self.beta)
        if self.single:
            self.sd = d[:m]
        else:
            np.multiply(d[:m], self.gpus, out=self.sd)
        np.multiply(self.sd, away[:m], out=self.y)
        self.flat = -1.0 / self.total
        np.multiply(self.y, self.kappa, out=self.wide[0])
        np.multiply(self.sd, self.flat, out=self.wide[1])
        into.system[:m, :m] += _gram(self.sd, self.wide[1]) - _gram(self.y, self.wide[0])
        into.own += self.sd @ self.gpus
        if self.slope is not None:
            weighted = self.kappa * self.ask_slope
            into.system[:m, m] += self.y @ weighted
            into.system[m, m] -= float(self.ask_slope @ weighted)
        # the predictor aims at products of 0: its sides shrink to these
        self.steep = self.kappa * (asked - self.mean)
        self._side(into)

    def _side(self, into: Totals) -> None:
        into.side[: self.m] -= self.sd @ self.flat + self.y @ self.steep
        if self.slope is not None:
            into.side[self.m] += float(self.ask_slope @ self.steep)

    def _turn(self, lam: F, t: float) -> None:
        """dz and dbeta once the prices' and t's moves are known."""
        step = lam @ self.y
        if self.slope is not None and t != 0.0:
            step -= t * self.ask_slope
        self.dbeta = self.steep - self.kappa * step
        alpha = self.mean * self.dbeta + self.flat - (lam @ self.sd) / self.total
        dz = self.dz
        np.multiply(self.rate, -self.dbeta, out=dz)
        dz += alpha
        for j in range(self.m):
            dz[j] += lam[j] if self.single else lam[j] * self.gpus

    def predict(self, lam: F, t: float, into: Ahead) -> None:
        """How far the predictor could go, and the second-order rest for the corrector."""
        self._turn(lam, t)
        ratio, product, rest = self.dz, self.dx, self.rest
        ratio /= self.z
        np.multiply(self.x, self.z, out=rest)
        np.multiply(rest, ratio, out=product)
        into.add(ratio, float(rest.sum()), float(product.sum()), float(np.vdot(product, ratio)))
        rest -= product
        product *= ratio
        rest -= product
        ratio_rate = self.dbeta / self.beta
        plain = self.r * self.beta
        first = plain * ratio_rate
        second = first * ratio_rate
        into.add(ratio_rate, float(plain.sum()), float(first.sum()), float(second.sum()))
        self.rest_rate = plain - first - second

    def correct(self, aim: float, into: Totals) -> None:
        """The corrector's sides."""
        m, h = self.m, self.h
        np.subtract(aim, self.rest, out=h)
        h /= self.z
        self.h_rate = (aim - self.rest_rate) / self.beta
        self.flat = (h.sum(axis=0) - self.miss_time) / self.total
        into.side[:m] += h[:m] @ self.gpus
        np.multiply(self.away, h, out=self.dx)
        self.steep = self.kappa * (
            self.dx.sum(axis=0) + self.miss_rate + self.h_rate - self.mean * self.miss_time
        )
        self._side(into)

    def turn(self, lam: F, t: float) -> tuple[float, float]:
        """The move itself; returns the largest relative losses (primal, dual)."""
        self._turn(lam, t)
        dx, spare = self.dx, self.rest
        np.multiply(self.d, self.dz, out=dx)
        np.subtract(self.h, dx, out=dx)
        self.dr = self.h_rate - self.dbeta * (self.r / self.beta)
        np.divide(dx, self.x, out=spare)
        primal = min(float(spare.min()), float((self.dr / self.r).min()))
        np.divide(self.dz, self.z, out=spare)
        dual = min(float(spare.min()), float((self.dbeta / self.beta).min()))
        return -primal, -dual

    def go(self, primal: float, dual: float) -> None:
        for value, move, length in (
            (self.x, self.dx, primal),
            (self.r, self.dr, primal),
            (self.z, self.dz, dual),
            (self.beta, self.dbeta, dual),
        ):
            move *= length
            value += move


FEW = 5


def _gram(a: F, b: F) -> F:
    """``a @ b.T``, symmetric by its meaning; dot products beat a product of few long rows."""
    m = len(a)
    if m > FEW:
        product: F = a @ b.T
        return product
    out = np.empty((m, m))
    for j in range(m):
        for k in range(j + 1):
            out[j, k] = out[k, j] = a[j] @ b[k]
    return out


def _reached(block: Block, got: F) -> F:
    """The largest t that each row with a slope allows."""
    assert block.slope is not None
    spare = got - block.need
    ask = block.slope if block.fade is None else block.slope + block.fade * spare
    most: F = np.divide(spare, ask, out=np.full(len(ask), np.inf), where=block.slope > 0)
    return most


class Totals:
    """Sums over the blocks."""

    def __init__(self, m: int, with_t: int, all_sloped: bool) -> None:
        self.system = np.zeros((m + with_t, m + with_t))
        self.own = np.zeros(m)
        self.side = np.zeros(m + with_t)
        self.used = np.zeros(m)
        self.objective = np.inf if with_t else 0.0
        self.bound = 0.0
        self.mass = 0.0
        self.bend = 0.0
        self.all_sloped = all_sloped


class Ahead:
    """Where the predictor leads: relative dual moves ρ (primal: −1 − ρ), and Σ over ρ⁰, ρ¹, ρ²."""

    def __init__(self) -> None:
        self.largest = self.smallest = 0.0
        self.plain = self.first = self.second = 0.0

    def add(self, ratio: F, plain: float, first: float, second: float) -> None:
        self.largest = max(self.largest, float(ratio.max()))
        self.smallest = min(self.smallest, float(ratio.min()))
        self.plain += plain
        self.first += first
        self.second += second

    def after(self, primal: float, dual: float) -> float:
        """Σ of the products after such steps."""
        return (
            (1.0 - primal) * self.plain
            + ((1.0 - primal) * dual - primal) * self.first
            - primal * dual * self.second
        )
