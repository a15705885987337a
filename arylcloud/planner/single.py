"""``plan_job``: the single-job policy. All offers × all numbers of machines, one pass, one answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.job import JobSpec
from arylcloud.core.offer import Offer
from arylcloud.core.plan import Candidate, CatalogueStamp, Plan, Quantiles, Rejection, Usd
from arylcloud.core.units import say_limit
from arylcloud.planner import explain, losses
from arylcloud.planner.cost import central, expected, pessimistic
from arylcloud.planner.estimator import step_note
from arylcloud.planner.evaluate import (
    Evaluation,
    evaluate,
    frontier_of,
    limited,
    need,
    on_offers,
    pareto_of,
    rank_of,
    ranked,
    rivals_of,
    unfinished,
    within,
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
    also: Sequence[Offer] = (),
    seed: int = 0,
) -> Plan:
    """Rank every way to run ``spec`` on ``table``'s offers and say why.

    ``limit``: candidates in the answer; those on the offers ``also`` come behind them, however they rank.
    The same inputs give the same plan, in whatever order the table's rows stand. InfeasibleError (exit 3)
    names what stands in the way and the nearest way out; UsageError: a name (profile, cloud, region, type)
    that nobody knows.
    """
    history = tuple(history)
    found = feasible(spec, table)
    if not found.rows.size:
        from arylcloud.planner import relax  # knows us; only the answer "no" needs it

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
    if not every.acceptable.any():
        from arylcloud.planner import relax

        if not len(every.cands):
            raise relax.nothing_estimated(every.cands)
        raise relax.limits_missed(spec, table, every, evaluated)
    order = ranked(table, every, limit)
    others = np.setdiff1d(on_offers(table, every, also), order) if also else order[:0]
    on_frontier = pareto_of(every)

    def build(at: Index, ranks: list[int]) -> tuple[Candidate, ...]:
        return _build(spec, table, every, at, ranks, on_frontier)

    ranks = [*range(1, order.size + 1), *(rank_of(every, int(i)) for i in others)]
    picked = _with_why(spec, build(np.concatenate([order, others]), ranks))
    points = frontier_of(table, every, on_frontier)
    on_front = _with_why(spec, build(points, [rank_of(every, int(i)) for i in points]), picked[0])
    rejected = (*found.rejected, *every.cands.rejected, *_missed(spec, table, every))
    first, chosen = int(order[0]), picked[0]
    rivals = rivals_of(table, every, first)

    def rival(i: int | None) -> explain.Rival | None:
        return None if i is None else explain.Rival(i, build(np.array([i]), [rank_of(every, i)])[0])

    why = explain.reasons(
        spec,
        every,
        first,
        chosen,
        explain.Rivals(
            elsewhere=rival(rivals.elsewhere),
            dearer=rival(rivals.dearer),
            ties=rivals.ties,
            other_kind=rival(rivals.other_kind),
            other_gpu=rival(rivals.other_gpu),
        ),
    )
    fewer = losses.say(spec, losses.worlds(every, first))
    pipelines = _pipelines(spec, chosen.nodes)
    step = step_note(spec.profile, spec.work.unit, library=library)
    return Plan(
        job=spec,
        objective=spec.objective.name,
        policy=POLICY,
        catalogue=stamp(table),
        chosen=chosen,
        candidates=picked,
        rejected=rejected,
        # what all figures rest on stands right behind the answer
        why=(
            *why[:1],
            *((step,) if step else ()),
            *why[1:],
            *((fewer,) if fewer else ()),
            *((pipelines,) if pipelines else ()),
            *every.cands.notes,
        ),
        seed=seed,
        frontier=on_front,
    )


def _pipelines(spec: JobSpec, machines: int) -> str | None:
    if spec.pipeline is None:
        return None
    from arylcloud.planner.templates import degrade  # ten modules: only for a job that has pipelines

    return degrade.say(spec, machines)


def _missed(spec: JobSpec, table: OfferTable, every: Evaluation) -> tuple[Rejection, ...]:
    """Offers none of whose numbers of machines is acceptable, once each, under what the furthest of them
    falls to."""
    rows, adverse, limits = every.cands.rows, every.adverse, spec.constraints
    stages: list[tuple[str, NDArray[np.bool_]]] = list(unfinished(every).items())
    if every.safe is not None:
        stages.append(("may be taken back, and recovery is none", ~every.safe))
    for name in limited(limits) if adverse is not None else ():
        assert adverse is not None
        text = {
            "deadline": f"misses the deadline of {say_limit(need(limits, name) * 3600)} (p90)",
            "budget": f"over the budget of ${need(limits, name):g} (p90)",
            "max_runtime": f"runs longer than max_runtime {say_limit(need(limits, name) * 3600)} (p90)",
        }
        stages.append((text[name], ~within(adverse, limits, name)))
    stage = np.full(rows.shape, len(stages), dtype=np.int64)
    for number, (_reason, fails) in reversed(list(enumerate(stages))):
        stage[fails] = number
    starts = np.flatnonzero(np.concatenate(([True], rows[1:] != rows[:-1])))
    best = np.maximum.reduceat(stage, starts)
    found = []
    for number, (reason, _fails) in enumerate(stages):
        at = np.flatnonzero(best == number)
        if at.size:
            key = table.row(int(rows[starts[at[0]]])).key
            found.append(Rejection(reason=reason, count=int(at.size), example=key))
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
    run = expected(inputs)
    one_each = np.arange(at.size)
    typical = central(inputs, one_each, inputs.usd_per_hour)
    adverse = pessimistic(inputs, typical)
    hours_p90, usd_p90, worst = adverse.hours, adverse.usd, adverse.of_group.survival
    found: list[Candidate] = []
    for k, i in enumerate(at.tolist()):
        estimate, row = cands.estimate(i), int(cands.rows[i])
        hours = Quantiles(p50=float(run.hours_p50[k]), p90=float(hours_p90[k]))
        usd = Usd(
            p50=float(run.usd_p50[k]),
            p90=float(usd_p90[k]),
            mean=float(run.usd_mean[k]),
            compute=float(run.compute_usd[k]),
            boot=float(run.boot_usd[k]),
            egress=float(run.egress_usd[k]),
            storage=float(run.storage_usd[k]),
            lost_work=float(run.lost_work_usd[k]),
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
            meets_deadline=None if limits.deadline_s is None else hours.p90 <= limits.deadline_s / 3600.0,
            meets_budget=None if limits.budget_usd is None else usd.p90 <= limits.budget_usd,
            pareto=bool(frontier[i]),
            why="",
            throughput_low=estimate.low,
            throughput_high=estimate.high,
            survival=None if cands.recovers else Quantiles(p50=float(run.survival[k]), p90=float(worst[k])),
            data_egress_usd=float(inputs.data_egress_usd[k]),
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
