"""``arylcloud backtest``: replay a job with a deadline over a trace of spot capacity and prices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def backtest(
    *,
    job: Annotated[
        Path | None, typer.Argument(metavar="JOB", help="Job file: its work, deadline and checkpoint.")
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[#NAME]",
            help="Capacity and prices by zone (docs/backtest.md), a file or a folder; own: as this home has"
            " seen them; own#p3.2xlarge: of that type.",
        ),
    ] = None,
    ones: Annotated[
        str | None,
        typer.Option(metavar="up|down", help="--trace FOLDER, of published files: what a 1 in them means."),
    ] = None,
    usd: Annotated[
        str | None,
        typer.Option(metavar="SPOT,ON_DEMAND", help="--trace FOLDER: prices where its files have none."),
    ] = None,
    invent: Annotated[
        int | None, typer.Option(metavar="SEED", min=0, help="No trace: an invented one, to try things out.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A policy, or several: A,B, or repeated. Without: all that matter."),
    ] = None,
    work_h: Annotated[
        float | None, typer.Option("--work-h", help="Hours of work on a machine that works.")
    ] = None,
    deadline_h: Annotated[
        float | None, typer.Option("--deadline-h", help="Hours from submission to the deadline.")
    ] = None,
    machines: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="Size of the gang: all of them in one zone, or none."),
    ] = None,
    gang: Annotated[
        str | None,
        typer.Option(metavar="2..8", help="An elastic gang: as many as a zone has, from the first on."),
    ] = None,
    scaling: Annotated[
        float, typer.Option(help="Elastic without a profile: speed is machines to this power.")
    ] = 0.9,
    overhead_s: Annotated[
        float, typer.Option("--overhead-s", help="From asking for a machine to work: boot, set-up, restore.")
    ] = 720.0,
    checkpoint_gb: Annotated[
        float | None, typer.Option("--checkpoint-gb", help="Moved on every change of region; default 0.")
    ] = None,
    egress_usd_per_gb: Annotated[
        float | None,
        typer.Option("--egress-usd-per-gb", help="Between any two regions; default: the tariffs."),
    ] = None,
    home_region: Annotated[
        str | None, typer.Option("--home-region", help="Where the data is at submission; default: the first.")
    ] = None,
    probe_s: Annotated[
        float, typer.Option("--probe-s", help="Of spot, that looking whether there is some is billed.")
    ] = 60.0,
    try_s: Annotated[
        float, typer.Option("--try-s", help="That a refused attempt takes while nothing runs.")
    ] = 90.0,
    tick_s: Annotated[float, typer.Option("--tick-s", help="From one decision to the next.")] = 600.0,
    starts: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Times of submission, drawn evenly.")
    ] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Of the starts.")] = 0,
    engine: Annotated[
        str | None,
        typer.Option(help="Who computes: processes:N, or dask://HOST:PORT; default: this process."),
    ] = None,
    no_optimum: Annotated[
        bool, typer.Option("--no-optimum", help="Leave out the cheapest that could have been (slow).")
    ] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the chart as a page, too.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Replay a job with a deadline on the past: what each policy would have cost, from many starts."""
    from arylcloud.cli.backtestgang import gang_of
    from arylcloud.cli.backtestinputs import from_job, policies_of, trace_of
    from arylcloud.cli.backtestreplay import replay
    from arylcloud.cli.backtestview import document, page, show, write
    from arylcloud.cli.output import emit_json, note
    from arylcloud.core.errors import UsageError

    for name, value in (("--tick-s", tick_s), ("--overhead-s", overhead_s)):
        if not 1 <= value <= 7 * 86400:
            raise UsageError(f"{name} is {value:g}: a number of seconds from 1 to a week", hint=f"{name} 600")
    if not (0 <= probe_s <= 3600 and 0 < try_s <= tick_s):
        raise UsageError(
            "--probe-s is from 0 to 3600, --try-s more than 0 and at most --tick-s",
            hint="--probe-s 60 --try-s 90",
        )
    found = trace_of(trace, invent, ones, usd)
    elastic = gang_of(gang, machines, job, found.instance_type, scaling)
    machines = machines if elastic is None else elastic.most
    if job is not None:
        work_h, deadline_h, machines, checkpoint_gb = from_job(
            job, found, work_h, deadline_h, machines, checkpoint_gb
        )
    if work_h is None or deadline_h is None:
        raise UsageError(
            "how much work, and by when?", hint="name a job file, or give --work-h 48 --deadline-h 60"
        )
    if not (0 < work_h <= 10_000 and 0 < deadline_h <= 20_000):
        raise UsageError(
            "--work-h and --deadline-h are hours: more than 0, at most 10,000 and 20,000",
            hint="--work-h 48 --deadline-h 60",
        )
    policies, optimum = policies_of(policy)
    if optimum and no_optimum:
        raise UsageError("--policy optimum and --no-optimum exclude each other", hint="leave one of them out")
    made, about = replay(
        found,
        policies,
        elastic=elastic,
        work_h=work_h,
        deadline_h=deadline_h,
        machines=machines,
        checkpoint_gb=checkpoint_gb,
        tick_s=tick_s,
        overhead_s=overhead_s,
        starts=starts,
        try_s=try_s,
        probe_s=probe_s,
        egress_usd_per_gb=egress_usd_per_gb,
        home_region=home_region,
        seed=seed,
        optimum=not no_optimum,
        engine=engine,
    )
    about = {"trace": trace or f"invented, seed {invent}", **about}
    if html is not None:
        write(html, page(made, about))
    if json_:
        emit_json(document(made, about))
    else:
        show(made, about)
        for text in found.notes:
            note(text)
        if trace is None:
            note("the trace is invented: it says how policies compare, not what a cloud would cost")
    if html is not None:
        note(f"written to {html}")
