"""Interior point for linear programs in which jobs meet only at the worker types.

Every per-job policy of Gavel's family is one program (types ``j`` on axis 0, jobs ``i`` on axis 1)::

    max   Σ_ij gain_ij·x_ij,   or   max t                               duals
    s.t.  Σ_j x_ij ≤ time_i                            one row per job   α_i ≥ 0
          Σ_j rate_ij·x_ij ≥ need_i + f_i(t)           one row per job   β_i ≥ 0
          Σ_i gpus_i·x_ij + drift_j·t ≤ capacity_j     one row per type  λ_j ≥ 0
          x ≥ 0

f_i(t) = slope_i·t / (1 − fade_i·t) is convex. Two rows per job and only m rows that couple jobs: a Newton
step eliminates a 2×2 block per job in closed form and solves a dense system of m + 1 unknowns, so an
iteration is O(n·m²) whatever the jobs are. Mehrotra's predictor and corrector; primal and dual step lengths
apart.

Nothing is believed because the method converged: iterates are *repaired* into feasible points, and their
prices (β, λ) completed into a feasible dual, ``α_i = max(0, max_j gain_ij + rate_ij·β_i − gpus_i·λ_j)``,
whose value no feasible point exceeds. The solver returns when the best pair is closer than ``gap``.

References: Mehrotra, SIAM J. Optim. 2 (1992); Nocedal & Wright, Numerical Optimization, §14.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arylcloud.core.errors import ArylError
from arylcloud.planner.kernels.jobform import F, JobLP, Scaled, Solution, bound_of, repaired, scaled


@dataclass(slots=True, eq=False, repr=False)
class _Point:
    """An iterate; primal x, slacks q (time), r (rate), w (capacity), t; dual z, alpha, beta, lam."""

    x: F
    q: F
    r: F
    w: F
    t: float
    z: F
    alpha: F
    beta: F
    lam: F

    @property
    def complementarity(self) -> float:
        return float(np.vdot(self.x, self.z) + self.q @ self.alpha + self.r @ self.beta + self.w @ self.lam)


def solve(
    lp: JobLP,
    *,
    gap: float = 1e-7,
    most: int = 150,
    start: F | None = None,
    stop_above: float = np.inf,
    stop_below: float = -np.inf,
) -> Solution:
    """The program to a certified relative ``gap``.

    ``start``: (m, n) a point inside of the rows, for programs whose hard rows (slope 0, need > 0) are not met
    by a small equal share. The search also ends once the optimum is known to be at least ``stop_above`` or
    less than ``stop_below``. Raises :class:`ArylError` when ``most`` iterations do not get there.
    """
    view = scaled(lp)
    point = _first(view, None if start is None else view.inner(start))
    best: Solution | None = None
    size = view.rate.size + 2 * view.rate.shape[1] + view.rate.shape[0]
    for iteration in range(most):
        mu = point.complementarity / size
        best = _certified(view, point, best, iteration)
        if best.gap <= gap or best.objective >= stop_above or best.bound < stop_below:
            return view.unscaled(best)
        point = _step(view, point, mu, 0.02 * gap * abs(best.bound) / size)
    assert best is not None
    raise ArylError(
        f"the interior point stood at a relative gap of {best.gap:.1e} after {most} iterations, "
        f"{gap:.0e} was asked",
        hint="throughputs, weights, steps or ages may differ by too many powers of ten",
    )


def _first(p: Scaled, start: F | None) -> _Point:
    """A point off every boundary, primal feasible but for hard rate rows that ``start`` does not meet,
    dual feasible, and about as central as a closed form can be."""
    m, n = p.rate.shape
    x = np.zeros((m, n)) if start is None else start
    # half of the time that is left, as far as half of the room that is left allows
    idle = np.maximum(1.0 - x.sum(axis=0), 1e-6) * (0.5 / m)
    room = np.maximum(p.capacity - x @ p.gpus, 1e-6 * p.capacity)
    x = x + idle * np.minimum(1.0, 0.5 * room / (idle @ p.gpus))[:, None]
    got = (p.rate * x).sum(axis=0)
    t = 0.0
    if p.slope is not None:
        t = p.reached(0.5 * got - p.need)
        ask, slope, _ = p.asked(t)
        r = got - p.need - ask
    else:
        r = got - p.need
    w = p.capacity - x @ p.gpus
    if p.drift is not None:
        w = w - p.drift * t
    q = 1.0 - x.sum(axis=0)
    r = np.maximum(r, 1e-3 * np.maximum(np.abs(p.need), 1e-3))
    w = np.maximum(w, 1e-3 * p.capacity)
    if p.slope is not None:
        mass = float((slope / r).sum())
        if p.drift is not None:
            mass += float((p.drift / w).sum())
        mu = 1.0 / mass
    else:
        assert p.gain is not None
        mu = 0.1 * float(np.abs(p.gain).max(axis=0).mean())
    beta, lam = mu / r, mu / w
    price = p.gpus * lam[:, None] - p.rate * beta
    if p.gain is not None:
        price -= p.gain
    alpha = np.maximum(0.0, -price.min(axis=0)) + mu / q
    return _Point(x=x, q=q, r=r, w=w, t=t, z=alpha + price, alpha=alpha, beta=beta, lam=lam)


def _certified(p: Scaled, at: _Point, best: Solution | None, iteration: int) -> Solution:
    """The better of ``best`` and what this iterate certifies, primal and dual apart."""
    x, t, objective = repaired(p, at.x, at.t)
    beta, lam, bound = bound_of(p, at.beta, at.lam, at.t)
    if best is not None and best.objective >= objective:
        x, t, objective = best.x, best.t, best.objective
    if best is not None and best.bound <= bound:
        beta, lam, bound = best.rate_value, best.type_value, best.bound
    return Solution(
        x=x, t=t, objective=objective, bound=bound, rate_value=beta, type_value=lam, iterations=iteration
    )


def _step(p: Scaled, at: _Point, mu: float, floor: float) -> _Point:
    """One predictor-corrector step; never aims below ``floor``, where only rounding errors grow."""
    m, n = p.rate.shape
    # residuals: zero once a full step was taken, but for rounding
    primal_time = 1.0 - at.x.sum(axis=0) - at.q
    got = (p.rate * at.x).sum(axis=0)
    primal_rate = p.need + at.r - got
    primal_type = p.capacity - at.x @ p.gpus - at.w
    price = at.alpha + p.gpus * at.lam[:, None] - p.rate * at.beta
    if p.gain is not None:
        price -= p.gain
    dual_x = at.z - price
    dual_t = 0.0
    slope, curve = None, 0.0
    if p.slope is not None:
        ask, slope, bend = p.asked(at.t)
        primal_rate += ask
        curve = 0.0 if bend is None else float(bend @ at.beta)
        dual_t = 1.0 - float(slope @ at.beta)
        if p.drift is not None:
            primal_type = primal_type - p.drift * at.t
            dual_t -= float(p.drift @ at.lam)

    # the 2x2 block of each job; centred, or it loses all digits near the optimum
    d = at.x / at.z
    total = d.sum(axis=0)
    weighted = (d * p.rate).sum(axis=0)
    mean = weighted / total
    away = mean - p.rate
    spread = (d * away * away).sum(axis=0)
    slack_time, slack_rate = at.q / at.alpha, at.r / at.beta
    m11 = total + slack_time
    m12 = weighted
    m22 = spread + weighted * mean + slack_rate
    det = total * spread + slack_time * (spread + weighted * mean) + m11 * slack_rate

    # the system in prices and t; u1, u2 are (α, β) per unit of a type's part in the rows, again centred
    sd = p.gpus * d
    u1 = (weighted * away + (spread + slack_rate)) / det
    u2 = (total * away - slack_time * p.rate) / det
    y1, y2 = sd * u1, sd * u2
    with_t = int(p.slope is not None)
    system = np.empty((m + with_t, m + with_t))
    system[:m, :m] = (sd * p.rate) @ y2.T - sd @ y1.T
    system[np.arange(m), np.arange(m)] += sd @ p.gpus + at.w / at.lam
    if slope is not None:
        column = y2 @ slope
        if p.drift is not None:
            column = column - p.drift
        system[:m, m] = system[m, :m] = column
        system[m, m] = -float((slope * slope) @ (m11 / det)) - curve
    balance = 1.0 / np.sqrt(np.abs(np.diagonal(system)))
    system *= balance[:, None] * balance
    inverse_t = None if slope is None else slope / det

    def direction(cx: F, cq: F, cr: F, cw: F) -> _Point:
        """Newton's move for the complementarity targets ``c·``."""
        h = (cx + at.x * dual_x) / at.z
        g1 = cq / at.alpha - primal_time
        g2 = primal_rate + cr / at.beta
        alpha = (u1 * h).sum(axis=0) + (m22 * g1 + m12 * g2) / det
        beta = (u2 * h).sum(axis=0) + (m12 * g1 + m11 * g2) / det
        rhs = np.empty(m + with_t)
        rhs[:m] = h @ p.gpus + cw / at.lam - primal_type - sd @ alpha + (sd * p.rate) @ beta
        if slope is not None:
            rhs[m] = float(slope @ beta) - dual_t
        solved = balance * np.linalg.solve(system, balance * rhs)
        lam = solved[:m]
        alpha -= lam @ y1
        beta -= lam @ y2
        t = 0.0
        if inverse_t is not None:
            t = float(solved[m])
            alpha += (t * inverse_t) * m12
            beta += (t * inverse_t) * m11
        z = alpha + p.gpus * lam[:, None] - p.rate * beta - dual_x
        return _Point(
            x=(cx - at.x * z) / at.z,
            q=(cq - at.q * alpha) / at.alpha,
            r=(cr - at.r * beta) / at.beta,
            w=(cw - at.w * lam) / at.lam,
            t=t,
            z=z,
            alpha=alpha,
            beta=beta,
            lam=lam,
        )

    xz, qa, rb, wl = at.x * at.z, at.q * at.alpha, at.r * at.beta, at.w * at.lam
    guess = direction(-xz, -qa, -rb, -wl)
    primal, dual = _longest(p, at, guess)
    ahead = (
        np.vdot(at.x + primal * guess.x, at.z + dual * guess.z)
        + (at.q + primal * guess.q) @ (at.alpha + dual * guess.alpha)
        + (at.r + primal * guess.r) @ (at.beta + dual * guess.beta)
        + (at.w + primal * guess.w) @ (at.lam + dual * guess.lam)
    ) / (m * n + 2 * n + m)
    aim = max(mu * min(1.0, float(ahead) / mu) ** 3, min(floor, mu))
    move = direction(
        aim - xz - guess.x * guess.z,
        aim - qa - guess.q * guess.alpha,
        aim - rb - guess.r * guess.beta,
        aim - wl - guess.w * guess.lam,
    )
    primal, dual = _longest(p, at, move)
    keep = max(0.9, 1.0 - 10.0 * aim / mu) if aim < mu else 0.9
    keep = min(keep, 0.9999)
    primal, dual = min(1.0, keep * primal), min(1.0, keep * dual)
    return _Point(
        x=at.x + primal * move.x,
        q=at.q + primal * move.q,
        r=at.r + primal * move.r,
        w=at.w + primal * move.w,
        t=at.t + primal * move.t,
        z=at.z + dual * move.z,
        alpha=at.alpha + dual * move.alpha,
        beta=at.beta + dual * move.beta,
        lam=at.lam + dual * move.lam,
    )


def _longest(p: Scaled, at: _Point, move: _Point) -> tuple[float, float]:
    """The largest primal and dual steps that keep every variable ≥ 0 (beyond 1 possible)."""
    primal = max(
        1e-12,
        *(float((-b / a).max()) for a, b in ((at.x, move.x), (at.q, move.q), (at.r, move.r), (at.w, move.w))),
    )
    dual = max(
        1e-12,
        *(
            float((-b / a).max())
            for a, b in ((at.z, move.z), (at.alpha, move.alpha), (at.beta, move.beta), (at.lam, move.lam))
        ),
    )
    if p.fade is not None and move.t > 0:
        # f has a pole: half of the way there at most
        primal = max(primal, 2.0 * move.t / (1.0 / max(float(p.fade.max()), 1e-300) - at.t))
    return 1.0 / primal, 1.0 / dual
