"""A move must leave the job no worse off than if it had never moved: what the launcher's rule does not see.

Prices that were low come back. A job that leaves a rental while it is dear, for a faster one, does its work
at today's price and is done before the old price returns; whoever stayed did little work while it was dear,
and the rest cheaply. So each job carries its shadow: the same job, left where it began. Before a move we
look a day ahead (moves are a day apart at least), as if the job then went back to the shadow's rental and
ended there. Work ahead of the shadow is worth the lowest price seen there less a tenth, since lows are
there to be broken; work behind it costs the highest and a tenth more::

    margin = what the shadow has spent + value of the lead − what we have spent − going back

A move is made if its margin is not negative, or no smaller than that of staying: a dear place may be left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from arylcloud.simulation.dynamic.moving import Moving
from arylcloud.simulation.dynamic.series import Floats, Index, PriceSeries

UNSEEN: Final = 0.1
"""How far beyond what has been seen a price may go."""
HELD_S: Final = 86400.0
"""How long a move is taken to be stood by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """``s`` jobs at one moment, each with its shadow; all shapes (s,)."""

    at_s: Floats
    begun_s: Floats
    home: Index
    """The rental of the shadow: where the job began."""
    here: Index
    spent_usd: Floats
    left: Floats


def allowed(
    series: PriceSeries,
    rate: Floats,
    work: float,
    moving: Moving,
    now: Standing,
    to: Index,
    usd_per_hour_of_time: float = 0.0,
) -> NDArray[np.bool_]:
    """Whether each job may go to ``to``, shape (s,). ``rate``: per second, shape (m,)."""
    go = _margin(series, rate, work, moving, now, to, usd_per_hour_of_time)
    stay = _margin(series, rate, work, moving, now, now.here, usd_per_hour_of_time)
    return go >= np.minimum(stay, 0.0)


def _margin(
    series: PriceSeries,
    rate: Floats,
    work: float,
    moving: Moving,
    now: Standing,
    to: Index,
    worth: float,
) -> Floats:
    """After a day at ``to``, in dollars and the value of time, at the prices of this moment."""
    price = series.price(to, now.at_s)
    old, home = series.price(now.here, now.at_s), series.price(now.home, now.at_s)
    moved, away = to != now.here, to != now.home
    fee = moving.fee(now.here, to, old, price, worth) + (old + worth) * moving.boot_s / 3600.0
    left = now.left - np.where(moved, rate[now.here] * moving.boot_s, 0.0)
    works_s = np.minimum(HELD_S - np.where(moved, moving.lost_s, 0.0), left / rate[to])
    spent = now.spent_usd + np.where(moved, fee, 0.0) + (price + worth) * works_s / 3600.0
    left = left - rate[to] * works_s
    back = np.where(away & (left > 0.0), moving.fee(to, now.home, price, home, worth), 0.0)

    shadow_end_s = now.begun_s + work / rate[now.home]
    shadow_s = np.minimum(now.at_s, shadow_end_s)
    ahead_s = np.minimum(now.at_s + HELD_S, shadow_end_s)
    shadow_usd = series.paid(now.home, now.begun_s, shadow_s) + home * (ahead_s - shadow_s) / 3600.0
    shadow_usd += worth * (ahead_s - now.begun_s) / 3600.0
    lead = rate[now.home] * (shadow_end_s - ahead_s) - left
    low, high = series.seen(now.home, now.at_s)
    value = (
        lead
        / rate[now.home]
        / 3600.0
        * (np.where(lead > 0.0, low * (1 - UNSEEN), high * (1 + UNSEEN)) + worth)
    )
    margin = shadow_usd + value - spent - back
    return np.where(np.isfinite(margin), margin, -np.inf)
