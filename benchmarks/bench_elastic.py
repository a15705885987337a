"""CPU seconds of the elastic policies' kernels: Sia's integer programme, proven, and the knapsack.
Run: ``python benchmarks/bench_elastic.py [--json]``.

Process CPU seconds, model building included, one thread (no kernel here calls BLAS on anything large): median
and worst of several instances, each the best of three runs. Budgets: docs/performance.md.
Exits 1 where one is over budget.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np

from arylcloud.planner.cluster import Configs, ElasticProblem
from arylcloud.planner.kernels.knapsack import best_items
from arylcloud.planner.kernels.steps import by_steps
from arylcloud.planner.policies.registry import POLICIES

SEEDS = range(5)


def problem(jobs: int, types: int, sizes: tuple[int, ...], workers: int, seed: int) -> ElasticProblem:
    """No two rows alike; a third of the jobs waits, the others hold something and pay for a change."""
    rng = np.random.default_rng(seed)
    kind, gpus = np.repeat(np.arange(types), len(sizes)), np.tile(sizes, types)
    rate = rng.uniform(1, 4, (jobs, types))[:, kind] * gpus[None, :] ** rng.uniform(0.5, 0.95, (jobs, 1))
    current = np.where(rng.random(jobs) < 1 / 3, -1, rng.integers(0, len(gpus), jobs))
    zero = np.zeros(jobs)
    return ElasticProblem(
        worker_types=tuple(f"t{j}" for j in range(types)),
        workers=np.full(types, float(workers)),
        usd_per_hour=np.ones(types),
        configs=Configs(worker_type=kind, gpus=gpus, nodes=np.maximum(gpus // 8, 1)),
        rate=rate,
        work_left=rng.uniform(1e4, 1e6, jobs),
        age_s=rng.uniform(600, 1e5, jobs),
        run_s=zero,
        attained_gpu_s=zero,
        weight=np.ones(jobs),
        current=current,
        restarts=rng.integers(0, 5, jobs),
        restart_s=np.full(jobs, 60.0),
    )


def cpu_s(work: Callable[[], object]) -> float:
    def once() -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    return min(once() for _ in range(3))


def sia(jobs: int, types: int, sizes: tuple[int, ...], workers: int) -> tuple[list[float], float]:
    choose, rng = POLICIES["sia"].choose(), np.random.default_rng(0)
    seconds, gap = [], 0.0
    for seed in SEEDS:
        one = problem(jobs, types, sizes, workers, seed)
        found = choose(one, rng)
        assert found.bound is not None
        assert found.objective is not None
        gap = max(gap, (found.bound - found.objective) / abs(found.bound))
        seconds.append(cpu_s(lambda one=one: choose(one, rng)))
    return seconds, gap


def knapsack() -> list[float]:
    seconds = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        value = np.cumsum(rng.random((200, 8)), axis=1)
        weight = np.arange(1, 9)[None, :] * rng.choice([1, 2, 4, 8], (200, 1))
        seconds.append(cpu_s(lambda v=value, w=weight: best_items(v, w, 4000)))
    return seconds


def hull_steps() -> tuple[list[float], float]:
    """Concave values, one weight: where the steps of hulls are exact."""
    seconds, gap = [], 0.0
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        value = np.cumsum(np.sort(rng.random((200, 8)), axis=1)[:, ::-1], axis=1)
        weight = np.tile(np.arange(1, 9) * 4, (200, 1))
        found = by_steps(value, weight, 4000)
        gap = max(gap, (found.bound - found.value) / found.value)
        seconds.append(cpu_s(lambda v=value, w=weight: by_steps(v, w, 4000)))
    return seconds, gap


CASES: dict[str, tuple[float, Callable[[], tuple[list[float], float]]]] = {
    "sia 200 jobs x 12 (3 types, 64 GPUs each)": (0.15, lambda: sia(200, 3, (1, 2, 4, 8), 64)),
    "sia 200 jobs x 12 (3 types, 200 GPUs each)": (0.15, lambda: sia(200, 3, (1, 2, 4, 8), 200)),
    "sia 1,000 jobs x 40 (10 types, 100 GPUs each)": (2.0, lambda: sia(1000, 10, (1, 2, 4, 8), 100)),
    "sia 1,000 jobs x 40 (10 types, 250 GPUs each)": (2.0, lambda: sia(1000, 10, (1, 2, 4, 8), 250)),
    "sia 1,000 jobs x 40 (5 types, 400 GPUs each)": (
        2.0,
        lambda: sia(1000, 5, (1, 2, 4, 8, 16, 32, 64, 128), 400),
    ),
    "knapsack 200 groups x 8 items x 4,000": (0.05, lambda: (knapsack(), 0.0)),
    "the same by hull steps, where they are exact": (0.01, hull_steps),
}


def main() -> int:
    rows = []
    for name, (budget, measure) in CASES.items():
        seconds, gap = measure()
        rows.append(
            {
                "case": name,
                "median_s": float(np.median(seconds)),
                "worst_s": max(seconds),
                "budget_s": budget,
                "relative_gap": gap,
            }
        )
    over = [row for row in rows if row["worst_s"] > row["budget_s"]]
    date, load = datetime.now(UTC).isoformat(timespec="seconds"), os.getloadavg()
    if "--json" in sys.argv:
        print(json.dumps({"date": date, "load": load, "rows": rows}))
    else:
        print(
            f"{date}, load {load[0]:.1f} on {os.cpu_count()} cores; CPU s, median and worst of {len(SEEDS)}"
        )
        for row in rows:
            print(
                f"{row['case']:<48}{row['median_s']:8.3f}{row['worst_s']:8.3f}  budget {row['budget_s']:g}"
                f"  gap {row['relative_gap']:.0e}  {'OVER' if row in over else 'ok'}"
            )
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())
