"""SkyNomad (arXiv 2601.06520) as its paper and artifact specify it: the utility of every place, the best one
first.

    V    = cheapest on demand × [work left / time left] / [work / time], at least the cheapest spot price
    L(a) = expected remaining life at age a by Nelson–Aalen, at most the time left;  η = max(0, L − d)/L
    U    = V·η − price − egress/L;  on demand η = 1, L = the time left;  what runs: η = 1, no egress
    U(idle) = 0

Lives are counted per zone from all sightings; a zone that was never lost lives as long as there is time.
Every ``PROBE_EVERY_H`` each zone is probed (the variant without probes learns from its own machines only).
``Δ``, the hysteresis, is not given as a number: 5 % of the on-demand price here. The penalty for volatility
(trailing windows) is left out: its windows are not given.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.deadline.guard import cheapest_on_demand, first_by, may_move, safe, untried
from arylcloud.planner.deadline.lives import BIN_H, BINS, Lives
from arylcloud.planner.deadline.view import PROBE, START, STAY, STOP, Choice, View

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PROBE_EVERY_H: Final = 2.0
HYSTERESIS: Final = 0.05


def remaining_life(lives: Lives, age_h: Floats, most_h: Floats) -> Floats:
    """L̄(a) = ∫ S(a + u)/S(a) du up to ``most_h``, (n, Z): a constant hazard in each hour of age."""
    hazard = np.divide(
        lives.losses, lives.watched_h, out=np.zeros_like(lives.losses), where=lives.watched_h > 0
    )
    edges = np.arange(BINS + 1) * BIN_H
    left = np.ones_like(age_h)
    life = np.zeros_like(age_h)
    end = age_h + most_h
    for i in range(BINS):
        stop = edges[i + 1] if i < BINS - 1 else np.inf
        span = np.clip(np.minimum(end, stop) - np.maximum(age_h, edges[i]), 0.0, None)
        rate = hazard[..., i]
        kept = np.exp(-rate * span)
        life += left * np.where(rate > 0, (1 - kept) / np.where(rate > 0, rate, 1.0), span)
        left = left * kept
    return life


def probing(view: View) -> Choice:
    due = view.elapsed_h[:, None] - view.seen.last_h >= PROBE_EVERY_H - 1e-9
    zone, found = first_by(view.spot_usd, due)
    choice = without_probes(view)
    # first what is known is acted upon, then the others are looked at
    look = found & (choice.action == STAY)
    return Choice(np.where(look, PROBE, choice.action), np.where(look, zone, choice.target))


def without_probes(view: View) -> Choice:
    assert view.lives is not None
    market, seen = view.market, view.seen
    d, zones = market.startup_h, market.zones
    n = len(view)
    machine, od = cheapest_on_demand(view)
    pace = view.total_h / (view.elapsed_h + view.left_h)
    left = np.maximum(view.left_h, market.tick_h)
    worth = np.maximum(od * (view.work_h / left) / pace, view.spot_usd.min(axis=1))
    age = np.where(seen.up, view.elapsed_h[:, None] - seen.since_h, 0.0)
    life = remaining_life(view.lives, np.maximum(age, 0.0), np.broadcast_to(left[:, None], age.shape))
    life = np.maximum(life, 1e-6)
    egress = market.egress_usd[view.at][:, market.region]
    eta = np.maximum(life - d, 0.0) / life
    spot = worth[:, None] * eta - view.spot_usd - egress / life
    paid = worth - od - market.egress_usd[view.at, machine - zones] / left
    running = ~view.idle
    rows = np.arange(n)
    on_od = view.on_demand
    held = np.clip(view.machine, 0, zones - 1)
    current = np.where(on_od, worth - od, worth - view.spot_usd[rows, held])
    current = np.where(running, current, 0.0)
    floor = current + HYSTERESIS * od * running
    others = np.arange(zones) != np.where(on_od | view.idle, -1, view.machine)[:, None]
    # a zone seen down at the last looks is not asked at every one while a machine works
    rested = seen.up | (view.elapsed_h[:, None] - seen.last_h >= 0.5)
    free = view.idle | may_move(view)
    ask = untried(view) & others & (rested | view.idle[:, None]) & free[:, None]
    zone, any_ = first_by(-spot, ask & (spot > np.maximum(floor, paid)[:, None]))
    to_od = free & ~any_ & ~on_od & (paid > floor)
    action = np.where(any_ | to_od, START, STAY)
    action = np.where(
        running & (current < 0) & ~any_ & ~to_od & (view.slack_h > 2 * d + market.tick_h), STOP, action
    )
    return safe(view, action, np.where(to_od, machine, zone))
