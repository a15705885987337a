#!/usr/bin/env python3
"""Profiles: what loading and estimating cost, and how wrong the ladder is.

    python benchmarks/bench_profiles.py

On the bundled library: a GPU hidden, the model known elsewhere. With ``ARYLCLOUD_STUDY_DATA`` also the
spec's table with each model left out of the fit (:mod:`estimator_table`), rows that are not shipped
included. Exit 1 where a column is worse than the spec's.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from estimator_table import print_table, table

from arylcloud.core.job import ProfileRef
from arylcloud.planner.estimator import estimate_configs
from arylcloud.planner.leave_one_out import Miss, hidden_gpu, score
from arylcloud.planner.profiles import Library, Profile, library


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
        print("\nmodel left out: skipped, ARYLCLOUD_STUDY_DATA does not name the study data")
        return
    print()
    lines = table(Path(data))
    print_table(lines)
    if any(x.holds is False for x in lines):
        raise SystemExit("a column is worse than the spec's")


if __name__ == "__main__":
    main()
