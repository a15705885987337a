"""One job from many starts over past prices: the market chosen once, or again every so often.

The choice minimises, over the rentals that can be had at that moment::

    cost    price / rate                  mixed    (price + value of an hour) / rate
    time    1 / rate, of the fastest the cheapest

``rate`` is the job's speed on one GPU of a rental. No machine is lost: this is about prices; what losses
cost is ``simulation/deadline``'s question. The first boot, paid by every policy alike, is left out.
Reference: algorithms.md 2.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arylcloud.simulation.dynamic.guard import Standing, allowed
from arylcloud.simulation.dynamic.moving import Moving, considered
from arylcloud.simulation.dynamic.series import Floats, Index, PriceSeries

DAY_S = 86400.0
_DONE = 1e-9
"""Of the work: less is left of rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What the choice minimises. Dollars alone unless said otherwise."""

    usd_per_hour_of_time: float = 0.0
    fastest: bool = False
    """Of the rentals that can be had; a running job then goes nowhere slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """One row per start, shape (s,). USD and hours."""

    usd: Floats
    """All of it, moves included."""
    hours: Floats
    moves: NDArray[np.int64]
    move_usd: Floats
    """Egress, boots and hand-overs of the moves, as they were decided on."""
    first: Index
    """The rental at the start."""
    last: Index


def chosen(series: PriceSeries, rate: Floats, at_s: Floats, objective: Objective) -> Index:
    """The best rental at each moment, shape of ``at_s``. Every moment needs one with a known price."""
    prices, speed = series.prices(at_s), rate.reshape((-1,) + (1,) * at_s.ndim)
    if objective.fastest:
        speed = np.where(np.isfinite(prices), speed, 0.0)
        speed = np.where(speed == speed.max(axis=0), speed, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        score = (prices + objective.usd_per_hour_of_time) / speed
    score = np.where(np.isfinite(score), score, np.inf)
    best = np.argmin(score, axis=0)
    if not np.isfinite(np.min(score, axis=0)).all():
        raise ValueError("no rental that the job can use has a price at one of the starts")
    found: Index = best.astype(np.intp)
    return found


def replay(
    series: PriceSeries,
    rate: Floats,
    work: float,
    starts_s: Floats,
    *,
    every_s: float | None = DAY_S,
    moving: Moving | None = None,
    guarded: bool = False,
    objective: Objective | None = None,
) -> Runs:
    """Every start to its end.

    ``rate``: work per second on one GPU of each rental, shape (m,), 0 where the job cannot run; ``every_s``:
    from choice to choice, None (or ``moving`` None) = chosen once; ``guarded``: ``guard`` may veto a move.
    Prices past the end of the series are its last ones: leave the starts room.
    """
    objective = Objective() if objective is None else objective
    here = chosen(series, rate, starts_s, objective)
    n = starts_s.size
    usd, move_usd, moves = np.zeros(n), np.zeros(n), np.zeros(n, dtype=np.int64)
    left, end_s, first = np.full(n, work), starts_s.copy(), here.copy()
    if every_s is None or moving is None:
        end_s = starts_s + left / rate[here]
        usd = series.paid(here, starts_s, end_s)
        return _runs(usd, end_s - starts_s, moves, move_usd, first, here)
    if every_s <= moving.lost_s:
        raise ValueError("choosing again so soon leaves no time to move")
    now, running = starts_s.copy(), np.ones(n, dtype=bool)
    fresh = True
    while running.any():
        at = np.flatnonzero(running)
        t, old, todo = now[at], here[at], left[at]
        to, fee, goes = old, np.zeros(at.size), np.zeros(at.size, dtype=bool)
        if not fresh:
            with np.errstate(divide="ignore"):
                rest_h = todo[None] / rate[:, None] / 3600.0
            if objective.fastest:
                rest_h = np.where(rate[:, None] < rate[old], np.inf, rest_h)
            worth = objective.usd_per_hour_of_time
            price = series.prices(t)
            to, fee, goes = considered(moving, old, price, rest_h, worth)
            if guarded:
                begun, home = starts_s[at], first[at]
                shadow_end = begun + work / rate[home]
                upto = np.minimum(t, shadow_end)
                low, high = series.seen(home, t)
                now_at = Standing(
                    here=old,
                    home=home,
                    spent_usd=usd[at] + worth * (t - begun) / 3600.0,
                    left=todo,
                    shadow_usd=series.paid(home, begun, upto) + worth * (upto - begun) / 3600.0,
                    shadow_left=rate[home] * (shadow_end - upto),
                    low=low,
                    high=high,
                )
                goes &= allowed(moving, rate, price, now_at, to, worth)
        fresh = False
        new = np.where(goes, to, old)
        begin = np.where(goes, t + moving.lost_s, t)
        todo = todo - np.where(goes, rate[old] * moving.boot_s, 0.0)
        stop = np.minimum(t + every_s, begin + todo / rate[new])
        both = np.where(goes, begin, t)
        usd[at] += series.paid(new, t, stop) + np.where(goes, series.paid(old, t, both), 0.0)
        usd[at] += np.where(goes, moving.egress_usd[old, new], 0.0)
        move_usd[at] += np.where(goes, fee, 0.0)
        moves[at] += goes
        left[at] = todo - rate[new] * (stop - begin)
        here[at], now[at], end_s[at] = new, t + every_s, stop
        running[at] = left[at] > _DONE * work
    return _runs(usd, end_s - starts_s, moves, move_usd, first, here)


def _runs(
    usd: Floats, took_s: Floats, moves: NDArray[np.int64], move_usd: Floats, first: Index, last: Index
) -> Runs:
    if not np.isfinite(usd).all():
        raise ValueError("a run went where no price is known")
    return Runs(usd=usd, hours=took_s / 3600.0, moves=moves, move_usd=move_usd, first=first, last=last)
