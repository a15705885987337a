"""Jobs and their ways as a policy's problem: arrays by job and column.

Two problems are made of one menu. *Rigid*: every job at the one size that suits it best alone, a column per
pool; for policies that divide time. *Elastic*: a column per (pool, GPUs, machines); for policies that choose
configurations.

Each comes at two speeds, expected and pessimistic (p90). The price of a GPU-hour is such that a whole job in
a pool costs its mean dollars at either: who buys hours until a deadline reserves pessimistic ones and
minimises the dollars that are expected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from arylcloud.core.job import JobSpec
from arylcloud.planner.cluster import (
    ClusterProblem,
    Configs,
    ElasticProblem,
    F,
    I,
)
from arylcloud.planner.pools import Menu, Way

Speed = Literal["p50", "p90"]
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Columns:
    """Every job's figures by column; shapes (n, k), NaN where a job has no way."""

    way: tuple[dict[int, Way], ...]
    """Of each job, by column."""
    pool: I
    """(k,)."""
    gpus: F
    hours_p50: F
    hours_p90: F
    usd_mean: F
    usd_p90: F

    def hours(self, speed: Speed) -> F:
        return self.hours_p50 if speed == "p50" else self.hours_p90

    def usd(self, held_s: F, *, run: Speed, dollars: Literal["mean", "p90"]) -> F:
        """(n,) of seconds held in a run at that speed."""
        whole = self.usd_mean if dollars == "mean" else self.usd_p90
        total: F = np.nansum(held_s / HOUR_S * whole / self.hours(run), axis=1)
        return total


def rigid(menu: Menu) -> Columns:
    """A column per pool; each job at the size whose best way is best."""
    chosen: list[dict[int, Way]] = []
    for ways in menu.ways:
        fits = [w for w in ways if w.gpus <= menu.pools[w.pool].gpus]
        size = min(fits, key=lambda w: (w.misses, w.score, w.gpus)).gpus
        chosen.append({w.pool: w for w in fits if w.gpus == size})
    return _columns(chosen, np.arange(len(menu.pools)))


def elastic(menu: Menu) -> tuple[Columns, Configs]:
    every = sorted({(w.pool, w.gpus, w.nodes) for ways in menu.ways for w in ways})
    at = {key: k for k, key in enumerate(every)}
    pool, gpus, nodes = (np.array([key[i] for key in every], dtype=np.int64) for i in range(3))
    chosen = [{at[w.pool, w.gpus, w.nodes]: w for w in ways} for ways in menu.ways]
    return _columns(chosen, pool), Configs(worker_type=pool, gpus=gpus, nodes=nodes)


def _columns(chosen: Sequence[dict[int, Way]], pool: I) -> Columns:
    figures = np.full((5, len(chosen), len(pool)), np.nan)
    for i, ways in enumerate(chosen):
        for k, w in ways.items():
            figures[:, i, k] = w.gpus, w.hours_p50, w.hours_p90, w.usd_mean, w.usd_p90
    gpus, p50, p90, mean, worst = figures
    return Columns(
        way=tuple(chosen), pool=pool, gpus=gpus, hours_p50=p50, hours_p90=p90, usd_mean=mean, usd_p90=worst
    )


def deadlines(specs: Sequence[JobSpec]) -> F | None:
    """(n,) seconds, inf = none; None where nobody has one."""
    found = [s.constraints.deadline_s for s in specs]
    if all(d is None for d in found):
        return None
    return np.array([np.inf if d is None else d for d in found])


def steps_of(columns: Columns) -> list[int]:
    """Of every pool (a column each) the largest number of GPUs that divides all its jobs': what is above a
    multiple of it serves nobody, and nothing less than it is one more."""
    every = [column[~np.isnan(column)].astype(np.int64).tolist() for column in columns.gpus.T]
    return [math.gcd(*sizes) if sizes else 1 for sizes in every]


def cluster_problem(
    menu: Menu,
    columns: Columns,
    specs: Sequence[JobSpec],
    speed: Speed,
    *,
    raw: bool = False,
    dollars: Literal["mean", "p90"] = "mean",
) -> ClusterProblem:
    """``raw``: rates in the jobs' own units, for policies that add them up; else each job's rate in parts of
    its fastest, which changes nothing for the others and keeps figures near 1."""
    hours = columns.hours(speed)
    usd = columns.usd_mean if dollars == "mean" else columns.usd_p90
    work = np.array([s.work.amount if s.work is not None else np.nan for s in specs])
    steps = work if raw else np.nanmin(hours, axis=1) * HOUR_S
    gpus = np.nanmax(columns.gpus, axis=1)
    price = usd / (hours * columns.gpus)
    known = ~np.isnan(price)
    typical = np.where(known, price, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    price = np.where(known, price, 1.0)  # where it cannot run: nobody buys that, but idling there is not free
    whole = [p.gpus // step * step for p, step in zip(menu.pools, steps_of(columns), strict=True)]
    return ClusterProblem(
        worker_types=tuple(p.name for p in menu.pools),
        workers=np.array(whole, dtype=np.float64),
        throughput=np.nan_to_num(steps[:, None] / (hours * HOUR_S)),
        gpus=gpus,
        weight=np.ones(len(specs)),
        usd_per_hour=typical,
        steps_left=steps,
        age_s=np.zeros(len(specs)),
        deadline_s=deadlines(specs),
        own_usd_per_hour=price,
        job_id=np.arange(len(specs)),
    )


def elastic_problem(
    menu: Menu, columns: Columns, configs: Configs, specs: Sequence[JobSpec], speed: Speed
) -> ElasticProblem:
    n, hours = len(specs), columns.hours(speed)
    price = columns.usd_mean / (hours * columns.gpus)
    per_pool = [
        float(np.nanmean(price[:, configs.worker_type == j])) if (configs.worker_type == j).any() else 0.0
        for j in range(len(menu.pools))
    ]
    none = np.zeros(n)
    return ElasticProblem(
        worker_types=tuple(p.name for p in menu.pools),
        workers=np.array([p.gpus for p in menu.pools], dtype=np.float64),
        usd_per_hour=np.array(per_pool),
        configs=configs,
        rate=np.nan_to_num(1.0 / (hours * HOUR_S)),
        work_left=np.ones(n),
        age_s=none,
        run_s=none,
        attained_gpu_s=none,
        weight=np.ones(n),
        current=np.full(n, -1, dtype=np.int64),
        restarts=np.zeros(n, dtype=np.int64),
        restart_s=none,
        deadline_s=deadlines(specs),
        job_id=np.arange(n),
    )
