"""What the remaining work of an elastic job comes to on more and on fewer machines, where it runs now.

The planner is asked once per size, on that one offer: the same road as every other plan. Nothing here knows
a clock or a cloud.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Final

from arylcloud.core.errors import InfeasibleError
from arylcloud.core.job import JobSpec, MarketChoice, Objective, Resources
from arylcloud.core.offer import Market, Offer
from arylcloud.core.plan import Candidate, Plan
from arylcloud.launcher.actions import Scaling
from arylcloud.launcher.duedate import HURRY, let_go
from arylcloud.planner.migrate import running_usd

DEARER: Final = 1.1
"""What slack may cost: spot is a third of what on demand is, and more of the work is done on it."""


def scaling_of(
    spec: JobSpec,
    here: Offer,
    sizes: Iterable[int],
    plan: Callable[[JobSpec], Plan],
    *,
    handover_market_s: float,
) -> Scaling | None:
    """``spec``: the job as it still is to be done, with its range of machines; ``sizes`` beside those of the
    range's ends, to be compared; ``handover_market_s``: from the last step on the old world to the first on
    the new. None where nothing can be estimated (no profile, no work, no price).

    A size that misses a limit at p90 counts as infinitely dear while another one meets it."""
    if spec.profile is None or spec.work is None:
        return None
    wanted = sorted({spec.nodes_min, spec.nodes_max, *sizes})
    wanted = [n for n in wanted if spec.nodes_min <= n <= spec.nodes_max]
    alone = _on(spec, here)
    found = {n: _candidate(alone, here, n, plan) for n in wanted}
    free = None if any(found.values()) else let_go(alone)
    if free is not None:
        alone = free
        found = {n: _candidate(alone, here, n, plan) for n in wanted}
    objective = alone.objective
    known = {n: c for n, c in found.items() if c is not None}
    if not known:
        return None
    loss = {n: math.inf if n not in known else _value(objective, known[n]) for n in wanted}
    best = min(loss, key=lambda n: (loss[n], n))
    biggest = known[max(known)]
    hours = handover_market_s / 3600.0
    rate = biggest.offer.usd_per_hour or 0.0
    per_hour = objective.cost_weight * rate * biggest.nodes + objective.usd_per_hour_of_waiting
    return Scaling(
        offer_key=here.key,
        best=best,
        loss=loss,
        handover=per_hour * hours,
        boot=objective.cost_weight * _boot_usd(biggest) + _boot_h(spec, biggest),
    )


def all_unless_dear(
    spec: JobSpec,
    here: Offer,
    sizes: Iterable[int],
    plan: Callable[[JobSpec], Plan],
    *,
    handover_market_s: float,
    now: int,
) -> Scaling | None:
    """As :func:`scaling_of`, of a job whose deadline a policy keeps and that has ``now`` machines: sizes by
    the time that they take, where all machines, the boots of those that are to come included, do the work for
    little more than the cheapest size that is in time would."""
    by_usd = scaling_of(spec, here, sizes, plan, handover_market_s=handover_market_s)
    free = let_go(spec)
    if by_usd is None or free is None:
        return by_usd
    coming = max(0, spec.nodes_max - now)
    added = coming * by_usd.boot + (by_usd.handover if coming else 0.0)
    if by_usd.loss[spec.nodes_max] + added > DEARER * by_usd.loss[by_usd.best]:
        return by_usd
    by_time = scaling_of(free, here, sizes, plan, handover_market_s=handover_market_s)
    return None if by_time is None else dataclasses.replace(by_time, in_hours=free.objective == HURRY)


def _candidate(spec: JobSpec, here: Offer, nodes: int, plan: Callable[[JobSpec], Plan]) -> Candidate | None:
    try:
        answer = plan(dataclasses.replace(spec, nodes_min=nodes, nodes_max=nodes))
    except InfeasibleError:
        return None
    found = next((c for c in answer.candidates if c.offer.key == here.key and c.usd is not None), None)
    if found is None or found.meets_deadline is False or found.meets_budget is False:
        return None
    return found


def _on(spec: JobSpec, here: Offer) -> JobSpec:
    """The same job where only this place and type will do: a plan of a few rows."""
    market: MarketChoice = "auto"
    if here.market in (Market.SPOT, Market.ON_DEMAND):
        market = "spot" if here.market is Market.SPOT else "on_demand"
    only = Resources(
        clouds=(here.cloud,),
        regions=(f"{here.cloud}/{here.region}",),
        instance_types=(here.instance_type,),
        disk_gb=spec.resources.disk_gb,
    )
    return dataclasses.replace(spec, resources=only, market=market)


def _value(objective: Objective, candidate: Candidate) -> float:
    hours = 0.0 if candidate.hours is None else candidate.hours.p50
    return objective.cost_weight * running_usd(candidate) + objective.usd_per_hour_of_waiting * hours


def _boot_h(spec: JobSpec, candidate: Candidate) -> float:
    """Of a job that goes by time, what one machine more costs: the part of the work that is done before it is
    up, where that was to be its own."""
    rate = candidate.offer.usd_per_hour
    return _boot_usd(candidate) / rate / candidate.nodes if rate and spec.objective == HURRY else 0.0


def _boot_usd(candidate: Candidate) -> float:
    """Of one machine: a candidate's boots are the first, and one for each loss to come, of the whole gang."""
    if candidate.usd is None or candidate.hours is None:
        return 0.0
    losses = candidate.interruptions_per_hour * candidate.nodes * candidate.hours.p50
    return candidate.usd.boot / (1 + losses) / candidate.nodes
