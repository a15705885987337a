"""``arylcloud backtest``: replay a job with a deadline over a trace of spot capacity and prices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from arylcloud.core.offer import Offer
    from arylcloud.planner.deadline.view import DeadlinePolicy
    from arylcloud.pricing.table import OfferTable
    from arylcloud.simulation.spottraces import Grid, SpotTrace

app = typer.Typer(add_completion=False)

OWN = "own"
"""As a trace: this home's history."""


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
            help="Capacity and prices by zone (docs/backtest.md); own: as this home has seen them;"
            " own#p3.2xlarge: of that type.",
        ),
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
    import numpy as np

    from arylcloud.cli.backtestview import document, page, show, write
    from arylcloud.cli.output import emit_json, note
    from arylcloud.core.errors import UsageError
    from arylcloud.simulation.deadline.engines import engine as engine_of
    from arylcloud.simulation.deadline.replay import Job
    from arylcloud.simulation.deadline.sweep import backtest as sweep
    from arylcloud.simulation.deadline.sweep import drawn_starts, market_of
    from arylcloud.simulation.spottraces import grid as sampled

    for name, value in (("--tick-s", tick_s), ("--overhead-s", overhead_s)):
        if not 1 <= value <= 7 * 86400:
            raise UsageError(f"{name} is {value:g}: a number of seconds from 1 to a week", hint=f"{name} 600")
    if not (0 <= probe_s <= 3600 and 0 < try_s <= tick_s):
        raise UsageError(
            "--probe-s is from 0 to 3600, --try-s more than 0 and at most --tick-s",
            hint="--probe-s 60 --try-s 90",
        )
    found = _trace(trace, invent)
    if job is not None:
        work_h, deadline_h, machines, checkpoint_gb = _from_job(
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
    policies, optimum = _policies(policy)
    if optimum and no_optimum:
        raise UsageError("--policy optimum and --no-optimum exclude each other", hint="leave one of them out")
    grid = sampled(found, tick_s=tick_s, machines=machines or 1)
    market = market_of(
        grid,
        startup_h=overhead_s / 3600,
        egress_usd=_egress(grid, checkpoint_gb or 0.0, egress_usd_per_gb),
        try_h=try_s / 3600,
        probe_h=probe_s / 3600,
    )
    asked = Job(work_h=work_h, deadline_h=deadline_h, home=_home(grid, home_region))
    if work_h + market.startup_h > deadline_h + 1e-9:
        from arylcloud.core.errors import InfeasibleError

        raise InfeasibleError(
            f"{work_h:g} h of work and {overhead_s:g} s of start-up do not fit into {deadline_h:g} h",
            hint=f"a deadline of {work_h + market.startup_h:.2f} h or later",
        )
    at = drawn_starts(grid, asked, starts, np.random.default_rng(seed))
    with engine_of(engine) as spread:
        made = sweep(grid, market, asked, policies, at, optimum=not no_optimum, spread=spread)
    about = {
        "trace": trace or f"invented, seed {invent}",
        "zones": list(grid.places),
        "instance_type": found.instance_type,
        "machines": machines or 1,
        "work_h": work_h,
        "deadline_h": deadline_h,
        "overhead_s": overhead_s,
        "checkpoint_gb": checkpoint_gb or 0.0,
        "home_region": grid.regions[asked.home],
        "tick_s": tick_s,
        "starts": starts,
        "seed": seed,
    }
    if html is not None:
        write(html, page(made, about))
    if json_:
        emit_json(document(made, about))
    else:
        show(made, about)
        if trace is None:
            note("the trace is invented: it says how policies compare, not what a cloud would cost")
    if html is not None:
        note(f"written to {html}")


def _trace(trace: str | None, invent: int | None) -> SpotTrace:
    from arylcloud.core.errors import UsageError

    if (trace is None) == (invent is None):
        raise UsageError(
            "capacity comes from --trace FILE, or from --invent SEED: give one of them",
            hint="docs/backtest.md tells the format of a trace",
        )
    if trace is not None:
        if trace.partition("#")[0] == OWN:
            return _own(trace.partition("#")[2] or None)
        from arylcloud.simulation.spottraces import read_spot_trace

        return read_spot_trace(trace)
    from arylcloud.simulation.deadline.invent import invented

    assert invent is not None
    return invented(invent)


def _own(kind: str | None) -> SpotTrace:
    """What this home has seen, up to now. On-demand prices are those of today's catalogue."""
    import time

    from arylcloud.cli.assemble import open_journal
    from arylcloud.cli.settings import folders
    from arylcloud.core.events import JobSubmitted
    from arylcloud.core.offer import Market
    from arylcloud.pricing.catalogue import load
    from arylcloud.simulation.owntrace import looks, own_trace

    places = folders()
    journal = open_journal(places)
    jobs = list(journal.jobs())
    records = [(r.job_id, r.at_s, r.event) for job in jobs for r in journal.records(job)]
    found = looks(records)
    user = places.user_catalogue if places.user_catalogue.is_file() else None
    table = load(user, refreshed=places.live_prices)
    quoted = {q.offer.key: q.offer for _, _, e in records if isinstance(e, JobSubmitted) for q in e.quotes}

    def listed(offer: Offer) -> float | None:
        twins = [
            o.usd_per_hour
            for o in (*quoted.values(), *table.take(_rows(table, offer)).offers())
            if (o.cloud, o.region, o.instance_type) == (offer.cloud, offer.region, offer.instance_type)
            and o.market is Market.ON_DEMAND
            and o.usd_per_hour is not None
        ]
        return min(twins, default=None)

    until_s = max([time.time(), *(look.at_s for look in found)])
    return own_trace(found, until_s=until_s, listed=listed, kind=kind)


def _rows(table: OfferTable, offer: Offer) -> NDArray[np.intp]:
    import numpy as np

    here = table.mask("cloud", [offer.cloud]) & table.mask("region", [offer.region])
    return np.flatnonzero(here & table.mask("instance_type", [offer.instance_type]))


def _policies(given: list[str] | None) -> tuple[list[DeadlinePolicy], bool]:
    """The policies, and whether the optimum is among those named."""
    from arylcloud.core.errors import UsageError
    from arylcloud.planner.deadline.registry import SHOWN, deadline_policy
    from arylcloud.simulation.deadline.sweep import OPTIMUM

    names = [name.strip() for text in given or [",".join(SHOWN)] for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("--policy names none", hint=f"there are {', '.join(SHOWN)} and more")
    found = [deadline_policy(name) for name in dict.fromkeys(names) if name != OPTIMUM]
    return found, OPTIMUM in names


def _home(grid: Grid, region: str | None) -> int:
    from arylcloud.core.errors import UsageError

    if region is None:
        return 0
    for i, name in enumerate(grid.regions):
        if region in (name, name.partition("/")[2]):
            return i
    raise UsageError(
        f"--home-region: no zone of {region!r} in the trace", hint=f"it has {', '.join(grid.regions)}"
    )


def _egress(grid: Grid, checkpoint_gb: float, usd_per_gb: float | None) -> NDArray[np.float64]:
    import numpy as np

    from arylcloud.core.errors import UsageError

    if not 0 <= checkpoint_gb <= 1e6 or (usd_per_gb is not None and not 0 <= usd_per_gb <= 100):
        raise UsageError(
            "--checkpoint-gb is a number from 0 to 1,000,000, --egress-usd-per-gb one from 0 to 100",
            hint="--checkpoint-gb 40 --egress-usd-per-gb 0.02",
        )
    n = len(grid.regions)
    found = np.zeros((n, n))
    if checkpoint_gb == 0:
        return found
    if usd_per_gb is not None:
        from arylcloud.simulation.deadline.sweep import flat_egress

        return flat_egress(n, checkpoint_gb * usd_per_gb)
    from arylcloud.pricing.tariffs import load_tariffs

    tariffs = load_tariffs()
    for i, source in enumerate(grid.regions):
        for j, to in enumerate(grid.regions):
            usd = 0.0 if i == j else tariffs.egress(source, to).usd
            if usd is None:
                raise UsageError(f"no tariff from {source} to {to}", hint="give --egress-usd-per-gb")
            found[i, j] = checkpoint_gb * usd
    return found


def _from_job(
    path: Path,
    trace: SpotTrace,
    work_h: float | None,
    deadline_h: float | None,
    machines: int | None,
    checkpoint_gb: float | None,
) -> tuple[float, float | None, int, float | None]:
    """What flags leave open, from the job file; hours of work by the planner's estimate."""
    from dataclasses import replace

    from arylcloud.cli.compose import make_plan
    from arylcloud.cli.jobfile import Overrides, load_job
    from arylcloud.cli.output import note
    from arylcloud.cli.settings import folders
    from arylcloud.core.errors import UsageError
    from arylcloud.core.job import Constraints, Resources

    spec, _secrets = load_job(path, Overrides(), need_secrets=False)
    if deadline_h is None and spec.constraints.deadline_s is not None:
        deadline_h = spec.constraints.deadline_s / 3600
    if deadline_h is None:
        raise UsageError(f"{path} has no deadline", hint="`aryl: {deadline: 60h}`, or --deadline-h 60")
    if checkpoint_gb is None:
        checkpoint_gb = spec.checkpoint.size_gb
    if work_h is not None:
        return work_h, deadline_h, machines or spec.nodes_min, checkpoint_gb
    if spec.work is None or spec.profile is None:
        raise UsageError(
            f"{path} does not say how much work it is", hint="`aryl: {work, profile}`, or --work-h"
        )
    fleet = machines or spec.nodes_min
    plain = replace(
        spec,
        constraints=Constraints(),
        resources=Resources(instance_types=(trace.instance_type,)),
        nodes_min=fleet,
        nodes_max=fleet,
    )
    chosen = make_plan(plain, folders(), limit=1).chosen
    if not chosen.throughput:
        raise UsageError(f"nobody knows how fast {path} runs on {trace.instance_type}", hint="give --work-h")
    work_h = spec.work.amount / chosen.throughput / 3600
    note(
        f"{spec.work.amount:g} {spec.work.unit} on {fleet} × {trace.instance_type} at "
        f"{chosen.throughput:.3g} {chosen.throughput_unit} ({chosen.throughput_source}): {work_h:.1f} h"
    )
    return work_h, deadline_h, fleet, checkpoint_gb
