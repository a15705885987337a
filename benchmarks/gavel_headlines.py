"""Gavel's two headline gains, from our own runs at its published loads. Hours of CPU: results are kept in a
JSON file as they come, and a second call goes on where the first stopped.

    python benchmarks/gavel_headlines.py [--results FILE] [--only single|static] [--seeds 0,1,2,3,4]
    python benchmarks/gavel_headlines.py --table      what there is, as Markdown

* single: 36 V100 : 36 P100 : 36 K80, single-GPU jobs at 5.6 an hour, average JCT of jobs 4,000-5,000:
  max_min_fairness / max_min_fairness_perf (published: 95.99 h / 28.96 h = 3.3, means over 3 seeds).
* static: the same cluster, 700 jobs of 1, 2, 4, 8 GPUs at once, makespan: gandiva / min_total_duration_perf
  (published: 347.3 h / 244.2 h = 1.42, one seed).

Needs the study data (ARYLCLOUD_STUDY_DATA); says so and exits 0 without.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from arylcloud.planner.policies.registry import policy
from arylcloud.simulation.cluster.generate import parse_recipe
from arylcloud.simulation.cluster.metrics import metrics
from arylcloud.simulation.cluster.replay import fleet, replay
from arylcloud.simulation.cluster.simulate import Settings
from arylcloud.simulation.cluster.throughputs import read_throughputs

CAPACITY = {"v100": 36, "p100": 36, "k80": 36}
COSTS = {"v100": 0.74, "p100": 0.43, "k80": 0.135}
EXPERIMENTS: dict[str, dict[str, Any]] = {
    "single": {
        "recipe": "single:5.6",
        "window": (4000, 5000),
        "figure": "avg_jct_h",
        "policies": ("max_min_fairness_perf", "max_min_fairness"),
        "published": {"max_min_fairness_perf": 28.96, "max_min_fairness": 95.99},
        "least": 2.8,
    },
    "static": {
        "recipe": "multi:700",
        "window": None,
        "figure": "makespan_h",
        "policies": ("min_total_duration_perf", "gandiva"),
        "published": {"min_total_duration_perf": 244.2, "gandiva": 347.3},
        "least": 1.3,
    },
}


def one(experiment: str, name: str, seed: int, data: Path) -> dict[str, Any]:
    spec = EXPERIMENTS[experiment]
    table = read_throughputs(data / "gavel" / "isolated_throughputs_simulation.csv")
    cluster = fleet(CAPACITY, COSTS)
    started = time.process_time()
    outcome = replay(
        parse_recipe(spec["recipe"], seed=seed),
        table,
        cluster,
        policy(name),
        Settings(seed=seed),
        window=spec["window"],
        progress=_progress(f"{experiment} {name} seed {seed}"),
    )
    cpu_s = time.process_time() - started
    found = asdict(metrics(outcome, window=spec["window"], usd_per_hour=cluster.usd_per_hour))
    return {**found, "cpu_s": round(cpu_s, 2), "date": datetime.now(UTC).date().isoformat()}


def _progress(what: str) -> Any:
    last = [0.0]

    def show(done: int, target: int, now_s: float) -> None:
        if time.monotonic() - last[0] > 20:
            last[0] = time.monotonic()
            print(f"{what}: {done}/{target} jobs, hour {now_s / 3600:.0f}", file=sys.stderr, flush=True)

    return show


def ratios(experiment: str, results: dict[str, Any]) -> dict[str, tuple[float, float, float]]:
    """Per seed: (aware, other, other ÷ aware)."""
    aware, other = EXPERIMENTS[experiment]["policies"]
    figure = EXPERIMENTS[experiment]["figure"]
    rows: dict[str, dict[str, Any]] = results.get(experiment, {})
    pairs = {
        seed: (row[aware][figure], row[other][figure])
        for seed, row in sorted(rows.items(), key=lambda item: int(item[0]))
        if aware in row and other in row
    }
    return {seed: (a, b, b / a) for seed, (a, b) in pairs.items()}


def show(results: dict[str, Any]) -> bool:
    good = True
    for experiment, spec in EXPERIMENTS.items():
        aware, other = spec["policies"]
        found = ratios(experiment, results)
        print(f"\n{experiment}: {spec['recipe']}, {spec['figure']}\n")
        print(f"| seed | {other} | {aware} | ratio | CPU s |\n|---|---|---|---|---|")
        for seed, (a, b, ratio) in found.items():
            cpu = [results[experiment][seed][name]["cpu_s"] for name in (other, aware)]
            print(f"| {seed} | {b:.2f} | {a:.2f} | {ratio:.2f} | {cpu[0]:.0f} + {cpu[1]:.0f} |")
        published = spec["published"]
        a, b = published[aware], published[other]
        print(f"| published | {b} | {a} | {b / a:.2f} | |")
        if found:
            mean = sum(ratio for *_, ratio in found.values()) / len(found)
            good = good and mean >= spec["least"]
            print(f"\nmean of {len(found)} per-seed ratios {mean:.2f}, wanted {spec['least']}")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=Path, default=Path("gavel_headlines.json"))
    parser.add_argument("--only", choices=tuple(EXPERIMENTS))
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--table", action="store_true")
    chosen = parser.parse_args()
    results: dict[str, Any] = json.loads(chosen.results.read_text()) if chosen.results.exists() else {}
    if not chosen.table:
        data = os.environ.get("ARYLCLOUD_STUDY_DATA")
        if not data:
            print("ARYLCLOUD_STUDY_DATA is not set: the throughputs are study data", file=sys.stderr)
            return 0
        for seed in chosen.seeds.split(","):
            for experiment in [chosen.only] if chosen.only else list(EXPERIMENTS):
                for name in EXPERIMENTS[experiment]["policies"]:
                    cell = results.setdefault(experiment, {}).setdefault(seed, {})
                    if name in cell:
                        continue
                    cell[name] = one(experiment, name, int(seed), Path(data))
                    chosen.results.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if show(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
