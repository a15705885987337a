#!/usr/bin/env python3
"""Profiles: what loading and estimating cost, and how wrong the ladder is (leave-one-GPU-out).

    python benchmarks/bench_profiles.py

With ``ARYLCLOUD_STUDY_DATA`` the 1-GPU rows of lambdal/deeplearning-benchmark (no licence: not shipped)
are scored, too.
"""

from __future__ import annotations

import csv
import gzip
import os
import time
from collections import defaultdict
from pathlib import Path

from arylcloud.core import gpus
from arylcloud.core.job import ProfileRef
from arylcloud.planner.estimator import estimate_configs
from arylcloud.planner.leave_one_out import Miss, hidden_gpu, score
from arylcloud.planner.profile_files import precision_class
from arylcloud.planner.profiles import Library, Measurement, Profile, library


def lambda_profiles(data: Path) -> list[Profile]:
    """One profile per model and precision of the study's 1-GPU Lambda rows."""
    rows: dict[tuple[str, str], list[Measurement]] = defaultdict(list)
    units: dict[tuple[str, str], str] = {}
    with gzip.open(data / "profiles" / "profiles.csv.gz", "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            ours = row["source"].startswith("lambdal/") and row["quality"] == "ok"
            if not ours or row["num_gpus"] != "1" or gpus.find(row["gpu_name"]) is None:
                continue
            key = (row["model"], row["precision"])
            units[key] = "samples/s"
            rows[key].append(
                Measurement(
                    gpu=gpus.resolve(row["gpu_name"]),
                    gpus=1,
                    nodes=1,
                    rate=float(row["throughput_total"]),
                    precision="tf32" if "tf32" in row["precision"] else precision_class(row["precision"]),
                    framework=row["framework"],
                    global_batch=None,
                    batch_stated=False,
                    seq_len=None,
                    source=row["source"],
                    as_of=row["source_date"] or None,
                    kind="published",
                )
            )
    return [
        Profile(
            name=f"{model} {precision}",
            title="",
            unit=units[model, precision],
            aliases=(),
            shape=None,
            measurements=tuple(found),
        )
        for (model, precision), found in rows.items()
    ]


def only(lib: Library, origin: str) -> list[Profile]:
    """The library's profiles, cut down to rows of one origin."""
    profiles = [lib.get(entry.name) for entry in lib.entries]
    return [
        Profile(
            name=p.name,
            title=p.title,
            unit=p.unit,
            aliases=(),
            shape=None,
            measurements=tuple(m for m in p.measurements if m.source.startswith(origin)),
        )
        for p in profiles
    ]


def gavel_jobs(lib: Library) -> list[Profile]:
    singles = ("gavel-a3c", "gavel-cyclegan")
    names = [e.name for e in lib.entries if e.name.startswith("gavel-")]
    return [lib.get(n) for n in names if "-bs" in n or n in singles]


def line(title: str, profiles: list[Profile], *, count: int, known: int | None) -> None:
    misses: list[Miss] = [m for p in profiles for m in hidden_gpu(p, gpus=count, known=known)]
    found = score(misses)
    if found is None:
        print(f"  {title:<52} no figures")
        return
    print(f"  {title:<52} {found.figures:>5}  {found.median:>6.1%}  {found.p95:>6.1%}  {found.in_band:>6.1%}")


def main() -> None:
    start = time.process_time()
    lib = library()
    loaded = time.process_time()
    lib.get("bert-large")
    one = time.process_time()
    print(f"load the library {1e3 * (loaded - start):.1f} ms CPU; one profile {1e3 * (one - loaded):.1f} ms")
    names = ("V100", "A100", "A100-80GB", "H100", "H200", "B200", "L4", "T4", "A10G", "L40S")
    configs = [(g, n, k) for g in names for n in (1, 2, 4, 8) for k in (1, 2, 4)][:100]
    for name in ("bert-large", "resnet-50", "mpt-125m", "llama3.1-8b", "gavel-lm-bs20"):
        start = time.process_time()
        for _ in range(10):
            estimate_configs(ProfileRef(name=name), configs, library=lib)
        print(f"{len(configs)} configurations of {name}: {100 * (time.process_time() - start):.1f} ms CPU")
    print(f"\nleave-one-GPU-out:{'':<36} figures  median     p95  in band")
    line("MLPerf, 8 GPUs, from one other GPU", only(lib, "mlcommons/"), count=8, known=1)
    line("MLPerf, 8 GPUs, from all others", only(lib, "mlcommons/"), count=8, known=None)
    line("DeepLearningExamples, 1 GPU, from one other", only(lib, "NVIDIA/"), count=1, known=1)
    line("DeepLearningExamples, 8 GPUs, from one other", only(lib, "NVIDIA/"), count=8, known=1)
    line("Gavel, 1 GPU, from one other GPU", gavel_jobs(lib), count=1, known=1)
    line("Gavel, 1 GPU, from both others", gavel_jobs(lib), count=1, known=None)
    data = os.environ.get("ARYLCLOUD_STUDY_DATA")
    if data is None:
        print("  Lambda: skipped, ARYLCLOUD_STUDY_DATA does not name the study data")
        return
    line("Lambda, 1 GPU, from one other GPU", lambda_profiles(Path(data)), count=1, known=1)
    line("Lambda, 1 GPU, from all others", lambda_profiles(Path(data)), count=1, known=None)


if __name__ == "__main__":
    main()
