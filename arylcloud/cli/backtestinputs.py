"""What a backtest is made on: a trace, policies, tariffs, and what the job file says of the work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from arylcloud.cli.settings import Folders
    from arylcloud.core.job import JobSpec
    from arylcloud.core.offer import Offer
    from arylcloud.planner.deadline.view import DeadlinePolicy
    from arylcloud.pricing.table import OfferTable
    from arylcloud.simulation.spottraces import Grid, SpotTrace

OWN = "own"
"""As a trace: this home's history."""


def trace_of(
    trace: str | None, invent: int | None, ones: str | None = None, usd: str | None = None
) -> SpotTrace:
    """``ones``, ``usd``: of a folder of published files only."""
    from arylcloud.core.errors import UsageError

    folder = Path(trace.partition("#")[0]) if trace else None
    if folder is not None and str(folder) != OWN and folder.is_dir() and invent is None:
        return _published(folder, (trace or "").partition("#")[2], ones, usd)
    if (ones is not None or usd is not None) and (trace is None or invent is None):
        raise UsageError(
            "--ones and --usd are for --trace FOLDER: a published trace, one JSON file per zone",
            hint="docs/backtest.md tells the formats",
        )
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


def _published(folder: Path, kind: str, ones: str | None, usd: str | None) -> SpotTrace:
    from arylcloud.core.errors import UsageError
    from arylcloud.simulation.cluster.throughputs import number
    from arylcloud.simulation.zonetraces import Usd, read_zone_files, zone_files

    if ones not in (None, "up", "down"):
        raise UsageError(
            f"--ones is {ones!r}: what 1 means, up or down", hint="docs/backtest.md says of whom"
        )
    kinds = zone_files(folder)
    if not kind and len(kinds) == 1:
        (kind,) = kinds
    if kind not in kinds:
        raise UsageError(
            f"{folder}: {f'no {kind!r} in it' if kind else f'holds {len(kinds)} traces'}: {', '.join(kinds)}",
            hint=f"name one: {folder}#{next(iter(kinds))}",
        )
    given = None
    if usd is not None:
        spot, _, listed = usd.partition(",")
        given = Usd(spot=number(spot, "--usd", "spot"), on_demand=number(listed, "--usd", "on demand"))
    return read_zone_files(kinds[kind], ones="up" if ones == "up" else "down" if ones else None, usd=given)


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
    records = []
    if places.journal.is_file():  # looking makes none
        journal = open_journal(places)
        records = [(r.job_id, r.at_s, r.event) for job in journal.jobs() for r in journal.records(job)]
    found = looks(records)
    user = places.user_catalogue if places.user_catalogue.is_file() else None
    table = load(user, refreshed=places.live_prices)
    quoted = {q.offer.key: q.offer for _, _, e in records if isinstance(e, JobSubmitted) for q in e.quotes}

    def on_demand(offer: Offer, *, here: bool) -> list[float]:
        return [
            o.usd_per_hour
            for o in (*quoted.values(), *table.take(_rows(table, offer)).offers())
            if (o.cloud, o.instance_type) == (offer.cloud, offer.instance_type)
            and (o.region == offer.region) is here
            and o.market is Market.ON_DEMAND
            and o.usd_per_hour is not None
        ]

    def listed(offer: Offer) -> float | None:
        return min(on_demand(offer, here=True), default=None)

    def elsewhere(offer: Offer) -> float | None:
        return max(on_demand(offer, here=False), default=None)

    until_s = max([time.time(), *(look.at_s for look in found)])
    return own_trace(found, until_s=until_s, listed=listed, elsewhere=elsewhere, kind=kind)


def _rows(table: OfferTable, offer: Offer) -> NDArray[np.intp]:
    import numpy as np

    return np.flatnonzero(
        table.mask("cloud", [offer.cloud]) & table.mask("instance_type", [offer.instance_type])
    )


