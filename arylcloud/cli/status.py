"""``arylcloud status``: what runs where, since when, at what price."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from arylcloud.cli.progress import Reading
    from arylcloud.launcher.journal import Journal
    from arylcloud.launcher.state import JobState

app = typer.Typer(add_completion=False)


@app.command()
def status(
    job: Annotated[
        str | None, typer.Argument(help="Id, name or beginning of an id; all jobs if left out.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Ended jobs, too; also with --json.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """What runs where, since when, at what price, and how far it is."""
    from arylcloud.cli.assemble import open_journal
    from arylcloud.cli.jobs import resolve_job
    from arylcloud.cli.output import emit_json, note
    from arylcloud.cli.settings import folders
    from arylcloud.launcher.fold import replay

    journal = open_journal(folders())
    ids = [resolve_job(journal, job)] if job is not None else list(journal.jobs())
    states = [replay(journal.records(job_id)) for job_id in ids]
    shown = [s for s in states if job is not None or all_ or not s.phase.ended]
    ended = len(states) - len(shown)
    rows = [(s, *_reading(s), _attended(journal, s)) for s in shown]
    if json_:
        emit_json({"jobs": [_document(s, reading) for s, reading, _, _ in rows], "ended_not_shown": ended})
        return 0
    if not rows:
        note("no job is running" + (f" ({ended} ended: `arylcloud status --all`)" if ended else ""))
        return 0
    for s, reading, problem, launcher in rows:
        _print(s, reading, problem, launcher)
    return 0


def _attended(journal: Journal, state: JobState) -> str | None:
    """None: a launcher here is at work, or none is needed. Else what to know of it: a launcher of another
    home has gone on with the job where the mailbox holds records that this journal lacks."""
    from arylcloud.cli.assemble import open_prefix
    from arylcloud.core.errors import StoreError
    from arylcloud.core.protocol import journal_key

    if state.phase.ended or journal.claimed(state.job_id):
        return None
    if state.queued and state.placed is None and not state.open_leases:
        return f"queued: `arylcloud serve --policy …` says when it runs (`resume {state.job_id}`: now)"
    none_here = f"none at work here: `arylcloud resume {state.job_id}` starts one"
    try:
        taken_over = open_prefix(state.prefix_uri).get(journal_key(state.seq + 1)) is not None
    except StoreError:
        return none_here
    # a launcher that was at work a moment ago may have ended between the two looks
    if not taken_over or journal.head(state.job_id) > state.seq:
        return none_here
    return (
        "another home's has taken the job over, and this is what was known here before; "
        f"`arylcloud adopt {state.prefix_uri}` brings the rest (and takes it back)"
    )


def _reading(state: JobState) -> tuple[Reading, str | None]:
    """How far it is; and why only the journal could tell, where its mailbox is away: the other jobs,
    and what this one costs, are shown all the same."""
    from arylcloud.cli.assemble import open_prefix
    from arylcloud.cli.progress import read_progress
    from arylcloud.core.errors import StoreError

    try:
        return read_progress(open_prefix(state.prefix_uri), state, with_saves=True), None
    except StoreError as error:
        return read_progress(None, state), error.message


def _document(state: JobState, reading: Reading) -> dict[str, Any]:
    from arylcloud.cli.money import spent
    from arylcloud.cli.pipelines import pipelines_document, pipelines_of

    return {
        "job_id": state.job_id,
        "name": state.spec.name,
        "phase": state.phase.value,
        "code": state.phase_code,
        "text": state.phase_text,
        "until": state.phase_until_s,
        "attempt": state.attempt,
        "progress": {"done": reading.done, "total": reading.total, "unit": reading.unit},
        "leases": [
            {
                "lease_id": lease.lease_id,
                "offer": lease.offer.key,
                "phase": lease.phase.value,
                "instance_id": lease.instance_id,
                "usd_per_hour": lease.usd_per_hour,
                "since": lease.intended_at_s,
            }
            for lease in state.leases.values()
            if lease.open
        ],
        "nodes": {
            "wanted": state.wanted,
            "present": _present(state),
            "min": state.spec.nodes_min,
            "max": state.spec.nodes_max,
        },
        "pipeline": pipelines_document(pipelines_of(state)),
        "saves": reading.saves,
        "usd_so_far": spent(state),
        "deadline_left_h": None
        if (left_s := _deadline_left_s(state, time.time())) is None
        else left_s / 3600,
        "eta": None if reading.eta_s is None else (reading.at_s or time.time()) + reading.eta_s,
        "exit_code": state.exit_code,
        "interruptions": state.interruptions,
        "migrations": state.migrations_done,
        "prefix_uri": state.prefix_uri,
    }


def _deadline_left_s(state: JobState, now_s: float) -> float | None:
    """Market seconds; below 0 where it is past, None where there is none or the job has ended."""
    limit_s, clock = state.spec.constraints.deadline_s, state.market_clock
    if limit_s is None or state.phase.ended:
        return None
    return limit_s - (clock.market_s(now_s) - clock.market_s(state.submitted_at_s))


def deadline_text(state: JobState, now_s: float) -> str | None:
    """``in 17.1 h (20 h from submission)``, ``late by 2.0 h (…)``; None as in the JSON document."""
    from arylcloud.cli.output import seconds
    from arylcloud.core.units import say_limit

    left_s = _deadline_left_s(state, now_s)
    if left_s is None:
        return None
    when = f"in {seconds(left_s)}" if left_s >= 0 else f"late by {seconds(-left_s)}"
    of_market = "" if state.market_clock.scale == 1.0 else ", in the local market's time"
    return f"{when} ({say_limit(state.spec.constraints.deadline_s or 0.0)} from submission{of_market})"


def _present(state: JobState) -> int:
    """Members of the open epoch; 0 while none is open."""
    return 0 if state.epoch is None or state.phase.ended else len(state.epoch.members)


def _print(state: JobState, reading: Reading, problem: str | None, launcher: str | None) -> None:
    from rich.text import Text

    from arylcloud.cli.describe import offer_text, spelled
    from arylcloud.cli.money import spent
    from arylcloud.cli.output import hanging, rate, seconds, stdout, usd
    from arylcloud.cli.pipelines import pipelines_of, pipelines_text
    from arylcloud.cli.saves import saves_text

    def row(label: str, text: str) -> None:
        sys.stdout.write(hanging(f"  {label:<10}{text}", 12, sys.stdout) + "\n")

    head = Text(state.spec.name, style="bold")
    head.append(f"  {state.job_id}", style="dim")
    stdout().print(head)
    since = seconds(time.time() - state.phase_since_s)
    total = "?" if reading.total is None else f"{reading.total:,.0f}"
    done = "–" if reading.done is None else f"{reading.done:,}"
    progress = f"{done} of {total} {reading.unit}, attempt {state.attempt}"
    if problem is not None:
        row("mailbox", f"{problem}: progress is that of the journal")
    if state.phase.ended:
        row("phase", f"{state.phase} {since} ago: {spelled(state.phase_text)}")
        row("progress", progress)
        row("cost", f"{usd(spent(state))} (where it went: `arylcloud report {state.job_id}`)")
        return
    first, *more = spelled(state.phase_text).split("; ")
    row("phase", f"{state.phase} for {since}: {first}")
    for text in more:  # what stands in its way, kind by kind: one line each
        row("", text)
    row("progress", f"{progress}, ETA {'not known' if reading.eta_s is None else seconds(reading.eta_s)}")
    if (deadline := deadline_text(state, time.time())) is not None:
        row("deadline", deadline)
    if state.spec.nodes_min < state.spec.nodes_max:
        pinned = " (asked for: `arylcloud scale JOB auto` frees it)" if state.size_pinned else ""
        range_ = f"{state.spec.nodes_min}..{state.spec.nodes_max}"
        row("nodes", f"{_present(state)} at work, {state.wanted} wanted, of {range_}{pinned}")
    if (pipelines := pipelines_of(state)) is not None:
        row("pipeline", pipelines_text(pipelines))
    fixed = state.spec.checkpoint.interval_s is not None
    if reading.saves is not None and (saves := saves_text(reading.saves, fixed=fixed)) is not None:
        row("saves", saves)
    row("cost", f"{usd(spent(state))} so far")
    if (scale := state.market_clock.scale) != 1.0:
        said = f"a second here is {seconds(scale)} there; all other times are of this clock"
        row("clock", f"cost and deadline are in the local market's time: {said}")
    for lease in state.open_leases:
        since = seconds(time.time() - lease.intended_at_s)
        price = f"at {rate(lease.usd_per_hour)}"
        if lease.usd_per_hour is None and lease.offer.usd_per_hour is not None:
            price = f"quoted at {rate(lease.offer.usd_per_hour)}"
        where, known = offer_text(lease.offer.key), lease.instance_id or "no id yet"
        row("machine", f"{where}, {lease.phase} for {since}, {price} ({known})")
    if launcher is not None:
        row("launcher", launcher)
