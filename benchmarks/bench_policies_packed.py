"""CPU seconds of the policies that work by classes of jobs: space sharing, water filling, strategy proof.

    ARYLCLOUD_STUDY_DATA=… python benchmarks/bench_policies_packed.py [--quick] [--svg FILE] [--json]

Gavel's 26 single-GPU jobs with its co-located rates (study data), n/4 GPUs of each of three types. *Plain*:
all weights 1, as in Gavel's own sweep; otherwise no two jobs have one weight or as many steps left, which is
what classes must be cut for. Process CPU seconds on one thread, from the arrays of the problem to the
allocation of jobs and pairs of jobs, model building included; the least of several runs; every answer's
certificate and constraints are checked. Exponents: 2,048 to 100,000 jobs. ``--quick``: up to 2,048. Exits 1
over a budget.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import os
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from bench_policies import ONE_THREAD, exponent, timed
from policy_chart import chart
from policy_instances import TYPES, USD_PER_HOUR

from arylcloud.planner.cluster import ClusterProblem, Sharing, violation
from arylcloud.planner.policies.registry import POLICIES

SIZES = (32, 128, 512, 2048, 8192, 32_768, 100_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    title: str
    policy: str
    plain: bool = False
    deadlines: bool = False
    most: int = 100_000
    budget: dict[int, float] | None = None


LAS = {512: 0.1, 2048: 0.1}
CASES = (
    Case(title="LAS packed, plain", policy="max_min_fairness_packed", plain=True, budget=LAS),
    Case(title="LAS packed", policy="max_min_fairness_packed", budget=LAS),
    Case(title="makespan packed", policy="min_total_duration_packed"),
    Case(title="FTF packed", policy="finish_time_fairness_packed"),
    Case(
        title="SLO packed",
        policy="max_sum_throughput_normalized_by_cost_packed_SLOs",
        deadlines=True,
    ),
    Case(title="water filling", policy="max_min_fairness_water_filling_perf"),
    Case(title="water filling packed", policy="max_min_fairness_water_filling_packed", most=2048),
    Case(title="strategy proof", policy="max_min_fairness_strategy_proof_perf"),
)


def rates(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """((26, 3) alone, (26, 26, 3) beside) in steps/s on one GPU."""
    with (folder / "gavel" / "isolated_throughputs_simulation.csv").open(encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if r["consolidated"] == r["scale_factor"] == "1"]
    names = sorted({r["job_type"] for r in rows})
    at = {name: i for i, name in enumerate(names)}
    alone, beside = np.zeros((len(names), 3)), np.zeros((len(names), len(names), 3))
    for r in rows:
        if r["worker_type"] in TYPES:
            alone[at[r["job_type"]], TYPES.index(r["worker_type"])] = float(r["steps_per_s"])
    with gzip.open(folder / "gavel" / "colocated_throughputs_simulation.csv.gz", "rt") as file:
        for r in csv.DictReader(file):
            if r["consolidated"] == r["scale_factor"] == "1" and r["worker_type"] in TYPES:
                a, b, j = at[r["job_type_a"]], at[r["job_type_b"]], TYPES.index(r["worker_type"])
                beside[a, b, j], beside[b, a, j] = float(r["steps_per_s_a"]), float(r["steps_per_s_b"])
    return alone, beside


def instance(case: Case, n: int, alone: np.ndarray, beside: np.ndarray) -> ClusterProblem:
    rng = np.random.default_rng(0)
    of = rng.integers(len(alone), size=n)
    rate = alone[of]
    problem = ClusterProblem(
        worker_types=TYPES,
        workers=np.full(3, float(max(1, n // 4))),
        throughput=rate,
        gpus=np.ones(n),
        weight=np.ones(n) if case.plain else rng.uniform(1.0, 2.0, n),
        usd_per_hour=USD_PER_HOUR,
        steps_left=rng.uniform(1.0, 3.0, n) * 3600.0 * rate[:, 2],
        age_s=rng.uniform(0.0, 0.5, n) * 3600.0,
        sharing=Sharing(job_class=of, rate=beside),
    )
    if not case.deadlines:
        return problem
    due = rng.uniform(3.0, 10.0, n) * problem.steps_left / rate[:, 2]
    return replace(problem, deadline_s=np.where(rng.random(n) < 1 / 3, due, np.inf))


def measured(case: Case, problem: ClusterProblem, runs: int) -> float:
    solve, rng = POLICIES[case.policy].solve(), np.random.default_rng(0)
    seconds, found = timed(lambda: solve(problem, rng), runs)
    assert violation(problem, found) <= 1e-6, case.title
    assert not found.fallback, case.title
    if found.bound is not None:
        assert isinstance(found.objective, float)
        assert abs(found.bound / found.objective - 1) <= 1e-7, (case.title, found.bound, found.objective)
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    where = os.environ.get("ARYLCLOUD_STUDY_DATA")
    if where is None:
        print("ARYLCLOUD_STUDY_DATA does not name the study data: nothing measured", file=sys.stderr)
        return 0
    alone, beside = rates(Path(where))
    sizes = [n for n in SIZES if n <= (2048 if options.quick else 100_000)]
    print(f"{'CPU s':<22}" + "".join(f"{n:>10,}" for n in sizes) + f"{'n^':>7}", file=sys.stderr)
    table: list[dict[str, object]] = []
    lines: dict[str, tuple[list[float], list[float]]] = {}
    over: list[str] = []
    for case in CASES:
        mine = [n for n in sizes if n <= case.most]
        seconds = [
            measured(case, instance(case, n, alone, beside), 7 if n <= 2048 else 2 if n < 50_000 else 1)
            for n in mine
        ]
        late = exponent(mine, seconds, 2048) if mine[-1] > 2048 else None
        for n, s in zip(mine, seconds, strict=True):
            if s > (case.budget or {}).get(n, math.inf):
                over.append(f"{case.title} {n:,}")
        table.append({"title": case.title, "policy": case.policy, "jobs": mine, "cpu_s": seconds, "n^": late})
        lines[case.title + ("" if late is None else f", n^{late:.2f}")] = [float(n) for n in mine], seconds
        told = "".join(f"{s:>10.4f}" for s in seconds) + "".join(f"{'–':>10}" for _ in sizes[len(mine) :])
        print(f"{case.title:<22}{told}{'' if late is None else f'{late:>7.2f}'}", file=sys.stderr)
    if options.svg:
        title = "CPU seconds of one allocation over jobs (3 types, 26 kinds of jobs, from scratch)"
        options.svg.parent.mkdir(parents=True, exist_ok=True)
        options.svg.write_text(chart(title, "jobs", "CPU s", lines), encoding="utf-8")
    if options.json:
        when = datetime.now(UTC).date().isoformat()
        print(json.dumps({"schema_version": 1, "date": when, "table": table}, indent=1))
    if over:
        print("over budget: " + "; ".join(over), file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    if any(os.environ.get(name) != "1" for name in ONE_THREAD):
        # read when numpy is loaded, so before this process began
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    sys.exit(main())
