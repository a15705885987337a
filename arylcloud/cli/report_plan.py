"""What the plan expected at launch, beside what came."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from arylcloud.cli.report import Account
    from arylcloud.launcher.ledger import Report

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


def why_beside(made: Account) -> tuple[str, ...]:
    """Where the difference to the plan's median came from, in sentences; of a job that has done its work. The
    plan's own parts are not journaled: what is said is what there was, and what alone exceeds the whole."""
    from arylcloud.cli.output import hours
    from arylcloud.cli.report_text import amount, count

    planned, r = made.state.planned, made.report
    if planned is None or r.phase.value != "succeeded":
        return ()
    found = []
    took_h = hours_taken(made)
    if hours(took_h) != hours(planned.hours_p50):
        went = {kind: s / 3600 for kind, s in elapsed(r).items()}
        causes = {
            "boot": f"boot {hours(went['boot'])} ({count(len(r.leases), 'machine')})",
            "lost_work": f"lost work {hours(went['lost_work'])} ({count(r.interruptions, 'interruption')})",
            "idle": f"idle {hours(went['idle'])}",
            "none": f"no machine {hours(went['none'])}",
        }
        parts = [text for kind, text in causes.items() if went[kind] > 0]
        text = f"time {_apart(hours, took_h, planned.hours_p50)}: useful work {hours(went['useful'])}"
        text = ", ".join([text, *parts])
        if went["useful"] > planned.hours_p50:
            text += "; the useful work alone is more than the median: its steps were slower than planned"
        found.append(text)
    p50 = round(planned.usd_p50 * MICRO)
    came, split = r.total_micro, r.split_micro
    if came is not None and split is not None and amount(came, p50) != amount(p50, p50):

        def usd(micro: float) -> str:
            return amount(round(micro), p50)

        text = f"cost {_apart(usd, came, p50)}: useful work {usd(split.useful)}"
        waste = split.boot + split.lost_work + split.idle
        rest = [f"boot + lost work + idle {usd(waste)}"] if waste else []
        if beside := came - split.useful - waste:
            rest.append(f"egress + storage {usd(beside)}")
        text = ", ".join([text, *rest])
        if split.useful > p50:
            text += "; the useful work alone is more: its hours were dearer than planned, or its steps slower"
        found.append(text)
    return tuple(found)


def _apart(say: Callable[[float], str], came: float, p50: float) -> str:
    return f"{say(abs(came - p50))} {'over' if came > p50 else 'under'} the median"


def elapsed(r: Report) -> dict[str, float]:
    """Market seconds from the submission to the end, each counted once: by the best that any machine was
    doing then, or ``none`` where there was no machine."""
    kinds = ("useful", "lost_work", "boot", "idle")
    start, end = r.started_s, r.as_of_s if r.ended_s is None else r.ended_s
    edges = [(start, "", 0), (end, "", 0)]
    for cost in r.leases:
        for span in cost.spans:
            from_s, to_s = max(span.from_s, start), min(span.to_s, end)
            if from_s < to_s:
                edges += [(from_s, span.kind, 1), (to_s, span.kind, -1)]
    edges.sort(key=lambda edge: edge[0])
    found, open_ = dict.fromkeys((*kinds, "none"), 0.0), dict.fromkeys(("", *kinds), 0)
    for (at, kind, change), (until, _, _) in pairwise(edges):
        open_[kind] += change
        found[next((kind for kind in kinds if open_[kind]), "none")] += until - at
    return found


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
