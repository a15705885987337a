"""Our simulator beside Gavel's own on the reference traces, as Markdown.

    python benchmarks/gavel_reference.py            our policies
    python benchmarks/gavel_reference.py --theirs   our rounds under the points that ECOS returns for Gavel's
                                                    programmes and the draws of Python's random module: shows
                                                    what differs (needs `pip install cvxpy ecos`)
    python benchmarks/gavel_reference.py --seeds 10 the policies that draw, least and most over so many seeds

Needs the study data (ARYLCLOUD_STUDY_DATA); says so and exits 0 without. Seed 0 but for ``--seeds``.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem, isolated_rates, isolated_shares
from arylcloud.planner.policies.registry import Policy, Solve, policy
from arylcloud.simulation.cluster.metrics import metrics
from arylcloud.simulation.cluster.replay import fleet, replay
from arylcloud.simulation.cluster.simulate import Settings
from arylcloud.simulation.cluster.throughputs import read_throughputs
from arylcloud.simulation.cluster.traces import read_trace

COSTS = {"v100": 0.74, "p100": 0.43, "k80": 0.135}
CONT, SLO = "cont_single_5.0jph_400", "cont_single_5.0jph_400_slo"
SMALL, STATIC = "small_single_1.2jph_300", "static_multi_100"
PER_DOLLAR = "max_sum_throughput_normalized_by_cost_perf"
# trace, GPUs of each type, policy: average JCT h, makespan h, utilisation, cost $, CPU s of Gavel's simulator
ROWS: list[tuple[str, int, str, tuple[float | None, ...]]] = [
    (CONT, 36, "fifo_perf", (13.723, 201.95, 0.2462, 3447, 8)),
    (CONT, 36, "max_min_fairness_perf", (14.200, 201.87, 0.2549, 3739, 10)),
    (CONT, 36, "allox", (14.300, 200.46, 0.2585, 3752, 8)),
    (CONT, 36, PER_DOLLAR, (14.530, 201.07, 0.2620, 3809, 12)),
    (SLO, 36, f"{PER_DOLLAR}_SLOs", (14.273, 200.59, 0.2579, 3756, 23)),  # 23 deadlines missed
    (SLO, 36, PER_DOLLAR, (None, None, None, None, None)),  # 31
    (CONT, 36, "finish_time_fairness_perf", (14.611, 202.22, 0.2620, 3825, 54)),
    (CONT, 36, "gandiva", (15.440, 205.58, 0.2726, 4008, 185)),
    (CONT, 36, "min_total_duration_perf", (15.988, 200.46, 0.2897, 4107, 26)),
    (CONT, 36, "finish_time_fairness", (20.257, 296.27, 0.2495, 3459, 65)),
    (CONT, 36, "isolated", (20.300, 297.55, 0.2490, 3468, 16)),
    (CONT, 36, "max_min_fairness", (20.303, 297.47, 0.2491, 3468, 18)),
    (CONT, 36, "fifo", (25.960, 768.38, 0.1236, 3639, 18)),
    (SMALL, 8, "max_min_fairness_packed", (14.640, 357.18, 0.4694, 2658, 33)),
    (SMALL, 8, "max_min_fairness_perf", (14.863, 356.20, 0.5109, 2527, 13)),
    (SMALL, 8, "finish_time_fairness_perf", (15.237, 356.44, 0.5220, 2550, 44)),
    (SMALL, 8, "allox", (15.546, 360.79, 0.5289, 2584, 7)),
    (SMALL, 8, "gandiva", (17.695, 367.44, 0.5342, 3002, 34)),
    (SMALL, 8, "max_min_fairness", (20.452, 431.99, 0.5595, 2523, 13)),
    (SMALL, 8, "fifo", (26.754, 922.85, 0.3065, 2582, 11)),
    (STATIC, 36, "min_total_duration_perf", (None, 165.83, None, None, 7)),
    (STATIC, 36, "gandiva", (None, 168.90, None, None, None)),
    (STATIC, 36, "max_min_fairness_perf", (None, 171.14, None, None, None)),
    (STATIC, 12, "min_total_duration_perf", (None, 165.93, None, None, None)),
    (STATIC, 12, "max_min_fairness_perf", (None, 201.05, None, None, None)),
    (STATIC, 12, "min_total_duration", (None, 288.94, None, None, None)),
    (STATIC, 12, "fifo", (None, 265.24, None, None, None)),
]


def main() -> int:
    data = os.environ.get("ARYLCLOUD_STUDY_DATA")
    if not data:
        print("ARYLCLOUD_STUDY_DATA is not set: the traces are study data", file=sys.stderr)
        return 0
    if "--seeds" in sys.argv:
        return _over_seeds(Path(data) / "gavel", int(sys.argv[sys.argv.index("--seeds") + 1]))
    theirs_too = "--theirs" in sys.argv
    table = read_throughputs(Path(data) / "gavel" / "isolated_throughputs_simulation.csv")
    print("| trace, GPUs of each type | policy | avg JCT h | makespan h | utilisation | cost $ | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for trace, each, name, theirs in ROWS:
        chosen = policy(name)
        if theirs_too:
            if name not in THEIRS:
                continue
            made = THEIRS[name]() if name != "fifo" else _fifo(as_published=trace == STATIC)
            chosen = Borrowed(**{f: getattr(chosen, f) for f in FIELDS}, function=made)
        cluster = fleet(dict.fromkeys(COSTS, each), COSTS)
        jobs = read_trace(Path(data) / "gavel" / "traces" / f"{trace}.trace")
        started = time.process_time()
        settings = Settings(deadline_from="dispatch" if trace == SLO else "arrival")
        found = metrics(replay(jobs, table, cluster, chosen, settings), usd_per_hour=cluster.usd_per_hour)
        cpu_s = time.process_time() - started
        ours = (found.avg_jct_h, found.makespan_h, found.utilization, found.cost_usd)
        cells = [_beside(a, b, d) for a, b, d in zip(ours, theirs[:4], (3, 2, 4, 0), strict=True)]
        spent = "" if theirs[4] is None else f" ({theirs[4]:g})"
        print(f"| {trace} {each} | {name} | {' | '.join(cells)} | {cpu_s:.1f}{spent} |", flush=True)
        if found.slo_violations is not None:
            print(f"{name}: {found.slo_violations} deadlines missed", file=sys.stderr)
    return 0


def _over_seeds(data: Path, count: int) -> int:
    table = read_throughputs(data / "isolated_throughputs_simulation.csv")
    print("| trace, GPUs of each type | policy | avg JCT h | makespan h | utilisation | cost $ |")
    print("|---|---|---|---|---|---|")
    for trace, each, name, theirs in ROWS:
        if name not in ("fifo", "gandiva"):
            continue
        cluster = fleet(dict.fromkeys(COSTS, each), COSTS)
        jobs = read_trace(data / "traces" / f"{trace}.trace")
        figures = []
        for seed in range(count):
            outcome = replay(jobs, table, cluster, policy(name), Settings(seed=seed))
            found = metrics(outcome, usd_per_hour=cluster.usd_per_hour)
            figures.append((found.avg_jct_h, found.makespan_h, found.utilization, found.cost_usd))
        cells = []
        columns = zip(*figures, strict=True)
        for column, published, digits in zip(columns, theirs[:4], (2, 1, 3, 0), strict=True):
            told = "" if published is None else f" ({published:.{digits}f})"
            cells.append(f"{min(column):.{digits}f}–{max(column):.{digits}f}{told}")
        print(f"| {trace} {each} | {name} | {' | '.join(cells)} |", flush=True)
    return 0


def _beside(ours: float | None, theirs: float | None, digits: int) -> str:
    assert ours is not None
    text = f"{ours:.{digits}f}"
    if theirs is None:
        return text
    if text == f"{theirs:.{digits}f}":
        return f"**{text}**"
    return f"{text} ({theirs:.{digits}f}, {ours / theirs - 1:+.2%})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Borrowed(Policy):
    function: Solve

    def solve(self) -> Solve:
        return self.function


FIELDS = tuple(Policy.__dataclass_fields__)


def _base(problem: ClusterProblem) -> tuple[Any, list[Any]]:
    import cvxpy as cp

    x = cp.Variable(problem.throughput.shape)
    gpus = np.repeat(problem.gpus[:, None], x.shape[1], axis=1)
    used = cp.sum(cp.multiply(gpus, x), axis=0)
    return x, [x >= 0, used <= problem.workers, cp.sum(x, axis=1) <= 1]


def _solved(x: Any, goal: Any, rows: list[Any]) -> Allocation | None:
    import cvxpy as cp

    program = cp.Problem(goal, rows)
    try:
        program.solve(solver="ECOS")
    except cp.error.SolverError:
        return None
    if x.value is None:
        return None
    return Allocation(shares=x.value.clip(min=0.0).clip(max=1.0))


def _least_service(*, aware: bool) -> Solve:
    def solve(problem: ClusterProblem, _: np.random.Generator) -> Allocation:
        import cvxpy as cp

        rate = problem.throughput if aware else np.ones_like(problem.throughput)
        part = problem.workers / len(
            problem
        )  # their operations in their order: ECOS's noise hangs on last bits
        slope = (1.0 / problem.weight) * (1.0 / np.sum(rate * (part / part.sum()), axis=1))
        x, rows = _base(problem)
        gpus = np.repeat(problem.gpus[:, None], rate.shape[1], axis=1)
        scaled = np.multiply(rate * slope[:, None], gpus)
        found = _solved(x, cp.Maximize(cp.min(cp.sum(cp.multiply(scaled, x), axis=1))), rows)
        assert found is not None
        return found

    return solve


def _per_dollar() -> Solve:
    def solve(problem: ClusterProblem, _: np.random.Generator) -> Allocation:
        import cvxpy as cp

        x, rows = _base(problem)
        goal = cp.Maximize(cp.sum(cp.multiply(problem.throughput / problem.usd_per_hour, x)))
        due = problem.deadline_s if problem.deadline_s is not None else np.full(len(problem), np.inf)
        kept = [
            cp.sum(cp.multiply(problem.throughput[i], x[i])) >= problem.steps_left[i] / due[i]
            for i in np.flatnonzero(np.isfinite(due))
        ]
        found = _solved(x, goal, rows + kept) or _solved(x, goal, rows)
        assert found is not None
        return found

    return solve


def _makespan(*, aware: bool) -> Solve:
    """Gavel's bisection: stops when the bounds are within 5 %."""

    def solve(problem: ClusterProblem, _: np.random.Generator) -> Allocation:
        import cvxpy as cp

        rate = problem.throughput
        if not aware:
            v100 = problem.worker_types.index("v100")
            rate = np.repeat(rate[:, v100 : v100 + 1], rate.shape[1], axis=1)
        low, high, best = 100.0, 1e6, None
        while 1.05 * low < high or best is None:
            if 1.05 * low >= high:
                low, high = high, 10 * high
            middle = (low + high) / 2.0
            x, rows = _base(problem)
            rows.append(cp.sum(cp.multiply(rate, x), axis=1) >= problem.steps_left / middle)
            found = _solved(x, cp.Maximize(1), rows)
            if found is None:
                low = middle
            else:
                best, high = found, middle
        return best

    return solve


