"""``plan_job``: the single-job policy. All offers × all numbers of machines, one pass, one answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.job import JobSpec
from arylcloud.core.offer import Offer
from arylcloud.core.plan import Candidate, CatalogueStamp, Plan, Quantiles, Rejection, Usd
from arylcloud.planner import explain
from arylcloud.planner.cost import Totals, expected, totals
from arylcloud.planner.estimator import estimate_configs
from arylcloud.planner.feasible import Feasible, feasible
from arylcloud.planner.inputs import Assumptions, Candidates, Estimator, candidates
from arylcloud.planner.profiles import Library
from arylcloud.planner.rank import best, pareto, score
from arylcloud.pricing.hazard import OwnHistory, SpotAdvisor
from arylcloud.pricing.table import OfferTable

F = NDArray[np.float64]
Index = NDArray[np.intp]
POLICY = "single"
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

    @property
    def acceptable(self) -> NDArray[np.bool_]:
        return self.finite & self.meets


def plan_job(
    spec: JobSpec,
    table: OfferTable,
    *,
    library: Library | None = None,
    advisor: SpotAdvisor | None = None,
    history: Iterable[OwnHistory] = (),
    assumptions: Assumptions | None = None,
    limit: int = 20,
    seed: int = 0,
) -> Plan:
    """Rank every way to run ``spec`` on ``table``'s offers and say why.

    ``limit``: candidates in the answer. The same inputs give the same plan, in whatever order the table's
    rows stand. InfeasibleError (exit 3) names what stands in the way and the nearest way out; UsageError:
    a name (profile, cloud, region, type) that nobody knows.
    """
    from arylcloud.planner import relax  # knows us; only the answer "no" needs it

    history = tuple(history)
    found = feasible(spec, table)
    if not found.rows.size:
        raise relax.nothing_offered(spec, table, found)
    if spec.profile is None or spec.work is None:
        from arylcloud.planner.unprofiled import plan_by_tflops

        return plan_by_tflops(spec, table, found, advisor=advisor, history=history, limit=limit, seed=seed)

    def evaluated(job: JobSpec, offers: Feasible) -> Evaluation:
        return evaluate(
            job,
            table,
            offers,
            assumptions or Assumptions(),
            library=library,
            advisor=advisor,
            history=history,
        )

    every = evaluated(spec, found)
    if not len(every.cands):
        raise relax.nothing_estimated(every.cands)
    if not every.acceptable.any():
        raise relax.limits_missed(spec, table, every, evaluated)
    order = _order(table, every, limit)
    on_frontier = pareto_of(every)

    def build(at: Index, ranks: list[int]) -> tuple[Candidate, ...]:
        return _build(spec, table, every, at, ranks, on_frontier)

    picked = _with_why(spec, build(order, list(range(1, order.size + 1))))
    points = _frontier(table, every, on_frontier)
    frontier = _with_why(spec, build(points, [_rank_of(every, int(i)) for i in points]), picked[0])
    rejected = (*found.rejected, *every.cands.rejected, *_missed(spec, table, every))
    first, chosen = int(order[0]), picked[0]
    rivals = [
        None if i is None else explain.Rival(i, build(np.array([i]), [_rank_of(every, i)])[0])
        for i in _rivals(table, every, first)
    ]
    why = explain.reasons(spec, every, first, chosen, *rivals)
    return Plan(
        job=spec,
        objective=spec.objective.name,
        policy=POLICY,
        catalogue=stamp(table),
        chosen=chosen,
        candidates=picked,
        rejected=rejected,
        why=(*why, *every.cands.notes),
        seed=seed,
        frontier=frontier,
    )


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
    groups, price = cands.cost(cands.group_first), table.usd_per_hour[cands.rows]
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
    )


def _tiers(every: Evaluation) -> NDArray[np.signedinteger[Any]]:
    """Acceptable before those that miss a limit, before those that never finish; then the user's order."""
    fails = np.where(every.finite, (~every.meets).astype(np.int8), np.int8(2))
    preference = every.cands.preference
    if preference is None:
        return fails
    tiers: NDArray[np.int64] = preference + (int(preference.max(initial=0)) + 1) * fails.astype(np.int64)
    return tiers


def _order(table: OfferTable, every: Evaluation, limit: int) -> Index:
    order = best(_tiers(every), every.scores, limit, lambda at: _by_name(table, every, at))
    return order[every.finite[order]]


def _by_name(table: OfferTable, every: Evaluation, at: Index) -> Index:
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


def _rank_of(every: Evaluation, i: int) -> int:
    tiers = _tiers(every)
    better = (tiers < tiers[i]) | ((tiers == tiers[i]) & (every.scores < every.scores[i]))
    return int(np.count_nonzero(better)) + 1


def _frontier(table: OfferTable, every: Evaluation, on_frontier: NDArray[np.bool_]) -> Index:
    """One candidate of every point of the Pareto set, fastest first."""
    at = _by_name(table, every, np.flatnonzero(on_frontier))
    hours, usd = every.hours[at], every.usd[at]
    order = np.lexsort((usd, hours))
    at, hours, usd = at[order], hours[order], usd[order]
    new = np.ones(at.size, dtype=bool)
    new[1:] = (hours[1:] != hours[:-1]) | (usd[1:] != usd[:-1])
    return at[new][:MAX_FRONTIER]


