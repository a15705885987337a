"""The one program of all per-job policies: its form, its scaling, its repair and its certificate.

Types ``j`` stand on axis 0, jobs ``i`` on axis 1 (m and n of them)::

    max   Σ_ij gain_ij·x_ij,   or   max t                               duals
    s.t.  Σ_j x_ij ≤ time_i                            one row per job   α_i ≥ 0
          Σ_j rate_ij·x_ij ≥ need_i + f_i(t)           one row per job   β_i ≥ 0
          Σ_i gpus_i·x_ij + drift_j·t ≤ capacity_j     one row per type  λ_j ≥ 0
          x ≥ 0,  t free;      f_i(t) = slope_i·t / (1 − fade_i·t), linear where fade is 0

Whatever solves it, an answer is a feasible point (:func:`repaired`) and a dual value that no feasible point
exceeds (:func:`bound_of`): given prices β, λ ≥ 0 the best α is ``max(0, max_j gain_ij + rate_ij·β_i −
gpus_i·λ_j)`` in closed form; in a program in t, (β, λ) are first scaled to ``Σ f'(t)·β + Σ drift·λ = 1``.
f is convex, so its tangent at any t asks for less than f does, and the tangent's dual bounds the program.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F = NDArray[np.float64]

TINY = 1e-200
TOLERANCE = 1e-7
"""By how much, relative to its need, a hard rate row may be missed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class JobLP:
    """The program above, with ``gain`` or with ``slope``, not both."""

    rate: F
    """(m, n) ≥ 0; with a slope > 0, a column of zeros is the caller's mistake."""
    gpus: F
    """(n,) > 0."""
    capacity: F
    """(m,) ≥ 0; a type of capacity 0 is never used."""
    time: F | None = None
    """(n,) > 0; None = 1."""
    gain: F | None = None
    """(m, n)."""
    need: F | None = None
    """(n,), −inf = the job has none; None = 0 under a slope, else none."""
    slope: F | None = None
    """(n,) ≥ 0, at least one > 0."""
    fade: F | None = None
    """(n,) ≥ 0, only with a slope: t stays below 1/fade."""
    drift: F | None = None
    """(m,) ≥ 0, only with a slope."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Solution:
    """A feasible point and prices that prove how good it is."""

    x: F
    """(m, n)."""
    t: float
    objective: float
    bound: float
    """No feasible point's objective is larger."""
    rate_value: F
    """(n,) β."""
    type_value: F
    """(m,) λ: objective per unit of a type's capacity."""
    iterations: int = 0

    @property
    def gap(self) -> float:
        """(bound − objective), relative."""
        return (self.bound - self.objective) / max(abs(self.objective), abs(self.bound), TINY)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Scaled:
    """The program with types of capacity 0 gone, time 1, and each rate row's largest entry 1.

    A row that asks nothing becomes ``Σ rate·x ≥ −1``: without a slack that can grow, its dual would have
    no interior. ``real`` marks the rows that ask something.
    """

    rate: F
    gpus: F
    capacity: F
    gain: F | None
    need: F
    slope: F | None
    fade: F | None
    drift: F | None
    real: NDArray[np.bool_]
    hard: NDArray[np.bool_]
    """Rows with a need > 0 and no slope."""
    kept: NDArray[np.bool_]
    time: F | None
    row: F
    unit: float

    def asked(self, t: float) -> tuple[F, F, F | None]:
        """(f, f', f'') of every row at t, need not included; f'' None where f is linear."""
        assert self.slope is not None
        if self.fade is None:
            return self.slope * t, self.slope, None
        left = 1.0 / (1.0 - self.fade * t)
        first = self.slope * left
        second = first * left
        return first * t, second, 2.0 * self.fade * second * left

    def reached(self, spare: F) -> float:
        """The largest t with f(t) ≤ ``spare`` (n,) in every row that has a slope."""
        return float(self.each_reached(spare).min())

    def each_reached(self, spare: F) -> F:
        """(n,) the largest t with f_i(t) ≤ ``spare`` (n,); inf without a slope."""
        assert self.slope is not None
        ask = self.slope if self.fade is None else self.slope + self.fade * spare
        if self.slope.all():
            most: F = spare / ask
            return most
        each: F = np.divide(spare, ask, out=np.full(len(ask), np.inf), where=self.slope > 0)
        return each

    def inner(self, x: F) -> F:
        """A point of the program's own as one of this form."""
        if not self.kept.all():
            x = x[self.kept]
        return x if self.time is None else x / self.time

    def unscaled(self, found: Solution) -> Solution:
        """In the program's own units."""
        x = found.x if self.time is None else found.x * self.time
        worth = found.type_value * self.unit
        if not self.kept.all():
            full = np.zeros((len(self.kept), x.shape[1]))
            full[self.kept] = x
            x = full
            full_worth = np.zeros(len(self.kept))
            full_worth[self.kept] = worth
            worth = full_worth
        return Solution(
            x=x,
            t=found.t,
            objective=found.objective * self.unit,
            bound=found.bound * self.unit,
            rate_value=found.rate_value * (self.unit / self.row),
            type_value=worth,
            iterations=found.iterations,
        )


