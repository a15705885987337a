"""The cheapest way to run an elastic gang by its deadline, the future known: a bound from below.

As :mod:`~arylcloud.simulation.deadline.optimum`, over ticks and work left, with three things given away, so
that the state stays as small: a gang may change its size at every tick for nothing (within what is there), it
boots at the price of its least size, and a tick's work is rounded up to a sixtieth of a tick. All machines or
none is one of its ways: the bound is never above the optimum of the gang that has no other.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.deadline.view import Market
from arylcloud.simulation.deadline.elastic import Sizes
from arylcloud.simulation.deadline.replay import Job
from arylcloud.simulation.spottraces import Grid

Floats = NDArray[np.float64]
UNITS = 60
"""Of work in a tick of the whole gang."""


def elastic_optimum_usd(grid: Grid, sizes: Sizes, market: Market, job: Job, start: int) -> float:
    """No way of running the job submitted at tick ``start`` costs less; infinite where none ends in time."""
    unit_h = market.tick_h / UNITS
    work = math.floor(job.work_h / unit_h + 1e-6)
    startup = math.floor(market.startup_h / unit_h + 1e-6)
    if work == 0:
        return 0.0
    boot = max(1, -(-startup // UNITS))
    first = boot * UNITS - startup
    ticks = math.ceil(job.deadline_h / market.tick_h - 1e-9)
    at = slice(start, start + ticks)
    usd = np.concatenate((grid.spot_usd[at], grid.on_demand_usd[at]), axis=1) * market.tick_h
    have = np.full(usd.shape, sizes.gang.most)
    have[:, : market.zones] = sizes.machines[at]
    least = np.full(usd.shape[1], 1.0)
    least[: market.zones] = sizes.gang.least / sizes.gang.most
    ways = _ways(sizes)
    region_of = market.region_of.tolist()
    over = np.full(work + 1, np.inf)
    over[0] = 0.0
    free = [over] * market.regions
    # what a machine is worth at t + 1 … t + boot
    later = [[over] * usd.shape[1] for _ in range(boot)]
    up = have >= sizes.gang.least
    for t in range(ticks - 1, -1, -1):
        begun: list[tuple[int, Floats]] = []
        if t + boot <= ticks:
            for m in np.flatnonzero(up[t : t + boot].all(axis=0)).tolist():
                early = float(usd[t : t + boot - 1, m].sum()) * least[m]
                begun.append(
                    (
                        m,
                        early
                        + _lived(
                            later[boot - 1][m], float(usd[t + boot - 1, m]) * least[m], first, UNITS - first
                        ),
                    )
                )
        now = []
        for r in range(market.regions):
            best = free[r]
            for m, row in begun:
                best = np.minimum(best, row + market.egress_usd[r, region_of[m]])
            best[0] = 0.0
            now.append(best)
        free = now
        rows = []
        for m, r in enumerate(region_of):
            best = free[r]
            if up[t, m]:
                for n, gained in ways if m < market.zones else ways[-1:]:
                    if n <= have[t, m]:
                        price = float(usd[t, m]) * n / sizes.gang.most
                        best = np.minimum(best, _lived(later[0][m], price, gained, 0))
            rows.append(best)
        later = [rows, *later[:-1]]
    return float(free[job.home][work])


def _ways(sizes: Sizes) -> list[tuple[int, int]]:
    """Machines and units that they do in a tick, rounded up."""
    gang = sizes.gang
    return [(n, math.ceil(gang.speed[n] * UNITS - 1e-9)) for n in range(gang.least, gang.most + 1)]


def _lived(after: Floats, usd: float, gained: int, before: int) -> Floats:
    """After a tick at ``usd`` in which ``gained`` units are done, ``before`` units of it passed first; where
    the work ends within, billed to its end."""
    out = np.full(after.size, np.inf)
    out[gained:] = after[: after.size - gained] + usd
    ends = min(gained, after.size - 1)
    if gained:
        q = np.arange(ends + 1)
        out[: ends + 1] = usd * (before + q * (UNITS - before) / gained) / UNITS
    out[0] = 0.0
    return out
