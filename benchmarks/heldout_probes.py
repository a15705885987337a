"""SkyNomad's rounds of probes (``data/h100_16_runs``): of 16 asked, how many H100 machines each zone gave.

A round every 10 minutes, a JSON file each; 13 GCP zones. Where a round is missing the one before stands,
and is counted. Prices: ``data/spot_price_cache/gcp``, of an 8-GPU machine in each region, one reading
(2025-10-22): what was probed are machines of one GPU (a3-highgpu-1g), an eighth of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from arylcloud.simulation.spottraces import SpotTrace, ZoneSteps

ROUND_S = 600
PRICED_GPUS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    trace: SpotTrace
    rounds: int
    missing: int
    """Rounds that were not made: the one before stands."""


def read_probes(data: Path, *, gpus_paid: int = 1) -> Probes:
    """``data``: the folder of that name. ``gpus_paid``: of how many GPUs a machine's price is to be."""
    rounds: dict[int, dict[str, int]] = {}
    first: datetime | None = None
    for path in sorted((data / "h100_16_runs").glob("*.json")):
        found = json.loads(path.read_bytes())
        at = datetime.fromisoformat(found["scheduled_at"])
        first = first or at
        number = round((at - first).total_seconds() / ROUND_S)
        rounds[number] = {
            zone: int(told["instances_created"]) for zone, told in found["zone_results"].items()
        }
    ticks = max(rounds) + 1
    zones = sorted(rounds[0])
    available = np.zeros((ticks, len(zones)), dtype=np.int64)
    for tick in range(ticks):
        told = rounds.get(tick)
        available[tick] = available[tick - 1] if told is None else [told[zone] for zone in zones]
    places, steps = [], []
    for i, zone in enumerate(zones):
        region = zone.rpartition("-")[0]
        usd = json.loads((data / "spot_price_cache" / "gcp" / f"{region}_a3-highgpu-8g.json").read_bytes())
        places.append(f"gcp/{region}/{zone}")
        steps.append(
            ZoneSteps(
                offset_s=np.arange(ticks) * float(ROUND_S),
                available=available[:, i],
                spot_usd_per_hour=np.full(ticks, float(usd["price"]) * gpus_paid / PRICED_GPUS),
                on_demand_usd_per_hour=np.full(
                    ticks, float(usd["on_demand_price"]) * gpus_paid / PRICED_GPUS
                ),
                end_s=float(ticks * ROUND_S),
            )
        )
    trace = SpotTrace(
        name="h100",
        places=tuple(places),
        instance_type="a3-highgpu-1g",
        gpu="H100",
        gpu_count=1,
        zones=tuple(steps),
    )
    return Probes(trace=trace, rounds=ticks, missing=ticks - len(rounds))