def pareto_of(every: Evaluation) -> NDArray[np.bool_]:
    """Pareto set over (hours p50, mean USD) of everything that finishes."""
    hours = every.hours if every.finite.all() else np.where(every.finite, every.hours, np.inf)
    return pareto(hours, every.usd)


def _rivals(table: OfferTable, every: Evaluation, first: int) -> tuple[int | None, int | None]:
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
    tiers = _tiers(every)[members]
    members = members[tiers == tiers.min()]
    scores = every.scores[members]
    return int(_by_name(table, every, members[scores == scores.min()])[0])


def _missed(spec: JobSpec, table: OfferTable, every: Evaluation) -> tuple[Rejection, ...]:
    """How many candidates each limit costs (one may miss several)."""
    found: list[Rejection] = []

    def count(reason: str, missed: NDArray[np.bool_]) -> None:
        number = int(np.count_nonzero(missed))
        if number:
            row = int(every.cands.rows[int(missed.argmax())])
            found.append(Rejection(reason=reason, count=number, example=table.row(row).key))

    count("would never finish: lost faster than it saves", ~every.finite)
    limits, adverse = spec.constraints, every.adverse
    if adverse is not None and limits.deadline_s is not None:
        late = every.finite & (adverse.hours * 3600.0 > limits.deadline_s)
        count(f"misses the deadline of {limits.deadline_s / 3600:g} h (p90)", late)
    if adverse is not None and limits.budget_usd is not None:
        count(
            f"over the budget of ${limits.budget_usd:g} (p90)",
            every.finite & (adverse.usd_mean > limits.budget_usd),
        )
    if adverse is not None and limits.max_runtime_s is not None:
        long = every.finite & (adverse.run_hours * 3600.0 > limits.max_runtime_s)
        count(f"runs longer than max_runtime {limits.max_runtime_s / 3600:g} h (p90)", long)
    if spec.recovery == "none" and spec.market == "auto":
        count("may be taken back, and recovery is none", every.cands.hazard_per_hour(slice(None)) > 0)
    return tuple(found)


def _build(
    spec: JobSpec,
    table: OfferTable,
    every: Evaluation,
    at: Index,
    ranks: list[int],
    frontier: NDArray[np.bool_],
) -> tuple[Candidate, ...]:
    if not at.size:
        return ()
    cands, limits = every.cands, spec.constraints
    inputs = cands.cost(at)
    central, adverse = expected(inputs), expected(inputs, adverse=True)
    found: list[Candidate] = []
    for k, i in enumerate(at.tolist()):
        estimate, row = cands.estimate(i), int(cands.rows[i])
        hours = Quantiles(p50=float(central.hours_p50[k]), p90=float(adverse.hours[k]))
        usd = Usd(
            p50=float(central.usd_p50[k]),
            p90=float(adverse.usd_mean[k]),
            mean=float(central.usd_mean[k]),
            compute=float(central.compute_usd[k]),
            boot=float(central.boot_usd[k]),
            egress=float(central.egress_usd[k]),
            storage=float(central.storage_usd[k]),
            lost_work=float(central.lost_work_usd[k]),
        )
        candidate = Candidate(
            rank=ranks[k],
            offer=asked_zone(spec, table.row(row)),
            nodes=int(cands.nodes[i]),
            throughput=estimate.throughput,
            throughput_unit=estimate.unit,
            throughput_source=estimate.method,
            throughput_rel_error=estimate.rel_error,
            hours=hours,
            usd=usd,
            interruptions_per_hour=float(inputs.hazard_per_hour[k]),
            hazard_source=cands.hazards.source_of(row),
            meets_deadline=None if limits.deadline_s is None else hours.p90 * 3600.0 <= limits.deadline_s,
            meets_budget=None if limits.budget_usd is None else usd.p90 <= limits.budget_usd,
            pareto=bool(frontier[i]),
            why="",
        )
        found.append(candidate)
    return tuple(found)


def _with_why(
    spec: JobSpec, candidates: tuple[Candidate, ...], first: Candidate | None = None
) -> tuple[Candidate, ...]:
    """Each beside ``first`` (None: the first of them)."""
    return tuple(replace(c, why=explain.one(spec, c, first or candidates[0])) for c in candidates)


def asked_zone(spec: JobSpec, offer: Offer) -> Offer:
    """A whole-region offer is had in the one zone that the user names."""
    if offer.zone is not None:
        return offer
    inside = [z for z in spec.resources.zones if z.startswith(f"{offer.cloud}/{offer.region}/")]
    return replace(offer, zone=inside[0].rpartition("/")[2]) if len(inside) == 1 else offer


def stamp(table: OfferTable) -> CatalogueStamp:
    return CatalogueStamp(digest=table.digest, as_of=table.as_of_range[1], offers=len(table))
