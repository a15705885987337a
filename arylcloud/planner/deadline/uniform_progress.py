"""Uniform Progress (Wu et al., "Can't Be Late", NSDI'24): never fall behind the straight line to the
deadline.

cp = work done, ep(t) = t · C0/R0. Without a machine: spot if it is to be had, even when behind; else on
demand while cp < ep(t). On demand: stay until cp ≥ ep(t + 2d), then spot if it is to be had. On spot: stay.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.deadline.guard import cheapest_on_demand, first_by, may_switch, safe, untried
from arylcloud.planner.deadline.view import START, STAY, SWITCH, Choice, View

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def cheapest_first(view: View) -> Choice:
    """Zones are tried by price."""
    return _decide(view, view.spot_usd, untried(view))


def steadiest_first(view: View) -> Choice:
    """Zones that are seen up, the longest up-time first: for a policy that sees everything."""
    since = np.where(view.seen.up, view.seen.since_h, np.inf)
    return _decide(view, since, view.seen.up & untried(view))


def _decide(view: View, score: Floats, allowed: Mask) -> Choice:
    done = view.total_h - view.work_h
    pace = view.total_h / (view.elapsed_h + view.left_h)
    zone, found = first_by(score, allowed)
    ahead = done >= (view.elapsed_h + 2 * view.market.startup_h) * pace
    back = view.on_demand & ahead & found & may_switch(view)
    behind = view.idle & ~found & (done < view.elapsed_h * pace)
    machine, _ = cheapest_on_demand(view)
    action = np.where((view.idle & found) | behind, START, np.where(back, SWITCH, STAY))
    return safe(view, action, np.where(behind, machine, zone))