def scaled(lp: JobLP) -> Scaled:
    """Ready for a solver; ValueError where the form is broken."""
    if (lp.gain is None) == (lp.slope is None):
        raise ValueError("a program maximises either a gain or t")
    kept = lp.capacity > 0
    rate, gain, drift, capacity = lp.rate, lp.gain, lp.drift, lp.capacity
    if not kept.all():
        rate, capacity = rate[kept], capacity[kept]
        gain = None if gain is None else gain[kept]
        drift = None if drift is None else drift[kept]
    gpus = lp.gpus
    if lp.time is not None:
        rate, gpus = rate * lp.time, gpus * lp.time
        gain = None if gain is None else gain * lp.time
    row = rate.max(axis=0)
    row = np.where(row > 0, row, 1.0)
    n = len(gpus)
    need = lp.need if lp.need is not None else np.full(n, -np.inf if lp.slope is None else 0.0)
    real = need > -np.inf
    if lp.slope is not None:
        slope = lp.slope / row
        real &= (need > 0) | (slope > 0)
        hard = real & (slope == 0)
    else:
        slope = None
        real &= need > 0
        hard = real
    unit = 1.0
    if gain is not None:
        unit = float(np.abs(gain).max(initial=0.0)) or 1.0
        gain = gain / unit
    return Scaled(
        rate=rate / row,
        gpus=gpus,
        capacity=capacity,
        gain=gain,
        need=np.where(real, need / row, -1.0),
        slope=slope,
        fade=lp.fade,
        drift=drift,
        real=real,
        hard=hard,
        kept=kept,
        time=lp.time,
        row=row,
        unit=unit,
    )


def repaired(p: Scaled, x: F, t: float) -> tuple[F, float, float]:
    """(x, t, objective) near the given point and feasible; objective −inf where a hard row is missed."""
    x = x / np.maximum(1.0, x.sum(axis=0))
    used = x @ p.gpus
    room = p.capacity if p.drift is None else p.capacity - p.drift * t
    if (room < 0).any():
        return x, t, -np.inf
    x *= np.minimum(1.0, room / np.maximum(used, TINY))[:, None]
    got = (p.rate * x).sum(axis=0)
    if p.hard.any():
        short = p.need - got
        if (short[p.hard] > TOLERANCE * p.need[p.hard]).any():
            return x, t, -np.inf
    if p.slope is None:
        assert p.gain is not None
        return x, 0.0, float(np.vdot(p.gain, x))
    best = p.reached(got - p.need)
    if p.drift is not None:
        best = min(best, t)
    return x, best, best


def bound_of(p: Scaled, beta: F, lam: F, t: float) -> tuple[F, F, float]:
    """(β, λ, bound) of a feasible dual point near prices ≥ 0; ``t`` is where f's tangent is taken."""
    if not p.real.all():
        beta = np.where(p.real, beta, 0.0)
    need = p.need
    if p.slope is not None:
        ask, slope, curved = p.asked(t)
        mass = float(slope @ beta)
        if p.drift is not None:
            mass += float(p.drift @ lam)
        if not mass > TINY:
            return beta, lam, np.inf
        beta, lam = beta / mass, lam / mass
        if curved is not None:
            need = need + (ask - slope * t)
    best = p.rate * beta
    best -= p.gpus * lam[:, None]
    if p.gain is not None:
        best += p.gain
    alpha = np.maximum(best.max(axis=0), 0.0)
    value = float(alpha.sum()) + float(p.capacity @ lam) - float(need @ beta)
    return beta, lam, value
