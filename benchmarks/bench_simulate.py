"""CPU seconds of the cluster simulator: ``python benchmarks/bench_simulate.py [--json]``.

* trace: Gavel's reference trace ``cont_single_5.0jph_400`` under max_min_fairness_perf on 36:36:36 (its own
  simulator: 10 CPU s), the best of five runs, policies included;
* window: single-GPU jobs at 5.6 an hour, jobs 4,000-5,000, seed 0, the same policy and cluster: one run;
* philly: 82,247 jobs of a production trace (Pollux's cut of Philly), FIFO on its 2,490 GPUs: one run.

Needs the study data (ARYLCLOUD_STUDY_DATA): says so and exits 0 without. Exits 1 over a budget.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from arylcloud.planner.policies.registry import policy
from arylcloud.simulation.cluster.generate import parse_recipe
from arylcloud.simulation.cluster.metrics import metrics
from arylcloud.simulation.cluster.outcome import Outcome
from arylcloud.simulation.cluster.replay import fleet, replay
from arylcloud.simulation.cluster.simulate import Settings
from arylcloud.simulation.cluster.throughputs import read_throughputs, uniform
from arylcloud.simulation.cluster.traces import read_trace

BUDGET = {"trace_s": 1.0, "window_s": 60.0, "philly_s": 60.0}
CAPACITY = {"v100": 36, "p100": 36, "k80": 36}


def timed(work: Any) -> tuple[float, Outcome]:
    started = time.process_time()
    found = work()
    return time.process_time() - started, found


def main() -> int:
    data = os.environ.get("ARYLCLOUD_STUDY_DATA")
    if not data:
        print("ARYLCLOUD_STUDY_DATA is not set: the traces are study data", file=sys.stderr)
        return 0
    folder = Path(data) / "gavel"
    table = read_throughputs(folder / "isolated_throughputs_simulation.csv")
    las, cluster = policy("max_min_fairness_perf"), fleet(CAPACITY)
    jobs = read_trace(folder / "traces" / "cont_single_5.0jph_400.trace")
    trace_s, trace = min(
        (timed(lambda: replay(jobs, table, cluster, las, Settings())) for _ in range(5)),
        key=lambda run: run[0],
    )
    window_s, window = timed(
        lambda: replay(
            parse_recipe("single:5.6", seed=0), table, cluster, las, Settings(), window=(4000, 5000)
        )
    )
    started = time.process_time()
    philly_jobs = read_trace(Path(data) / "traces" / "jobs_philly_pollux.csv.gz")
    read_s = time.process_time() - started
    sizes = tuple(sorted(set(philly_jobs.gpus.tolist())))
    pool = fleet({"gpu": 2490})
    philly_s, philly = timed(
        lambda: replay(philly_jobs, uniform(("gpu",), sizes), pool, policy("fifo"), Settings())
    )
    figures = {
        "trace_s": trace_s,
        "trace_avg_jct_h": metrics(trace).avg_jct_h,
        "trace_rounds": trace.rounds,
        "window_s": window_s,
        "window_avg_jct_h": metrics(window, window=(4000, 5000)).avg_jct_h,
        "window_rounds": window.rounds,
        "philly_s": philly_s,
        "philly_read_s": read_s,
        "philly_rounds": philly.rounds,
        "philly_avg_jct_h": metrics(philly).avg_jct_h,
    }
    if "--json" in sys.argv:
        print(
            json.dumps({"date": datetime.now(UTC).date().isoformat(), "load": os.getloadavg()[0], **figures})
        )
    else:
        print(f"{datetime.now(UTC):%Y-%m-%d}, load {os.getloadavg()[0]:.1f}")
        print(f"trace   {trace_s:6.2f} CPU s  {trace.rounds:6,} rounds, {trace.decisions:,} decisions")
        print(f"window  {window_s:6.2f} CPU s  {window.rounds:6,} rounds, {window.decisions:,} decisions")
        print(f"philly  {philly_s:6.2f} CPU s  {philly.rounds:6,} rounds, reading {read_s:.2f}")
    over = [name for name, limit in BUDGET.items() if figures[name] > limit]
    for name in over:
        print(f"over budget: {name} {figures[name]:.2f} > {BUDGET[name]}", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())
