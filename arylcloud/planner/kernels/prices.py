"""From known prices to the optimum: jobs whose answer the prices settle are frozen, the rest is solved.

At prices λ of the types (the last round's, or a sample's) each job's answer has a closed form: with a rate
row the cheapest mix that keeps its pace (:mod:`arylcloud.planner.kernels.hull`), with a gain the type that
leaves most. Where that answer would be the same at all prices within ``width`` of λ, it is kept, a function
of t. What is left is the same program with fewer jobs, less capacity and a drift, for the interior point. Its
prices settle all jobs again: whoever disagrees joins the rest, and the whole is tried again.

Nothing rests on the guess: the composed point and the new prices are certified on the full program, and an
answer that does not reach the gap is no answer (None; the caller solves from scratch). Where one job alone
is the bottleneck the types' prices are 0 and settle nothing: that is seen at once, and is the business of
:mod:`arylcloud.planner.kernels.bottleneck`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import ArylError
from arylcloud.planner.kernels import interior
from arylcloud.planner.kernels.hull import IDLE, Mix, cheapest
from arylcloud.planner.kernels.jobform import F, JobLP, Scaled, Solution, bound_of, repaired, scaled

ROUNDS = 8
BOTTLENECK = 1e-3
"""Less than this part of the bound from the types' prices: they do not decide anything."""
MOST_OPEN = 0.5
"""Of the jobs: if more are in doubt, the whole program costs no more."""

FAR = 0.005
"""Of the jobs, settled, that answer otherwise at the prices that were found: if more, all is settled anew."""

Mask = NDArray[np.bool_]


