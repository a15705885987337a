"""Deadlines on spot: every figure of docs/results/deadlines.md, by one command.

    ARYLCLOUD_STUDY_DATA=…/data python benchmarks/deadline_results.py --write [--starts 300] [--cache FILE]

Prints Markdown (``--only NAME``: of one setting); ``--write`` puts it between the marks of the page.
``--cache``: optima once computed are kept there. Without the study data: the invented zones only. Exits 1
where a deadline is missed, not where a bar is: the page says which.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from elastic_gangs import elastic_gangs
from numpy.typing import NDArray

from arylcloud.planner.deadline.registry import POLICIES
from arylcloud.planner.deadline.view import DeadlinePolicy, Market
from arylcloud.simulation.deadline.invent import invented
from arylcloud.simulation.deadline.optimum import optimum_usd
from arylcloud.simulation.deadline.replay import Job, replay
from arylcloud.simulation.deadline.sweep import drawn_starts, flat_egress, market_of, one_zone
from arylcloud.simulation.spottraces import Grid, grid, read_spot_traces

Floats = NDArray[np.float64]
RATIOS = (0.5, 0.67, 0.8, 0.9, 0.95)
SHOWN = (
    "on_demand", "greedy", "uniform_progress", "uniform_progress_any_zone", "uniform_progress_free_sight",
    "skynomad", "skynomad_without_probes", "default",
)  # fmt: skip
FEW = ("greedy", "uniform_progress_any_zone", "skynomad", "skynomad_without_probes", "default")
PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "deadlines.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    name: str
    title: str
    grid: Grid
    market: Market
    work_h: float
    bars: tuple[float, ...] | None
    """Of the default policy over the optimum, by ratio."""
    starts: int
    policies: tuple[str, ...]


class Cache:
    """Optima by setting, ratio and start."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.kept: dict[str, float] = (
            json.loads(path.read_text()) if path is not None and path.is_file() else {}
        )

    def optima(self, name: str, world: Grid, market: Market, job: Job, starts: NDArray[np.intp]) -> Floats:
        found = []
        for start in starts.tolist():
            key = f"{name} {job.work_h:g}/{job.deadline_h:.4f} {start}"
            if key not in self.kept:
                self.kept[key] = optimum_usd(world, market, job, start)
            found.append(self.kept[key])
        self.save()
        return np.array(found)

    def save(self) -> None:
        if self.path is not None:
            self.path.write_text(json.dumps(self.kept))


def settings(data: Path | None, starts: int) -> list[Setting]:
    found = []

    def add(
        name: str,
        title: str,
        world: Grid,
        work_h: float,
        gb: float,
        bars: tuple[float, ...] | None,
        count: int = starts,
    ) -> None:
        market = market_of(world, startup_h=0.2, egress_usd=flat_egress(len(world.regions), 0.02 * gb))
        found.append(
            Setting(
                name=name,
                title=title,
                grid=world,
                market=market,
                work_h=work_h,
                bars=bars,
                starts=count,
                policies=SHOWN if bars and gb < 10 else FEW,
            )
        )

    if data is not None:
        v100 = grid(read_spot_traces(data / "traces" / "spot_v100_9zones_2023.csv.gz")[""])
        add("v100-5", "V100, 9 zones, 48 h, 5 GB", v100, 48.0, 5.0, (1.03, 1.03, 1.03, 1.05, 1.13))
        add("v100-50", "The same, 50 GB", v100, 48.0, 50.0, (1.075, 1.075, 1.075, 1.075, 1.13))
        add("v100-225", "The same, 225 GB ($4.50 a move)", v100, 48.0, 225.0, None, min(starts, 24))
        gangs = read_spot_traces(data / "traces" / "spot_v100_gangs_2023.csv.gz")
        for name, size in (("4-node", 4), ("16-node", 16)):
            world = grid(gangs[name], machines=size)
            add(
                f"gang-{size}",
                f"Gang of {size} V100, 3 zones, 24 h, 5 GB",
                world,
                24.0,
                5.0,
                None,
                min(starts, 80),
            )
    for seed in (1, 2, 3):
        title = f"Invented zones (seed {seed}), 13 zones in 5 regions, 48 h, 5 GB"
        world = grid(invented(seed, zones=13, regions=5, days=40, frailty=0.5 + 0.5 * seed))
        add(f"invented-{seed}", title, world, 48.0, 5.0, None, min(starts, 24))
    return found


def row(
    setting: Setting, ratio: float, cache: Cache, policies: dict[str, DeadlinePolicy]
) -> dict[str, tuple[float, int, float]]:
    """Policy → cost over optimum, misses, and cost over the default's."""
    job = Job(work_h=setting.work_h, deadline_h=setting.work_h / ratio)
    starts = drawn_starts(setting.grid, job, setting.starts, np.random.default_rng(0))
    least = cache.optima(setting.name, setting.grid, setting.market, job, starts)
    usd: dict[str, Floats] = {}
    misses: dict[str, int] = {}
    for name, policy in policies.items():
        worlds = [(setting.grid, setting.market)]
        if policy.one_zone:
            worlds = [one_zone(setting.grid, setting.market, z) for z in range(setting.market.zones)]
        runs = [replay(world, market, policy, job, starts) for world, market in worlds]
        usd[name] = np.mean([run.usd for run in runs], axis=0)
        misses[name] = sum(int(run.missed.sum()) for run in runs)
    total = usd["default"].sum() if "default" in usd else np.nan
    return {
        name: (float(usd[name].sum() / least.sum()), misses[name], float(usd[name].sum() / total))
        for name in policies
    }


