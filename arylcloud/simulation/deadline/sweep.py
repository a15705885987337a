"""Many starts under several policies, beside on demand and beside the optimum: the figures of a backtest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import UsageError
from arylcloud.planner.deadline.view import DeadlinePolicy, Market
from arylcloud.simulation.deadline.elastic import Sizes, elastic_replay
from arylcloud.simulation.deadline.elastic_optimum import elastic_optimum_usd
from arylcloud.simulation.deadline.optimum import optimum_usd
from arylcloud.simulation.deadline.replay import Job, Replays, Spread, replay
from arylcloud.simulation.spottraces import Grid

Floats = NDArray[np.float64]
Index = NDArray[np.intp]
OPTIMUM: Final = "optimum"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one policy over all starts. ``cost_*`` and ratios in USD of whole jobs; ratios are of sums."""

    cost_mean: float
    cost_p90: float
    cost_over_on_demand: float
    cost_over_optimum: float | None
    """None where the optimum was not asked for."""
    misses: int
    interruptions: float | None
    """Mean per run; None for the optimum, which sees them coming."""
    moves: float | None
    finish_h_mean: float | None
    """Of the runs that ended."""
    finish_h_p90: float | None
    on_demand_h: float | None
    spot_h: float | None
    egress_usd: float | None
    probe_usd: float | None
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    figures: dict[str, Figures]
    usd: dict[str, Floats]
    """Cost of every run by policy; one-zone policies: zone by zone."""
    on_demand_usd: float
    """Mean."""
    starts: Index


def drawn_starts(grid: Grid, job: Job, count: int, rng: np.random.Generator) -> Index:
    """Ticks to submit at, drawn evenly from all that leave time to the deadline. UsageError: none does."""
    needed = int(np.ceil(job.deadline_h * 3600 / grid.tick_s)) + 1
    ticks = grid.up.shape[0]
    if ticks < needed:
        raise UsageError(
            f"the trace ends after {ticks * grid.tick_s / 3600:.0f} h, "
            f"before a deadline of {job.deadline_h:g} h",
            hint="a shorter job, or a longer trace",
        )
    return np.sort(rng.integers(0, ticks - needed + 1, count)).astype(np.intp)


def market_of(
    grid: Grid,
    *,
    startup_h: float,
    egress_usd: Floats,
    try_h: float = 1.5 / 60,
    probe_h: float = 1 / 60,
    handover_h: float = 2 / 60,
) -> Market:
    return Market(
        region=grid.region,
        egress_usd=egress_usd,
        startup_h=startup_h,
        tick_h=grid.tick_s / 3600,
        try_h=try_h,
        probe_h=probe_h,
        handover_h=min(handover_h, startup_h),
    )


def flat_egress(regions: int, usd: float) -> Floats:
    """``usd`` per checkpoint between any two regions."""
    found = np.full((regions, regions), float(usd))
    np.fill_diagonal(found, 0.0)
    return found


def backtest(
    grid: Grid,
    market: Market,
    job: Job,
    policies: Sequence[DeadlinePolicy],
    starts: Index,
    *,
    sizes: Sizes | None = None,
    optimum: bool = True,
    spread: Spread = map,
) -> Backtest:
    """``sizes``: of an elastic gang, on ``elastic_grid``'s world; None: all machines or none. ``spread``: how
    optima (one call each) and chunks of starts are run: ``map``, or a pool's."""
    on_demand = _all_on_demand(grid, market, job, starts)
    least = None
    if optimum:
        least = np.array(list(spread(_Optimum(grid, market, job, sizes), starts.tolist())))
    figures: dict[str, Figures] = {}
    usd: dict[str, Floats] = {}
    for policy in policies:
        runs = _runs(grid, market, job, policy, starts, sizes, spread)
        figures[policy.name] = _figures(runs, on_demand, least)
        usd[policy.name] = runs.usd
    if least is not None:
        figures[OPTIMUM] = _floor(least, on_demand)
        usd[OPTIMUM] = least
    return Backtest(figures=figures, usd=usd, on_demand_usd=float(on_demand.mean()), starts=starts)


