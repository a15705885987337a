"""What the plan expected at launch, beside what came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arylcloud.cli.report import Account

MICRO = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One figure in words. ``good``: at most the pessimistic estimate; None = not to be said yet."""

    what: str
    p50: str
    p90: str
    came: str
    verdict: str
    good: bool | None


def beside_plan(made: Account) -> tuple[Beside, ...]:
    """Cost and time; nothing where no plan was journaled. A job that goes on can only be late or dear
    already; one that ended otherwise than planned is not judged."""
    from arylcloud.cli.output import hours
    from arylcloud.cli.report_text import amount

    planned, r = made.state.planned, made.report
    if planned is None:
        return ()
    p50, p90 = round(planned.usd_p50 * MICRO), round(planned.usd_p90 * MICRO)
    known = r.total_micro is not None
    came = amount(r.known_micro, p50) if known else f"at least {amount(r.known_micro, p50)}"
    cost = _judged(made, r.known_micro, p50, p90, least=not known)
    took_h = hours_taken(made)
    time = _judged(made, took_h, planned.hours_p50, planned.hours_p90)
    return (
        Beside(
            what="cost",
            p50=amount(p50, p50),
            p90=amount(p90, p50),
            came=came,
            verdict=cost[0],
            good=cost[1],
        ),
        Beside(
            what="time from submission",
            p50=hours(planned.hours_p50),
            p90=hours(planned.hours_p90),
            came=hours(took_h),
            verdict=time[0],
            good=time[1],
        ),
    )


def hours_taken(made: Account) -> float:
    """Market hours from the submission to the end, or to now; waits and stops count."""
    r = made.report
    return ((r.as_of_s if r.ended_s is None else r.ended_s) - r.started_s) / 3600


def plan_document(made: Account) -> dict[str, Any] | None:
    """``plan`` of ``report --json``; None where no plan was journaled."""
    planned = made.state.planned
    if planned is None:
        return None
    return {
        "usd": {"p50": planned.usd_p50, "p90": planned.usd_p90},
        "hours": {"p50": planned.hours_p50, "p90": planned.hours_p90},
        "hours_taken": hours_taken(made),
    }


def _judged(
    made: Account, came: float, p50: float, p90: float, *, least: bool = False
) -> tuple[str, bool | None]:
    """``least``: it may have been more."""
    phase = made.report.phase
    if phase.ended and phase.value != "succeeded":
        return "did not finish", None
    if came > p90:
        return ("over p90" if phase.ended else "over p90 already"), False
    if not phase.ended:
        return "so far", None
    if least:
        return "not known", None
    return ("under p50" if came < p50 else "between p50 and p90"), True
