"""Aryl on public traces: every figure of docs/results/aryl.md.
Run: ``python benchmarks/aryl_results.py [--rows FILE] [--traces A,B,philly] [--seeds 0:8] [--check]``,
and with ``--errors`` only the table of wrong estimates (A, the first seed).

Needs the study data (``ARYLCLOUD_STUDY_DATA`` names its folder); a run takes seconds, all of them the better
part of an hour. Rows are kept in FILE, one JSON object a line, and a second call goes on where the first
stopped. ``--check`` exits 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from dataclasses import asdict
from pathlib import Path
from statistics import mean, median
from typing import Any

from aryl_brute_force import brute_force

from arylcloud.simulation.cluster.traces import read_trace
from arylcloud.simulation.cluster.workload import Jobs
from arylcloud.simulation.loaning.fleet import Settings
from arylcloud.simulation.loaning.outcome import figures
from arylcloud.simulation.loaning.schemes import SCHEMES
from arylcloud.simulation.loaning.setting import read_curves, read_inference, workload
from arylcloud.simulation.loaning.simulate import simulate

TRACES = {
    "A": ("derived_aryl_like_50k_15d.csv.gz", 252, 296, 1.0, 14.0),
    "B": ("derived_aryl_like_50k_15d_B.csv.gz", 376, 441, 1.0, 14.0),
    "philly": ("jobs_philly_pollux.csv.gz", 89, 104, 5.0, 100.0),
}
"""File, training and inference servers, measured days (days 2–14 counted from 1; Philly 5–100)."""

WANTED_JCT = {
    ("A", "linear"): 1.28,
    ("B", "linear"): 1.22,
    ("philly", "linear"): 1.41,
    ("A", "realistic"): 1.21,
    ("B", "realistic"): 1.17,
    ("philly", "realistic"): 1.27,
}

BARRED = (
    ("aryl", "linear"),
    ("aryl", "realistic"),
    ("default", "realistic"),
    ("loaning_only", "linear"),
    ("elastic_only", "linear"),
    ("elastic_only", "realistic"),
)

Row = dict[str, Any]
Key = tuple[str, str, str, int, str]


class Study:
    """Runs by (trace, setting, scheme, seed, variant), each made once."""

    def __init__(self, data: Path, file: Path | None, *, only_kept: bool = False) -> None:
        self.data, self.file, self.only_kept = data, file, only_kept
        self.rows: dict[Key, Row] = {}
        self.jobs: dict[str, Jobs] = {}
        self.curves = read_curves(data / "profiles_elasticflow_throughput.csv.gz")
        if file is not None and file.exists():
            for line in file.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                self.rows[
                    self.key(**{k: row[k] for k in ("trace", "setting", "scheme", "seed", "variant")})
                ] = row

    @staticmethod
    def key(trace: str, setting: str, scheme: str, seed: int = 0, variant: str = "") -> Key:
        return trace, setting, scheme, seed, variant

    def has(self, trace: str, setting: str, scheme: str, seed: int = 0, variant: str = "") -> bool:
        """Whether a row may be shown: always, unless only those kept are."""
        return not self.only_kept or self.key(trace, setting, scheme, seed, variant) in self.rows

    def get(self, trace: str, setting: str, scheme: str, seed: int = 0, variant: str = "") -> Row:
        """A row; ``variant`` is ``name=value,…`` of :func:`workload` or :class:`Settings`."""
        key = self.key(trace, setting, scheme, seed, variant)
        if key not in self.rows:
            self.rows[key] = self._run(*key)
            if self.file is not None:
                with self.file.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(self.rows[key]) + "\n")
        return self.rows[key]

    def _run(self, trace: str, setting: str, scheme: str, seed: int, variant: str) -> Row:
        name, servers, inference, first, last = TRACES[trace]
        if trace not in self.jobs:
            self.jobs[trace] = read_trace(self.data / name)
        real = setting == "realistic"
        extra = dict(part.split("=") for part in variant.split(",") if part)
        load = workload(
            self.jobs[trace],
            seed=seed,
            curves=self.curves if real else None,
            elastic_share=float(extra.pop("elastic_share", 0.05)),
            largest=extra.pop("largest", "") == "yes",
        )
        lent = read_inference(
            self.data / "inference_servegen_10min.csv.gz",
            inference,
            headroom=float(extra.pop("headroom", 0.03)),
        )
        settings = Settings(
            servers=servers,
            resize_s=63.0 if real else 0.0,
            from_day=first,
            to_day=last,
            seed=seed,
            error=float(extra.pop("error", 0.0)),
            checkpoint_s=float(extra.pop("checkpoint_s", 1800.0)),
        )
        if extra:
            raise SystemExit(f"unknown variant: {extra}")
        began = time.process_time()
        outcome = simulate(load, lent, SCHEMES[scheme], settings)
        cpu_s = time.process_time() - began
        inside = outcome.measured
        work = [w for w, m in zip(load.work_s, inside, strict=True) if m]
        part = [w for w, m, e in zip(load.work_s, inside, load.elastic, strict=True) if m and e]
        row = {"trace": trace, "setting": setting, "scheme": scheme, "seed": seed, "variant": variant}
        row |= asdict(figures(outcome))
        row |= {"run_mean_s": mean(work), "elastic_work": sum(part) / sum(work)}
        row |= {
            "cpu_s": round(cpu_s, 2),
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        print(
            trace, setting, scheme, seed, variant, f"queue {row['queue_mean_s']:.0f}",
            f"jct {row['jct_mean_s']:.0f}", f"cpu {cpu_s:.1f}", file=sys.stderr, flush=True,
        )  # fmt: skip
        return row

    def ratios(self, trace: str, setting: str, scheme: str, seed: int = 0, variant: str = "") -> Row:
        """Over the baseline of the same trace (FIFO moves no elastic or fungible job, so no seed)."""
        base, row = self.get(trace, "linear", "fifo"), self.get(trace, setting, scheme, seed, variant)
        return {
            "queue": base["queue_mean_s"] / row["queue_mean_s"],
            "jct": base["jct_mean_s"] / row["jct_mean_s"],
            "usage": row["usage"] / base["usage"] - 1,
            "work_usage": row["work_usage"] / base["work_usage"] - 1,
        }


def bound(base: Row, elastic: float, speed: float = 2.0) -> float:
    """What no scheduler exceeds: no queue, and elastic jobs at full speed all the time."""
    q, r = base["queue_mean_s"], base["run_mean_s"]
    return float((q + r) / (r * (1.0 - elastic * (1.0 - 1.0 / speed))))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=Path, help="keep the runs' figures here")
    parser.add_argument("--traces", default="A,B,philly")
    parser.add_argument("--seeds", default="0:8", help="FROM:TO")
    parser.add_argument("--kept", action="store_true", help="run nothing: show what FILE has")
    parser.add_argument("--check", action="store_true", help="exit 1 where a bar is missed")
    parser.add_argument("--errors", action="store_true", help="only the table of wrong estimates")
    given = parser.parse_args()
    folder = os.environ.get("ARYLCLOUD_STUDY_DATA")
    if not folder or not (Path(folder) / "traces").is_dir():
        print("no study data (ARYLCLOUD_STUDY_DATA): nothing to do")
        return 0
    study = Study(Path(folder) / "traces", given.rows, only_kept=given.kept)
    first, last = (int(x) for x in given.seeds.split(":"))
    seeds = range(first, last)
    if given.errors:
        _errors(study, first)
        return 0
    missed: list[str] = []
    for trace in given.traces.split(","):
        missed += _trace(study, trace, seeds)
    if "A" in given.traces.split(","):
        missed += brute_force()
        missed += _reclaim(study, list(range(first, min(last, 4))))
        _shares(study)
    for line in missed:
        print(f"MISSED: {line}")
    return 1 if missed and given.check else 0


def _trace(study: Study, trace: str, seeds: range) -> list[str]:
    for seed in seeds:  # seed by seed, so that what is there when it is stopped is whole
        for scheme, setting, some in _plan(seeds):
            if seed in some and not study.only_kept:
                study.get(trace, setting, scheme, seed)
    whole = [s for s in seeds if all(study.has(trace, setting, scheme, s) for scheme, setting in BARRED)]
    if not study.has(trace, "linear", "fifo") or not whole:
        print(f"\n## {trace}: no seed is complete")
        return []
    base = study.get(trace, "linear", "fifo")
    full = 1.0 / base["usage"] - 1.0
    print(f"\n## {trace}: FIFO with backfill, queue {base['queue_mean_s']:,.0f} s,", end=" ")
    print(f"JCT {base['jct_mean_s']:,.0f} s, usage {base['usage']:.3f} (ceiling {full:+.1%}),", end=" ")
    print(f"{base['queue_late_share']:.0%} of the queueing in the last six days\n")
    print(
        "| scheme | setting | seeds | queue ÷ | min–max | JCT ÷ | min–max | usage, by work "
        "| queue p95, p99 (s) "
        "| ended | displaced | CPU s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for scheme, setting, some in _plan(seeds):
        shown = [seed for seed in some if study.has(trace, setting, scheme, seed)]
        if shown:
            _line(study, trace, scheme, setting, shown)
    return _bars(study, trace, whole)


def _plan(seeds: range) -> list[tuple[str, str, range]]:
    one = range(seeds.start, seeds.start + 1)
    return [
        ("fifo", "linear", one),
        ("sjf", "linear", one),
        ("aryl", "linear", seeds),
        ("aryl", "realistic", seeds),
        ("default", "realistic", seeds),
        ("loaning_only", "linear", seeds),
        ("elastic_only", "linear", seeds),
        ("elastic_only", "realistic", seeds),
        ("opportunistic", "linear", one),
        ("gandiva", "linear", one),
        ("gandiva", "realistic", one),
        ("afs", "linear", one),
        ("afs", "realistic", one),
        ("pollux", "linear", one),
        ("pollux", "realistic", one),
        ("default", "linear", one),
        ("default_sjf", "realistic", one),
    ]


def _line(study: Study, trace: str, scheme: str, setting: str, seeds: list[int], variant: str = "") -> None:
    rows = [study.get(trace, setting, scheme, seed, variant) for seed in seeds]
    ratios = [study.ratios(trace, setting, scheme, seed, variant) for seed in seeds]
    queue, jct = [r["queue"] for r in ratios], [r["jct"] for r in ratios]
    print(
        f"| {scheme} | {setting} | {len(seeds)} | {median(queue):.1f} | {min(queue):.1f}–{max(queue):.1f} "
        f"| {median(jct):.3f} | {min(jct):.3f}–{max(jct):.3f} "
        f"| {median(r['usage'] for r in ratios):+.1%}, {median(r['work_usage'] for r in ratios):+.1%} "
        f"| {median(r['queue_p95_s'] for r in rows):,.0f}, {median(r['queue_p99_s'] for r in rows):,.0f} "
        f"| {median(r['ended'] for r in rows):,.0f} | {median(r['preempted'] for r in rows):,.0f} "
        f"| {max(r['cpu_s'] for r in rows):.1f} |"
    )


def _bars(study: Study, trace: str, seeds: list[int]) -> list[str]:
    base = study.get(trace, "linear", "fifo")
    missed: list[str] = []

    def hold(what: str, good: bool) -> None:
        print(f"- {'reached' if good else 'MISSED'}: {what}")
        if not good:
            missed.append(f"{trace}: {what}")

    print(f"\nBars, over seeds {', '.join(map(str, seeds))}:\n")
    queue = base["queue_mean_s"]
    hold(f"baseline mean queue {queue:,.0f} s in 2,400–3,600", 2400 <= queue <= 3600)
    limits = [bound(base, study.get(trace, "linear", "aryl", seed)["elastic_work"]) for seed in seeds]
    for setting, wanted_queue in (("linear", 10.0), ("realistic", 5.0)):
        found = [study.ratios(trace, setting, "aryl", seed) for seed in seeds]
        worst = min(r["queue"] for r in found)
        hold(f"Aryl {setting}: queue ÷ {worst:.1f} at worst, wanted {wanted_queue:g}", worst >= wanted_queue)
        middle, wanted = median(r["jct"] for r in found), WANTED_JCT[trace, setting]
        hold(f"Aryl {setting}: JCT ÷ {middle:.3f}, wanted {wanted} ± .03", abs(middle - wanted) <= 0.03)
        shares = [r["jct"] / limit for r, limit in zip(found, limits, strict=True)]
        hold(f"Aryl {setting}: at most the bound ({median(limits):.3f})", max(shares) <= 1.0)
        if setting == "linear":
            hold(f"Aryl linear: {min(shares):.3f} of the bound at worst, wanted .90", min(shares) >= 0.9)
        hold(f"1.50 is not reached at 5 % elastic ({setting})", max(r["jct"] for r in found) < 1.5)
    for scheme, setting, q_least, j_least in (
        ("loaning_only", "linear", 2.3, 1.08),
        ("elastic_only", "linear", 3.5, 0.0),
        ("elastic_only", "realistic", 2.1, 0.0),
    ):
        part = [study.ratios(trace, setting, scheme, seed) for seed in seeds]
        q, j = min(r["queue"] for r in part), min(r["jct"] for r in part)
        hold(
            f"{scheme} {setting}: {q:.2f} / {j:.3f} at worst, wanted {q_least} / {j_least}",
            q >= q_least and j >= j_least,
        )
        for kind in ("linear", "realistic") if scheme == "loaning_only" else (setting,):
            whole = [study.ratios(trace, kind, "aryl", seed) for seed in seeds]
            better = all(
                w["queue"] > p["queue"] and w["jct"] > p["jct"] for w, p in zip(whole, part, strict=True)
            )
            hold(f"Aryl {kind} better than {scheme} on every seed", better)
    ours = [study.ratios(trace, "realistic", "default", seed) for seed in seeds]
    aryl = [study.ratios(trace, "realistic", "aryl", seed) for seed in seeds]
    q = min(o["queue"] / a["queue"] for o, a in zip(ours, aryl, strict=True))
    j = min(o["jct"] / a["jct"] for o, a in zip(ours, aryl, strict=True))
    hold(f"default over Aryl, realistic, worst seed: queue {q:.2f}, JCT {j:.4f}, wanted 1.8, 1.005",
         q >= 1.8 and j >= 1.005)  # fmt: skip
    return missed


def _reclaim(study: Study, seeds: list[int]) -> list[str]:
    hows = ("random", "fewest", "servers", "dollars")
    seeds = [s for s in seeds if all(study.has("A", "realistic", f"reclaim_{how}", s) for how in hows)]
    if not seeds:
        return []
    print("\n## Reclaim (A, SJF + saved time, loans first, realistic; mean of seeds", *seeds, ")\n")
    print("| order | jobs ended | GPU-hours lost | collateral |")
    print("|---|---|---|---|")
    ended, lost = {}, {}
    for how in hows:
        rows = [study.get("A", "realistic", f"reclaim_{how}", seed) for seed in seeds]
        ended[how], lost[how] = mean(r["ended"] for r in rows), mean(r["lost_gpu_h"] for r in rows)
        print(
            f"| {how} | {ended[how]:,.0f} | {lost[how]:,.0f} | {mean(r['collateral'] for r in rows):+.2f} |"
        )
    missed = []
    print()
    for what, value, most in (
        ("Aryl's ended jobs over fewest-first", ended["servers"] / ended["fewest"], 0.85),
        ("Aryl's ended jobs over random", ended["servers"] / ended["random"], 0.80),
        ("the dollar cost's lost GPU-hours over Aryl's", lost["dollars"] / lost["servers"], 0.35),
    ):
        print(f"- {'reached' if value <= most else 'MISSED'}: {what} {value:.2f}, wanted at most {most}")
        if value > most:
            missed.append(f"{what}: {value:.2f}")
    return missed


def _errors(study: Study, seed: int) -> None:
    print(f"\n## Running times estimated wrong (A, realistic, seed {seed})\n")
    print("| σ | Aryl: queue ÷, JCT ÷ | CPU s | default: queue ÷, JCT ÷ | displaced | CPU s |")
    print("|---|---|---|---|---|---|")
    for sigma in ("0", "0.1", "0.25", "0.5", "1", "2"):
        cells = []
        for scheme in ("aryl", "default"):
            key = ("A", "realistic", scheme, seed, f"error={sigma}" if sigma != "0" else "")
            if not study.has(*key):
                cells.append("– | – | –" if scheme == "default" else "– | –")
                continue
            row, over = study.get(*key), study.ratios(*key)
            displaced = f" | {row['preempted']:,}" if scheme == "default" else ""
            cells.append(f"{over['queue']:.1f}, {over['jct']:.3f}{displaced} | {row['cpu_s']:.1f}")
        print(f"| {sigma} | " + " | ".join(cells) + " |")


def _shares(study: Study) -> None:
    print("\n## Where 1.50 appears (Aryl, JCT ÷, seed 0)\n")
    print("| elastic | A linear | A realistic | B linear |")
    print("|---|---|---|---|")
    for label, variant in (
        ("5 % (the setting)", ""),
        ("21 %", "elastic_share=0.21"),
        ("50 %", "elastic_share=0.5"),
        ("all", "elastic_share=1.0"),
        ("the 5 % with most GPU-time", "largest=yes"),
    ):
        cells = [
            f"{study.ratios(trace, setting, 'aryl', 0, variant)['jct']:.3f}"
            if study.has(trace, setting, "aryl", 0, variant)
            else "–"
            for trace, setting in (("A", "linear"), ("A", "realistic"), ("B", "linear"))
        ]
        print(f"| {label} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    sys.exit(main())
