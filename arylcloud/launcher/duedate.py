"""A deadline while the job runs: said early when it cannot be kept, and the way out while there is one.

The planner's ranking keeps deadlines as long as some place keeps them at p90 (``planner/evaluate``), and its
``advise`` leaves a place that does not. This is for what comes after: no place is safe any more.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Final

from arylcloud.core.errors import InfeasibleError
from arylcloud.core.job import JobSpec, Objective
from arylcloud.core.offer import Market
from arylcloud.core.plan import Candidate, Plan
from arylcloud.core.units import say_duration

log = logging.getLogger(__name__)
HURRY: Final = Objective(cost_weight=0.0, usd_per_hour_of_waiting=1.0)
"""Once the deadline cannot be kept any more: the sooner the better."""
SPARE_H: Final = 0.1
"""Market hours: with less to spare on demand, one loss on spot could not be made good."""


def let_go(spec: JobSpec) -> JobSpec | None:
    """The job that goes on though a limit cannot be kept any more: without those that can be used up, and by
    time where the deadline is the one. None = it has no such limit."""
    limits = spec.constraints
    free = limits.let_go()
    if free == limits:
        return None
    hurry = limits.deadline_s is not None and limits.budget_usd is None
    return dataclasses.replace(spec, constraints=free, objective=HURRY if hurry else spec.objective)


def within_limits(spec: JobSpec, plan: Callable[[JobSpec], Plan]) -> Plan:
    """What ``plan`` says of the job; where nothing keeps its limits any more, of the job without them.
    InfeasibleError: nothing serves it even so, or it has none. Other errors are ``plan``'s."""
    try:
        return plan(spec)
    except InfeasibleError as first:
        free = let_go(spec)
        if free is None:
            raise
        log.info("limits cannot be met any more, going on without them: %s", first.message)
        return plan(free)


def late(left_s: float | None, candidates: Sequence[Candidate]) -> str | None:
    """What there is to say about a deadline in ``left_s`` market seconds; None = some place keeps it even if
    things go badly (p90), or nobody can say."""
    hours = [c.hours for c in candidates if c.hours is not None]
    if left_s is None or not hours:
        return None
    left_h = max(0.0, left_s / 3600.0)
    best, worst = min(h.p50 for h in hours), min(h.p90 for h in hours)
    if worst <= left_h:
        return None
    if best <= left_h:
        return (
            f"{_said(left_h)} left, the quickest place takes {_said(best)}, and {_said(worst)} if things go"
            " badly: it may be late"
        )
    return f"it cannot be kept: {_said(left_h)} left, the quickest place takes {_said(best)}"


def _said(hours: float) -> str:
    """To the minute below ten hours: what is missing may be minutes."""
    minutes = round(hours * 60.0)
    if 60 <= minutes < 600:
        return f"{minutes // 60} h {minutes % 60} min"
    return say_duration(hours * 3600.0)


def way_out(
    left_s: float | None, here: Candidate | None, candidates: Sequence[Candidate]
) -> Candidate | None:
    """The cheapest place on demand that still comes in time (p50), where waiting longer on spot would not, or
    would leave no time to begin there after a loss."""
    if left_s is None or here is None or here.offer.market is not Market.SPOT or here.hours is None:
        return None
    left_h = left_s / 3600.0
    safe = [
        (c.usd.mean, c.offer.key, c)
        for c in candidates
        if c.offer.market is not Market.SPOT
        and c.usd is not None
        and c.hours is not None
        and c.hours.p50 <= left_h
        and (here.hours.p50 > left_h or left_h - c.hours.p50 < SPARE_H)
    ]
    return min(safe)[2] if safe else None
