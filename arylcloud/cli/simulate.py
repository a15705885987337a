"""``arylcloud simulate``: replay a trace of jobs on a cluster of typed GPUs under one policy or several."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from arylcloud.simulation.cluster.generate import Recipe
    from arylcloud.simulation.cluster.outcome import Outcome
    from arylcloud.simulation.cluster.replay import Fleet
    from arylcloud.simulation.cluster.simulate import Progress, Settings
    from arylcloud.simulation.cluster.throughputs import Throughputs
    from arylcloud.simulation.cluster.workload import Jobs

app = typer.Typer(add_completion=False)


class DeadlineFrom(StrEnum):
    ARRIVAL = "arrival"
    DISPATCH = "dispatch"


CSV_COLUMNS = (
    "policy", "job", "job_type", "gpus", "weight", "arrival_s", "finish_s", "run_s", "queue_s", "preemptions",
    "deadline_s",
)  # fmt: skip


@app.command()
def simulate(
    policy: Annotated[
        list[str], typer.Option(help="A policy, or several: A,B, or repeated. They see the same jobs.")
    ],
    capacity: Annotated[str | None, typer.Option(help="GPUs by type: v100=36,p100=36,k80=36.")] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="Gavel's .trace, or a CSV of job_id,submit_s,duration_s,num_gpus[,model]."),
    ] = None,
    generate: Annotated[
        str | None, typer.Option(help="single:5.6 (jobs per hour) or multi:700 (jobs, all at once).")
    ] = None,
    throughputs: Annotated[
        Path | None,
        typer.Option(
            help="Steps/s by job type and GPU type: CSV (co-located ones beside it) or Gavel's JSON."
        ),
    ] = None,
    window: Annotated[
        str | None, typer.Option(help="A:B = measure jobs A to B-1, and stop when they are done.")
    ] = None,
    costs: Annotated[
        str | None, typer.Option(help="$ per GPU-hour by type: v100=.74,p100=.43,k80=.135.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of generated jobs and of random policies.")] = 0,
    round_s: Annotated[float, typer.Option(help="Seconds of a round.")] = 360.0,
    restart_s: Annotated[float, typer.Option(help="Seconds that a job loses when it is moved.")] = 0.0,
    reset_s: Annotated[float, typer.Option(help="Seconds at least between two decisions.")] = 1920.0,
    deadline_from: Annotated[
        DeadlineFrom,
        typer.Option(help="Deadlines, to a policy, count from there; dispatch: Gavel's, the first round."),
    ] = DeadlineFrom.ARRIVAL,
    rigid: Annotated[
        bool, typer.Option("--rigid", help="Elastic policies, too, run a job on its own number of GPUs.")
    ] = False,
    priorities: Annotated[
        bool, typer.Option("--priorities", help="One generated job in five has weight 5.")
    ] = False,
    slos: Annotated[
        bool, typer.Option("--slos", help="Generated jobs have deadlines: 1.2, 2 or 10 run times.")
    ] = False,
    aryl: Annotated[
        str | None,
        typer.Option(help="252:296 servers of 8 GPUs: training that borrows idle inference servers."),
    ] = None,
    inference: Annotated[
        Path | None, typer.Option(help="--aryl: CSV of trace,timestamp_s,requests_per_s.")
    ] = None,
    scaling: Annotated[
        Path | None, typer.Option(help="--aryl: measured strong scaling (CSV); without, it is linear.")
    ] = None,
    elastic: Annotated[
        float, typer.Option(min=0, max=1, help="--aryl: share of jobs that may double their GPUs.")
    ] = 0.05,
    fungible: Annotated[
        float, typer.Option(min=0, max=1, help="--aryl: share of jobs that borrowed GPUs can run.")
    ] = 0.21,
    days: Annotated[str | None, typer.Option(help="--aryl: A:B = measure jobs submitted in these.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    csv_: Annotated[bool, typer.Option("--csv", help="A row per job on stdout.")] = False,
) -> None:
    """Replay a trace of jobs on a cluster of typed GPUs, in rounds, and show what came of it."""
    from arylcloud.cli.output import emit_json
    from arylcloud.core.errors import UsageError
    from arylcloud.planner.policies.registry import policy as by_name
    from arylcloud.simulation.cluster.metrics import metrics
    from arylcloud.simulation.cluster.replay import fleet, replay
    from arylcloud.simulation.cluster.simulate import Settings

    if json_ and csv_:
        raise UsageError("--json and --csv exclude each other", hint="--json: totals; --csv: a row per job")
    names = list(dict.fromkeys(name for text in policy for name in text.split(",") if name))
    if aryl is not None:
        from arylcloud.cli.simulateloans import replay_loans

        if csv_ or generate is not None or capacity is not None or not names:
            raise UsageError(
                "--aryl takes --trace and --policy; no --capacity, --generate or --csv",
                hint="--aryl 252:296 --trace JOBS --inference REQUESTS --policy fifo,default",
            )
        replay_loans(
            names, servers=aryl, trace=trace, inference=inference, scaling=scaling, elastic=elastic,
            fungible=fungible, days=days, seed=seed, json_=json_,
        )  # fmt: skip
        return
    if capacity is None:
        raise UsageError("--capacity says what GPUs there are", hint="--capacity v100=36,p100=36,k80=36")
    chosen = [by_name(name) for name in names]
    if not chosen:
        raise UsageError("--policy names none", hint="--policy max_min_fairness_perf")
    prices = _numbers(costs, "--costs", "v100=.74,p100=.43,k80=.135") if costs is not None else None
    cluster = fleet(_counts(capacity), prices)
    jobs, table = _jobs(trace, generate, throughputs, cluster, seed=seed, priorities=priorities, slos=slos)
    span = _window(window)
    settings = Settings(
        round_s=round_s,
        restart_s=restart_s,
        reset_s=reset_s,
        seed=seed,
        deadline_from=deadline_from.value,
        rigid=rigid,
    )
    results: dict[str, dict[str, Any]] = {}
    for entry in chosen:
        with _bar(entry.name) as progress:
            started = time.process_time()
            outcome = replay(jobs, table, cluster, entry, settings, window=span, progress=progress)
            cpu_s = time.process_time() - started
        found = asdict(metrics(outcome, window=span, usd_per_hour=cluster.usd_per_hour))
        results[entry.name] = {**found, "cpu_s": round(cpu_s, 3)}
        if csv_:
            _write_csv(entry.name, outcome, table, span, header=entry is chosen[0])
    if csv_:
        return
    if json_:
        emit_json(_document(results, trace or generate, cluster, settings, span))
        return
    _show(results, priced=cluster.usd_per_hour is not None)


def _document(
    results: dict[str, dict[str, Any]],
    source: object,
    cluster: Fleet,
    settings: Settings,
    span: tuple[int, int] | None,
) -> dict[str, Any]:
    about = {
        "jobs_from": str(source),
        "capacity": dict(zip(cluster.worker_types, cluster.workers.tolist(), strict=True)),
        "window": None if span is None else f"{span[0]}:{span[1]}",
        "settings": settings,
    }
    if len(results) == 1:
        ((name, figures),) = results.items()
        return {"policy": name, **figures, **about}
    return {"policies": results, **about}


def _jobs(
    trace: Path | None,
    recipe: str | None,
    throughputs: Path | None,
    cluster: Fleet,
    *,
    seed: int,
    priorities: bool,
    slos: bool,
) -> tuple[Jobs | Recipe, Throughputs]:
    from arylcloud.core.errors import UsageError
    from arylcloud.simulation.cluster.generate import parse_recipe
    from arylcloud.simulation.cluster.throughputs import read_throughputs, uniform
    from arylcloud.simulation.cluster.traces import read_trace

    if (trace is None) == (recipe is None):
        raise UsageError(
            "jobs come from --trace FILE or from --generate RECIPE: give one of them",
            hint="--trace jobs.trace, or --generate single:5.6",
        )
    table = read_throughputs(throughputs) if throughputs is not None else None
    if recipe is not None:
        found = parse_recipe(recipe, seed=seed, priorities=priorities, slos=slos)
        if table is None:
            raise UsageError(
                "--generate draws job types: it needs --throughputs FILE",
                hint="Gavel's simulation_throughputs.json, or a CSV of your own: first line "
                "job_type,scale_factor,worker_type,steps_per_s, then such as lm,1,v100,9.1",
            )
        return found, table
    if priorities or slos:
        raise UsageError(
            "--priorities and --slos are for --generate: a trace has its own",
            hint="leave them out, or --generate",
        )
    assert trace is not None
    jobs = read_trace(trace)
    if table is None:
        typed = next((i for i, kind in enumerate(jobs.job_type) if kind), None)
        if typed is not None:
            raise UsageError(
                f"{jobs.where(typed)}: a job of type {jobs.job_type[typed]!r} needs --throughputs FILE",
                hint="Gavel's JSON, or a CSV of job_type,scale_factor,worker_type,steps_per_s",
            )
        sizes = tuple(sorted(set(jobs.gpus.tolist())))
        table = uniform(cluster.worker_types, sizes)
    return jobs, table


def _numbers(text: str, flag: str, example: str) -> dict[str, float]:
    from arylcloud.core.errors import UsageError
    from arylcloud.simulation.cluster.throughputs import number

    found: dict[str, float] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        kind, equals, value = part.partition("=")
        kind = kind.strip().lower()
        if not equals or not kind:
            raise UsageError(f"{flag}: {part!r} is not TYPE=NUMBER", hint=f"{flag} {example}")
        if kind in found:
            raise UsageError(f"{flag} gives {kind} twice", hint="name each type once")
        found[kind] = number(value.strip(), flag, kind)
    if not found:
        raise UsageError(f"{flag} is empty", hint=f"{flag} {example}")
    return found


def _counts(text: str) -> dict[str, int]:
    from arylcloud.core.errors import UsageError

    found = _numbers(text, "--capacity", "v100=36,p100=36,k80=36")
    for kind, value in found.items():
        if value != int(value) or value > 10_000_000:
            raise UsageError(
                f"--capacity: {kind}={value:g} is no number of GPUs",
                hint="a whole number from 0 to 10,000,000",
            )
    return {kind: int(value) for kind, value in found.items()}


def _window(text: str | None) -> tuple[int, int] | None:
    from arylcloud.core.errors import UsageError

    if text is None:
        return None
    first, colon, last = text.partition(":")
    if not (colon and first.strip().isdecimal() and last.strip().isdecimal() and int(first) < int(last)):
        raise UsageError(f"--window {text!r} is not A:B with A < B", hint="--window 4000:5000")
    return int(first), int(last)


class _bar:  # noqa: N801 - used as a statement
    """Progress on stderr, on a terminal only."""

    def __init__(self, name: str) -> None:
        self.name, self.shown = name, sys.stderr.isatty()
        self.last = 0.0

    def __enter__(self) -> Progress | None:
        if not self.shown:
            return None
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        from arylcloud.cli.output import stderr

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self.bar = Progress(*columns, TextColumn("{task.fields[at]}"), console=stderr(), transient=True)
        self.bar.start()
        self.task = self.bar.add_task(self.name, total=None, at="")

        def tell(done: int, target: int, now_s: float) -> None:
            if time.monotonic() - self.last > 0.1:
                self.last = time.monotonic()
                self.bar.update(self.task, completed=done, total=target, at=f"hour {now_s / 3600:,.0f}")

        return tell

    def __exit__(self, *_: object) -> None:
        if self.shown:
            self.bar.stop()


def _write_csv(
    name: str, outcome: Outcome, table: Throughputs, span: tuple[int, int] | None, *, header: bool
) -> None:
    import csv

    import numpy as np

    writer = csv.writer(sys.stdout, lineterminator="\n")
    if header:
        writer.writerow(CSV_COLUMNS)
    jobs = outcome.workload
    for i in range(*(span or (0, len(outcome.finish_s)))):
        finish_s, run_s = outcome.finish_s[i], outcome.run_s[i]
        writer.writerow(
            (
                name,
                jobs.names[i],
                table.classes[jobs.job_class[i]][0],
                int(jobs.gpus[i]),
                f"{jobs.weight[i]:g}",
                f"{jobs.arrival_s[i]:.3f}",
                f"{finish_s:.3f}",
                f"{run_s:.3f}",
                f"{finish_s - jobs.arrival_s[i] - run_s:.3f}",
                int(outcome.preemptions[i]),
                f"{jobs.deadline_s[i]:.3f}" if np.isfinite(jobs.deadline_s[i]) else "",
            )
        )


def _show(results: dict[str, dict[str, Any]], *, priced: bool) -> None:
    from rich.table import Table

    from arylcloud.cli.output import note, stdout

    rows = list(results.values())
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("policy", overflow="fold")
    heads = ["avg JCT h", "median", "p99", "queue h", "makespan h", "GPUs used", "preemptions"]
    with_slo = any(row["slo_violations"] is not None for row in rows)
    shared = priced and any(row["cost_usd"] != row["gpu_cost_usd"] for row in rows)
    heads += ["late"] * with_slo + ["cost"] * priced + ["charged"] * shared + ["CPU s"]
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for name, row in results.items():
        cells = [
            f"{row[key]:,.2f}" for key in ("avg_jct_h", "median_jct_h", "p99_jct_h", "queue_h", "makespan_h")
        ]
        cells += [f"{row['utilization']:.1%}", f"{row['preemptions']:,}"]
        cells += ["-" if row["slo_violations"] is None else str(row["slo_violations"])] * with_slo
        cells += [f"${row[key]:,.0f}" for key in ("gpu_cost_usd",) * priced + ("cost_usd",) * shared]
        table.add_row(name, *cells, f"{row['cpu_s']:.2f}")
    stdout().print(table)
    note(f"{rows[0]['jobs']:,} jobs; JCT = own end - arrival; queue = the part of it without GPUs")
    if shared:
        note("charged: GPUs that two jobs share are charged to both, as Gavel counts; cost: once")
    if not priced:
        note("no cost: give --costs v100=.74,p100=.43,k80=.135")