@dataclass(frozen=True, slots=True)
class _Optimum:
    """A call that can be sent to another process."""

    grid: Grid
    market: Market
    job: Job
    sizes: Sizes | None

    def __call__(self, start: int) -> float:
        if self.sizes is not None:
            return elastic_optimum_usd(self.grid, self.sizes, self.market, self.job, start)
        return optimum_usd(self.grid, self.market, self.job, start)


def _runs(
    grid: Grid,
    market: Market,
    job: Job,
    policy: DeadlinePolicy,
    starts: Index,
    sizes: Sizes | None,
    spread: Spread,
) -> Replays:
    def run(world: Grid, there: Market, job: Job, sizes: Sizes | None, spread: Spread) -> Replays:
        if sizes is None:
            return replay(world, there, policy, job, starts, spread=spread)
        return elastic_replay(world, sizes, there, policy, job, starts, spread=spread)

    if not policy.one_zone or market.zones == 1:
        return run(grid, market, job, sizes, spread)
    alone = replace(job, home=0)
    return Replays.joined(
        [
            run(*one_zone(grid, market, zone), alone, None if sizes is None else sizes.zone(zone), map)
            for zone in range(market.zones)
        ]
    )


def one_zone(grid: Grid, market: Market, zone: int) -> tuple[Grid, Market]:
    """The world of a job that knows one zone, and its region's on-demand machines."""
    region = int(grid.region[zone])
    alone = Grid(
        tick_s=grid.tick_s,
        places=(grid.places[zone],),
        regions=(grid.regions[region],),
        region=np.zeros(1, dtype=np.intp),
        up=grid.up[:, [zone]],
        spot_usd=grid.spot_usd[:, [zone]],
        on_demand_usd=grid.on_demand_usd[:, [region]],
    )
    return alone, replace(market, region=alone.region, egress_usd=np.zeros((1, 1)))


def _all_on_demand(grid: Grid, market: Market, job: Job, starts: Index) -> Floats:
    from arylcloud.planner.deadline.registry import deadline_policy

    return replay(grid, market, deadline_policy("on_demand"), job, starts).usd


def _figures(runs: Replays, on_demand: Floats, least: Floats | None) -> Figures:
    times = runs.usd.size // on_demand.size
    over = None
    if least is not None and np.isfinite(least).all() and least.sum() > 0:
        over = float(runs.usd.sum() / (times * least.sum()))
    ended = runs.finish_h[np.isfinite(runs.finish_h)]
    return Figures(
        cost_mean=float(runs.usd.mean()),
        cost_p90=float(np.quantile(runs.usd, 0.9)),
        cost_over_on_demand=float(runs.usd.sum() / (times * on_demand.sum())),
        cost_over_optimum=over,
        misses=int(runs.missed.sum()),
        interruptions=float(runs.interruptions.mean()),
        moves=float(runs.moves.mean()),
        finish_h_mean=float(ended.mean()) if ended.size else None,
        finish_h_p90=float(np.quantile(ended, 0.9)) if ended.size else None,
        on_demand_h=float(runs.on_demand_h.mean()),
        spot_h=float(runs.spot_h.mean()),
        egress_usd=float(runs.egress_usd.mean()),
        probe_usd=float(runs.probe_usd.mean()),
        runs=int(runs.usd.size),
    )


def _floor(least: Floats, on_demand: Floats) -> Figures:
    possible = np.isfinite(least)
    if not possible.any():
        raise UsageError("no way of running this job ends by its deadline", hint="a later deadline")
    return Figures(
        cost_mean=float(least[possible].mean()),
        cost_p90=float(np.quantile(least[possible], 0.9)),
        cost_over_on_demand=float(least[possible].sum() / on_demand[possible].sum()),
        cost_over_optimum=1.0,
        misses=int((~possible).sum()),
        interruptions=None,
        moves=None,
        finish_h_mean=None,
        finish_h_p90=None,
        on_demand_h=None,
        spot_h=None,
        egress_usd=None,
        probe_usd=None,
        runs=int(least.size),
    )
