"""``plan --past TRACE``: what the job's deadline policy would have cost on a past, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from arylcloud.core.errors import UsageError

if TYPE_CHECKING:
    from arylcloud.core.job import JobSpec
    from arylcloud.planner.deadline.view import DeadlinePolicy

STARTS: Final = 60
TICKS: Final = 12
"""At least so many decisions in the time to the deadline."""
OVERHEAD_S: Final = 720.0
"""From asking for a machine to work; of short jobs a twentieth of the time to the deadline."""
OWN: Final = "own"
ON_DEMAND: Final = "on_demand"


def past(spec: JobSpec, trace: str) -> dict[str, Any]:
    """As ``backtest JOB --trace TRACE --json`` has it, of the ``policy`` that the launcher would go by, and
    on demand. Raises UsageError where there is none, where the job has no deadline, work or profile, or
    where the trace is too short."""
    from arylcloud.cli.backtestgang import gang_of
    from arylcloud.cli.backtestinputs import from_spec, policies_of, trace_of
    from arylcloud.cli.backtestreplay import replay
    from arylcloud.cli.backtestview import document

    policy = goes_by(spec)
    if policy is None and spec.constraints.deadline_s is not None:
        raise Unreplayed(_why_none(spec), hint="`arylcloud backtest` compares policies on any past")
    if trace.partition("#")[0] == OWN and spec.nodes_max > 1:  # never up for it: it would be all on demand
        raise UsageError(
            "this home's history counts one machine per zone, and the job has more",
            hint="a trace that counts machines: docs/backtest.md",
        )
    found = trace_of(trace, None)
    elastic = gang_of(None, None, spec, found.instance_type, 1.0)
    most = None if elastic is None else elastic.most
    work_h, deadline_h, machines, checkpoint_gb = from_spec(spec, spec.name, found, machines=most)
    assert policy is not None  # without a deadline ``from_spec`` has raised
    overhead_s = min(OVERHEAD_S, deadline_h * 3600 / 20)
    tick_s = min(600.0, max(1.0, deadline_h * 3600 / TICKS))
    if elastic is not None:  # one that is too slow must be given up in time
        tick_s = min(tick_s, overhead_s)
    if work_h + overhead_s / 3600 > deadline_h:
        raise UsageError(
            f"{work_h:.1f} h of work on {machines} × {found.instance_type} do not fit into {deadline_h:g} h",
            hint="a trace of a faster type, or a later deadline",
        )
    policies, _ = policies_of([f"{policy.name},{ON_DEMAND}"])
    made, about = replay(
        found,
        policies,
        elastic=elastic,
        work_h=work_h,
        deadline_h=deadline_h,
        machines=machines,
        checkpoint_gb=checkpoint_gb,
        tick_s=tick_s,
        overhead_s=overhead_s,
        try_s=min(90.0, tick_s),
        starts=STARTS,
    )
    return document(made, {"trace": trace, "policy": policy.name, **about})


def goes_by(spec: JobSpec) -> DeadlinePolicy | None:
    """The policy that the launcher would ask; None = none."""
    from arylcloud.launcher.duepolicy import policy_of

    steps = spec.work is None or spec.work.unit == "steps"  # the view that it is asked with needs them
    return policy_of(spec) if steps and spec.market == "auto" else None


class Unreplayed(UsageError):
    """The launcher would go by no deadline policy: there is none to replay."""


def _why_none(spec: JobSpec) -> str:
    if spec.policy == "off":
        return "`policy: off` leaves the job to the launcher's own rules"
    if spec.market == ON_DEMAND:
        return "a job that is on demand only runs under no deadline policy"
    if spec.market != "auto":
        return "a deadline policy needs on-demand offers beside spot: `market: spot` leaves none"
    if spec.recovery == "none" or spec.on_node_loss == "fail":
        return "a job that is not started again after a loss runs under no deadline policy"
    if spec.nodes_min == spec.nodes_max:
        return "a deadline policy needs the job's work in steps"
    return "a range of nodes runs under a deadline policy only with work in steps, a profile and no budget"


def past_or_why(spec: JobSpec, trace: str) -> tuple[dict[str, Any] | None, str | None]:
    """``past``; where no policy would run, or of one's own history, which may be short as yet, else why
    there is none: no reason to withhold the plan. Raises UsageError for any other trace."""
    try:
        return past(spec, trace), None
    except Unreplayed as error:
        return None, f"on {trace}: not replayed: {error.message}"
    except UsageError as error:
        if trace.partition("#")[0] != OWN:
            raise
        return None, f"on own: nothing can be replayed: {error.message}"


def line(found: dict[str, Any]) -> str:
    """For the screen."""
    best, plain = found["policies"][found["policy"]], found["policies"][ON_DEMAND]
    missed = f"{best.misses} of {found['starts']} late" if best.misses else "none late"
    zones = len(found["zones"])
    past = f"on {found['trace']} ({zones} zone{'s' if zones != 1 else ''}, {found['starts']} starts)"
    cost = f"${best.cost_mean:,.2f} (p90 ${best.cost_p90:,.2f}) by the deadline policy {found['policy']}"
    least, most = found["machines_min"], found["machines"]
    what = f"{most if least == most else f'{least} to {most}'} × {found['instance_type']}"
    return f"{past}: {what} would have cost {cost}, {missed}; on demand ${plain.cost_mean:,.2f}"
