"""How well losses are foretold from what a home has seen: every figure of docs/results/hazards.md.

    ARYLCLOUD_STUDY_DATA=…/data python benchmarks/hazard_calibration.py --write

A home holds spot machines one after another, in a third of the zones of a record, each until it is taken or
its job (4 to 24 h) is done. Before each, the loss of another one is foretold, in any zone, from all that the
home has seen by then and nothing later. What is compared: the assumed life alone; Nelson–Aalen from 20 losses
on and the assumed life before; the assumed life as own machines correct it. Without the study data: the
invented markets only, of which the true rates are known.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from nelson_aalen import nelson_aalen
from numpy.random import Generator
from numpy.typing import NDArray

from arylcloud.core.offer import Market, Offer
from arylcloud.launcher.lifebook import Life, own_history
from arylcloud.pricing import ownrates
from arylcloud.pricing.hazard import SpotAdvisor, bundled_advisor, hazard_per_hour
from arylcloud.pricing.table import OfferTable, from_offers
from arylcloud.simulation.spottraces import SpotTrace, read_spot_traces

Floats = NDArray[np.float64]
Hold = Callable[[Generator, int, float], "tuple[float, float, bool] | None"]
"""(zone, hour) → the hour that a machine was had there, for how many hours, and whether it was taken; None:
the record has no more of it."""
PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "hazards.md"
SEEN_H = (0.0, 10.0, 40.0, 160.0, 640.0)
"""Own machine-hours, from which on a home is in a row of the table."""
MOST_H = 1500.0
MIN_LOSSES = 20
JOB_H = (4.0, 24.0)
ASSUMED, CURVES, CORRECTED = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    name: str
    places: tuple[str, ...]
    kinds: tuple[str, ...]
    """Instance type by place."""
    advisor: SpotAdvisor
    hold: Hold

    def table(self) -> OfferTable:
        rows = []
        for place, kind in zip(self.places, self.kinds, strict=True):
            cloud, region, zone = place.split("/")
            rows.append(
                Offer(
                    cloud=cloud, region=region, zone=zone, instance_type=kind, gpu="V100", gpu_count=1,
                    gpu_mem_gib=16.0, vcpus=8.0, mem_gib=61.0, market=Market.SPOT, usd_per_hour=1.0,
                    as_of=None, source="trace",
                )
            )  # fmt: skip
        return from_offers(rows)


def recorded(trace: SpotTrace, name: str, size: int = 1) -> World:
    """Machines, or gangs of ``size`` that are lost with any of them."""
    spells = [spells_of(trace, i, size) for i in range(len(trace.places))]
    end_h = trace.span_s / 3600

    def hold(generator: Generator, zone: int, at_h: float) -> tuple[float, float, bool] | None:
        job = generator.uniform(*JOB_H)
        starts, ends = spells[zone]
        k = int(np.searchsorted(ends, at_h, side="right"))
        if k == ends.size or max(starts[k], at_h) >= end_h:
            return None
        begin = max(starts[k], at_h)
        lived = min(ends[k], end_h) - begin
        if job < lived:
            return begin, job, False
        return begin, lived, bool(ends[k] < end_h)

    return World(
        name=name,
        places=trace.places,
        kinds=(trace.instance_type,) * len(trace.places),
        advisor=bundled_advisor(),
        hold=hold,
    )


def spells_of(trace: SpotTrace, zone: int, size: int) -> tuple[Floats, Floats]:
    """Begin and end, in hours, of every spell with capacity for ``size`` machines."""
    steps = trace.zones[zone]
    edges = np.append(steps.offset_s, steps.end_s) / 3600
    up = np.concatenate([[False], steps.available >= size, [False]])
    return edges[np.flatnonzero(~up[:-1] & up[1:])], edges[np.flatnonzero(up[:-1] & ~up[1:])]


def invented(seed: int, level: float) -> World:
    """Two types in three regions of three zones; the assumed life is wrong by ``level`` everywhere, by a
    factor of Gamma(3) in a region and once more in a zone. Losses come at constant rates."""
    generator = np.random.default_rng(seed)
    places, kinds, rates = [], [], []
    for kind in ("p3.2xlarge", "g5.xlarge"):
        for region in ("r1", "r2", "r3"):
            of_region = level * generator.gamma(3.0, 1 / 3.0)
            for zone in "abc":
                places.append(f"aws/{region}/{region}{zone}")
                kinds.append(kind)
                rates.append(of_region * generator.gamma(3.0, 1 / 3.0) / 12.0)

    def hold(generator: Generator, zone: int, at_h: float) -> tuple[float, float, bool]:
        life, job = generator.exponential(1 / rates[zone]), generator.uniform(*JOB_H)
        return (at_h, job, False) if job < life else (at_h, max(life, 1e-3), True)

    return World(
        name=f"Invented, machines live {1 / level:g} × as long as assumed",
        places=tuple(places),
        kinds=tuple(kinds),
        advisor=SpotAdvisor(as_of="invented", bands={}),
        hold=hold,
    )


def foretell(world: World, generator: Generator) -> list[tuple[float, ...]]:
    """One home: (own hours seen before, hours of the other machine, lost, its rate by each way)."""
    table = world.table()
    zones = generator.choice(len(world.places), max(len(world.places) // 3, 1), replace=False)
    lives: list[Life] = []
    found, now_h, seen_h = [], generator.uniform(0, 24), 0.0
    while seen_h < MOST_H:
        test_zone = int(generator.integers(len(world.places)))
        test = world.hold(generator, test_zone, now_h)
        if test is not None:
            history = own_history(lives, now_h * 3600)
            rates = [
                float(hazard_per_hour(table, advisor=world.advisor, history=h).per_hour[test_zone])
                for h in ((), history)
            ]
            curve = by_curve(world, lives, test_zone)
            found.append((seen_h, test[1], float(test[2]), rates[0], curve or rates[0], rates[1]))
        zone = int(generator.choice(zones))
        had = world.hold(generator, zone, now_h)
        if had is None:
            break
        begin_h, lived_h, lost = had
        now_h, seen_h = begin_h + lived_h, seen_h + lived_h
        cloud, region, name = world.places[zone].split("/")
        lives.append(
            Life(
                cloud=cloud, region=region, zone=name, instance_type=world.kinds[zone],
                hours=lived_h, lost=lost, at_s=now_h * 3600,
            )
        )  # fmt: skip
    return found


def by_curve(world: World, lives: list[Life], zone: int) -> float | None:
    """The place's own curve where there is one of 20 losses, the zone's before the region's."""
    _, region, name = world.places[zone].split("/")
    there = [one for one in lives if (one.region, one.instance_type) == (region, world.kinds[zone])]
    for group in ([one for one in there if one.zone == name], there):
        lost = np.array([one.lost for one in group], dtype=bool)
        if lost.sum() >= MIN_LOSSES:
            return nelson_aalen(np.array([one.hours for one in group]), lost).per_hour()
    return None