def _finish_time_fairness() -> Solve:
    alone_s: dict[int, float] = {}
    before: dict[int, tuple[float, float]] = {}

    def solve(problem: ClusterProblem, _: np.random.Generator) -> Allocation:
        import cvxpy as cp

        x, rows = _base(problem)
        alone, ratios = isolated_rates(problem), []
        for i, job in enumerate(problem.ids.tolist()):
            if job in before:
                left, rate = before[job]
                alone_s[job] += (left - problem.steps_left[i]) / rate
            alone_s.setdefault(job, 0.0)
            rate = cp.sum(cp.multiply(problem.throughput[i], x[i]))
            shared = problem.age_s[i] + problem.steps_left[i] * cp.inv_pos(rate)
            ratios.append(shared / (alone_s[job] + problem.steps_left[i] / alone[i]))
        before.clear()
        before.update(zip(problem.ids.tolist(), zip(problem.steps_left, alone, strict=True), strict=True))
        worst = ratios[0] if len(ratios) == 1 else cp.maximum(*ratios)
        found = _solved(x, cp.Minimize(worst), rows)
        return found or Allocation(shares=isolated_shares(problem))

    return solve


def _fifo(*, as_published: bool) -> Solve:
    """A random free type, by Python's generator. As published the type drawn is not the type used: that is
    the last free one by name, whether the job fits there or not (the static trace's figure is of that)."""
    import random

    draws, held = random.Random(0), dict[int, str]()

    def solve(problem: ClusterProblem, _: np.random.Generator) -> Allocation:
        types, at = problem.worker_types, {job: i for i, job in enumerate(problem.ids.tolist())}
        free = dict(zip(types, problem.workers.tolist(), strict=True))
        size = problem.gpus

        def place(job: int, kind: str) -> bool:
            if problem.throughput[at[job], types.index(kind)] <= 0:
                return False
            held[job], free[kind] = kind, free[kind] - size[at[job]]
            return True

        queue = [job for job in at if job not in held]
        for job in sorted(held):
            kind = held[job]
            if job in at:
                free[kind] -= size[at[job]]
                continue
            if queue and size[at[queue[0]]] <= free[kind] and place(queue[0], kind):
                queue.pop(0)
            del held[job]
        open_types = sorted(kind for kind in types if free[kind] > 0)
        for job in queue:
            fits = [kind for kind in open_types if free[kind] >= size[at[job]]]
            if not fits:
                break
            drawn = fits[draws.randrange(len(fits))]
            used = open_types[-1] if as_published else drawn
            if place(job, used) and free[used] == 0:
                open_types.remove(drawn)
        shares = np.zeros_like(problem.throughput)
        for job, kind in held.items():
            shares[at[job], types.index(kind)] = 1.0
        return Allocation(shares=shares)

    return solve


THEIRS: dict[str, Any] = {
    "fifo": _fifo,
    "max_min_fairness_perf": lambda: _least_service(aware=True),
    "max_min_fairness": lambda: _least_service(aware=False),
    PER_DOLLAR: _per_dollar,
    f"{PER_DOLLAR}_SLOs": _per_dollar,
    "min_total_duration_perf": lambda: _makespan(aware=True),
    "min_total_duration": lambda: _makespan(aware=False),
    "finish_time_fairness_perf": _finish_time_fairness,
}


if __name__ == "__main__":
    raise SystemExit(main())
