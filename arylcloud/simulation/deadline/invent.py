"""An invented trace: zones whose capacity comes and goes, for trying a policy where no recorded trace is at
hand.

Up-times are drawn from the hazard by age of ``planner.deadline.survival``, scaled by a frailty per zone and
by hours that are bad everywhere; downtimes are exponential, with a mean per zone. Prices wander slowly.
Nothing here is measured: a backtest on it says how policies compare, not what a cloud would cost.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.deadline.survival import BOUNDS_H, RATES
from arylcloud.simulation.spottraces import SpotTrace, ZoneSteps

STEP_H = 0.1
Floats = NDArray[np.float64]


def invented(
    seed: int,
    *,
    zones: int = 6,
    regions: int = 3,
    days: float = 30.0,
    on_demand_usd: float = 4.0,
    spot_share: float = 0.33,
    frailty: float = 1.0,
    machines: int = 1,
) -> SpotTrace:
    """The same seed gives the same trace. ``spot_share``: the cheapest zone's price in parts of on demand."""
    rng = np.random.default_rng(seed)
    steps = int(days * 24 / STEP_H)
    bad = _bad_hours(rng, steps)
    places, found = [], []
    for zone in range(zones):
        region = zone % regions
        places.append(
            f"invented/region-{region + 1}/region-{region + 1}-{'abcdefghijklmnop'[zone // regions]}"
        )
        up = _capacity(rng, bad, frailty * float(rng.gamma(3.0, 1 / 3.0)), float(rng.uniform(0.5, 6.0)))
        base = on_demand_usd * spot_share * (1 + 0.25 * float(rng.exponential()) * (zone > 0))
        drift = np.clip(np.cumsum(rng.normal(0, 0.004, steps)), -0.15, 0.3)
        price = np.round(np.minimum(base * (1 + drift), 0.95 * on_demand_usd), 4).astype(np.float64)
        changed = np.flatnonzero(np.append(True, (up[1:] != up[:-1]) | (price[1:] != price[:-1])))
        found.append(
            ZoneSteps(
                offset_s=changed.astype(np.float64) * (STEP_H * 3600.0),
                available=np.where(up[changed], machines, 0).astype(np.int64),
                spot_usd_per_hour=price[changed],
                on_demand_usd_per_hour=np.full(changed.size, on_demand_usd),
                end_s=steps * STEP_H * 3600.0,
            )
        )
    return SpotTrace(
        name="",
        places=tuple(places),
        instance_type="invented.1x",
        gpu=None,
        gpu_count=None,
        zones=tuple(found),
    )


def _bad_hours(rng: np.random.Generator, steps: int) -> Floats:
    """Factor of the hazard everywhere: 1, or 3 in spells of half a day, a sixth of the time."""
    factor = np.ones(steps)
    at = 0
    while at < steps:
        at += int(rng.exponential(60 / STEP_H))
        spell = int(rng.exponential(12 / STEP_H))
        factor[at : at + spell] = 3.0
        at += spell
    return factor


def _capacity(rng: np.random.Generator, bad: Floats, frailty: float, down_h: float) -> NDArray[np.bool_]:
    up = np.zeros(bad.size, dtype=bool)
    is_up, age_h = bool(rng.random() < 0.7), float(rng.exponential(6.0))
    draws = rng.random(bad.size)
    for i in range(bad.size):
        up[i] = is_up
        rate = RATES[int(np.searchsorted(BOUNDS_H, age_h, side="right"))] * frailty if is_up else 1 / down_h
        rate *= bad[i] if is_up else 1 / bad[i]
        age_h += STEP_H
        if draws[i] < 1 - np.exp(-rate * STEP_H):
            is_up, age_h = not is_up, 0.0
    return up
