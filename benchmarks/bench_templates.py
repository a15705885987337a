"""The plan table: what it costs, what a look-up saves, how it degrades.
Run: ``python benchmarks/bench_templates.py``.

Synthetic models of 24 and 48 layers (the embedding and the head heavier, seed 0), 4 to 30 nodes of 1 and 4
GPUs, f = 1. CPU seconds; exits 1 where a bar of docs/results/oobleck.md is missed.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from arylcloud.core.pipeline import PipelineSpec
from arylcloud.planner.templates.assign import assign, missing
from arylcloud.planner.templates.search import brute_force, templates
from arylcloud.planner.templates.stages import Layers
from arylcloud.planner.templates.table import PlanTable, plan_table

FAILURES = 1
SAMPLES = 8


def model(count: int, seed: int = 0) -> Layers:
    """Layers of about 20 ms; all-reduce inside a node 4 to 8 % of a layer."""
    rng = np.random.default_rng(seed)
    step = 0.02 * rng.uniform(0.9, 1.1, count)
    step[[0, -1]] *= 1.8
    return Layers(
        step_s=step,
        reduce_s=step[:, None] * np.array([0.04, 0.06, 0.08])[None, :],
        param_bytes=np.full(count, 0.3e9),
    )


def table_of(layers: Layers, gpus: int, n0: int, nodes: int) -> PlanTable:
    made = templates(layers, gpus, n0, nodes - FAILURES * n0)
    return plan_table(
        made, nodes=nodes, failures=FAILURES, microbatches=16 * nodes, samples_per_microbatch=SAMPLES
    )


def main() -> int:
    missed: list[str] = []
    print("| layers | GPUs per node | n0 | N | covered | table, CPU s | look-up, µs | replan ÷ look-up "
          "| least of tput(n) ÷ (n/(n+1)·tput(n+1)) |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|")
    for count in (24, 48):
        for gpus, n0, nodes in ((1, 2, 12), (1, 3, 30), (4, 1, 8), (4, 2, 16)):
            layers = model(count)
            began = time.process_time()
            table = table_of(layers, gpus, n0, nodes)
            whole_s = time.process_time() - began
            began = time.process_time()
            for _ in range(1000):
                table.at(nodes - 1)
            look_up_s = (time.process_time() - began) / 1000
            began = time.process_time()
            table_of(layers, gpus, n0, nodes - 1)
            replan_s = time.process_time() - began
            rates = {n: row.samples_per_s for n, row in table.rows.items()}
            smooth = min(rates[n] / (n / (n + 1) * rates[n + 1]) for n in rates if n + 1 in rates)
            covered = sorted(rates) == list(range((FAILURES + 1) * n0, nodes + 1))
            print(f"| {count} | {gpus} | {n0} | {nodes} | {'all' if covered else 'NOT ALL'} | {whole_s:.2f} "
                  f"| {1e6 * look_up_s:.2f} | {replan_s / look_up_s:,.0f} | {smooth:.3f} |")  # fmt: skip
            if not covered:
                missed.append(f"{count} layers, {gpus} GPUs: not every size is covered")
            if replan_s < 100 * look_up_s:
                missed.append(f"{count} layers, {gpus} GPUs: a look-up is not 100 times faster")
            if smooth < 0.95:
                missed.append(f"{count} layers, {gpus} GPUs: {smooth:.3f} of smooth degradation, wanted .95")
    worst = 1.0
    for seed in range(20):
        for gpus in (1, 2, 4):
            small = model(8 if gpus < 4 else 7, seed)
            found = templates(small, gpus, 1, 4)
            for n, template in found.items():
                rate = template.iteration_s() / (4 * len(template.stages))
                worst = max(worst, rate / brute_force(small, gpus, n))
    print(
        f"\nTemplates over brute force, L ≤ 8, 1–4 nodes of 1, 2 and 4 GPUs, 20 models: {worst:.4f} at worst"
    )
    if worst > 1.05:
        missed.append(f"{worst:.3f} of brute force, wanted 1.05")
    live()
    for line in missed:
        print(f"MISSED: {line}")
    return 1 if missed else 0


def live() -> None:
    """What an epoch costs the launcher, and what its machines fetch after one loss."""
    print("\n| layers | n0 | N | templates, CPU s | row + ranks, CPU ms "
          "| layers fetched after a loss: least, mean, most | by rank alone, mean | of held |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for count, n0, nodes in ((24, 2, 12), (48, 3, 30), (96, 4, 32), (128, 4, 64)):
        seconds = tuple(float(s) for s in model(count).step_s)
        spec = PipelineSpec(layer_s=seconds, least_nodes=n0, failures=FAILURES, microbatches=16 * nodes)
        began = time.process_time()
        before = assign(spec, nodes_max=nodes, zones=["z"] * nodes, held=[None] * nodes)
        first_s = time.process_time() - began
        runs = {s.rank: (s.first, s.last) for r in before.replicas for s in r.stages}
        fetched, in_order = [], []
        began = time.process_time()
        for lost in range(nodes):
            kept = [rank for rank in range(nodes) if rank != lost]
            after = assign(spec, nodes_max=nodes, zones=["z"] * len(kept), held=[runs[rank] for rank in kept])
            fetched.append(after.fetched)
            places = [(s.first, s.last) for r in after.replicas for s in r.stages]
            pairs = [missing(place, runs[rank]) for place, rank in zip(places, kept, strict=True)]
            in_order.append(sum(b - a for pair in pairs for a, b in pair))
        each_ms = 1e3 * (time.process_time() - began) / nodes
        held = count * len(after.replicas)
        mean, alone = sum(fetched) / nodes, sum(in_order) / nodes
        print(f"| {count} | {n0} | {nodes} | {first_s:.2f} | {each_ms:.1f} "
              f"| {min(fetched)}, {mean:.1f}, {max(fetched)} | {alone:.1f} | {held} |")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
