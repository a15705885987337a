"""CPU seconds of the cluster policies that are one program with a row per job; HiGHS beside them.

    python benchmarks/bench_policies.py [--quick] [--growth] [--svg docs/results/policy_growth.svg] [--json]

Process CPU seconds on one thread, from the arrays of the problem to the allocation, model building included;
the least of several runs. *Warm* = one job has left and one has come since the answer that is remembered.
``--growth`` solves 32 to 100,000 jobs and fits exponents (least squares of logarithms: over all, and from
2,048 jobs on).
``--quick`` leaves out 100,000 jobs and the growth. Exits 1 where a figure is over its budget.

Adding a policy = a line in ``CASES``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from policy_chart import chart
from policy_instances import cluster, with_deadlines, with_slos, without

from arylcloud.planner.cluster import Allocation, ClusterProblem, proportional_rates, violation
from arylcloud.planner.policies.registry import POLICIES

SIZES = (32, 128, 512, 2048, 8192, 32_768, 100_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    title: str
    policy: str
    change: Callable[[ClusterProblem], ClusterProblem] = lambda problem: problem
    cold_2048: float
    warm_2048: float | None = None
    cold_100k: float = 1.0


CASES = (
    Case(title="LAS", policy="max_min_fairness_perf", cold_2048=0.02, warm_2048=0.01),
    Case(title="max-sum", policy="max_sum_throughput_perf", cold_2048=0.02, warm_2048=0.01),
    Case(
        title="per dollar",
        policy="max_sum_throughput_normalized_by_cost_perf",
        cold_2048=0.02,
        warm_2048=0.01,
    ),
    Case(title="FTF", policy="finish_time_fairness_perf", cold_2048=0.08),
    Case(title="makespan", policy="min_total_duration_perf", cold_2048=0.03),
    Case(
        title="SLO",
        policy="max_sum_throughput_normalized_by_cost_perf_SLOs",
        change=with_slos,
        cold_2048=0.05,
        cold_100k=5.0,
    ),
    Case(title="min-dollar", policy="min_cost", change=with_deadlines, cold_2048=0.05),
)


def timed(work: Callable[[], Allocation], runs: int) -> tuple[float, Allocation]:
    best = math.inf
    for _ in range(runs):
        start = time.process_time()
        found = work()
        best = min(best, time.process_time() - start)
    return best, found


def measured(case: Case, n: int, *, hard: bool = True, runs: int) -> dict[str, float]:
    """Cold and warm CPU seconds, with the certificate checked on both answers."""
    solve, rng = POLICIES[case.policy].solve(), np.random.default_rng(0)
    both = case.change(cluster(n + 1, hard=hard))
    before, after = without(both, np.array([n])), without(both, np.array([0]))
    cold_s, cold = timed(lambda: solve(after, rng), runs)
    remembered = replace(after, memory=solve(before, rng).memory)
    warm_s, warm = timed(lambda: solve(remembered, rng), runs)
    for found in (cold, warm):
        assert isinstance(found.objective, float)
        assert found.bound is not None
        assert not found.fallback
        assert abs(found.bound - found.objective) <= 1.1e-7 * abs(found.objective), case.title
        assert violation(after, found) <= 1e-6, case.title
    assert isinstance(cold.objective, float)
    assert isinstance(warm.objective, float)
    assert abs(cold.objective / warm.objective - 1) <= 2.2e-7, case.title
    return {"cold": cold_s, "warm": warm_s, "objective": cold.objective}


def highs_las(problem: ClusterProblem, method: str) -> tuple[float, float]:
    """(CPU seconds, objective) of the LAS program by HiGHS, sparse, vectorised building included."""
    import highspy
    from highspy._core import _Highs

    start = time.process_time()
    n, m = problem.throughput.shape
    slope = problem.weight * proportional_rates(problem) / problem.gpus
    jobs, types = np.repeat(np.arange(n), m), np.tile(np.arange(m), n)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = n * m + 1, 2 * n + m
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = np.append(np.zeros(n * m), 1.0)
    lp.col_lower_, lp.col_upper_ = np.zeros(n * m + 1), np.full(n * m + 1, np.inf)
    lp.row_lower_ = np.concatenate([np.full(n, -np.inf), np.zeros(n), np.full(m, -np.inf)])
    lp.row_upper_ = np.concatenate([np.ones(n), np.full(n, np.inf), problem.workers])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.append(np.arange(0, 3 * n * m + 1, 3), 3 * n * m + n).astype(np.int32)
    rows = np.column_stack([jobs, n + jobs, 2 * n + types]).ravel()
    lp.a_matrix_.index_ = np.concatenate([rows, np.arange(n, 2 * n)]).astype(np.int32)
    scaled = problem.throughput / slope[:, None]
    values = np.column_stack([np.ones(n * m), scaled.ravel(), problem.gpus[jobs]]).ravel()
    lp.a_matrix_.value_ = np.concatenate([values, -np.ones(n)])
    solver = _Highs()
    for option, value in {
        "output_flag": False, "threads": 1, "solver": method, "run_crossover": "off",
    }.items():  # fmt: skip
        solver.setOptionValue(option, value)
    solver.passModel(lp)
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return time.process_time() - start, float(solver.getInfo().objective_function_value)


def exponent(sizes: list[int], seconds: list[float], low: int) -> float:
    kept = [(n, s) for n, s in zip(sizes, seconds, strict=True) if n >= low]
    slope, _ = np.polyfit(np.log([n for n, _ in kept]), np.log([s for _, s in kept]), 1)
    return float(slope)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--runs", type=int, default=25)
    options = parser.parse_args()
    over: list[str] = []
    table: list[dict[str, object]] = []

    def row(case: Case, n: int, found: dict[str, float]) -> None:
        budgets = {
            2048: {"cold": case.cold_2048, "warm": case.warm_2048},
            100_000: {"cold": case.cold_100k, "warm": case.cold_100k},
        }.get(n, {})
        missed = [k for k, most in budgets.items() if most is not None and found[k] > most]
        over.extend(f"{case.title} {n:,} {k}" for k in missed)
        table.append({"policy": case.policy, "jobs": n, **found, "budgets": budgets})
        told = "  ".join(f"{k} ≤ {most}" for k, most in budgets.items() if most is not None)
        print(
            f"{case.title:<12}{n:>9,}{found['cold']:>10.4f}{found['warm']:>10.4f}   {told}"
            + ("   OVER" if missed else ""),
            file=sys.stderr,
        )

    head = f"{'':<12}{'jobs':>9}{'cold':>10}{'warm':>10}   CPU s, hard instances, 3 types"
    print(head, file=sys.stderr)
    for n in (2048,) if options.quick else (2048, 100_000):
        for case in CASES:
            row(case, n, measured(case, n, runs=options.runs if n <= 2048 else 2))

    print("\nLAS, the same program: CPU s", file=sys.stderr)
    print(f"{'':<12}{'jobs':>9}{'ours':>10}{'simplex':>10}{'IPM':>10}", file=sys.stderr)
    beside: list[dict[str, object]] = []
    for hard in (False, True):
        for n in (512, 2048) if options.quick else (512, 2048, 10_000):
            problem = cluster(n, hard=hard)
            solve, rng = POLICIES["max_min_fairness_perf"].solve(), np.random.default_rng(0)
            ours_s, found = timed(lambda: solve(problem, rng), 5)  # noqa: B023
            ipm_s, ipm = highs_las(problem, "ipm")
            simplex_s, simplex = highs_las(problem, "simplex") if n <= 2048 else (None, None)
            assert isinstance(found.objective, float)
            assert found.objective >= ipm * (1 - 1e-6)
            assert simplex is None or abs(found.objective / simplex - 1) <= 1e-6
            beside.append({"jobs": n, "hard": hard, "ours": ours_s, "simplex": simplex_s, "ipm": ipm_s})
            told = "–" if simplex_s is None else f"{simplex_s:.3f}"
            kind = "hard" if hard else "plain"
            print(f"{kind:<12}{n:>9,}{ours_s:>10.4f}{told:>10}{ipm_s:>10.3f}", file=sys.stderr)

    growth: dict[str, dict[str, object]] = {}
    if options.growth or options.svg:
        print(
            f"\n{'cold CPU s':<12}" + "".join(f"{n:>9,}" for n in SIZES) + f"{'exponent':>10}",
            file=sys.stderr,
        )
        for case in CASES:
            seconds = [
                measured(case, n, runs=5 if n <= 2048 else 2 if n < 50_000 else 1)["cold"] for n in SIZES
            ]
            power, late = exponent(list(SIZES), seconds, 0), exponent(list(SIZES), seconds, 2048)
            growth[case.title] = {
                "jobs": list(SIZES), "cold": seconds, "exponent": power, "exponent_2048": late,
            }  # fmt: skip
            told = "".join(f"{s:>9.4f}" for s in seconds)
            print(f"{case.title:<12}{told}{power:>9.2f}{late:>9.2f}", file=sys.stderr)
    if options.svg:
        options.svg.parent.mkdir(parents=True, exist_ok=True)
        lines = {
            f"{name}, n^{of['exponent_2048']:.2f}": (of["jobs"], of["cold"]) for name, of in growth.items()
        }
        title = "CPU seconds of one allocation over jobs (3 types, no two jobs alike, from scratch)"
        options.svg.write_text(chart(title, "jobs", "CPU s", lines), encoding="utf-8")
    if options.json:
        when = datetime.now(UTC).date().isoformat()
        document = {"schema_version": 1, "date": when, "table": table, "highs": beside, "growth": growth}
        print(json.dumps(document, indent=1))
    if over:
        print("over budget: " + "; ".join(over), file=sys.stderr)
    return 1 if over else 0


ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

if __name__ == "__main__":
    if any(os.environ.get(name) != "1" for name in ONE_THREAD):
        # read when numpy is loaded, so before this process began
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    sys.exit(main())
