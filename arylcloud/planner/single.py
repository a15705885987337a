"""``plan_job``: the single-job policy. All offers × all numbers of machines, one pass, one answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.job import JobSpec
from arylcloud.core.offer import Offer
from arylcloud.core.plan import Candidate, CatalogueStamp, Plan, Quantiles, Rejection, Usd
from arylcloud.planner import explain
from arylcloud.planner.cost import expected
from arylcloud.planner.evaluate import (
    Evaluation,
    evaluate,
    frontier_of,
    pareto_of,
    rank_of,
    ranked,
    rivals_of,
)
from arylcloud.planner.feasible import Feasible, feasible
from arylcloud.planner.profiles import Library
from arylcloud.planner.upkeep import Assumptions
from arylcloud.pricing.hazard import OwnHistory, SpotAdvisor
from arylcloud.pricing.table import OfferTable

Index = NDArray[np.intp]
POLICY = "single"


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
    order = ranked(table, every, limit)
    on_frontier = pareto_of(every)

    def build(at: Index, ranks: list[int]) -> tuple[Candidate, ...]:
        return _build(spec, table, every, at, ranks, on_frontier)

    picked = _with_why(spec, build(order, list(range(1, order.size + 1))))
    points = frontier_of(table, every, on_frontier)
    on_front = _with_why(spec, build(points, [rank_of(every, int(i)) for i in points]), picked[0])
    rejected = (*found.rejected, *every.cands.rejected, *_missed(spec, table, every))
    first, chosen = int(order[0]), picked[0]
    rivals = [
        None if i is None else explain.Rival(i, build(np.array([i]), [rank_of(every, i)])[0])
        for i in rivals_of(table, every, first)
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
        frontier=on_front,
    )


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
