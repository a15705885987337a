"""``simulate --aryl``: a training cluster that borrows idle inference servers, under some schedulers."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arylcloud.simulation.loaning.outcome import Outcome
    from arylcloud.simulation.loaning.schemes import Scheme


def replay_loans(
    names: list[str],
    *,
    servers: str,
    trace: Path | None,
    inference: Path | None,
    scaling: Path | None,
    elastic: float,
    fungible: float,
    days: str | None,
    seed: int,
    json_: bool,
) -> None:
    """Run and show. ``servers``: ``252:296``, training and inference, 8 GPUs each."""
    from arylcloud.cli.output import emit_json
    from arylcloud.core.errors import UsageError
    from arylcloud.simulation.cluster.traces import read_trace
    from arylcloud.simulation.loaning.fleet import Settings
    from arylcloud.simulation.loaning.setting import DAY_S, read_curves, read_inference, workload
    from arylcloud.simulation.loaning.simulate import simulate

    for flag, share in (("--elastic", elastic), ("--fungible", fungible)):
        if not 0 <= share <= 1:
            raise UsageError(f"{flag} is {share:g}, not a number from 0 to 1", hint=f"{flag} 0.2")
    own, lent = _pair(servers, "--aryl", "252:296")
    chosen = [(name, _scheme(name)) for name in names]
    if trace is None or inference is None:
        missing = "--trace FILE" if trace is None else "--inference FILE"
        raise UsageError(
            f"--aryl needs {missing}", hint="both clusters' loads: --trace JOBS --inference REQUESTS"
        )
    jobs = read_trace(trace)
    if (jobs.duration_s != jobs.duration_s).any():
        raise UsageError(
            f"{trace}: no durations", hint="--aryl replays a CSV of job_id,submit_s,duration_s,num_gpus"
        )
    last = int(jobs.arrival_s.max() // DAY_S) + 1
    from_day, to_day = _pair(days, "--days", "1:14") if days is not None else (0, last)
    if from_day >= min(to_day, last):
        raise UsageError(f"--days {days}: no job is submitted then", hint=f"the trace has days 0 to {last}")
    load = workload(
        jobs, seed=seed, elastic_share=elastic, fungible_share=fungible,
        curves=read_curves(scaling) if scaling is not None else None,
    )  # fmt: skip
    requests = read_inference(inference, lent)
    settings = Settings(
        servers=own, resize_s=0.0 if scaling is None else 63.0, seed=seed, from_day=float(from_day),
        to_day=float(to_day),
    )  # fmt: skip
    results: dict[str, dict[str, Any]] = {}
    for name, scheme in chosen:
        began = time.process_time()
        outcome = simulate(load, requests, scheme, settings)
        results[name] = {**_figures(outcome), "cpu_s": round(time.process_time() - began, 3)}
    if not json_:
        _show(results, linear=scaling is None)
        return
    about = {
        "jobs_from": str(trace),
        "inference_from": str(inference),
        "scaling_from": None if scaling is None else str(scaling),
        "inference_servers": lent,
        "elastic_share": elastic,
        "fungible_share": fungible,
        "settings": settings,
    }
    if len(results) == 1:
        ((name, figures),) = results.items()
        emit_json({"policy": name, **figures, **about})
    else:
        emit_json({"policies": results, **about})


def _figures(outcome: Outcome) -> dict[str, Any]:
    """The keys of ``simulate``, and what only loans have."""
    import numpy as np

    from arylcloud.simulation.loaning.outcome import figures

    found = figures(outcome)
    jct_s = outcome.jct_s[outcome.measured]
    same = {
        "avg_jct_h": found.jct_mean_s / 3600.0,
        "median_jct_h": found.jct_median_s / 3600.0,
        "p99_jct_h": float(np.percentile(jct_s, 99)) / 3600.0,
        "makespan_h": outcome.end_s / 3600.0,
        "utilization": found.usage,
        "cost_usd": None,
        "queue_h": found.queue_mean_s / 3600.0,
        "preemptions": found.ended + found.preempted,
        "jobs": found.jobs,
    }
    return same | {key: value for key, value in asdict(found).items() if key != "jobs"}


def _scheme(name: str) -> Scheme:
    from arylcloud.core.errors import UsageError
    from arylcloud.simulation.loaning.schemes import SCHEMES

    if name not in SCHEMES:
        raise UsageError(f"no scheduler {name!r} for --aryl", hint=f"there are {', '.join(SCHEMES)}")
    return SCHEMES[name]


def _pair(text: str, flag: str, example: str) -> tuple[int, int]:
    from arylcloud.core.errors import UsageError

    first, colon, last = text.partition(":")
    shown = repr(text if len(text) < 40 else f"{text[:40]}…")
    if not (colon and first.strip().isdecimal() and last.strip().isdecimal()):
        raise UsageError(f"{flag} {shown} is not A:B", hint=f"{flag} {example}")
    if max(len(first.strip()), len(last.strip())) > 9 or max(int(first), int(last)) > 100_000:
        raise UsageError(f"{flag} {shown}: more than 100,000", hint=f"{flag} {example}")
    if int(last) == 0:
        raise UsageError(f"{flag} {shown}: the second number is 0", hint=f"{flag} {example}")
    return int(first), int(last)


def _show(results: dict[str, dict[str, Any]], *, linear: bool) -> None:
    from rich.table import Table

    from arylcloud.cli.output import note, stdout

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("policy", overflow="fold")
    for head in (
        "queue s",
        "p99",
        "avg JCT s",
        "GPUs used",
        "by work",
        "ended",
        "displaced",
        "lost GPU-h",
        "CPU s",
    ):
        table.add_column(head, justify="right", no_wrap=True)
    for name, row in results.items():
        table.add_row(
            name,
            *(f"{row[key]:,.0f}" for key in ("queue_mean_s", "queue_p99_s", "jct_mean_s")),
            *("-" if row[key] is None else f"{row[key]:.1%}" for key in ("usage", "work_usage")),
            f"{row['ended']:,}",
            f"{row['preempted']:,}",
            f"{row['lost_gpu_h']:,.0f}",
            f"{row['cpu_s']:.2f}",
        )
    stdout().print(table)
    jobs = next(iter(results.values()))["jobs"]
    note(f"{jobs:,} jobs; queue = all time not running; ended: by reclaims; displaced: for a shorter job")
    if linear:
        note("growth is linear and free: give --scaling FILE for measured curves and 63 s per resize")
