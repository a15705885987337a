"""Elastic gangs beside all-or-nothing ones, on the same starts: a part of docs/results/deadlines.md, made by
``deadline_results.py --only elastic``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from arylcloud.planner.deadline.view import DeadlinePolicy
from arylcloud.simulation.deadline.elastic import elastic_grid, elastic_replay, power_law
from arylcloud.simulation.deadline.elastic_optimum import elastic_optimum_usd
from arylcloud.simulation.deadline.optimum import optimum_usd
from arylcloud.simulation.deadline.replay import Job, replay
from arylcloud.simulation.deadline.sweep import drawn_starts, flat_egress, market_of
from arylcloud.simulation.spottraces import grid, read_spot_traces

GANGS = (("4-node", 2, 4), ("16-node", 8, 16))
EXPONENT = 0.9
WORK_H = 24.0


def elastic_gangs(
    data: Path, policies: dict[str, DeadlinePolicy], ratios: tuple[float, ...], starts: int
) -> tuple[list[str], int]:
    """Lines, and deadlines missed."""
    traces = read_spot_traces(data / "traces" / "spot_v100_gangs_2023.csv.gz")
    lines: list[str] = []
    late = 0
    for name, least, most in GANGS:
        gang = power_law(least, most, EXPONENT)
        rigid = grid(traces[name], machines=most)
        world, sizes = elastic_grid(traces[name], gang)
        market = market_of(world, startup_h=0.2, egress_usd=flat_egress(len(world.regions), 0.1))
        head = " | ".join(f"C/R {ratio:g}" for ratio in ratios)
        lines += [
            f"### Elastic gang of {least} to {most} V100, 3 zones, {WORK_H:g} h of the whole gang, 5 GB "
            f"({starts} starts, speed ∝ machines^{EXPONENT:g})",
            "",
            f"| policy: its cost ÷ the bound, ÷ its own cost with {most} or none | {head} | late |",
            "|---|" + "---|" * (len(ratios) + 1),
        ]
        cells: dict[str, list[str]] = {policy: [] for policy in (*policies, "optimum")}
        misses = dict.fromkeys(policies, 0)
        for ratio in ratios:
            job = Job(work_h=WORK_H, deadline_h=WORK_H / ratio)
            at = drawn_starts(world, job, starts, np.random.default_rng(0))
            bound = sum(elastic_optimum_usd(world, sizes, market, job, int(t)) for t in at)
            alone = sum(optimum_usd(rigid, market, job, int(t)) for t in at)
            cells["optimum"].append(f"1, {bound / alone:.3f}")
            for policy, decide in policies.items():
                runs = elastic_replay(world, sizes, market, decide, job, at)
                stiff = replay(rigid, market, decide, job, at)
                misses[policy] += int(runs.missed.sum())
                cells[policy].append(f"{runs.usd.sum() / bound:.3f}, {runs.usd.sum() / stiff.usd.sum():.3f}")
        for policy in policies:
            lines.append(f"| {policy} | " + " | ".join(cells[policy]) + f" | {misses[policy]} |")
        lines += ["| *optimum (a bound)* | " + " | ".join(cells["optimum"]) + " | |", ""]
        late += sum(misses.values())
    return lines, late
