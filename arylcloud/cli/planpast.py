"""``plan --past TRACE``: what the deadline policy would have cost on a past, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from arylcloud.core.errors import UsageError

if TYPE_CHECKING:
    from arylcloud.core.job import JobSpec

STARTS: Final = 60
TICKS: Final = 12
"""At least so many decisions in the time to the deadline."""
OVERHEAD_S: Final = 720.0
"""From asking for a machine to work; of short jobs a twentieth of the time to the deadline."""
OWN: Final = "own"
POLICIES: Final = ("default", "on_demand")


def past(spec: JobSpec, trace: str) -> dict[str, Any]:
    """``{trace, instance_type, starts, work_h, deadline_h, policies}`` as ``backtest --json`` has them.
    Raises UsageError where the job has no deadline, work or profile, or the trace is too short."""
    import numpy as np

    from arylcloud.cli.backtestinputs import egress_of, from_spec, policies_of, trace_of
    from arylcloud.cli.backtestview import document
    from arylcloud.simulation.deadline.engines import engine
    from arylcloud.simulation.deadline.replay import Job
    from arylcloud.simulation.deadline.sweep import backtest, drawn_starts, market_of
    from arylcloud.simulation.spottraces import grid as sampled

    found = trace_of(trace, None)
    work_h, deadline_h, machines, checkpoint_gb = from_spec(spec, spec.name, found)
    overhead_s = min(OVERHEAD_S, deadline_h * 3600 / 20)
    tick_s = min(600.0, max(1.0, deadline_h * 3600 / TICKS))
    if work_h + overhead_s / 3600 > deadline_h:
        raise UsageError(
            f"{work_h:.1f} h of work on {machines} × {found.instance_type} do not fit into {deadline_h:g} h",
            hint="a trace of a faster type, or a later deadline",
        )
    grid = sampled(found, tick_s=tick_s, machines=machines)
    market = market_of(
        grid,
        startup_h=overhead_s / 3600,
        egress_usd=egress_of(grid, checkpoint_gb or 0.0, None),
        try_h=min(90.0, tick_s) / 3600,
        probe_h=60.0 / 3600,
    )
    asked = Job(work_h=work_h, deadline_h=deadline_h, home=0)
    at = drawn_starts(grid, asked, STARTS, np.random.default_rng(0))
    policies, _ = policies_of([",".join(POLICIES)])
    with engine(None) as spread:
        made = backtest(grid, market, asked, policies, at, optimum=False, spread=spread)
    about = {
        "trace": trace,
        "instance_type": found.instance_type,
        "zones": list(grid.places),
        "starts": STARTS,
        "work_h": work_h,
        "deadline_h": deadline_h,
        "machines": machines,
        "tick_s": tick_s,
        "overhead_s": overhead_s,
    }
    return document(made, about)


def past_or_why(spec: JobSpec, trace: str) -> tuple[dict[str, Any] | None, str | None]:
    """``past``; of one's own history, which may be short as yet, else why there is none: no reason to
    withhold the plan. Raises UsageError for any other trace."""
    try:
        return past(spec, trace), None
    except UsageError as error:
        if trace != OWN:
            raise
        return None, f"on own: nothing can be replayed yet: {error.message}"


def line(found: dict[str, Any]) -> str:
    """For the screen."""
    best, plain = (found["policies"][name] for name in POLICIES)
    missed = f"{best.misses} of {found['starts']} late" if best.misses else "none late"
    past = f"on {found['trace']} ({len(found['zones'])} zones, {found['starts']} starts)"
    cost = f"${best.cost_mean:,.2f} (p90 ${best.cost_p90:,.2f}) by the deadline policy"
    what = f"{found['machines']} × {found['instance_type']}"
    return f"{past}: {what} would have cost {cost}, {missed}; on demand ${plain.cost_mean:,.2f}"