def solve(lp: JobLP, type_value: F, t: float, *, gap: float, width: float) -> Solution | None:
    """From prices (m,) and a guess of t; None where that does not lead to a certified ``gap``.

    ``width``: how far, relatively, the prices may be off. Hard rows only with a gain, no drift: else None.
    """
    if lp.drift is not None:
        return None
    view = scaled(lp)
    if view.slope is not None and view.hard.any():
        return None
    lam = np.maximum(type_value[view.kept] / view.unit, 0.0)
    if view.slope is not None and not float(view.capacity @ lam) > BOTTLENECK * abs(t):
        return None
    settled = _settle(view, lam, t, width)
    for _ in range(ROUNDS):
        if settled is None or settled.open.mean() > MOST_OPEN:
            return None
        found = _rest(view, settled, lam, t, gap, width)
        if found is None:
            width *= 2.5
            settled = _settle(view, lam, t, width)
            continue
        before, moves = lam, 2.0 * _doubt(lam, width)
        x, lam, t, beta = found
        x, reached, objective = repaired(view, x, t)
        beta, priced, bound = bound_of(view, beta, lam, t)
        answer = Solution(
            x=x,
            t=reached,
            objective=objective,
            bound=max(bound, objective),
            rate_value=beta,
            type_value=priced,
            iterations=1,
        )
        if answer.gap <= gap:
            return view.unscaled(answer)
        again = _settle(view, lam, t, width)
        if again is None:
            return None
        differs = settled.differs(again) & ~settled.open
        if differs.mean() > FAR:
            # the guess was off by more than its width; and so few jobs do not tell by how much
            lam = np.clip(lam, before - moves, before + moves)
            settled = _settle(view, lam, t, width)
            continue
        grown = settled.open | differs
        if view.fade is None and not differs.any():
            return None
        settled = replace(settled, open=grown)
    return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class _Settled:
    """What prices settle, shapes (n,): a job is on ``fast`` and ``slow``, in parts that its pace decides, or
    all the time on ``fast`` (``whole``); IDLE = not at all. ``open``: who could do otherwise."""

    fast: NDArray[np.int64]
    slow: NDArray[np.int64]
    open: Mask
    whole: Mask

    def differs(self, other: _Settled) -> Mask:
        """(n,) who answers otherwise there."""
        other_way: Mask = (self.fast != other.fast) | (self.slow != other.slow) | (self.whole != other.whole)
        return other_way

    def shares(self, view: Scaled, level: F) -> tuple[F, F]:
        """(x, dx/dlevel) both (m, n), of all jobs as if none were open."""
        m, n = view.rate.shape
        jobs = np.arange(n)
        runs, mixed = np.flatnonzero(self.fast != IDLE), np.flatnonzero(self.slow != IDLE)
        x, tilt = np.zeros((m, n)), np.zeros((m, n))
        low = np.where(self.slow != IDLE, view.rate[self.slow, jobs], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            per_level = np.where(self.fast != IDLE, 1.0 / (view.rate[self.fast, jobs] - low), 0.0)
        part = np.where(self.whole, 1.0, np.clip((level - low) * per_level, 0.0, 1.0))
        x[self.fast[runs], runs], tilt[self.fast[runs], runs] = part[runs], per_level[runs]
        x[self.slow[mixed], mixed], tilt[self.slow[mixed], mixed] = 1.0 - part[mixed], -per_level[mixed]
        return x, tilt

    def slopes(self, view: Scaled, lam: F) -> F:
        """(n,) β of these mixes at prices ``lam``."""
        jobs = np.arange(len(self.fast))
        mixed = self.slow != IDLE
        low = np.where(mixed, view.rate[self.slow, jobs], 0.0)
        price = _net(view, lam)
        dear = price[self.fast, jobs] - np.where(mixed, price[self.slow, jobs], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = dear / (view.rate[self.fast, jobs] - low)
        return np.where((self.fast != IDLE) & ~self.whole, np.maximum(slope, 0.0), 0.0)


def _net(view: Scaled, lam: F) -> F:
    """(m, n) what a job's time on a type costs, less what it gains."""
    price = view.gpus * lam[:, None]
    if view.gain is not None:
        price -= view.gain
    return price


def _rest(
    view: Scaled, settled: _Settled, lam: F, t: float, gap: float, width: float
) -> tuple[F, F, float, F] | None:
    """(x, λ, t, β) with the open jobs' program solved around the frozen ones; None where these alone are too
    many for the workers, or the program is not solved from here."""
    opened, frozen = settled.open, np.flatnonzero(~settled.open)
    level, slope, fade = view.need, None, None
    if view.slope is not None:
        asked, slope, _ = view.asked(t)
        level = view.need + asked
        fade = None if view.fade is None else view.fade / (1.0 - view.fade * t)
    x, tilt = settled.shares(view, level)
    moved = 0.0
    found = None
    if opened.any():
        room = view.capacity - x[:, frozen] @ view.gpus[frozen]
        if (room <= 0).any():
            return None
        # the open jobs' program in τ = t − t₀: f(t₀ + τ) has the same form
        inner = JobLP(
            rate=view.rate[:, opened],
            gpus=view.gpus[opened],
            capacity=room,
            gain=None if view.gain is None else view.gain[:, opened],
            slope=None if slope is None else slope[opened],
            fade=None if fade is None else fade[opened],
            need=level[opened],
            drift=None if slope is None else tilt[:, frozen] @ (view.gpus[frozen] * slope[frozen]),
        )
        whole = t if view.gain is None else float(np.vdot(view.gain[:, frozen], x[:, frozen]))
        near = (lam, 0.0, 10.0 * width**2 * (abs(whole) + float(lam @ room)))
        if not near[2] > 0:
            return None
        # a guess may be so wrong that a job has no place on the path: that shows as numbers that are none
        try:
            found = interior.solve(inner, gap=0.3 * gap, offset=whole, most=40, near=near)
        except ArylError:
            return None
        moved, lam = found.t, found.type_value
    if slope is not None and moved:
        t += moved
        if view.fade is not None and (view.fade * t >= 1).any():
            return None
        x, _ = settled.shares(view, view.need + view.asked(t)[0])
    beta = settled.slopes(view, lam)
    if found is not None:
        x[:, opened] = found.x
        beta[opened] = found.rate_value
    return x, lam, t, beta


def _settle(view: Scaled, lam: F, t: float, width: float) -> _Settled | None:
    if view.slope is not None:
        top = view.reached(view.rate.max(axis=0) - view.need)
        asked, slope, _ = view.asked(min(t, top * (1 - 1e-12)))
        return _by_pace(view, lam, view.need + asked, t * slope, width)
    free = _by_gain(view, lam, width)
    if not view.hard.any():
        return free
    # who gains most where the need is met as well has no need; the others keep their pace
    jobs = np.arange(len(view.gpus))
    pace = np.where(free.fast == IDLE, 0.0, view.rate[free.fast, jobs])
    bound = view.hard & (pace < view.need)
    kept = _by_pace(view, lam, np.where(bound, view.need, 0.0), 0.0, width)
    if kept is None:
        return None
    return _Settled(
        fast=np.where(bound, kept.fast, free.fast),
        slow=np.where(bound, kept.slow, IDLE),
        open=np.where(bound, kept.open, free.open),
        whole=~bound,
    )


def _doubt(lam: F, width: float) -> F:
    """(m,) by how much each price may be off: a low one by as much as half of the highest could."""
    doubt: F = width * np.maximum(lam, 0.5 * lam.max())
    return doubt


def _by_gain(view: Scaled, lam: F, width: float) -> _Settled:
    """Each job on the type that leaves most, or idle."""
    assert view.gain is not None
    m, n = view.rate.shape
    price = np.zeros((m + 1, n))
    np.multiply(view.gpus, lam[:, None], out=price[:m])
    left = -price
    left[:m] += view.gain
    best = left.argmax(axis=0)
    jobs = np.arange(n)
    np.multiply(view.gpus, _doubt(lam, width)[:, None], out=price[:m])
    left += price
    settled = left[best, jobs] - 2.0 * price[best, jobs]
    left[best, jobs] = -np.inf
    return _Settled(
        fast=np.where(best == m, IDLE, best),
        slow=np.full(n, IDLE),
        open=left.max(axis=0) > settled,
        whole=np.ones(n, dtype=bool),
    )


def _by_pace(view: Scaled, lam: F, level: F, moves: F | float, width: float) -> _Settled | None:
    """Each job at the cheapest mix that keeps its pace, ``level``, which may be off by ``width·moves``."""
    n = len(view.gpus)
    jobs = np.arange(n)
    level = np.maximum(level, 0.0)
    price, doubt = _net(view, lam), view.gpus * _doubt(lam, width)[:, None]
    mix: Mix = cheapest(view.rate, price, level)
    if not np.isfinite(mix.cost).all():
        return None
    runs, mixed = mix.fast != IDLE, mix.slow != IDLE
    dear = np.where(runs, doubt[mix.fast, jobs], 0.0)
    # reduced costs of every type outside of the mix, and of idling where the mix does not idle
    left = mix.slope * view.rate
    left -= price
    alpha = np.maximum(left.max(axis=0), 0.0)
    spare = alpha - left
    spare -= doubt
    spare[mix.fast[runs], jobs[runs]] = np.inf
    spare[mix.slow[mixed], jobs[mixed]] = np.inf
    opened = (spare.min(axis=0) < dear) | (mixed & (alpha < dear)) | ~runs
    # the mix's own parts, when t moves
    span = view.rate[mix.fast, jobs] - np.where(mixed, view.rate[mix.slow, jobs], 0.0)
    shift = width * np.maximum(moves, level) if view.slope is not None else 0.0
    opened |= (mix.part * span < shift) | ((1.0 - mix.part) * span < shift)
    return _Settled(fast=mix.fast, slow=mix.slow, open=opened, whole=np.zeros(n, dtype=bool))
