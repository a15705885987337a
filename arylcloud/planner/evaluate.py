"""Every candidate of one job with its figures, limits and place in the order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.job import JobSpec
from arylcloud.planner.cost import Totals, totals
from arylcloud.planner.estimator import estimate_configs
from arylcloud.planner.feasible import Feasible
from arylcloud.planner.inputs import Candidates, Estimator, candidates
from arylcloud.planner.profiles import Library
from arylcloud.planner.rank import best, pareto, score
from arylcloud.planner.upkeep import Assumptions
from arylcloud.pricing.hazard import OwnHistory, SpotAdvisor
from arylcloud.pricing.table import OfferTable

F = NDArray[np.float64]
Index = NDArray[np.intp]
NEVER_H = 1e5
"""A run of more hours than this (11 years) is one that does not finish."""
MAX_FRONTIER = 60


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Evaluation:
    """Every candidate of one job with its figures; shapes (n,)."""

    cands: Candidates
    central: Totals
    adverse: Totals | None
    """None where no limit needs the p90 of all candidates."""
    usd: F
    """Mean dollars."""
    hours: F
    """p50."""
    finite: NDArray[np.bool_]
    meets: NDArray[np.bool_]
    scores: F
    tiers: NDArray[np.signedinteger[Any]]
    """Acceptable before those that miss a limit, before those that never finish; then the user's order."""

    @property
    def acceptable(self) -> NDArray[np.bool_]:
        return self.finite & self.meets


def evaluate(
    spec: JobSpec,
    table: OfferTable,
    found: Feasible,
    assumptions: Assumptions,
    *,
    library: Library | None = None,
    advisor: SpotAdvisor | None = None,
    history: Iterable[OwnHistory] = (),
    estimator: Estimator = estimate_configs,
) -> Evaluation:
    """Hours, dollars, limits and score of every candidate."""
    cands = candidates(
        spec,
        table,
        found,
        assumptions=assumptions,
        library=library,
        advisor=advisor,
        history=history,
        estimator=estimator,
    )
    groups, price = cands.cost_of_groups(), table.usd_per_hour[cands.rows]
    central = totals(groups, cands.group, price)
    usd, hours = central.usd_mean, central.hours_p50
    finite = (central.unit.hours < NEVER_H)[cands.group]
    limits = spec.constraints
    meets = np.ones(finite.shape, dtype=bool)
    adverse = None
    if limits.deadline_s is not None or limits.budget_usd is not None or limits.max_runtime_s is not None:
        adverse = totals(groups, cands.group, price, adverse=True)
        in_time = np.ones(adverse.unit.hours.shape, dtype=bool)
        if limits.deadline_s is not None:
            in_time &= adverse.unit.hours * 3600.0 <= limits.deadline_s
        if limits.max_runtime_s is not None:
            in_time &= adverse.unit.run_hours * 3600.0 <= limits.max_runtime_s
        meets = in_time[cands.group]
        if limits.budget_usd is not None:
            meets &= adverse.usd_mean <= limits.budget_usd
    if spec.recovery == "none" and spec.market == "auto":
        # one loss ends such a job for good: what the cloud may take back is no choice for it
        meets &= cands.hazard_per_hour(slice(None)) == 0
    scores = score(
        usd,
        hours,
        cost_weight=spec.objective.cost_weight,
        usd_per_hour_of_waiting=spec.objective.usd_per_hour_of_waiting,
    )
    return Evaluation(
        cands=cands,
        central=central,
        adverse=adverse,
        usd=usd,
        hours=hours,
        finite=finite,
        meets=meets,
        scores=scores,
        tiers=_tiers(finite, meets, cands.preference),
    )


def _tiers(
    finite: NDArray[np.bool_], meets: NDArray[np.bool_], preference: NDArray[np.int16] | None
) -> NDArray[np.signedinteger[Any]]:
    fails = np.where(finite, (~meets).astype(np.int8), np.int8(2))
    if preference is None:
        return fails
    tiers: NDArray[np.int64] = preference + (int(preference.max(initial=0)) + 1) * fails.astype(np.int64)
    return tiers


def ranked(table: OfferTable, every: Evaluation, limit: int) -> Index:
    order = best(every.tiers, every.scores, limit, lambda at: by_name(table, every, at))
    return order[every.finite[order]]


def by_name(table: OfferTable, every: Evaluation, at: Index) -> Index:
    """Equal scores: cheaper, faster, fewer machines, then by name."""
    rows = every.cands.rows[at]
    keys: list[NDArray[np.int64] | NDArray[np.float64]] = []
    for column in ("instance_type", "zone", "region", "cloud"):
        codes, position = np.unique(getattr(table, column)[rows], return_inverse=True)
        names = table.vocabulary(column)
        place = np.empty(codes.size, dtype=np.int64)
        place[np.argsort(np.array([names[code] if code >= 0 else "" for code in codes]), kind="stable")] = (
            np.arange(codes.size)
        )
        keys.append(place[position])
    keys.insert(0, table.market[rows].astype(np.int64))
    keys += [every.cands.nodes[at], every.hours[at], every.usd[at]]
    return at[np.lexsort(keys)]


def rank_of(every: Evaluation, i: int) -> int:
    tiers = every.tiers
    better = (tiers < tiers[i]) | ((tiers == tiers[i]) & (every.scores < every.scores[i]))
    return int(np.count_nonzero(better)) + 1


def frontier_of(table: OfferTable, every: Evaluation, on_frontier: NDArray[np.bool_]) -> Index:
    """One candidate of every point of the Pareto set, fastest first."""
    at = by_name(table, every, np.flatnonzero(on_frontier))
    hours, usd = every.hours[at], every.usd[at]
    order = np.lexsort((usd, hours))
    at, hours, usd = at[order], hours[order], usd[order]
    new = np.ones(at.size, dtype=bool)
    new[1:] = (hours[1:] != hours[:-1]) | (usd[1:] != usd[:-1])
    return at[new][:MAX_FRONTIER]


def pareto_of(every: Evaluation) -> NDArray[np.bool_]:
    """Pareto set over (hours p50, mean USD) of everything that finishes. Time is a group's, so only the
    cheapest of each group can be in it."""
    group, hours = every.cands.group, every.central.unit.hours_p50
    cheapest = np.full(hours.shape, np.inf)
    np.minimum.at(cheapest, group, every.usd)
    cheapest[every.central.unit.hours >= NEVER_H] = np.inf
    front = pareto(hours, cheapest)
    found: NDArray[np.bool_] = front[group]
    members = np.flatnonzero(found)
    found[members] = every.usd[members] == cheapest[group[members]]
    return found


def rivals_of(table: OfferTable, every: Evaluation, first: int) -> tuple[int | None, int | None]:
    """The best on any other offer, and the best of another kind: another type or market."""
    cands = every.cands
    type_of, market_of = table.instance_type[cands.rows], table.market[cands.rows]
    elsewhere = cands.rows != cands.rows[first]
    kind = (type_of != type_of[first]) | (market_of != market_of[first])
    return _best_of(table, every, elsewhere), _best_of(table, every, kind)


def _best_of(table: OfferTable, every: Evaluation, among: NDArray[np.bool_]) -> int | None:
    members = np.flatnonzero(every.acceptable & among)
    if not members.size:
        return None
    tiers = every.tiers[members]
    members = members[tiers == tiers.min()]
    scores = every.scores[members]
    return int(by_name(table, every, members[scores == scores.min()])[0])