def measure(world: World, homes: int, seed: int) -> Floats:
    """Rows of :func:`foretell` of all homes."""
    rows = [row for home in range(homes) for row in foretell(world, np.random.default_rng((seed, home)))]
    return np.array(rows)


def log_loss(rows: Floats, way: int) -> float:
    """Nats per loss: of a Poisson process, rate × hours − log(rate) where it was lost."""
    hours, lost, rate = rows[:, 1], rows[:, 2], rows[:, 3 + way]
    return float((rate * hours - lost * np.log(rate)).sum() / lost.sum())


def table_of(world: World, rows: Floats, homes: int) -> list[str]:
    out = [f"### {world.name}", "", f"{len(world.places)} zones, {homes} homes.", ""]
    out += [
        "| own machine-hours before | machines foretold, lost | losses foretold / come: assumed | "
        "from 20 losses | corrected | nats per loss gained on assumed: from 20 losses | corrected |",
        "|---|---|---|---|---|---|---|",
    ]
    for low, high in zip(SEEN_H, (*SEEN_H[1:], np.inf), strict=True):
        part = rows[(rows[:, 0] >= low) & (rows[:, 0] < high)]
        lost = part[:, 2].sum()
        if lost < 10:  # too few to say anything
            continue
        ratio = [f"{part[:, 3 + way] @ part[:, 1] / lost:.2f}" for way in range(3)]
        gain = [f"{log_loss(part, ASSUMED) - log_loss(part, way):+.3f}" for way in (CURVES, CORRECTED)]
        span = f"{low:g} – {high:g}" if np.isfinite(high) else f"{low:g} –"
        out.append(f"| {span} | {len(part):,}, {lost:,.0f} | " + " | ".join([*ratio, *gain]) + " |")
    return [*out, "", *reliability(rows), ""]


