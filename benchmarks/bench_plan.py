"""CPU seconds of ``arylcloud plan``: whole process on the bundled and on a synthetic 200,000-offer
catalogue, and the ranking kernel alone. Run: ``python benchmarks/bench_plan.py [--json]``;
with ``--growth`` the kernel over 10² … 10⁶ offers, ``--svg FILE`` beside it for a chart.

CPU seconds (user + system, children) are the best of several runs: other load makes them larger, never
smaller. Bytecode is written first, as any installation does. Budgets: docs/performance.md. Figures are
always printed, with the date and the load of the machine; exits 1 where one is over budget.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from policy_chart import chart

from arylcloud.core.job import Constraints, JobSpec, ProfileRef, Resources, Work
from arylcloud.planner.estimator import Config, Estimate, Refusal, estimate_configs
from arylcloud.planner.evaluate import evaluate, pareto_of, ranked
from arylcloud.planner.feasible import feasible
from arylcloud.planner.profiles import library
from arylcloud.planner.single import POLICY, plan_job
from arylcloud.planner.upkeep import Assumptions
from arylcloud.pricing.catalogue import load_bundled, save_file
from arylcloud.pricing.hazard import bundled_advisor
from arylcloud.pricing.table import OfferTable
from arylcloud.pricing.tariffs import load_tariffs

BUDGET = {"bundled_s": 0.60, "synthetic_200k_s": 0.70, "kernel_200k_ms": 20.0}
JOB = """\
name: bench
run: python train.py
resources: {accelerators: [A100:8, H100:8, V100:8, L4:8]}
aryl: {profile: mpt-125m, work: 40000 steps, deadline: 36h, budget: $5000}
"""


def synthetic(rows: int, seed: int = 0) -> OfferTable:
    """Bundled rows again and again with other prices and zones: the same mixture of GPUs and markets."""
    base = load_bundled()
    rng = np.random.default_rng(seed)
    table = base.take(rng.integers(0, len(base), rows))
    names = tuple(f"z{i}" for i in range(rows))
    price = table.usd_per_hour * rng.uniform(0.8, 1.25, rows)
    return replace(table, zone_names=names, zone=np.arange(rows, dtype="<i4"), usd_per_hour=price)


def any_gpu_job() -> JobSpec:
    """Every GPU, so that no mask makes the kernel's work small."""
    return JobSpec(
        name="bench",
        run="true",
        resources=Resources(accelerators=()),
        profile=ProfileRef(name="mpt-125m"),
        work=Work(amount=40000, unit="steps"),
        constraints=Constraints(deadline_s=36 * 3600.0, budget_usd=5000.0),
    )


def process_s(catalogue: Path | None, runs: int) -> float:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.yaml"
        job.write_text(JOB)
        env["ARYLCLOUD_HOME"] = folder
        if catalogue is not None:
            env["ARYLCLOUD_CATALOGUE"] = str(catalogue)
        best = float("inf")
        for _ in range(runs):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, "-m", "arylcloud", "plan", str(job)],
                env=env,
                check=True,
                capture_output=True,
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def kernel_ms(table: OfferTable, spec: JobSpec, runs: int) -> float:
    """Masks, hazard, cost, p90, ranking and Pareto set. What is in the whole and not in here: loading of
    offers, bands and tariffs, the throughput of the few dozen configurations, the words, the screen."""
    answers: dict[tuple[object, ...], list[Estimate | Refusal]] = {}

    def estimator(profile: ProfileRef, configs: tuple[Config, ...], **kw: Any) -> list[Estimate | Refusal]:
        if configs not in answers:
            answers[configs] = estimate_configs(profile, configs, **kw)
        return answers[configs]

    best, known, bands, tariffs = float("inf"), library(), bundled_advisor(), load_tariffs()
    for _ in range(runs):
        start = time.process_time()
        found = feasible(spec, table)
        every = evaluate(
            spec,
            table,
            found,
            Assumptions(),
            library=known,
            advisor=bands,
            tariffs=tariffs,
            estimator=estimator,
        )
        ranked(table, every, 20)
        pareto_of(every)
        best = min(best, time.process_time() - start)
    return best * 1000


GROWTH = (100, 1_000, 10_000, 100_000, 200_000, 1_000_000)


def growth() -> dict[int, float]:
    """Offers → milliseconds of the kernel."""
    return {rows: kernel_ms(synthetic(rows), any_gpu_job(), 10 if rows > 200_000 else 40) for rows in GROWTH}


def exponent(measured: dict[int, float], least: int) -> float:
    """Slope of log(time) over log(offers) by least squares, from ``least`` offers on."""
    rows = [n for n in measured if n >= least]
    return float(np.polyfit(np.log(rows), np.log([measured[n] for n in rows]), 1)[0])


def main() -> int:
    if "--growth" in sys.argv:
        measured = growth()
        print(f"{datetime.now(UTC).isoformat(timespec='seconds')}, load {os.getloadavg()[0]:.1f}")
        for rows, ms in measured.items():
            print(f"{rows:>9,} offers {ms:9.2f} ms  {1e6 * ms / rows:9.1f} ns/offer")
        for least in (100, 10_000, 100_000):
            print(f"exponent from {least:,} offers on: {exponent(measured, least):.2f}")
        if "--svg" in sys.argv:
            line = {f"n^{exponent(measured, 100_000):.2f}": (list(measured), list(measured.values()))}
            title = "CPU milliseconds of the ranking kernel over offers"
            Path(sys.argv[sys.argv.index("--svg") + 1]).write_text(
                chart(title, "offers", "CPU ms", line), encoding="utf-8"
            )
        return 0
    runs = 10
    figures = {"bundled_s": process_s(None, runs)}
    table = synthetic(200_000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "offers.bin"
        save_file(table, path)
        figures["synthetic_200k_s"] = process_s(path, runs)
    figures["kernel_200k_ms"] = kernel_ms(table, any_gpu_job(), 10 * runs)
    plan = plan_job(any_gpu_job(), table)
    over = [name for name, value in figures.items() if value > BUDGET[name]]
    date, load = datetime.now(UTC).isoformat(timespec="seconds"), os.getloadavg()
    if "--json" in sys.argv:
        print(json.dumps({"policy": POLICY, "date": date, "load": load, "budget": BUDGET, **figures}))
    else:
        print(f"{date}, load {load[0]:.1f} on {os.cpu_count()} cores")
        for name, value in figures.items():
            print(f"{name:<18}{value:8.3f}  budget {BUDGET[name]:g}  {'OVER' if name in over else 'ok'}")
        print(f"chosen: {plan.chosen.offer.key}, {len(plan.frontier)} points on the Pareto set")
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())
