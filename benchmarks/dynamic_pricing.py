"""Dynamic pricing: every figure of docs/results/dynamic-pricing.md, by one command.

    ARYLCLOUD_STUDY_DATA=…/data python benchmarks/dynamic_pricing.py [--write]

Prints Markdown; ``--write`` puts it between the marks of the page. Exits 1 where the study's table is
missed by more than 3 % in its own convention or 2 % in the clean one, or where a job with priced moves ends
dearer than one that never moves.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from dynamic_modern import modern
from dynamic_world import DATA_GB, HOURS, Out, World, world

from arylcloud.pricing.tariffs import load_tariffs
from arylcloud.simulation.dynamic.notebook import Strategy, days_of, mean_usd
from arylcloud.simulation.dynamic.replay import DAY_S, Objective, chosen
from arylcloud.simulation.dynamic.series import PriceSeries, Rental
from arylcloud.simulation.dynamic.study import (
    BASELINE,
    MODELS,
    gavel_rates,
    rates_over,
    study_prices,
    study_rates,
    unix_s,
)

PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "dynamic-pricing.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
SHORT = ("A3C", "CycleGAN", "LM-80", "Recomm-8192", "ResNet50-128", "Transformer-256")
LABELS = {
    Strategy.GPU_TYPE: "+ GPU type",
    Strategy.PACKED: "+ multi-GPU",
    Strategy.MULTI_CLOUD: "+ multi-cloud",
    Strategy.DYNAMIC: "+ dynamic",
}
PUBLISHED: dict[tuple[str, int], dict[Strategy, tuple[float, ...]]] = {
    ("us-east-1", 4): {
        Strategy.GPU_TYPE: (1.32, 1.00, 1.00, 1.01, 1.00, 1.00),
        Strategy.PACKED: (1.71, 1.08, 1.08, 1.31, 1.08, 1.11),
        Strategy.MULTI_CLOUD: (3.10, 1.54, 1.70, 2.38, 1.49, 2.36),
        Strategy.DYNAMIC: (3.53, 1.64, 1.81, 2.76, 1.53, 3.21),
    },
    ("us-east-1", 8): {
        Strategy.GPU_TYPE: (1.32, 1.00, 1.00, 1.01, 1.00, 1.00),
        Strategy.PACKED: (1.72, 1.09, 1.09, 1.32, 1.09, 1.12),
        Strategy.MULTI_CLOUD: (3.12, 1.56, 1.72, 2.39, 1.50, 2.35),
        Strategy.DYNAMIC: (3.72, 1.72, 1.91, 2.88, 1.58, 3.47),
    },
    ("us-west-2", 4): {
        Strategy.GPU_TYPE: (1.87, 1.00, 1.00, 1.43, 1.00, 1.21),
        Strategy.PACKED: (1.87, 1.14, 1.14, 1.43, 1.14, 1.21),
        Strategy.MULTI_CLOUD: (3.38, 1.66, 1.83, 2.59, 1.61, 2.57),
        Strategy.DYNAMIC: (3.86, 1.78, 1.96, 3.03, 1.66, 3.52),
    },
    ("us-west-2", 8): {
        Strategy.GPU_TYPE: (1.87, 1.00, 1.00, 1.43, 1.00, 1.21),
        Strategy.PACKED: (1.87, 1.13, 1.13, 1.43, 1.13, 1.21),
        Strategy.MULTI_CLOUD: (3.38, 1.67, 1.84, 2.60, 1.61, 2.55),
        Strategy.DYNAMIC: (4.05, 1.86, 2.07, 3.14, 1.72, 3.78),
    },
}
"""Cost of the baseline ÷ cost of the strategy, as the outputs of the study's notebook show them."""
CLEAN: dict[str, tuple[tuple[float, float], ...]] = {
    "us-east-1": ((3.91, 3.91), (1.74, 1.82), (2.00, 2.08), (3.00, 3.00), (1.65, 1.66), (3.30, 3.68)),
    "us-west-2": ((4.35, 4.35), (1.93, 2.03), (2.22, 2.31), (3.33, 3.33), (1.84, 1.84), (3.67, 4.09)),
}
"""Static and dynamic over several clouds, 4 V100-days, re-simulated without the notebook's faults."""
CHECKPOINT_GB = 1.0
FLAT_USD = 9.0


