"""``plan_many``: many jobs together, on offers under quotas or on one's own GPUs, under any cluster policy.

The road: what every job gets out of every pool (:mod:`.pools`), a policy's problem (:mod:`.together`), its
answer run to the end (:mod:`.timetable`), and the plan beside what else one would do. A deadline is never
dropped: a set that cannot keep all is an error that names them (exit 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from arylcloud.core.errors import InfeasibleError, UsageError
from arylcloud.core.job import JobSpec
from arylcloud.core.plan import CatalogueStamp
from arylcloud.planner import explain_many, relax
from arylcloud.planner.answers import Answer, Bought, buy, in_time, run_choices, run_hours, run_shares
from arylcloud.planner.cluster import ClusterProblem
from arylcloud.planner.evaluate import Evaluation, evaluate
from arylcloud.planner.feasible import Feasible, feasible
from arylcloud.planner.manyplan import Binding, ManyPlan, PlannedJob
from arylcloud.planner.manyrows import baselines, job_rows, pool_rows, totals
from arylcloud.planner.policies.laws import Law
from arylcloud.planner.policies.registry import Policy, policy
from arylcloud.planner.pools import QUOTA, Menu, menu, usable
from arylcloud.planner.profiles import Library
from arylcloud.planner.single import stamp
from arylcloud.planner.together import (
    Columns,
    cluster_problem,
    deadlines,
    elastic,
    elastic_problem,
    rigid,
    steps_of,
)
from arylcloud.planner.upkeep import Assumptions
from arylcloud.pricing.hazard import OwnHistory
from arylcloud.pricing.table import OfferTable


def plan_many(
    specs: Sequence[JobSpec],
    *,
    library: Library,
    table: OfferTable | None,
    capacity: Mapping[str, int] | None = None,
    costs: Mapping[str, float] | None = None,
    policy_name: str | None = None,
    budget_usd: float | None = None,
    partition: int | None = None,
    assumptions: Assumptions | None = None,
    history: Iterable[OwnHistory] = (),
    seed: int = 0,
) -> ManyPlan:
    """Place ``specs`` together and say what each gets, what all costs, and what binds.

    ``capacity``: GPUs by canonical name; None = the offers of ``table`` under assumed quotas. ``costs``: $
    per GPU-hour of those that are one's own; the others are bought from ``table`` (None where there are
    none). ``partition``: random parts (POP). InfeasibleError (exit 3): what cannot be kept, and the nearest
    that could; UsageError: a job without profile or work, an unknown policy.
    """
    _profiled(specs)
    costs = dict(costs or {})
    chosen, why = _policy(specs, policy_name)
    all_own = capacity is not None and set(capacity) <= set(costs)
    offers = None if all_own else table
    evaluations: list[Evaluation] = []
    if offers is not None:
        evaluations = _evaluations(
            specs, offers, assumptions or Assumptions(), library, tuple(history), refuse=not costs
        )
    choice = menu(
        specs, capacity=capacity, costs=costs, library=library, table=offers, evaluations=evaluations
    )
    rng = np.random.default_rng(seed)
    columns = rigid(choice)
    if chosen.kind == "choices":
        told, columns_told, problem, bought = _configurations(chosen, choice, specs, rng, partition)
    else:
        told, problem, bought = _shares(chosen, choice, columns, specs, rng, partition, budget_usd)
        columns_told = columns
    jobs = job_rows(specs, choice, columns_told, told, mixes=bought is not None)
    _keeps_deadlines(chosen, specs, choice, columns, told, jobs, rng)
    all_told = totals(jobs, told, columns_told)
    if budget_usd is not None and all_told.usd.p90 > budget_usd:
        least = _least_p90(choice, columns, specs, rng) if bought is None else None
        raise explain_many.over_budget(budget_usd, all_told.usd.p90, least)
    steps = [0] * len(choice.pools) if partition is not None else steps_of(columns)
    worth = explain_many.worths(chosen, problem, steps, told.worker_value, told.objective, rng, bought)
    used = pool_rows(choice, columns_told, told, worth)
    binding = explain_many.capacity(used)
    if bought is not None and problem is not None and partition is None:
        binding += explain_many.later(chosen, problem, bought, specs, rng)
    if budget_usd is not None:
        binding.append(_budget(budget_usd, all_told.usd.p90))
    return ManyPlan(
        policy=chosen.name,
        policy_why=why,
        objective=told.objective,
        objective_unit=explain_many.unit_of(chosen.name),
        bound=told.bound,
        partition=partition,
        seed=seed,
        jobs=jobs,
        offers=used,
        totals=all_told,
        baselines=baselines(chosen, choice, columns, specs, rng),
        binding=tuple(binding),
        notes=tuple(_notes(choice, specs, chosen, columns_told, told, evaluations)),
        catalogue=_stamp(offers),
    )


def _stamp(offers: OfferTable | None) -> CatalogueStamp | None:
    return None if offers is None else stamp(offers)


def _profiled(specs: Sequence[JobSpec]) -> None:
    for key in ("profile", "work"):
        lacking = [s.name for s in specs if getattr(s, key) is None]
        if lacking:
            raise UsageError(
                f"jobs without {key}: {', '.join(lacking[:8])}: nobody knows what they get out of a GPU",
                hint=f"say aryl: {key} in each (`arylcloud profile list` shows the bundled profiles)",
            )


def _policy(specs: Sequence[JobSpec], name: str | None) -> tuple[Policy, str]:
    """The policy, and why it is this one."""
    if name is not None:
        asked = policy(name)
        if asked.packs:
            raise UsageError(
                f"{name} lets jobs share GPUs, and no profile says what jobs do to one another",
                hint="`plan --problem FILE` takes such rates; here, the policy without packing",
            )
        if asked.kind == "shares" and Law.CAPACITY not in asked.laws:
            raise UsageError(
                f"{name} is a yardstick and no plan: it hands out more GPUs than there are",
                hint="--policy isolated gives everyone an equal part",
            )
        return asked, "as asked for"
    if all(s.constraints.deadline_s is not None for s in specs):
        return policy("min_cost"), "every job has a deadline: the fewest dollars that keep them all"
    flexible = sum(_elastic(s) for s in specs)
    if flexible > 1 and not any(s.constraints.deadline_s is not None for s in specs):
        return policy("sia"), f"{flexible} jobs run in several sizes: configurations are chosen together"
    if all(s.objective.name == "cost" for s in specs):
        return policy("min_cost"), "every job's objective is cost"
    if any(s.constraints.deadline_s is not None for s in specs):
        return policy("min_cost"), "some jobs have a deadline, and no fair share promises one"
    return policy(
        "max_min_fairness_perf"
    ), "not every objective is cost: nobody's share is smaller than it must be"


def _elastic(spec: JobSpec) -> bool:
    if spec.nodes_max > spec.nodes_min:
        return True
    counts: dict[str, set[int]] = {}
    for one in (spec.resources, *spec.resources.any_of):
        for a in one.accelerators:
            counts.setdefault(a.gpu, set()).add(a.count)
    return any(len(found) > 1 for found in counts.values())


def _evaluations(
    specs: Sequence[JobSpec],
    table: OfferTable,
    assumptions: Assumptions,
    library: Library,
    history: tuple[OwnHistory, ...],
    *,
    refuse: bool,
) -> list[Evaluation]:
    """Every job on every offer, once for jobs that are alike. ``refuse``: who runs on none is an error."""
    known: dict[Any, Evaluation] = {}

    def evaluated(job: JobSpec, offers: Feasible) -> Evaluation:
        return evaluate(job, table, offers, assumptions, library=library, history=history)

    found = []
    for spec in specs:
        key = (
            spec.resources, spec.profile, spec.work, spec.objective, spec.constraints, spec.market,
            spec.nodes_min, spec.nodes_max, spec.data, spec.checkpoint, spec.recovery,
        )  # fmt: skip
        if key not in known:
            offers = feasible(spec, table)
            every = evaluated(spec, offers)
            if refuse and not usable(spec, every).any():
                try:
                    if not offers.rows.size:
                        raise relax.nothing_offered(spec, table, offers)
                    if not len(every.cands):
                        raise relax.nothing_estimated(every.cands)
                    raise relax.limits_missed(spec, table, every, evaluated)
                except InfeasibleError as error:
                    raise InfeasibleError(f"{spec.name}: {error.message}", hint=error.hint) from error
            known[key] = every
        found.append(known[key])
    return found


def _shares(
    chosen: Policy,
    choice: Menu,
    columns: Columns,
    specs: Sequence[JobSpec],
    rng: np.random.Generator,
    partition: int | None,
    budget_usd: float | None,
) -> tuple[Answer, ClusterProblem, Bought | None]:
    """The answer, the problem that it is of, and the hours where it buys them."""
    raw = chosen.name.startswith("max_sum_throughput")
    slow = cluster_problem(choice, columns, specs, "p90", raw=raw)
    if chosen.name == "min_cost":
        bought = buy(chosen, slow, rng, partition)
        if not isinstance(bought, Bought):
            raise explain_many.deadlines_missed(specs, choice, columns, slow, bought, rng)
        if budget_usd is not None:
            worst = float(columns.usd(bought.run.held_s, run="p90", dollars="p90").sum())
            if worst > budget_usd:  # the fewest dollars when all goes badly may be another plan's
                dear = cluster_problem(choice, columns, specs, "p90", dollars="p90")
                again = buy(chosen, dear, rng)
                if isinstance(again, Bought):
                    return run_hours(again, columns, dear), dear, again
        return run_hours(bought, columns, slow), slow, bought
    quick = cluster_problem(choice, columns, specs, "p50", raw=raw)
    try:
        told = run_shares(chosen, quick, slow, rng, partition)
    except InfeasibleError:
        if slow.deadline_s is None:
            raise
        plain = cluster_problem(choice, columns, specs, "p90")
        short = buy(policy("min_cost"), plain, rng)
        if isinstance(short, Bought):
            raise InfeasibleError(
                f"{chosen.name} keeps one pace from now on, at which the deadlines cannot all be met",
                hint=f"--policy min_cost keeps them all, for ${short.usd:,.2f}",
            ) from None
        raise explain_many.deadlines_missed(specs, choice, columns, plain, short, rng) from None
    return told, slow if chosen.deadlines else quick, None


def _configurations(
    chosen: Policy,
    choice: Menu,
    specs: Sequence[JobSpec],
    rng: np.random.Generator,
    partition: int | None,
) -> tuple[Answer, Columns, ClusterProblem | None, Bought | None]:
    columns, configs = elastic(choice)
    problems = [elastic_problem(choice, columns, configs, specs, speed) for speed in ("p50", "p90")]
    try:
        return run_choices(chosen, problems[0], problems[1], rng, partition), columns, None, None
    except InfeasibleError:
        flat = rigid(choice)
        plain = cluster_problem(choice, flat, specs, "p90")
        short = buy(policy("min_cost"), plain, rng)
        if isinstance(short, Bought):
            raise InfeasibleError(
                f"{chosen.name} cannot promise every deadline",
                hint=f"--policy min_cost keeps them all, for ${short.usd:,.2f}",
            ) from None
        raise explain_many.deadlines_missed(specs, choice, flat, plain, short, rng) from None


def _keeps_deadlines(
    chosen: Policy,
    specs: Sequence[JobSpec],
    choice: Menu,
    columns: Columns,
    told: Answer,
    jobs: Sequence[PlannedJob],
    rng: np.random.Generator,
) -> None:
    """:class:`InfeasibleError` where a deadline would be missed, or is kept on paper only: by fractions of
    gangs that do not fit side by side."""
    due = [job for job in jobs if job.deadline_h is not None]
    if not due or chosen.name == "min_cost":
        return
    plain = cluster_problem(choice, columns, specs, "p90")
    missed = [job for job in due if job.meets_deadline is False]
    paper = chosen.kind == "shares" and not missed and not in_time(told.pessimistic.held_s, plain)
    if not missed and not paper:
        return
    cheapest = buy(policy("min_cost"), plain, rng)
    if not isinstance(cheapest, Bought):
        raise explain_many.deadlines_missed(specs, choice, columns, plain, cheapest, rng)
    parts = [f"{job.name} ({job.deadline_h:.3g} h, would take {job.hours.p90:.3g} h)" for job in missed[:6]]
    more = f" and {len(missed) - 6} more" if len(missed) > 6 else ""
    text = f"deadlines that {chosen.name} would miss (p90): {', '.join(parts)}{more}"
    if paper:
        text = f"{chosen.name} divides GPUs as no gangs fit side by side: its deadlines stand on paper"
    raise InfeasibleError(
        text,
        hint=f"--policy min_cost keeps them all, for ${cheapest.usd:,.2f}",
    )


def _least_p90(
    choice: Menu, columns: Columns, specs: Sequence[JobSpec], rng: np.random.Generator
) -> float | None:
    found = buy(policy("min_cost"), cluster_problem(choice, columns, specs, "p90", dollars="p90"), rng)
    return found.usd if isinstance(found, Bought) else None


def _budget(budget_usd: float, usd_p90: float) -> Binding:
    left = budget_usd - usd_p90
    return Binding(
        kind="budget",
        name="all jobs",
        value=left,
        unit="$",
        text=f"budget ${budget_usd:,.2f}: ${left:,.2f} of it is left when all jobs go badly (p90)",
    )


def _notes(
    choice: Menu,
    specs: Sequence[JobSpec],
    chosen: Policy,
    columns: Columns,
    told: Answer,
    evaluations: Sequence[Evaluation],
) -> list[str]:
    found = []
    if any(p.assumed for p in choice.pools):
        found.append(
            f"quotas are not known: {QUOTA} GPUs (or the largest job's) are assumed for each GPU, market and"
            " region; --capacity states yours"
        )
    if any(p.own_usd_per_hour is not None for p in choice.pools):
        found.append("your own GPUs: no boot, no losses, no traffic; a job's place and market are not asked")
    if any(len(ways) > 1 for ways in columns.way):
        found.append("a move from one pool to another costs nothing here but its part of boot and traffic")
    if chosen.name == "min_cost":
        late = deadlines(specs)
        if late is not None:
            found.append("hours are reserved at the pessimistic speed (p90); dollars are the expected ones")
        if told.timed:
            found.append("deadlines crowd: when each job runs is planned by the time between deadlines")
        if isinstance(told.bound, float) and isinstance(told.objective, float):
            gap = told.objective / told.bound - 1 if told.bound > 0 else 0.0
            if gap > 1e-3:
                found.append(
                    f"no plan that keeps the deadlines costs less than {1 / (1 + gap):.1%} of this one"
                )
    elif chosen.kind == "shares":
        found.append(
            "shares are decided anew whenever a job ends (those of the beginning are shown); GPUs are divided"
            " like a fluid: where gangs do not fit side by side, rounds give less"
        )
    else:
        found.append(
            "configurations as they settle (a job may double from round to round); decided anew at ends"
        )
    units = {s.work.unit for s in specs if s.work is not None}
    if chosen.name.startswith("max_sum_throughput") and len(units) > 1:
        found.append(f"{chosen.name} adds up {', '.join(sorted(units))} per second as they are")
    found += sorted({note for every in evaluations for note in every.cands.notes})
    return found
