"""The rows behind the table of the estimator's errors, as samples: one per workload and conditions.

Lambda's rows carry no licence and are never shipped; they are read from the study data, for this only.
"""

from __future__ import annotations

import csv
import gzip
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from arylcloud.core import gpus
from arylcloud.planner.completion import Node, node_of
from arylcloud.planner.factors import Sample
from arylcloud.planner.model_left_out import family_of, library_samples
from arylcloud.planner.profiles import library

Rows = list[dict[str, str]]
GAVEL_COUNTS = ("1", "2", "4", "8")


def read(data: Path) -> Rows:
    """The ``ok`` rows of profiles.csv.gz whose GPU is known by name."""
    with gzip.open(data / "profiles" / "profiles.csv.gz", "rt", encoding="utf-8", newline="") as file:
        return [r for r in csv.DictReader(file) if r["quality"] == "ok" and gpus.find(r["gpu_name"])]


def source(row: dict[str, str]) -> str:
    return re.split("[@:]", row["source"], maxsplit=1)[0]


def _samples(rows: Iterable[tuple[str, str, str, str, float]], kind: str = "") -> Iterator[Sample]:
    """(model, conditions, GPU, precision, rate) → the median rate per GPU."""
    found: dict[tuple[str, str], dict[Node, list[float]]] = defaultdict(lambda: defaultdict(list))
    for model, conditions, gpu, precision, rate in rows:
        node = node_of(gpus.resolve(gpu), precision)
        if node is not None and rate > 0:
            found[model, conditions][node].append(rate)
    for (model, conditions), by_node in found.items():
        rates = {node: math.log(statistics.median(v)) for node, v in by_node.items()}
        if len(rates) > 1:
            yield Sample(family_of(model), f"{model} {conditions}", rates, kind)


def lambda_1gpu(rows: Rows) -> list[Sample]:
    ours = [r for r in rows if source(r).startswith("lambdal/") and r["num_gpus"] == "1"]
    return list(
        _samples(
            (
                r["model"],
                r["precision"],
                r["gpu_name"],
                "tf32" if "tf32" in r["precision"] else "16bit",
                float(r["throughput_total"]),
            )
            for r in ours
        )
    )


def mlperf_8gpu(rows: Rows, *, by_round: bool, steady: bool) -> list[Sample]:
    """``by_round``: a round's code is a workload of its own; ``steady``: without figures that are the run
    time, evaluation included, turned into a rate."""
    ours = [r for r in rows if source(r).startswith("mlcommons/") and r["num_gpus"] == "8"]
    ours = [r for r in ours if float(r["throughput_total"]) >= 1e-2]  # minigo counts games
    if steady:
        ours = [r for r in ours if r["measurement"].startswith("steady")]
    return list(
        _samples(
            (
                (
                    r["model"],
                    source(r)[-4:] if by_round else "all rounds",
                    r["gpu_name"],
                    "submission",
                    float(r["throughput_total"]),
                )
                for r in ours
            ),
            "submission",
        )
    )


def gavel(data: Path, kind: str = "simulation", *, counts: tuple[str, ...] = ("1",)) -> list[Sample]:
    """Gavel's jobs on K80, P100 and V100, steps/s."""
    with (data / "gavel" / f"isolated_throughputs_{kind}.csv").open(encoding="utf-8", newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["scale_factor"] in counts]
    return list(
        _samples(
            (
                r["job_type"].split(" (")[0],
                f"{r['batch_size']} ×{r['scale_factor']} {r['consolidated']} {kind}",
                r["worker_type"],
                "fp32",
                float(r["steps_per_s"]),
            )
            for r in rows
            if r["scale_factor"] != "1" or r["consolidated"] == "1"
        )
    )


def training_set(data: Path) -> list[Sample]:
    """What factors.bin is learned from: the bundled library, Gavel's physical cluster, Lambda's one GPU."""
    physical = gavel(data, "physical", counts=GAVEL_COUNTS)
    return library_samples(library()) + physical + lambda_1gpu(read(data))
