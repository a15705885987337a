"""``arylcloud report``: what a job cost, where the money went, and what it would have cost otherwise."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arylcloud.core.events import Record
    from arylcloud.launcher.baselines import Baseline
    from arylcloud.launcher.ledger import LeaseCost, Report
    from arylcloud.launcher.state import JobState
    from arylcloud.launcher.timeline import Entry

app = typer.Typer(add_completion=False)

NOT_INCLUDED = (
    "taxes, credits, commitments and whatever the cloud bills apart from machines, traffic and storage"
)
LOCAL_DOLLARS = "local cloud: nobody spends these dollars"
"""Of a report in plain time; one in compressed time says so in words of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """All that a rendering needs, from the journal alone."""

    state: JobState
    report: Report
    baselines: tuple[Baseline, ...]
    timeline: tuple[Entry, ...]

    @property
    def steps(self) -> tuple[tuple[float, int], ...]:
        """(market seconds, step) whenever the journal knows one, in order of time."""
        return tuple((e.at_s, e.step) for e in self.timeline if e.step is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimum:
    """What was billed after machines' ends, since a cloud bills a least time of each (part of the split)."""

    least_s: float
    """Of the clouds concerned, the longest."""
    machines: int
    seconds: float
    micro: int | None
    """None: a price is not known."""
    kinds: tuple[str, ...]
    """What the split counts it as: ``idle``, or ``boot`` where no step was ever taken."""


def local_only(r: Report) -> bool:
    """Every machine was the local cloud's: what it cost is a figure, and nobody's bill."""
    return bool(r.leases) and all(cost.offer.cloud == "local" for cost in r.leases)


def minimum_of(made: Account) -> Minimum | None:
    """None where every machine lived longer than its cloud's least time."""
    from arylcloud.launcher.leasebill import MICRO, integral_usd

    seconds, micro, least_s, machines = 0.0, 0, 0.0, 0
    known, kinds = True, set()
    for cost in made.report.leases:
        until_s = cost.launched_s + cost.billed_s
        if cost.ended_s is None or cost.free or until_s <= cost.ended_s:
            continue
        machines += 1
        kinds |= {span.kind for span in cost.spans if span.to_s > cost.ended_s}
        seconds += until_s - cost.ended_s
        least_s = max(least_s, cost.billed_s)
        if cost.micro is None:
            known = False
        else:
            micro += round(integral_usd(cost.prices, cost.ended_s, until_s) * MICRO)
    if not machines:
        return None
    return Minimum(
        least_s=least_s,
        machines=machines,
        seconds=seconds,
        micro=micro if known else None,
        kinds=tuple(sorted(kinds)),
    )


@app.command()
def report(
    job: Annotated[
        str | None, typer.Argument(help="Id, name or beginning of an id; the newest job if left out.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page with charts: one file, no network needed.")
    ] = None,
) -> int:
    """What it cost at the prices in force, where the money went, and what it would have cost elsewhere."""
    from arylcloud.cli.assemble import open_journal
    from arylcloud.cli.jobs import resolve_job
    from arylcloud.cli.output import emit_json, note
    from arylcloud.cli.settings import folders

    journal = open_journal(folders())
    made = account(journal.records(resolve_job(journal, job)), now_s=time.time())
    if html is not None:
        write_page(made, html)
        note(f"page: {html.absolute()}")
    if json_:
        emit_json(document(made))
        return 0
    from arylcloud.cli.report_text import show

    show(made)
    return 0


def account(records: Iterable[Record], *, now_s: float) -> Account:
    """``now_s``: wall seconds; machines that still run are counted up to it. An ended job's account is
    as of its end, whenever it is asked for."""
    from arylcloud.launcher.baselines import baselines
    from arylcloud.launcher.fold import replay
    from arylcloud.launcher.ledger import build_report
    from arylcloud.launcher.timeline import timeline

    kept = tuple(records)
    state = replay(kept)
    made = build_report(state, now_s=state.phase_since_s if state.phase.ended else now_s)
    return Account(state=state, report=made, baselines=baselines(state, made), timeline=timeline(kept))


def write_page(made: Account, path: Path) -> None:
    from arylcloud.cli.report_html import page
    from arylcloud.core.errors import UsageError

    try:
        path.write_text(page(made), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}",
            hint="name a file in a folder that can be written",
        ) from error


