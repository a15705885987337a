"""The lines of a plan of many jobs: what each gets, what each pool gives, all together, and beside others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from arylcloud.core.errors import ArylError
from arylcloud.core.job import JobSpec
from arylcloud.core.plan import Quantiles
from arylcloud.planner.answers import Answer, solve
from arylcloud.planner.cluster import ClusterProblem, F, isolated_shares
from arylcloud.planner.manyplan import (
    Baseline,
    Dollars,
    Held,
    PlannedJob,
    Span,
    Totals,
    UsedPool,
    Worth,
)
from arylcloud.planner.policies.registry import Policy, policy
from arylcloud.planner.pools import Menu
from arylcloud.planner.timetable import CRUMB, Run, replay
from arylcloud.planner.together import HOUR_S, Columns, cluster_problem

LEAST = 5e-4
"""Of a job's time: less is not shown."""


def job_rows(
    specs: Sequence[JobSpec], menu: Menu, columns: Columns, told: Answer, *, mixes: bool
) -> tuple[PlannedJob, ...]:
    """``mixes``: shares are of the running time (hours are bought), not of the first moment."""
    held, now = told.expected.held_s, told.expected.now
    mean = columns.usd(held, run="p50", dollars="mean")
    worst = columns.usd(told.pessimistic.held_s, run="p90", dollars="p90")
    return tuple(
        _job(i, spec, menu, columns, told, float(mean[i]), float(worst[i]), held[i], now[i], mixes=mixes)
        for i, spec in enumerate(specs)
    )


def _job(
    i: int,
    spec: JobSpec,
    menu: Menu,
    columns: Columns,
    told: Answer,
    mean: float,
    worst: float,
    held: F,
    now: F,
    *,
    mixes: bool,
) -> PlannedJob:
    assert spec.work is not None
    ways, total = columns.way[i], float(held.sum())
    waits = bool(now.sum() <= LEAST)
    share = held / total if (mixes or waits) and total > 0 else now
    shown = sorted(
        (k for k in ways if held[k] > LEAST * max(total, 1e-12) or share[k] > LEAST),
        key=lambda k: (-share[k], -held[k], k),
    )
    gets = tuple(
        Held(
            offer=menu.pools[int(columns.pool[k])].name,
            gpus=ways[k].gpus,
            nodes=ways[k].nodes,
            share=float(share[k]),
            now=float(now[k]),
            hours=float(held[k] / HOUR_S),
            usd=float(held[k] / HOUR_S * columns.usd_mean[i, k] / columns.hours_p50[i, k]),
            at=ways[k].offer,
        )
        for k in shown
    )
    rate = sum(float(share[k]) * spec.work.amount / (ways[k].hours_p50 * HOUR_S) for k in shown)
    limits = spec.constraints
    p50, p90 = (float(run.ends_s[i]) / HOUR_S for run in (told.expected, told.pessimistic))
    hours = Quantiles(p50=p50, p90=max(p50, p90))
    usd = Dollars(mean=mean, p90=max(mean, worst))
    if not np.isfinite(hours.p90):
        raise ArylError(f"{spec.name} gets nothing and would never end under this policy")
    deadline_h = None if limits.deadline_s is None else limits.deadline_s / HOUR_S
    return PlannedJob(
        name=spec.name,
        gets=gets,
        throughput=rate,
        throughput_unit=f"{spec.work.unit}/s",
        throughput_source=ways[shown[0]].estimate.method if shown else None,
        hours=hours,
        usd=usd,
        deadline_h=deadline_h,
        budget_usd=limits.budget_usd,
        meets_deadline=None if deadline_h is None else hours.p90 <= deadline_h * (1 + 1e-6),
        meets_budget=None if limits.budget_usd is None else usd.p90 <= limits.budget_usd,
        waits=waits,
        reserved=_reserved(i, menu, told.pessimistic),
    )


def _reserved(job: int, menu: Menu, run: Run) -> tuple[Span, ...]:
    spans: list[Span] = []
    for start, seconds, runs in run.pieces:
        if job not in runs or seconds <= 0:
            continue
        name, begin, end = menu.pools[runs[job]].name, start / HOUR_S, (start + seconds) / HOUR_S
        if spans and spans[-1].offer == name and begin - spans[-1].until_h < 1e-6:
            begin = spans.pop().from_h
        spans.append(Span(offer=name, from_h=begin, until_h=end))
    return tuple(spans)


def totals(jobs: Sequence[PlannedJob], told: Answer, columns: Columns) -> Totals:
    return Totals(
        jobs=len(jobs),
        usd=Dollars(mean=sum(j.usd.mean for j in jobs), p90=sum(j.usd.p90 for j in jobs)),
        hours=Quantiles(p50=max(j.hours.p50 for j in jobs), p90=max(j.hours.p90 for j in jobs)),
        gpu_hours=float(np.nansum(told.expected.held_s * columns.gpus) / HOUR_S),
    )