def study_world(prices: PriceSeries, region: str) -> World:
    """AWS's ``region`` and all of Azure; the 24 starts on which both can be seen."""
    return world(
        prices.only(lambda r: r.cloud == "azure" or region in (r.region, "any")),
        lambda r: region in (r.region, "any") and r.instance_type == BASELINE,
        unix_s("2020-02-24") + DAY_S * np.arange(24),
        CHECKPOINT_GB,
    )


def own_convention(out: Out, prices: PriceSeries, rates: Mapping[str, Mapping[str, float]]) -> None:
    out.say("## The published table, in the study's own convention", "")
    out.say("Cost of the baseline ÷ cost, ours / published (the outputs of the study's notebook).")
    worst = 0.0
    for (region, length), published in PUBLISHED.items():
        days = days_of(prices, region)
        found = [mean_usd(days, rates[model], length) for model in MODELS]
        rows = []
        for strategy, theirs in published.items():
            ours = [usd[Strategy.BASELINE] / usd[strategy] for usd in found]
            off = [abs(a / b - 1) for a, b in zip(ours, theirs, strict=True)]
            worst = max(worst, *off)
            rows.append(
                [LABELS[strategy], *(f"{a:.2f} / {b:.2f}" for a, b in zip(ours, theirs, strict=True))]
            )
        out.table([f"{region}, {length} V100-days", *SHORT], rows)
    out.say(f"Largest difference {worst:.2%}; allowed 3 %.", "")
    out.bar("own convention", worst, 0.03)


def clean_convention(out: Out, prices: PriceSeries, rates: Mapping[str, Mapping[str, float]]) -> None:
    out.say("## The clean convention, and moves that cost", "")
    out.say(
        "Prices carried forward and paid as they change, only the 24 starts that see both clouds, every",
        "instance compared per GPU. Baseline ÷ cost, 4 V100-days; static = chosen once over both clouds;",
        "expected: our own earlier re-simulation. A priced move pays boot (300 s), hand-over (120 s, both",
        "sides) and egress at list price: of a checkpoint (1 GB, taken for all six), or of that and 100 GB",
        "of data; guarded.",
    )
    worst = 0.0
    for region, theirs in CLEAN.items():
        here = study_world(prices, region)
        rows: list[list[str]] = [["static / expected"], ["dynamic, free moves / expected"]]
        rows += [["dynamic, moves priced (1 GB)"], ["dynamic, moves priced (101 GB)"]]
        for model, (static, dynamic) in zip(MODELS, theirs, strict=True):
            work = rates[model]["V100"] * DAY_S * 4
            base = here.baseline_usd(rates[model], work)
            found = [
                base / float(here.runs(rates[model], work, **how).usd.sum())
                for how in (
                    {"every_s": None},
                    {"moving": here.free},
                    {"moving": here.priced, "guarded": True},
                    {"moving": here.with_data, "guarded": True},
                )
            ]
            worst = max(worst, abs(found[0] / static - 1), abs(found[1] / dynamic - 1))
            rows[0].append(f"{found[0]:.2f} / {static:.2f}")
            rows[1].append(f"{found[1]:.2f} / {dynamic:.2f}")
            rows[2].append(f"{found[2]:.2f}")
            rows[3].append(f"{found[3]:.2f}")
        out.table([region, *SHORT], rows)
    out.say(f"Largest difference {worst:.2%}; allowed 2 %.", "")
    out.bar("clean convention", worst, 0.02)