def document(made: Account) -> dict[str, Any]:
    """The body of ``report --json``. Money in USD with six decimals; the parts sum to their whole.
    ``useful`` is compute − waste. Seconds are market seconds (Unix time where they are moments)."""
    from arylcloud.cli.report_plan import plan_document

    r = made.report
    split, least = r.split_micro, minimum_of(made)
    return {
        "job_id": r.job_id,
        "name": r.name,
        "phase": r.phase.value,
        "phase_code": r.phase_code,
        "phase_text": r.phase_text,
        "exit_code": r.exit_code,
        "as_of_s": r.as_of_s,
        "started_s": r.started_s,
        "ended_s": r.ended_s,
        "compressed_time": r.compressed,
        "usd": {
            "total": dollars(r.total_micro),
            "compute": dollars(r.compute_micro),
            "egress": dollars(r.egress_micro),
            "storage": dollars(r.storage_micro),
            "useful": dollars(split.useful) if split else None,
            "waste": {
                "boot": dollars(split.boot) if split else None,
                "lost_work": dollars(split.lost_work) if split else None,
                "idle": dollars(split.idle) if split else None,
            },
            "known": dollars(r.known_micro),
        },
        "machine_hours": {
            "useful": r.seconds.useful / 3600,
            "boot": r.seconds.boot / 3600,
            "lost_work": r.seconds.lost_work / 3600,
            "idle": r.seconds.idle / 3600,
        },
        "minimum_billing": {  # counted in the parts above already: idle, or boot of a machine without a step
            "machines": least.machines if least else 0,
            "machine_hours": least.seconds / 3600 if least else 0.0,
            "usd": dollars(least.micro) if least else 0.0,
        },
        "budget_usd": r.budget_usd,
        "unknown": list(r.unknown),
        "not_included": NOT_INCLUDED,
        "baselines": [
            {
                "name": b.name,
                "usd": dollars(b.usd_micro),
                "machine_hours": b.hours,
                "saving": b.saving(r.total_micro),
                "basis": b.basis,
            }
            for b in made.baselines
        ],
        "plan": plan_document(made),
        "interruptions": r.interruptions,
        "interruptions_with_notice": r.interruptions_with_notice,
        "migrations": r.migrations,
        "epochs": r.epochs,
        "attempts": r.attempts,
        "final_step": r.final_step,
        "leases": [_lease_document(cost) for cost in r.leases],
        "timeline": [
            {
                "at_s": e.at_s,
                "kind": e.kind,
                "text": e.text,
                "lease_id": e.lease_id,
                "offer": e.offer,
                "usd_per_hour": e.usd_per_hour,
                "step": e.step,
                "noticed": e.noticed,
            }
            for e in made.timeline
        ],
    }


def _lease_document(cost: LeaseCost) -> dict[str, Any]:
    return {
        "lease_id": cost.lease_id,
        "instance_id": cost.instance_id,
        "offer": cost.offer.key,
        "launched_s": cost.launched_s,
        "ended_s": cost.ended_s,
        "cause": cost.cause,
        "noticed": cost.noticed,
        "billed_s": cost.billed_s,
        "free": cost.free,
        "usd": dollars(cost.micro.total) if cost.micro else None,
        "usd_per_hour_mean": cost.usd_per_hour,
        "prices": [{"from_s": p.from_s, "usd_per_hour": p.usd_per_hour} for p in cost.prices],
        "spans": [{"kind": s.kind, "from_s": s.from_s, "to_s": s.to_s} for s in cost.spans],
    }


def dollars(micro: int | None) -> float | None:
    return None if micro is None else micro / 1_000_000
