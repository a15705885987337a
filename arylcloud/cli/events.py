"""``arylcloud events``: what happened, in order, each with its cause."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def events(
    job: Annotated[
        str | None, typer.Argument(help="Id, name or beginning of an id; the newest if left out.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Price steps and notifications, too.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """What happened to a job, and why."""
    import sys

    from arylcloud.cli import describe
    from arylcloud.cli.assemble import open_journal
    from arylcloud.cli.jobs import resolve_job
    from arylcloud.cli.output import emit_json, hanging
    from arylcloud.cli.settings import folders
    from arylcloud.core.codec import encode
    from arylcloud.launcher.fold import apply

    journal = open_journal(folders())
    job_id = resolve_job(journal, job)
    records = list(journal.records(job_id))
    if json_:
        listing = [
            {
                "seq": r.seq,
                "at_s": r.at_s,
                "writer": r.writer,
                "cause_id": r.cause_id,
                "kind": type(r.event).__name__,
                "body": encode(r.event),
            }
            for r in records
        ]
        emit_json({"job_id": job_id, "events": listing})
        return 0
    state = None
    for record in records:
        before, state = state, apply(state, record)
        text = describe.line(record, state, before)
        if text is None and all_:
            text = f"{describe.clock_text(record.at_s)}  {type(record.event).__name__} {encode(record.event)}"
        if text is not None:
            cause = f"  ← {describe.cause_text(record.cause_id)}" if record.cause_id else ""
            sys.stdout.write(hanging(f"{record.seq:5d}  {text}{cause}", 17, sys.stdout) + "\n")
    return 0