def pool_rows(
    menu: Menu, columns: Columns, told: Answer, worth: Sequence[Worth | None]
) -> tuple[UsedPool, ...]:
    held, now = told.expected.held_s, told.expected.now
    gpu_hours = np.nan_to_num(held * columns.gpus) / HOUR_S
    paid = np.nan_to_num(held / HOUR_S * columns.usd_mean / columns.hours_p50)
    prices = columns.usd_mean / (columns.hours_p50 * columns.gpus)
    rows = []
    for j, pool in enumerate(menu.pools):
        here = columns.pool == j
        hours, usd = float(gpu_hours[:, here].sum()), float(paid[:, here].sum())
        offered = prices[:, here][~np.isnan(prices[:, here])]
        price = usd / hours if hours > 0 else float(offered.min()) if offered.size else None
        if pool.own_usd_per_hour is not None:
            price = pool.own_usd_per_hour
        used = float(np.nan_to_num(now * columns.gpus)[:, here].sum())
        dates = sorted(
            {
                way.offer.as_of or ""
                for i, ways in enumerate(columns.way)
                for k, way in ways.items()
                if columns.pool[k] == j and way.offer is not None and (held[i, k] > 0 or hours == 0)
            }
        )
        rows.append(
            UsedPool(
                name=pool.name,
                gpu=pool.gpu,
                market=pool.market,
                place=pool.place,
                own=pool.own_usd_per_hour is not None,
                assumed=pool.assumed,
                gpus=pool.gpus,
                used=used,
                free=max(0.0, pool.gpus - used),
                jobs=int((held[:, here].sum(axis=1) > CRUMB * held.sum(axis=1)).sum()),
                gpu_hours=hours,
                usd=usd,
                usd_per_gpu_hour=price,
                as_of=(dates[0] or None) if dates else None,
                worth=worth[j] if j < len(worth) else None,
            )
        )
    return tuple(rows)


def baselines(
    chosen: Policy, menu: Menu, columns: Columns, specs: Sequence[JobSpec], rng: np.random.Generator
) -> tuple[Baseline, ...]:
    """Each at the expected speed, at the jobs' sizes that suit them best alone."""
    problem = cluster_problem(menu, columns, specs, "p50")
    found = [_alone(menu, columns, specs, rng)]
    if chosen.name != "isolated":
        shares = isolated_shares(problem)
        run = replay(problem, lambda left: (shares[left.ids], None))
        found.append(_line("isolated", "an equal part of every pool for each", columns, problem, run))
    for name, title in (
        ("fifo_perf", "first in, first out, each on the fastest that is free"),
        ("max_min_fairness", "equal time, blind to what a GPU gives"),
    ):
        if chosen.name != name:
            run = _replayed(policy(name), problem, rng)
            found.append(_line(name, title, columns, problem, run))
    return tuple(found)


def _replayed(entry: Policy, problem: ClusterProblem, rng: np.random.Generator) -> Run:
    def decide(left: ClusterProblem) -> tuple[F, object]:
        found = solve(entry, left, rng, None)
        return found.shares, found.memory

    return replay(problem, decide)


def _alone(menu: Menu, columns: Columns, specs: Sequence[JobSpec], rng: np.random.Generator) -> Baseline:
    """Every job as if it were the only one: its cheapest mix of pools that keeps its deadline."""
    slow = cluster_problem(menu, columns, specs, "p90")
    plenty = np.where(slow.workers > 0, float(slow.gpus.sum()) + slow.workers, 0.0)
    answer = solve(policy("min_cost"), replace(slow, workers=plenty), rng, None)
    title = "each job alone where it is cheapest, as if every pool were large enough"
    if answer.fallback or answer.seconds is None:
        return Baseline(name="alone", title=title, usd=None, hours=None, late=None)
    held = answer.seconds * np.nan_to_num(columns.hours_p50 / columns.hours_p90)
    usd = float(columns.usd(held, run="p50", dollars="mean").sum())
    return Baseline(name="alone", title=title, usd=usd, hours=float(held.sum(axis=1).max() / HOUR_S), late=0)


def _line(name: str, title: str, columns: Columns, problem: ClusterProblem, run: Run) -> Baseline:
    if not np.isfinite(run.ends_s).all():
        return Baseline(name=name, title=title, usd=None, hours=None, late=None)
    late = 0 if problem.deadline_s is None else int((run.ends_s > problem.deadline_s * (1 + 1e-6)).sum())
    return Baseline(
        name=name,
        title=title,
        usd=float(columns.usd(run.held_s, run="p50", dollars="mean").sum()),
        hours=float(run.ends_s.max() / HOUR_S),
        late=late,
    )
