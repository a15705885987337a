"""Ranking without a profile or without work: dollars per estimated TFLOP-hour, and no invented totals; of a
job that does not say what it needs at all, dollars per hour."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from arylcloud.core.gpus import BY_NAME
from arylcloud.core.job import JobSpec
from arylcloud.core.plan import Candidate, Plan, Rejection
from arylcloud.planner import flops
from arylcloud.planner.feasible import Feasible
from arylcloud.pricing.hazard import OwnHistory, SpotAdvisor, hazard_per_hour
from arylcloud.pricing.table import OfferTable


def estimated_tflops(gpu: str) -> float | None:
    """16-bit peak × typical utilisation of one GPU; None where no peak is known."""
    spec = BY_NAME.get(gpu)
    peak = flops.peak_tflops(spec, "16bit") if spec is not None else None
    return None if peak is None else peak * flops.mfu(gpu, "16bit").value


def plan_by_tflops(
    spec: JobSpec,
    table: OfferTable,
    found: Feasible,
    *,
    advisor: SpotAdvisor | None = None,
    history: Iterable[OwnHistory] = (),
    limit: int = 20,
    seed: int = 0,
) -> Plan:
    """Offers by $ per estimated TFLOP-hour; hours and dollars of the run stay unknown. Without a profile or
    a GPU, type or size of machine that is named, by $ per hour: nothing says that the job can use the TFLOPs
    of eight large GPUs, and so the cheapest machine comes first."""
    from arylcloud.planner.explain import price_age
    from arylcloud.planner.relax import no_peak_known
    from arylcloud.planner.single import POLICY, asked_zone, stamp

    asks = spec.resources
    bare = spec.profile is None and not (asks.accelerators or asks.instance_types)
    per_gpu = np.array([estimated_tflops(name) or np.nan for name in (*table.gpu_names, "")])
    rows = found.rows
    tflops = per_gpu[table.gpu[rows]] * table.gpu_count[rows]
    rejected = list(found.rejected)
    known = np.full(rows.size, True) if bare else ~np.isnan(tflops)
    unknown = np.flatnonzero(~known)
    if unknown.size:
        example = table.row(int(rows[unknown[0]])).key
        rejected.append(
            Rejection(reason="peak TFLOPS of the GPU not known", count=int(unknown.size), example=example)
        )
    rows, tflops = rows[known], tflops[known]
    preference = np.zeros(rows.size) if found.preference is None else found.preference[known]
    if not rows.size:
        raise no_peak_known(spec)
    each = table.usd_per_hour[rows]
    score = each if bare else each / tflops
    keys = np.array([table.row(int(i)).key for i in rows]) if rows.size <= 5000 else rows
    order = np.lexsort((keys, each, score, preference))[:limit]
    hazards = hazard_per_hour(table, advisor=advisor, history=history)
    missing = "profile" if spec.profile is None else "work"
    picked = tuple(
        Candidate(
            rank=rank,
            offer=asked_zone(spec, table.row(int(rows[i]))),
            # nothing says what more machines are worth: all for whoever is in a hurry, else the fewest
            nodes=spec.nodes_max if spec.objective.cost_weight == 0 else spec.nodes_min,
            throughput=None,
            throughput_unit=None,
            throughput_source=None,
            throughput_rel_error=None,
            hours=None,
            usd=None,
            interruptions_per_hour=float(hazards.per_hour[rows[i]]),
            hazard_source=hazards.source_of(int(rows[i])),
            meets_deadline=None,
            meets_budget=None,
            pareto=False,
            why="no profile, no GPU named: by $/h alone"
            if bare
            else f"no {missing}: ${score[i]:.5f} per estimated TFLOP-hour",
        )
        for rank, i in enumerate(order.tolist(), start=1)
    )
    ranked = (
        "no profile, no GPU named: ranked by dollars per hour alone, the cheapest machine first, whatever the"
        " job needs"
        if bare
        else f"no {missing}: ranked by dollars per estimated TFLOP-hour (16-bit peak × usual utilisation),"
        " whatever the job would really get out of each"
    )
    why = [f"{ranked}; time and total cost are not known"]
    why.append(f"the first: {price_age(picked[0])}")
    limits = spec.constraints
    if limits.deadline_s is not None or limits.budget_usd is not None or limits.max_runtime_s is not None:
        why.append(f"deadline, budget and max_runtime cannot be checked beforehand without {missing}")
    if bare:
        why.append("say resources: accelerators, such as [A100:8, L4:1], to have only GPUs that will do")
    why.append("say aryl: profile and work to have time and cost (`arylcloud profile list`)")
    return Plan(
        job=spec,
        objective=spec.objective.name,
        policy=POLICY,
        catalogue=stamp(table),
        chosen=picked[0],
        candidates=picked,
        rejected=tuple(rejected),
        why=tuple(why),
        seed=seed,
    )
