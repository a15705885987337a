"""Dynamic pricing on the prices of 2023–2026: a part of ``dynamic_pricing.py``, which runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from dynamic_world import HOURS, Out, World, world

from arylcloud.simulation.dynamic.modern import (
    MODERN_BEGIN_S,
    MODERN_END_S,
    modern_prices,
    modern_rates,
)
from arylcloud.simulation.dynamic.replay import DAY_S, Objective, chosen, replay
from arylcloud.simulation.dynamic.series import Rental
from arylcloud.simulation.dynamic.study import rates_over

MODERN_CHECKPOINT_GB = 10.0
MODERN_UNKNOWN_USD_PER_GB = 0.12


def modern(out: Out, folder: Path) -> None:
    out.say("## The same on the prices of 2023–2026", "")
    rates = modern_rates(folder)
    for title, smaller, step in (
        ("GCP spot, 2023-05-11 … 2026-07-22, a start a week", False, 7),
        ("GCP spot and smaller clouds, 2026-02-21 … 05-08, a start a day", True, 1),
    ):
        series = modern_prices(folder, smaller_clouds=smaller)
        clouds = sorted({r.cloud for r in series.rentals})
        out.say(f"### {title}", "", f"{len(series.rentals)} rentals of {', '.join(clouds)}.")
        for length in (4, 30):
            end = MODERN_END_S[smaller] - length * DAY_S
            starts = np.arange(MODERN_BEGIN_S[smaller], end, step * DAY_S)
            here = world(series, one_a100, starts, MODERN_CHECKPOINT_GB, MODERN_UNKNOWN_USD_PER_GB)
            modern_gains(out, here, rates, length, smaller)
        modern_findings(out, here, rates, length)


def modern_gains(
    out: Out, here: World, rates: Mapping[str, Mapping[str, float]], length: int, smaller: bool
) -> None:
    home = here.all.only(lambda r: r.region == "us-central1")
    gcp = here.all.only(lambda r: r.cloud == "gcp")
    reaches = (home.only(lambda r: r.gpu_count == 1), home, gcp)
    rows, dearer, runs = [], 0, len(rates) * here.starts_s.size
    for model, by_gpu in rates.items():
        work = by_gpu["A100-PCIE"] * DAY_S * length
        base = here.baseline_usd(by_gpu, work)
        costs = [
            replay(part, rates_over(part.rentals, by_gpu), work, here.starts_s, every_s=None).usd
            for part in reaches
        ]
        static = here.runs(by_gpu, work, every_s=None).usd
        free = here.runs(by_gpu, work, moving=here.free).usd
        priced = here.runs(by_gpu, work, moving=here.priced, guarded=True)
        dearer += int((priced.usd > static * (1 + 1e-9)).sum())
        costs += [static, free, priced.usd] if smaller else [free, priced.usd]
        share = float(priced.move_usd.sum() / priced.usd.sum())
        rows.append(
            [
                model,
                *(f"{base / usd.sum():.2f}" for usd in costs),
                f"{priced.moves.mean():.2f}",
                f"{share:.2%}",
            ]
        )
    head = [f"{length} A100-days", "+ GPU type", "+ multi-GPU", "+ regions"]
    head += ["+ clouds"] if smaller else []
    out.table([*head, "+ dynamic, free", "+ dynamic, priced", "moves a run", "their cost"], rows)
    out.say(
        f"{here.starts_s.size} starts; dearer than static with priced moves: {dearer} of {runs:,} runs.", ""
    )
    out.bar(f"{length} A100-days of 2023–2026, dearer than static", dearer, 0)


def modern_findings(out: Out, here: World, rates: Mapping[str, Mapping[str, float]], length: int) -> None:
    rows = []
    for model, by_gpu in rates.items():
        row = [model]
        for objective in (Objective(), Objective(usd_per_hour_of_time=5.0), Objective(fastest=True)):
            rate = rates_over(here.all.rentals, by_gpu)
            found = Counter(here.all.rentals[i].gpu for i in chosen(here.all, rate, here.starts_s, objective))
            row.append(", ".join(f"{gpu} {n / here.starts_s.size:.0%}" for gpu, n in found.most_common(3)))
        rows.append(row)
    out.table(["chosen for", "cost", "mixed, $5 an hour", "time"], rows)
    rows = []
    for kind, moving in (("free", here.free), ("priced", here.priced)):
        row = [f"{length} A100-days, moves {kind}"]
        for hours in HOURS:
            how = {"every_s": hours * 3600.0, "moving": moving, "guarded": kind == "priced"}
            gain = []
            for by_gpu in rates.values():
                work = by_gpu["A100-PCIE"] * DAY_S * length
                static = here.runs(by_gpu, work, every_s=None).usd.sum()
                gain.append(static / here.runs(by_gpu, work, **how).usd.sum())
            row.append(f"{float(np.mean(gain)):.4f}")
        rows.append(row)
    out.table(["static ÷ dynamic, by hours between choices", *(f"{hours} h" for hours in HOURS)], rows)


def one_a100(rental: Rental) -> bool:
    return (rental.region, rental.instance_type) == ("us-central1", "a2-highgpu-1g")