def never_dearer(out: Out, prices: PriceSeries, rates: Mapping[str, Mapping[str, float]]) -> None:
    regions = sorted({r.region for r in prices.rentals if r.cloud == "aws"})
    tally = {name: [0, 0, 0.0, 0.0, 0.0] for name in ("launcher", "guarded")}
    for region in [*regions, "any"]:
        here = study_world(prices, region)
        for by_gpu in rates.values():
            for length in (1, 2, 4, 8):
                work = by_gpu["V100"] * DAY_S * length
                static = here.runs(by_gpu, work, every_s=None).usd
                for name, row in tally.items():
                    usd = here.runs(by_gpu, work, moving=here.priced, guarded=name == "guarded").usd
                    row[0] += usd.size
                    row[1] += int((usd > static * (1 + 1e-9)).sum())
                    row[2] = max(row[2], float((usd / static).max()) - 1)
                    row[3] += float(static.sum())
                    row[4] += float(usd.sum())
    out.say("## Never dearer than staying", "")
    out.say(
        f"{len(rates)} models × {len(regions)} AWS regions and all of them at once, each with Azure × 24",
        "starts × 1, 2, 4, 8 V100-days; moves of 1 GB, priced. The launcher's rule takes today's prices to",
        "hold for the rest of the work, and sometimes leaves a place that is dear for a day; the guard",
        "(`simulation/dynamic/guard`) asks first whether that could end worse than staying.",
    )
    names = {"launcher": "the launcher's", "guarded": "guarded"}
    rows = [
        [names[name], f"{n:,}", f"{bad:,}", f"{worst:.1%}", f"{1 - usd / static:.2%}"]
        for name, (n, bad, worst, static, usd) in tally.items()
    ]
    out.table(["rule", "runs", "dearer than static", "by at most", "saved on static, all runs"], rows)
    out.bar("runs dearer than static", tally["guarded"][1], 0)


def finding_a(out: Out, prices: PriceSeries, rates: Mapping[str, Mapping[str, float]]) -> None:
    out.say("## Finding a: the best instance depends on objective and model", "")
    out.say(
        "What is chosen at the 24 starts, all AWS regions and Azure; mixed = dollars + the value of an hour."
    )
    here = study_world(prices, "any")
    rows = []
    for name, objective in (
        ("cost", Objective()),
        ("mixed, $0.10 an hour", Objective(usd_per_hour_of_time=0.1)),
        ("mixed, $1 an hour", Objective(usd_per_hour_of_time=1.0)),
        ("time", Objective(fastest=True)),
    ):
        row = [name]
        for model in MODELS:
            best = chosen(here.all, rates_over(here.all.rentals, rates[model]), here.starts_s, objective)
            count = Counter(here.all.rentals[i].gpu for i in best)
            row.append(", ".join(f"{gpu} {n}" for gpu, n in count.most_common()))
        rows.append(row)
    out.table(["objective", *SHORT], rows)
    clouds = Counter(
        here.all.rentals[i].cloud
        for model in MODELS
        for i in chosen(here.all, rates_over(here.all.rentals, rates[model]), here.starts_s, Objective())
    )
    out.say(f"Clouds chosen for cost: {dict(clouds)}.", "")


def finding_b(out: Out, prices: PriceSeries, rates: Mapping[str, Mapping[str, float]]) -> None:
    out.say("## Finding b: moving is cheap", "")
    out.say(
        "us-east-1 and Azure, 4 V100-days, guarded: moves a run, what one costs, its share of the run's cost."
    )
    here = study_world(prices, "us-east-1")
    rows = []
    for name, moving in (("1 GB", here.priced), ("101 GB", here.with_data)):
        row = [name]
        for model in MODELS:
            runs = here.runs(rates[model], rates[model]["V100"] * DAY_S * 4, moving=moving, guarded=True)
            count, usd = int(runs.moves.sum()), float(runs.move_usd.sum())
            each = f"{count / runs.moves.size:.2f} × ${usd / count:.2f}" if count else "none"
            row.append(f"{each} = {usd / runs.usd.sum():.2%}")
        rows.append(row)
    out.table(["crossing", *SHORT], rows)
    days = days_of(prices, "us-east-1")
    found = [mean_usd(days, rates[model], 4) for model in MODELS]
    flat = [
        f"{usd[Strategy.BASELINE] / usd[Strategy.MULTI_CLOUD]:.2f} → "
        f"{usd[Strategy.BASELINE] / (usd[Strategy.DYNAMIC] + FLAT_USD):.2f}"
        for usd in found
    ]
    out.say("The study's convention with the flat $9 a run that its notebook can add and its table does not:")
    out.table(["static → dynamic with $9", *SHORT], [["us-east-1, 4 V100-days", *flat]])
    tariffs = load_tariffs()
    pairs = (
        ("azure/eastus", "azure/southcentralus"),
        ("aws/us-east-1", "aws/us-west-2"),
        ("aws/us-east-1", "azure/eastus"),
        ("azure/eastus", "aws/us-east-1"),
    )
    fees = [(one, to, tariffs.egress(one, to).usd) for one, to in pairs]
    static = here.runs(rates["A3C"], rates["A3C"]["V100"] * DAY_S * 4, every_s=None).usd.mean()
    rows = [
        [f"{one} → {to}", f"${usd:.2f}", f"${usd * (DATA_GB + 1):.2f}", f"{usd * (DATA_GB + 1) / static:.0%}"]
        for one, to, usd in fees
        if usd is not None
    ]
    out.table(["egress", "1 GB", "101 GB", f"of a run at ${static:.2f} (A3C)"], rows)


