"""A move must leave the job no worse off than if it had never moved: what the launcher's rule does not see.

Prices that were low come back. A job that leaves a rental while it is dear, for a faster one, does its work
at today's price and is done before the old price returns; whoever stayed did little work while it was dear,
and the rest cheaply. So each job carries its shadow: the same job, left where it began. Before a move we
look a day ahead (moves are a day apart at least), as if the job then went back to the shadow's rental and
ended there. Work ahead of the shadow is worth the lowest price seen there less a tenth, since lows are
there to be broken; work behind it costs the highest and a tenth more::

    margin = what the shadow has spent + value of the lead − what we have spent − going back

A move is made if its margin is not negative, or no smaller than that of staying: a dear place may be left.
It looks ahead and proves nothing: a price may do what it never did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from arylcloud.simulation.dynamic.moving import Moving
from arylcloud.simulation.dynamic.series import Floats, Index

UNSEEN: Final = 0.1
"""How far beyond what has been seen a price may go."""
HELD_S: Final = 86400.0
"""How long a move is taken to be stood by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """``s`` jobs at one moment, each with its shadow; all shapes (s,). Dollars include the value of time."""

    here: Index
    home: Index
    """The rental of the shadow: where the job began."""
    spent_usd: Floats
    left: Floats
    """Work."""
    shadow_usd: Floats
    shadow_left: Floats
    low: Floats
    """$ per GPU-hour, the lowest seen at home; ``high`` likewise."""
    high: Floats


def allowed(
    moving: Moving,
    rate: Floats,
    price: Floats,
    now: Standing,
    to: Index,
    usd_per_hour_of_time: float = 0.0,
) -> NDArray[np.bool_]:
    """Whether each job may go to ``to``, shape (s,).

    ``rate``: work per second on one GPU, (m,); ``price``: $ per GPU-hour now, (m, s).
    """
    go = _margin(moving, rate, price, now, to, usd_per_hour_of_time)
    stay = _margin(moving, rate, price, now, now.here, usd_per_hour_of_time)
    return go >= np.minimum(stay, 0.0)


def _margin(moving: Moving, rate: Floats, price: Floats, now: Standing, to: Index, worth: float) -> Floats:
    """After a day at ``to``, at the prices of this moment."""
    jobs = np.arange(to.size)
    new, old, home = price[to, jobs], price[now.here, jobs], price[now.home, jobs]
    moved, away = to != now.here, to != now.home
    fee = moving.fee(now.here, to, old, new, worth) + (old + worth) * moving.boot_s / 3600.0
    left = now.left - np.where(moved, rate[now.here] * moving.boot_s, 0.0)
    works_s = np.minimum(HELD_S - np.where(moved, moving.lost_s, 0.0), left / rate[to])
    spent = now.spent_usd + np.where(moved, fee, 0.0) + (new + worth) * works_s / 3600.0
    left = left - rate[to] * works_s
    back = np.where(away & (left > 0.0), moving.fee(to, now.home, new, home, worth), 0.0)

    shadow_s = np.minimum(HELD_S, now.shadow_left / rate[now.home])
    shadow_usd = now.shadow_usd + (home + worth) * shadow_s / 3600.0
    lead = now.shadow_left - rate[now.home] * shadow_s - left
    later = np.where(lead > 0.0, now.low * (1 - UNSEEN), now.high * (1 + UNSEEN)) + worth
    margin = shadow_usd + lead / rate[now.home] / 3600.0 * later - spent - back
    return np.where(np.isfinite(margin), margin, -np.inf)