def table(setting: Setting, cache: Cache, policies: dict[str, DeadlinePolicy]) -> tuple[list[str], int]:
    rows = {ratio: row(setting, ratio, cache, policies) for ratio in RATIOS}
    lines = [
        f"### {setting.title} ({setting.starts} starts)", "",
        "| policy | " + " | ".join(f"C/R {ratio:g}" for ratio in RATIOS) + " | late |",
        "|---|" + "---|" * (len(RATIOS) + 1),
    ]  # fmt: skip
    for name in policies:
        cells = [f"{rows[ratio][name][0]:.3f}" for ratio in RATIOS]
        late = sum(rows[ratio][name][1] for ratio in RATIOS)
        if name == "default":
            name, cells = "**default**", [f"**{cell}**" for cell in cells]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {late} |")
    best = [min((rows[r][n][2], n) for n in policies if n not in ("default", "on_demand")) for r in RATIOS]
    cells = [f"{ratio:.3f} ({name})" for ratio, name in best]
    lines.append("| *least of the others ÷ default* | " + " | ".join(cells) + " | |")
    if setting.bars is not None:
        marks = [
            f"{bar:g} {'✓' if rows[ratio]['default'][0] <= bar else '✗'}"
            for ratio, bar in zip(RATIOS, setting.bars, strict=True)
        ]
        lines.append("| *bar of the default* | " + " | ".join(marks) + " | |")
    return [*lines, ""], sum(value[1] for by in rows.values() for value in by.values())


def single_zone(data: Path, cache: Cache, policies: dict[str, DeadlinePolicy]) -> tuple[list[str], int]:
    """Means over cells (zone × window) of cost over the zone's own optimum."""
    world = grid(read_spot_traces(data / "traces" / "spot_v100_9zones_2023.csv.gz")[""])
    market = market_of(world, startup_h=0.2, egress_usd=flat_egress(len(world.regions), 0.0))
    names = ["greedy", "uniform_progress", "default"]
    ratios = (0.6, 0.7, 0.8, 0.9)
    late = 0
    lines = [
        "### One V100 zone: 9 zones × three windows of 14 days × 6 starts, 48 h", "",
        "| policy | " + " | ".join(f"C/R {r:g}" for r in ratios) + " | mean | worst cell over UP |",
        "|---|" + "---|" * 6,
    ]  # fmt: skip
    figures: dict[str, list[list[float]]] = {name: [] for name in names}
    cells: dict[str, list[float]] = {name: [] for name in names}
    window = 14 * 144
    for ratio in ratios:
        job = Job(work_h=48.0, deadline_h=48.0 / ratio)
        sums: dict[str, list[float]] = {name: [] for name in names}
        for zone in range(market.zones):
            alone, place = one_zone(world, market, zone)
            for w in range(3):
                part = replace(
                    alone,
                    up=alone.up[w * window : (w + 1) * window],
                    spot_usd=alone.spot_usd[w * window : (w + 1) * window],
                    on_demand_usd=alone.on_demand_usd[w * window : (w + 1) * window],
                )
                starts = drawn_starts(part, job, 6, np.random.default_rng(0))
                least = cache.optima(f"single-{zone}-{w}", part, place, job, starts).sum()
                for name in names:
                    runs = replay(part, place, policies[name], job, starts)
                    late += int(runs.missed.sum())
                    sums[name].append(float(runs.usd.sum() / least))
        for name in names:
            figures[name].append(sums[name])
            cells[name].append(max(a / b for a, b in zip(sums[name], sums["uniform_progress"], strict=True)))
    for name in names:
        means = [float(np.mean(part)) for part in figures[name]]
        total, worst = float(np.mean(means)), max(cells[name])
        lines.append(
            f"| {name} | " + " | ".join(f"{m:.3f}" for m in means) + f" | {total:.3f} | {worst:.3f} |"
        )
    return [*lines, ""], late


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only")
    parser.add_argument("--starts", type=int, default=300)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    folder = os.environ.get("ARYLCLOUD_STUDY_DATA")
    data = Path(folder) if folder else None
    if data is None:
        print("ARYLCLOUD_STUDY_DATA does not name the study data: invented zones only", file=sys.stderr)
    cache = Cache(given.cache)
    policies = {name: POLICIES[name] for name in SHOWN}
    lines: list[str] = []
    late = 0
    for setting in settings(data, given.starts):
        if given.only in (None, setting.name):
            part, missed = table(setting, cache, {name: POLICIES[name] for name in setting.policies})
            lines, late = lines + part, late + missed
    if data is not None and given.only in (None, "single"):
        part, missed = single_zone(data, cache, policies)
        lines, late = lines + part, late + missed
    if data is not None and given.only in (None, "elastic"):
        few = {name: POLICIES[name] for name in FEW}
        part, missed = elastic_gangs(data, few, RATIOS, min(given.starts, 40))
        lines, late = lines + part, late + missed
    text = "\n".join(lines)
    print(text)
    if given.write:
        before, mark, rest = PAGE.read_text(encoding="utf-8").partition("<!-- figures -->\n")
        _, end, after = rest.partition("<!-- /figures -->")
        PAGE.write_text(before + mark + text + end + after, encoding="utf-8")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
