"""Every candidate of one job with its figures, limits and place in the order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.job import Constraints, JobSpec
from arylcloud.core.offer import Offer
from arylcloud.planner.cost import Totals, central, pessimistic
from arylcloud.planner.estimator import estimate_configs
from arylcloud.planner.feasible import Feasible
from arylcloud.planner.inputs import Candidates, Estimator, candidates
from arylcloud.planner.profiles import Library
from arylcloud.planner.rank import best, pareto, score
from arylcloud.planner.upkeep import Assumptions
from arylcloud.pricing.hazard import OwnHistory, SpotAdvisor
from arylcloud.pricing.table import MARKETS, OfferTable
from arylcloud.pricing.tariffs import Tariffs

F = NDArray[np.float64]
Index = NDArray[np.intp]
NEVER_H = 1e5
"""A run of more hours than this (11 years) is one that does not finish."""
LEAST_SURVIVAL = 0.5
"""A run that one loss ends, and that gets through with less than this at the pessimistic hazard, is one
that does not finish either."""
MAX_FRONTIER = 60


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Evaluation:
    """Every candidate of one job with its figures; shapes (n,)."""

    cands: Candidates
    central: Totals
    adverse: Totals | None
    """None where nothing needs the p90 of all candidates."""
    usd: F
    """Mean dollars."""
    hours: F
    """p50."""
    finite: NDArray[np.bool_]
    """Those that will finish."""
    finishes: NDArray[np.bool_]
    """The same of every group, (g,)."""
    safe: NDArray[np.bool_] | None
    """Where recovery is none and the market is ours to choose: those that nobody takes back."""
    meets: NDArray[np.bool_]
    """Limits, and ``safe``."""
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
    tariffs: Tariffs | None = None,
    estimator: Estimator = estimate_configs,
) -> Evaluation:
    """Hours, dollars, limits and score of every candidate. ``advisor``, ``tariffs``: None = the bundled."""
    cands = candidates(
        spec,
        table,
        found,
        assumptions=assumptions,
        library=library,
        advisor=advisor,
        history=history,
        tariffs=tariffs,
        estimator=estimator,
    )
    groups, price = cands.cost_of_groups(), table.usd_per_hour.take(cands.rows)
    typical = central(groups, cands.group, price)
    usd, hours = typical.usd, typical.hours
    finishes = typical.of_group.hours < NEVER_H
    limits, safe, adverse = spec.constraints, None, None
    if limited(limits) or not cands.recovers:
        adverse = pessimistic(groups, typical)
    if adverse is not None and not cands.recovers:
        finishes &= adverse.of_group.survival >= LEAST_SURVIVAL
    finite: NDArray[np.bool_] = finishes.take(cands.group)
    meets = np.ones(finite.shape, dtype=bool)
    if adverse is not None:
        for name in limited(limits):
            meets &= within(adverse, limits, name)
    if not cands.recovers and spec.market == "auto":
        # one loss ends such a job for good: what the cloud may take back is no choice for it
        safe = cands.hazard_per_hour(slice(None)) == 0
        meets &= safe
    scores = score(
        usd,
        hours,
        cost_weight=spec.objective.cost_weight,
        usd_per_hour_of_waiting=spec.objective.usd_per_hour_of_waiting,
    )
    return Evaluation(
        cands=cands,
        central=typical,
        adverse=adverse,
        usd=usd,
        hours=hours,
        finite=finite,
        finishes=finishes,
        safe=safe,
        meets=meets,
        scores=scores,
        tiers=_tiers(finite, meets, cands.preference),
    )


def limited(limits: Constraints) -> tuple[str, ...]:
    """The limits that are set, of the whole run."""
    named = {"deadline": limits.deadline_s, "budget": limits.budget_usd, "max_runtime": limits.max_runtime_s}
    return tuple(name for name, value in named.items() if value is not None)


def within(adverse: Totals, limits: Constraints, name: str) -> NDArray[np.bool_]:
    """Candidates that meet one limit at p90."""
    if name == "budget":
        return adverse.usd <= need(limits, name)
    hours = adverse.hours_of_group if name == "deadline" else adverse.of_group.run_hours
    met: NDArray[np.bool_] = (hours <= need(limits, name)).take(adverse.group)
    return met


def need(limits: Constraints, name: str) -> float:
    """A limit that is set: dollars of the budget, hours of the others."""
    value = {"deadline": limits.deadline_s, "budget": limits.budget_usd, "max_runtime": limits.max_runtime_s}
    found = value[name]
    assert found is not None
    return found if name == "budget" else found / 3600.0


TOO_LONG = "takes longer than 11 years"
LOSSY = "would never finish: lost faster than it saves"
FATAL = "recovery is none: more likely lost on the way than not (p90)"


def unfinished(every: Evaluation) -> dict[str, NDArray[np.bool_]]:
    """Why candidates are not ``finite``, by reason: work that takes for ever, losses, one loss."""
    groups, run = every.cands.cost_of_groups(), every.central.of_group
    endless = run.hours >= NEVER_H
    by_time = endless & ((groups.work_s / 3600.0 >= NEVER_H) | (groups.hazard_per_hour == 0))
    found = {TOO_LONG: by_time, LOSSY: endless & ~by_time}
    if every.adverse is not None and not every.cands.recovers:
        found[FATAL] = ~endless & (every.adverse.of_group.survival < LEAST_SURVIVAL)
    return {reason: mask[every.cands.group] for reason, mask in found.items() if mask.any()}


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


def on_offers(table: OfferTable, every: Evaluation, offers: Iterable[Offer]) -> Index:
    """Candidates that finish on one of these offers (a row for the whole region is its every zone's)."""
    rows = every.cands.rows
    wanted = np.zeros(rows.size, dtype=bool)
    for offer in offers:
        same = table.market[rows] == MARKETS.index(offer.market)
        for column in ("cloud", "region", "instance_type"):
            same &= getattr(table, column)[rows] == table.code(column, getattr(offer, column))
        zones = table.zone[rows]
        own = (
            same & (zones == table.code("zone", offer.zone)) if offer.zone is not None else same & (zones < 0)
        )
        wanted |= own if own.any() else same & (zones < 0)
    return np.flatnonzero(wanted & every.finite)


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
    group, hours = every.cands.group, every.central.hours_of_group
    cheapest = np.full(hours.shape, np.inf)
    np.minimum.at(cheapest, group, every.usd)
    cheapest[~every.finishes] = np.inf
    front = pareto(hours, cheapest)
    found: NDArray[np.bool_] = front.take(group)
    members = np.flatnonzero(found)
    found[members] = every.usd[members] == cheapest[group[members]]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivals:
    """Positions of the best acceptable candidates that are not the first; None = there is none."""

    elsewhere: int | None
    """On any other offer."""
    dearer: int | None
    """On any other offer whose score is not the first's within SAME."""
    ties: int
    """Other offers whose score is."""
    other_kind: int | None
    """Of another type or market."""
    other_gpu: int | None


SAME = 0.005
"""Scores closer than this are the same to anyone who pays them."""


def rivals_of(table: OfferTable, every: Evaluation, first: int) -> Rivals:
    cands = every.cands
    type_of, market_of = table.instance_type[cands.rows], table.market[cands.rows]
    elsewhere = cands.rows != cands.rows[first]
    kind = (type_of != type_of[first]) | (market_of != market_of[first])
    gpu_of = table.gpu[cands.rows]
    tied = elsewhere & every.acceptable & (every.scores <= every.scores[first] * (1 + SAME))
    tied &= every.tiers == every.tiers[first]
    ties = cands.rows[tied]  # those of one offer stand side by side
    return Rivals(
        elsewhere=_best_of(table, every, elsewhere),
        dearer=_best_of(table, every, elsewhere & ~tied),
        ties=int(np.count_nonzero(np.diff(ties))) + (ties.size > 0),
        other_kind=_best_of(table, every, kind),
        other_gpu=_best_of(table, every, gpu_of != gpu_of[first]),
    )


def _best_of(table: OfferTable, every: Evaluation, among: NDArray[np.bool_]) -> int | None:
    members = np.flatnonzero(every.acceptable & among)
    if not members.size:
        return None
    tiers = every.tiers[members]
    members = members[tiers == tiers.min()]
    scores = every.scores[members]
    return int(by_name(table, every, members[scores == scores.min()])[0])
