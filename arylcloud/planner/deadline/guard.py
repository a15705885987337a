"""The rules that keep every deadline, whatever a policy prefers. d = start-up, slack = time left − work left.

* Without a machine and with slack < 2d, start on demand: a spot start that is lost could not be made good.
* Never wait where the next look would find slack < d + one refused attempt.
* Leave a running machine only where slack ≥ 2d (its work stops), or ≥ d + the hand-over (it goes on).

So an interruption at any moment leaves at least d of slack, which is what a start on demand takes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.deadline.view import NONE, START, STAY, Choice, View

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

EPS_H = 1e-9


def must_start(view: View) -> Mask:
    """Idle jobs that have no time left to try spot."""
    found: Mask = view.idle & (view.slack_h < 2 * view.market.startup_h - EPS_H)
    return found


def may_wait(view: View) -> Mask:
    """Idle jobs that can afford to look again one tick later."""
    market = view.market
    found: Mask = view.slack_h - market.tick_h >= market.startup_h - EPS_H
    return found


def may_switch(view: View) -> Mask:
    """Running, on a machine that works, with time to lose a whole start-up and then another."""
    room: Mask = view.slack_h >= 2 * view.market.startup_h - EPS_H
    return ~view.idle & (view.boot_h <= EPS_H) & room


def may_move(view: View) -> Mask:
    """Running, on a machine that works, nothing on its way, with time for a lost hand-over."""
    market = view.market
    room: Mask = view.slack_h >= market.startup_h + market.handover_h - EPS_H
    found: Mask = ~view.idle & (view.boot_h <= EPS_H) & (view.coming == NONE) & room
    return found


def cheapest_on_demand(view: View) -> tuple[Ints, Floats]:
    """Machine number and dollars per hour on demand in the region where the rest of the job costs least:
    price × (work + start-up) + egress."""
    market = view.market
    hours = view.work_h + market.startup_h
    usd = view.on_demand_usd * hours[:, None] + market.egress_usd[view.at]
    best = usd.argmin(axis=1)
    rate = np.take_along_axis(view.on_demand_usd, best[:, None], axis=1)[:, 0]
    return best + market.zones, rate


def safe(view: View, action: Ints, target: Ints) -> Choice:
    """The choice with the rules laid over it."""
    forced = must_start(view) | (view.idle & (action == STAY) & ~may_wait(view))
    if not forced.any():
        return Choice(action, target)
    machine, _ = cheapest_on_demand(view)
    return Choice(np.where(forced, START, action), np.where(forced, machine, target))


def first_by(score: Floats, allowed: Mask) -> tuple[Ints, Mask]:
    """Of each row the zone of least ``score`` among the allowed, and whether there is one."""
    masked = np.where(allowed, score, np.inf)
    best = masked.argmin(axis=1)
    found = np.take_along_axis(allowed, best[:, None], axis=1)[:, 0]
    return best.astype(np.int64), found


def untried(view: View) -> Mask:
    """Zones that can still be asked at this very look: not seen down at it, and time for it, (n, Z)."""
    seen = view.seen
    down_now = (seen.last_h >= view.elapsed_h[:, None] - view.market.tick_h / 2) & ~seen.up
    return ~down_now & ~(view.spent & view.idle)[:, None]