def finding_c(out: Out, prices: PriceSeries, rates: Mapping[str, Mapping[str, float]]) -> None:
    out.say("## Finding c: no need to choose more than once a day", "")
    out.say("Static ÷ dynamic, mean of the six models, 4 V100-days, by hours from choice to choice.")
    both = study_world(prices, "us-east-1")
    small = prices.only(lambda r: r.cloud == "aws" and r.gpu_count == 1)
    aws = world(small, lambda r: r.instance_type == BASELINE, both.starts_s, CHECKPOINT_GB)
    east = world(small.only(lambda r: r.region == "us-east-1"), aws_baseline, both.starts_s, CHECKPOINT_GB)
    rows = []
    for name, here in (
        ("us-east-1 and Azure", both),
        ("AWS alone, 1-GPU types, all regions", aws),
        ("AWS alone, 1-GPU types, us-east-1", east),
    ):
        for kind in ("free", "priced"):
            moving = here.free if kind == "free" else here.priced
            row = [f"{name}, moves {kind}"]
            for hours in HOURS:
                gain = []
                for model in MODELS:
                    work = rates[model]["V100"] * DAY_S * 4
                    static = here.runs(rates[model], work, every_s=None).usd.sum()
                    how = {"every_s": hours * 3600.0, "moving": moving, "guarded": kind == "priced"}
                    gain.append(static / here.runs(rates[model], work, **how).usd.sum())
                row.append(f"{float(np.mean(gain)):.4f}")
            rows.append(row)
    out.table(["", *(f"{hours} h" for hours in HOURS)], rows)


def aws_baseline(rental: Rental) -> bool:
    return rental.instance_type == BASELINE


def finding_d(
    out: Out,
    prices: PriceSeries,
    rates: Mapping[str, Mapping[str, float]],
    later: Mapping[str, Mapping[str, float]],
) -> None:
    out.say("## Finding d: up to 3.5 times cheaper", "")
    out.say("Clean convention, us-east-1, 4 V100-days: the gain of the choice, times that of choosing again.")
    here = study_world(prices, "us-east-1")
    rows = []
    for name, table in (("the study's throughputs", rates), ("Gavel's throughputs", later)):
        for kind in ("free", "priced"):
            row = [f"{name}, moves {kind}"]
            for model in MODELS:
                work = table[model]["V100"] * DAY_S * 4
                base = here.baseline_usd(table[model], work)
                static = float(here.runs(table[model], work, every_s=None).usd.sum())
                moving = here.free if kind == "free" else here.priced
                usd = float(here.runs(table[model], work, moving=moving, guarded=kind == "priced").usd.sum())
                row.append(f"{base / static:.2f} × {static / usd:.2f}")
            rows.append(row)
    out.table(["", *SHORT], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the figures into the page")
    options = parser.parse_args()
    study = os.environ.get("ARYLCLOUD_STUDY_DATA")
    if study is None:
        print("ARYLCLOUD_STUDY_DATA does not name the study data: nothing done")
        return 0
    folder, begun, out = Path(study), time.process_time(), Out()
    prices, rates = study_prices(folder), study_rates(folder)
    own_convention(out, prices, rates)
    clean_convention(out, prices, rates)
    never_dearer(out, prices, rates)
    finding_a(out, prices, rates)
    finding_b(out, prices, rates)
    finding_c(out, prices, rates)
    finding_d(out, prices, rates, gavel_rates(folder))
    modern(out, folder)
    text = "\n".join(out.lines).replace("\n\n\n", "\n\n")
    print(text)
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{text.strip()}\n\n{END}{rest.partition(END)[2]}")
    print(f"CPU seconds: {time.process_time() - begun:.0f}", file=sys.stderr)
    for failure in out.failures:
        print(f"over its bar: {failure}", file=sys.stderr)
    return 1 if out.failures else 0


if __name__ == "__main__":
    sys.exit(main())
