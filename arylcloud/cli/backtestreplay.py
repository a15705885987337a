"""The one replay behind ``backtest`` and a plan's line of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arylcloud.planner.deadline.view import DeadlinePolicy
    from arylcloud.simulation.deadline.elastic import Gang
    from arylcloud.simulation.deadline.sweep import Backtest
    from arylcloud.simulation.spottraces import SpotTrace


def replay(
    found: SpotTrace,
    policies: Sequence[DeadlinePolicy],
    *,
    elastic: Gang | None,
    work_h: float,
    deadline_h: float,
    machines: int | None,
    checkpoint_gb: float | None,
    tick_s: float,
    overhead_s: float,
    starts: int,
    try_s: float = 90.0,
    probe_s: float = 60.0,
    egress_usd_per_gb: float | None = None,
    home_region: str | None = None,
    seed: int = 0,
    optimum: bool = False,
    engine: str | None = None,
) -> tuple[Backtest, dict[str, Any]]:
    """What came of it, and what it was made on (all but the trace's name)."""
    import numpy as np

    from arylcloud.cli.backtestinputs import egress_of, home_of
    from arylcloud.core.errors import InfeasibleError
    from arylcloud.simulation.deadline.elastic import elastic_grid
    from arylcloud.simulation.deadline.engines import engine as engine_of
    from arylcloud.simulation.deadline.replay import Job
    from arylcloud.simulation.deadline.sweep import backtest, drawn_starts, market_of
    from arylcloud.simulation.spottraces import grid as sampled

    sizes = None
    if elastic is None:
        grid = sampled(found, tick_s=tick_s, machines=machines or 1)
    else:
        grid, sizes = elastic_grid(found, elastic, tick_s=tick_s)
    market = market_of(
        grid,
        startup_h=overhead_s / 3600,
        egress_usd=egress_of(grid, checkpoint_gb or 0.0, egress_usd_per_gb),
        try_h=try_s / 3600,
        probe_h=probe_s / 3600,
    )
    asked = Job(work_h=work_h, deadline_h=deadline_h, home=home_of(grid, home_region))
    if work_h + market.startup_h > deadline_h + 1e-9:
        raise InfeasibleError(
            f"{work_h:g} h of work and {overhead_s:g} s of start-up do not fit into {deadline_h:g} h",
            hint=f"a deadline of {work_h + market.startup_h:.2f} h or later",
        )
    at = drawn_starts(grid, asked, starts, np.random.default_rng(seed))
    with engine_of(engine) as spread:
        made = backtest(grid, market, asked, policies, at, sizes=sizes, optimum=optimum, spread=spread)
    return made, {
        "zones": list(grid.places),
        "notes": list(found.notes),
        "instance_type": found.instance_type,
        "machines": machines or 1,
        "machines_min": elastic.least if elastic is not None else machines or 1,
        "work_h": work_h,
        "deadline_h": deadline_h,
        "overhead_s": overhead_s,
        "checkpoint_gb": checkpoint_gb or 0.0,
        "home_region": grid.regions[asked.home],
        "tick_s": tick_s,
        "starts": starts,
        "seed": seed,
    }