def reliability(rows: Floats) -> list[str]:
    """Foretold and come, from the safest third of machines to the riskiest."""
    later = rows[rows[:, 0] >= SEEN_H[2]]
    thirds = np.array_split(later[np.argsort(later[:, 3 + CORRECTED], kind="stable")], 3)
    said = [
        f"{100 * part[:, 3 + CORRECTED] @ part[:, 1] / part[:, 1].sum():.1f} → "
        f"{100 * part[:, 2].sum() / part[:, 1].sum():.1f}"
        for part in thirds
    ]
    return [
        f"Corrected, from {SEEN_H[2]:g} own hours on, losses per 100 h foretold → come, by thirds of what "
        f"was foretold: {'; '.join(said)}."
    ]


def weights(worlds: list[World], plain: list[Floats], homes: int, seed: int) -> list[str]:
    """The one constant, halved and doubled."""
    usual = ownrates.WEIGHT
    found: dict[float, list[Floats]] = {usual: plain}
    try:
        for weight in (usual / 2, usual * 2):
            ownrates.WEIGHT = weight  # type: ignore[misc]
            found[weight] = [measure(world, homes, seed) for world in worlds]
    finally:
        ownrates.WEIGHT = usual  # type: ignore[misc]
    out = ["### The weight of what is assumed", "", "Nats per loss gained on assumed, all hours.", ""]
    out += [f"| market | {' | '.join(f'{w:g}' for w in sorted(found))} |", "|---|" + "---|" * len(found)]
    for i, world in enumerate(worlds):
        gains = [log_loss(found[w][i], ASSUMED) - log_loss(found[w][i], CORRECTED) for w in sorted(found)]
        out.append(f"| {world.name} | " + " | ".join(f"{gain:+.3f}" for gain in gains) + " |")
    return [*out, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--homes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    worlds = []
    if folder := os.environ.get("ARYLCLOUD_STUDY_DATA"):
        traces = Path(folder) / "traces"
        v100 = read_spot_traces(traces / "spot_v100_9zones_2023.csv.gz")[""]
        worlds.append(recorded(v100, "V100, nine zones of AWS, 2023"))
        gangs = read_spot_traces(traces / "spot_v100_gangs_2023.csv.gz")
        for name, size in (("4-node", 4), ("16-node", 16)):
            worlds.append(recorded(gangs[name], f"Gangs of {size} V100, 2023", size))
    worlds += [invented(7, level) for level in (0.25, 1.0, 4.0)]
    found = [measure(world, args.homes, args.seed) for world in worlds]
    out = [
        line for world, rows in zip(worlds, found, strict=True) for line in table_of(world, rows, args.homes)
    ]
    text = "\n".join(out + weights(worlds, found, args.homes, args.seed))
    print(text)
    if args.write:
        page = PAGE.read_text(encoding="utf-8")
        head, _, rest = page.partition("<!-- figures -->\n")
        _, end, tail = rest.partition("<!-- end of figures -->")
        PAGE.write_text(f"{head}<!-- figures -->\n{text}\n{end}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