def policies_of(given: list[str] | None) -> tuple[list[DeadlinePolicy], bool]:
    """The policies, and whether the optimum is among those named."""
    from arylcloud.core.errors import UsageError
    from arylcloud.planner.deadline.registry import SHOWN, deadline_policy
    from arylcloud.simulation.deadline.sweep import OPTIMUM

    names = [name.strip() for text in given or [",".join(SHOWN)] for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("--policy names none", hint=f"there are {', '.join(SHOWN)} and more")
    found = [deadline_policy(name) for name in dict.fromkeys(names) if name != OPTIMUM]
    return found, OPTIMUM in names


def home_of(grid: Grid, region: str | None) -> int:
    from arylcloud.core.errors import UsageError

    if region is None:
        return 0
    for i, name in enumerate(grid.regions):
        if region in (name, name.partition("/")[2]):
            return i
    raise UsageError(
        f"--home-region: no zone of {region!r} in the trace", hint=f"it has {', '.join(grid.regions)}"
    )


def egress_of(grid: Grid, checkpoint_gb: float, usd_per_gb: float | None) -> NDArray[np.float64]:
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


def _known(instance_type: str, places: Folders) -> bool:
    from arylcloud.pricing.catalogue import load

    user = places.user_catalogue if places.user_catalogue.is_file() else None
    return bool(load(user, refreshed=places.live_prices).mask("instance_type", [instance_type]).any())


def from_job(
    path: Path,
    trace: SpotTrace,
    work_h: float | None,
    deadline_h: float | None,
    machines: int | None,
    checkpoint_gb: float | None,
) -> tuple[float, float | None, int, float | None]:
    """What flags leave open, from the job file: see :func:`from_spec`."""
    from arylcloud.cli.jobfile import Overrides, load_job

    spec, _secrets = load_job(path, Overrides(), need_secrets=False)
    return from_spec(spec, str(path), trace, work_h, deadline_h, machines, checkpoint_gb)


def from_spec(
    spec: JobSpec,
    what: str,
    trace: SpotTrace,
    work_h: float | None = None,
    deadline_h: float | None = None,
    machines: int | None = None,
    checkpoint_gb: float | None = None,
) -> tuple[float, float, int, float | None]:
    """(hours of work by the planner's estimate, deadline in hours, machines, GB of a checkpoint)."""
    from dataclasses import replace

    from arylcloud.cli.compose import make_plan
    from arylcloud.cli.output import note
    from arylcloud.cli.settings import folders
    from arylcloud.core.errors import UsageError
    from arylcloud.core.job import Constraints, Resources

    if deadline_h is None and spec.constraints.deadline_s is not None:
        deadline_h = spec.constraints.deadline_s / 3600
    if deadline_h is None:
        raise UsageError(f"{what} has no deadline", hint="`aryl: {deadline: 60h}`, or --deadline-h 60")
    if checkpoint_gb is None:
        checkpoint_gb = spec.checkpoint.size_gb
    if work_h is not None:
        return work_h, deadline_h, machines or spec.nodes_min, checkpoint_gb
    if spec.work is None or spec.profile is None:
        raise UsageError(
            f"{what} does not say how much work it is", hint="`aryl: {work, profile}`, or --work-h"
        )
    fleet = machines or spec.nodes_min
    plain = replace(
        spec,
        constraints=Constraints(),
        resources=Resources(instance_types=(trace.instance_type,)),
        nodes_min=fleet,
        nodes_max=fleet,
    )
    kind, places = trace.instance_type, folders()
    if not _known(kind, places):
        # an invented trace, or one of a type that no cloud here has: any type's hours say as much of it
        plain = replace(plain, resources=spec.resources)
    chosen = make_plan(plain, places, limit=1).chosen
    if not chosen.throughput:
        raise UsageError(f"nobody knows how fast {what} runs on {kind}", hint="give --work-h")
    work_h = spec.work.amount / chosen.throughput / 3600
    if chosen.offer.instance_type != kind:
        note(f"{kind} is no type of the catalogue: the hours of work are those of the job's best offer")
    note(
        f"{spec.work.amount:g} {spec.work.unit} on {fleet} × {chosen.offer.instance_type} at "
        f"{chosen.throughput:.3g} {chosen.throughput_unit} ({chosen.throughput_source}): {work_h:.1f} h"
    )
    return work_h, deadline_h, fleet, checkpoint_gb
