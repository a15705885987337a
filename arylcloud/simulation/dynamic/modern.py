"""2023–2026: the spot prices that are on record, and 1-GPU training rates of ten models.

GCP's spot prices by region (every change, 2023-05…2026-07); daily prices of smaller clouds (2026-02…05).
Not used: AWS, whose spot prices then are not on record; Azure, with one to three readings per offer
from 2026-04 on; on-demand lists, where one wrong row (8 A100 for $7.70 an hour, five months) sets the result.
All of it is study data: nothing is bundled.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from arylcloud.core.offer import Market
from arylcloud.simulation.dynamic.series import PriceSeries, Rental, price_series
from arylcloud.simulation.dynamic.study import Steps, text_rows, unix_s

GPUS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "V100": "V100", "A10": "A10", "A100": "A100-PCIE", "A100-80GB": "A100-80GB", "H100": "H100",
        "H200": "H200", "B200": "B200",
        "A100_PCIE_40GB": "A100-PCIE", "A100_SXM_40GB": "A100-PCIE", "A100_PCIE_80GB": "A100-80GB-PCIE",
        "A100_SXM_80GB": "A100-80GB", "H100_PCIE": "H100-PCIE", "H100_SXM": "H100",
    }
)  # fmt: skip
"""Names in the price files → in the measured rates. A 40 GB A100 on SXM was not measured: its PCIe card
stands in. What was not measured at all (L4, T4, L40S, MI300X) is left out."""
MODERN_END_S: Final = MappingProxyType({False: unix_s("2026-07-22"), True: unix_s("2026-05-08")})
"""Where the series end, without and with the smaller clouds."""
MODERN_BEGIN_S: Final = MappingProxyType({False: unix_s("2023-05-11"), True: unix_s("2026-02-21")})
"""On 2023-05-09 five regions list two A100s at a fifth of their price, for one day."""
MARKETPLACES: Final = frozenset({"vast.ai"})
"""A median over private hosts is not a price at which one machine stays."""
SMALLER_FROM: Final = "2026-02-21"
"""The first days of the record hold prices of whole machines as those of one GPU."""
WRONG_ROWS: Final = MappingProxyType({("runpod", "H200", "on_demand"): "2026-04-17"})
"""From that day on an H200 is listed at $0.50, after $3.59 and before $3.79."""
PRECISION: Final = "amp-fp16"
_RATES_FROM: Final = "lambdal/deeplearning-benchmark"
_ONE_SOURCE: Final = "https://getdeploying.com"


def modern_prices(folder: Path, *, smaller_clouds: bool) -> PriceSeries:
    """GCP's spot. ``smaller_clouds``: and those on record on half the days, every market."""
    known = _instances(folder)
    steps: Steps = {}
    for row in text_rows(folder / "prices" / "spot_history.csv.gz"):
        found = known.get((row["cloud"], row["instance_type"]))
        if found is None or row["cloud"] != "gcp":
            continue
        gpu, count = found
        rental = Rental(
            cloud=row["cloud"], region=row["region"], zone=row["zone"], instance_type=row["instance_type"],
            gpu=gpu, gpu_count=count, market=Market.SPOT,
        )  # fmt: skip
        steps.setdefault(rental, []).append((unix_s(row["timestamp_utc"]), float(row["price_usd_hour"])))
    if smaller_clouds:
        steps |= _smaller_clouds(folder)
    return price_series(steps)


def modern_rates(folder: Path) -> dict[str, dict[str, float]]:
    """Model → GPU → work per second on one GPU, mixed precision; the fastest row of several."""
    found: dict[str, dict[str, float]] = {}
    for row in text_rows(folder / "profiles" / "profiles.csv.gz"):
        wanted = row["source"].startswith(_RATES_FROM) and row["precision"] == PRECISION
        if not wanted or row["num_gpus"] != "1" or row["quality"] != "ok":
            continue
        rates = found.setdefault(row["model"], {})
        rates[row["gpu_name"]] = max(rates.get(row["gpu_name"], 0.0), float(row["throughput_total"]))
    return dict(sorted(found.items()))


def _instances(folder: Path) -> dict[tuple[str, str], tuple[str, int]]:
    """(cloud, instance type) → GPU as in the rates, and count; without fractions and unknown counts."""
    found: dict[tuple[str, str], tuple[str, int]] = {}
    for row in text_rows(folder / "prices" / "offers.csv.gz"):
        if row["gpu_name"] in GPUS and row["gpu_count"].isdigit() and int(row["gpu_count"]) > 0:
            found[row["cloud"], row["instance_type"]] = (GPUS[row["gpu_name"]], int(row["gpu_count"]))
    return found


def _smaller_clouds(folder: Path) -> Steps:
    """One rental per provider, GPU and market: the day's median over its regions and counts.

    Of one source only, 2026-02-21…05-08: where the next one takes over, most prices jump at once.
    """
    seen: dict[Rental, dict[str, list[float]]] = {}
    days: set[str] = set()
    for row in text_rows(folder / "prices" / "neocloud_history.csv.gz"):
        if row["source_url"] != _ONE_SOURCE or row["date"] < SMALLER_FROM:
            continue
        days.add(row["date"])
        if row["gpu_model"] not in GPUS or row["provider"] in {*MARKETPLACES, "aws", "azure", "gcp"}:
            continue
        if row["date"] >= WRONG_ROWS.get((row["provider"], row["gpu_model"], row["rental_type"]), "9999"):
            continue
        rental = Rental(
            cloud=row["provider"], region="any", zone="", instance_type=f"1x-{row['gpu_model']}",
            gpu=GPUS[row["gpu_model"]], gpu_count=1, market=Market(row["rental_type"]),
        )  # fmt: skip
        prices = seen.setdefault(rental, {}).setdefault(row["date"], [])
        prices.append(float(row["price_median_usd_per_gpu"]))
    return {
        rental: [(unix_s(day), statistics.median(prices)) for day, prices in by_day.items()]
        for rental, by_day in seen.items()
        if 2 * len(by_day) >= len(days)
    }
