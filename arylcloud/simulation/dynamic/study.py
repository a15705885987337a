"""What the pricing study of 2020 ran on: its instances, its throughputs, its prices as series.

Deepak Narayanan et al., "Analysis and Exploitation of Dynamic Pricing in the Public Cloud for ML Training",
DISPA 2020; ``stanford-futuredata/training_on_a_dime`` at 85f6595 (MIT). The figures are study data: nothing
of them is bundled.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from arylcloud.core.errors import UsageError
from arylcloud.core.offer import Market
from arylcloud.simulation.dynamic.series import Floats, PriceSeries, Rental, price_series

SOURCE: Final = "training_on_a_dime"
INSTANCES: Final[Mapping[str, tuple[str, int]]] = MappingProxyType(
    {
        "p2.xlarge": ("K80", 1), "p2.8xlarge": ("K80", 8), "p2.16xlarge": ("K80", 16),
        "p3.2xlarge": ("V100", 1), "p3.8xlarge": ("V100", 4), "p3.16xlarge": ("V100", 8),
        "Standard_NC6": ("K80", 1), "Standard_NC12": ("K80", 2), "Standard_NC24": ("K80", 4),
        "Standard_NC6s_v2": ("P100", 1), "Standard_NC12s_v2": ("P100", 2), "Standard_NC24s_v2": ("P100", 4),
        "Standard_NC6s_v3": ("V100", 1), "Standard_NC12s_v3": ("V100", 2), "Standard_NC24s_v3": ("V100", 4),
    }
)  # fmt: skip
"""Instance type → GPU and count. The InfiniBand sizes (NC24r…) are dearer for the same GPUs; the study's own
table keeps one instance per GPU and count, too."""
BASELINE: Final = "p3.2xlarge"
MODELS: Final = (
    "A3C", "CycleGAN", "LM (batch size 80)", "Recommendation (batch size 8192)",
    "ResNet-50 (batch size 128)", "Transformer (batch size 256)",
)  # fmt: skip
"""Those of the study's bar chart; the table of throughputs has 26."""

Steps = dict[Rental, list[tuple[float, float]]]


def text_rows(path: Path) -> Iterator[dict[str, str]]:
    """Rows of a CSV with a header, ``.gz`` or plain."""
    if not path.is_file():
        raise UsageError(
            f"{path} is not there", hint="ARYLCLOUD_STUDY_DATA names the folder of the study data"
        )
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    yield from csv.DictReader(io.StringIO(data.decode()))


def unix_s(text: str) -> float:
    """Unix seconds of an ISO date or date-time; UTC where it names no zone."""
    moment = datetime.fromisoformat(text.replace("Z", "+00:00") if "T" in text else f"{text}T00:00:00+00:00")
    return moment.timestamp()


def study_prices(folder: Path) -> PriceSeries:
    """Spot prices 2019-12-20 … 2020-03-23: AWS by zone, every change; Azure by region, a row a day."""
    steps: Steps = {}
    for row in text_rows(folder / "prices" / "spot_history.csv.gz"):
        found = INSTANCES.get(row["instance_type"])
        if row["source"] != SOURCE or found is None:
            continue
        gpu, count = found
        rental = Rental(
            cloud=row["cloud"], region=row["region"], zone=row["zone"], instance_type=row["instance_type"],
            gpu=gpu, gpu_count=count, market=Market.SPOT,
        )  # fmt: skip
        steps.setdefault(rental, []).append((unix_s(row["timestamp_utc"]), float(row["price_usd_hour"])))
    return price_series(steps)


def study_rates(folder: Path) -> dict[str, dict[str, float]]:
    """Model → GPU → steps per second on one GPU, the study's own table (26 models, K80, P100, V100)."""
    return {
        row["job_type"]: {gpu: float(row[f"{gpu.lower()}_steps_per_s"]) for gpu in ("K80", "P100", "V100")}
        for row in text_rows(folder / "gavel" / "training_on_a_dime_throughputs.csv")
    }


def rates_over(rentals: Sequence[Rental], by_gpu: Mapping[str, float]) -> Floats:
    """Work per second of one GPU of each rental, shape (m,); 0 where the model was not measured."""
    return np.array([by_gpu.get(rental.gpu, 0.0) for rental in rentals])


def gavel_rates(folder: Path) -> dict[str, dict[str, float]]:
    """The same of Gavel's later table: one GPU, without the models of whom a GPU is missing."""
    found: dict[str, dict[str, float]] = {}
    for row in text_rows(folder / "gavel" / "isolated_throughputs_simulation.csv"):
        if row["scale_factor"] == "1" and row["consolidated"] == "1":
            found.setdefault(row["job_type"], {})[row["worker_type"].upper()] = float(row["steps_per_s"])
    return {model: rates for model, rates in found.items() if len(rates) == 3}
