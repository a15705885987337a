"""EP, the default: effective price plus the price of slack.

A zone's effective price e_z = p_z + hazard × ρ counts what its interruptions cost: ρ = d·(g + ν) + half an
egress. g is the price of an hour of work on the best spot; ν the price of an hour of slack: what on demand
would cost more, times the probability that the interruptions still to come eat the slack that there is.
Hazards are learned from the job's own machines only (``survival``). Where egress is dear, waiting for a
zone that needs none is weighed against it. Moves are make-before-break and must pay 1.25 times over.

The specification's EP, but for two rules from idle (``_worth_a_try``, ``_rather_waits``):
docs/results/deadlines.md says what each changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.deadline.guard import (
    EPS_H,
    cheapest_on_demand,
    first_by,
    may_move,
    may_wait,
    safe,
    untried,
)
from arylcloud.planner.deadline.survival import UNKNOWN_AGE_H, cumulated, expected_life, frailties
from arylcloud.planner.deadline.view import PROBE, START, STAY, Choice, View

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

HORIZON_H: Final = 24.0
LEAST_HAZARD: Final = 0.05
WASTE_H: Final = 0.1
"""Of slack per interruption beside the start-up: until it is seen, and refused attempts."""
SPREAD_H: Final = 0.05
SLACK_CAP: Final = 20.0
"""An hour of slack is worth at most so many hours on demand."""
HYSTERESIS: Final = 1.25
RETRY: Final = 0.25
"""A zone seen down is asked again after this part of its downtime."""
PROBE_EVERY_H: Final = 1.0
PROBED: Final = 2
UP_SHARE: Final = 0.6
"""Chance that a zone nobody has looked at gives a machine."""
KEPT_H: Final = 3.0
BACK_H: Final = 1.5
"""How fast a sighting "up" and one "down" are forgotten, when only a chance is wanted."""
RETURN_H: Final = 0.5
"""Capacity that has been away for t hours is expected back in t hours and this."""
LEAST_WAIT: Final = 0.05
"""An hour of waiting counts for at least this part of an hour of work."""
TOGETHER_H: Final = 0.25
"""Refusals of this last while speak against every zone: capacity goes everywhere at once."""


@dataclass(frozen=True, slots=True)
class Values:
    """What the zones are worth to each job now."""

    life_h: Floats
    """Expected, of a machine held or given now, at most the horizon, (n, Z)."""
    effective_usd: Floats
    """Per hour, (n, Z)."""
    work_usd: Floats
    """g, (n,)."""
    slack_usd: Floats
    """ν, (n,)."""
    on_demand_usd: Floats
    on_demand: Ints
    """Machine number of the region to run on demand in."""


def ages(view: View, frailty: Floats) -> Floats:
    """Age of the capacity of every zone, as far as the job can tell, (n, Z)."""
    seen, now = view.seen, view.elapsed_h[:, None]
    gap = now - seen.last_h
    streak = now - seen.since_h
    stale = seen.up & (gap > 1e-6)
    age = np.where(seen.up, streak, gap / 2)
    age[np.isinf(gap)] = UNKNOWN_AGE_H
    if stale.any():
        k = np.nonzero(stale)
        kept = np.exp(-frailty[k] * (cumulated(streak[k]) - cumulated(streak[k] - gap[k])))
        age[k] = kept * streak[k] + (1 - kept) * gap[k] / 3
    return age


def values(view: View) -> Values:
    market = view.market
    d = market.startup_h
    frailty = frailties(view.seen.deaths, view.seen.exposure)
    horizon = np.minimum(np.maximum(view.work_h, 1 / 60), HORIZON_H)[:, None]
    life, survival = expected_life(ages(view, frailty), frailty, horizon)
    hazard = (1 - survival) / life
    work_usd = view.spot_usd * (1 + hazard * d)
    best = work_usd.argmin(axis=1)[:, None]
    g = np.take_along_axis(work_usd, best, axis=1)[:, 0]
    q = np.maximum(np.take_along_axis(hazard, best, axis=1)[:, 0], LEAST_HAZARD)
    machine, od = cheapest_on_demand(view)
    waste = d + WASTE_H
    falls = view.work_h * q
    room = view.slack_h - np.where(view.idle, 2 * d, d)
    short = _above((room - falls * waste) / (np.sqrt(2 * falls) * waste + SPREAD_H))
    nu = np.minimum(np.maximum(od - g, 0.0) / (q * waste) * short, SLACK_CAP * od)
    nu[view.idle & _no_way_back(view)] = 0.0  # at most one machine on spot, then on demand: none to save
    away = market.egress_usd.max() / 2
    loss = d * (g + nu) + away
    return Values(
        life_h=life,
        effective_usd=view.spot_usd + hazard * loss[:, None],
        work_usd=g,
        slack_usd=nu,
        on_demand_usd=od,
        on_demand=machine,
    )


def _above(x: Floats) -> Floats:
    """P[standard normal > x], to 8·10⁻⁸ (Abramowitz and Stegun 26.2.17)."""
    z = np.abs(x)
    t = 1 / (1 + 0.2316419 * z)
    series = np.full_like(t, 1.330274429)
    for c in (-1.821255978, 1.781477937, -0.356563782, 0.319381530):
        series = series * t + c
    tail = np.exp(-z * z / 2) / sqrt(2 * np.pi) * t * series
    return np.where(x >= 0, tail, 1 - tail)


def decide(view: View) -> Choice:
    found = values(view)
    action = np.full(len(view), STAY, dtype=np.int64)
    target = found.on_demand.copy()
    idle = view.idle
    if idle.any():
        _begin(view, found, idle, action, target)
    moving = may_move(view)
    if moving.any():
        _move(view, found, moving, action, target)
    return safe(view, action, target)


def _begin(view: View, found: Values, idle: Mask, action: Ints, target: Ints) -> None:
    """Without a machine: zones by what an hour there costs, start-up included, as long as that beats od."""
    d, egress = view.market.startup_h, view.market.egress_usd[view.at][:, view.market.region]
    start = egress + d * (view.spot_usd + found.slack_usd[:, None])
    score = found.effective_usd + start / found.life_h
    last = _no_way_back(view)
    dear = (found.slack_usd > found.on_demand_usd - found.work_usd) | last
    promising = ~dear[:, None] | _worth_a_try(view, found)
    promising &= ~_rather_waits(view, found, egress) | last[:, None]  # who cannot wait leaves no zone for it
    zone, any_ = first_by(score, untried(view) & promising & (score < found.on_demand_usd[:, None]))
    spot = idle & any_
    paid = idle & ~any_ & (dear | ~may_wait(view))
    action[spot | paid] = START
    target[spot] = zone[spot]


def _rather_waits(view: View, found: Values, egress: Floats) -> Mask:
    """Zones to which moving the checkpoint costs more than waiting for one that needs no egress: hours until
    the first of these is expected back × the price of slack. Only for zones seen down: others are asked."""
    seen = view.seen
    gone = (egress <= 0) & ~seen.up & np.isfinite(seen.last_h)
    away = np.where(gone, view.elapsed_h[:, None] - seen.since_h, np.inf).min(axis=1)
    known = np.isfinite(away) & may_wait(view)
    hour = np.maximum(found.slack_usd, LEAST_WAIT * found.work_usd)
    waiting = np.where(known, RETURN_H + np.where(known, away, 0.0), np.inf) * hour
    dearer: Mask = egress > waiting[:, None]
    return dearer


def chances(view: View) -> Floats:
    """That a zone gives a machine when asked, (n, Z): rough; for whether asking from idle pays."""
    seen = view.seen
    gap = view.elapsed_h[:, None] - seen.last_h
    long_run = UP_SHARE / 2
    after_up = long_run + (1 - long_run) * np.exp(-gap / KEPT_H)
    after_down = 0.5 * (1 - np.exp(-gap / BACK_H))
    alone = np.where(np.isinf(gap), UP_SHARE, np.where(seen.up, after_up, after_down))
    refused = ((gap < TOGETHER_H) & ~seen.up).sum(axis=1)
    found: Floats = alone * (2.0 / (2.0 + refused))[:, None]
    return found


def _no_way_back(view: View, later_h: float = 0.0) -> Mask:
    """Idle jobs that, on demand ``later_h`` from now, would stay there to the end: after that start-up less
    is left than a machine is moved with (``may_move``)."""
    market = view.market
    found: Mask = view.slack_h - later_h < 2 * market.startup_h + market.handover_h - EPS_H
    return found


def _worth_a_try(view: View, found: Values) -> Mask:
    """Where slack is dear enough to go on demand when nothing is up: a refusal costs slack, a success saves
    the start-up on demand, the dear time until the move back, and the hand-over. From on demand asking is
    free.

    The price of slack is smooth, but the last step is not. A refusal after which there would be no way back
    from on demand costs what a machine on spot would save in its life; where there is none already: nothing.
    """
    market = view.market
    extra = found.on_demand_usd - found.work_usd
    saved = market.startup_h * (found.on_demand_usd + found.work_usd) + 2 * market.tick_h * extra
    saved += market.handover_h * found.slack_usd
    life = np.minimum(found.life_h.max(axis=1), view.work_h)
    spent = market.try_h * found.slack_usd
    refusal = np.where(_no_way_back(view, market.try_h), np.maximum(spent, extra * life), spent)
    refusal[_no_way_back(view)] = 0.0
    chance = chances(view)
    worth: Mask = chance * saved[:, None] >= (1 - chance) * refusal[:, None]
    return worth


def _move(view: View, found: Values, moving: Mask, action: Ints, target: Ints) -> None:
    """With a machine: ask where moving gains, best first; on demand and in need, look where spot may be."""
    market, seen, now = view.market, view.seen, view.elapsed_h[:, None]
    d, zones = market.startup_h, market.zones
    current = np.clip(view.machine, 0, zones - 1)[:, None]
    on_od = view.on_demand
    od = found.on_demand_usd
    held = np.take_along_axis(view.on_demand_usd, np.clip(view.machine - zones, 0, None)[:, None], 1)[:, 0]
    e_cur = np.where(on_od, held, np.take_along_axis(found.effective_usd, current, 1)[:, 0])
    p_cur = np.where(on_od, held, np.take_along_axis(view.spot_usd, current, 1)[:, 0])
    egress = market.egress_usd[view.at][:, market.region]
    overlap = (d - market.handover_h) * (p_cur - found.work_usd) + market.handover_h * found.slack_usd
    startup = egress + d * view.spot_usd + overlap[:, None]
    gain = (e_cur[:, None] - found.effective_usd) * np.minimum(found.life_h, view.work_h[:, None])
    gain -= HYSTERESIS * startup
    rested = seen.up | (now - seen.last_h >= RETRY * (seen.last_h - seen.since_h))
    others = np.arange(zones) != np.where(on_od, -1, view.machine)[:, None]
    zone, pays = first_by(-gain, moving[:, None] & (gain > 0) & rested & untried(view) & others)
    action[pays] = START
    target[pays] = zone[pays]
    need = moving & on_od & ~pays & (found.slack_usd > od)
    if need.any():
        unseen = now - seen.last_h > PROBE_EVERY_H
        least = np.argsort(found.effective_usd, axis=1)[:, :PROBED]
        close = np.zeros_like(unseen)
        np.put_along_axis(close, least, True, axis=1)
        zone, worth = first_by(found.effective_usd, need[:, None] & unseen & close)
        action[worth] = PROBE
        target[worth] = zone[worth]
