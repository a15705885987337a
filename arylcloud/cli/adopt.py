"""``arylcloud adopt``: take over a job whose launcher is lost, from its prefix, on any machine."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from arylcloud.core.ports import ObjectStore
    from arylcloud.launcher.journal import Journal

app = typer.Typer(add_completion=False)

TRIES = 50


@app.command()
def adopt(
    uri: Annotated[str, typer.Argument(help="The job's prefix: file:///…/jobs/NAME-1a2b3c4d, s3://…")],
    force: Annotated[
        bool,
        typer.Option("--force", help="Even if its launcher has been heard a moment ago: it will end itself."),
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Do not watch it.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document at the end.")] = False,
) -> int:
    """Take over a job: its journal is copied from the prefix, and this machine becomes its launcher."""
    from arylcloud.checkpoint.store import open_store
    from arylcloud.cli.assemble import open_journal
    from arylcloud.cli.launch import finish
    from arylcloud.cli.settings import folders
    from arylcloud.core import protocol as mail
    from arylcloud.core.codec import loads
    from arylcloud.core.errors import ConflictError, NoSuchJob
    from arylcloud.launcher.loop import FRESH_S

    uri = uri.rstrip("/")
    store = open_store(uri, create=False)
    data = store.get(mail.JOB_KEY)
    if data is None:
        raise NoSuchJob(f"{uri} holds no {mail.JOB_KEY}", hint="the prefix ends with /jobs/<job id>")
    job = loads(mail.JobDoc, data, what=f"{uri}/{mail.JOB_KEY}")
    beat_data = store.get(mail.LAUNCHER_KEY)
    if beat_data is not None and not force:
        beat = loads(mail.LauncherBeat, beat_data, what=mail.LAUNCHER_KEY)
        age_s = time.time() - beat.at_s
        if age_s < FRESH_S:
            raise ConflictError(
                f"launcher {beat.launcher_id} (pid {beat.pid} on {beat.host}) was heard "
                f"{max(0.0, age_s):.0f} s ago",
                hint=f"if it is dead, wait {FRESH_S:.0f} s or say --force: a living one then ends itself",
            )
    places = folders()
    journal = open_journal(places)
    with journal.claim(job.job_id):
        take_over(journal, job.job_id, store)
    return finish(journal, store, job.job_id, places, detach=detach, as_json=json_)


def take_over(journal: Journal, job_id: str, store: ObjectStore) -> None:
    """Copy the job's journal and write its next record, which fences whoever wrote the last one. One
    that is alive may be quicker a few times; once it has lost, it ends itself. Raises ConflictError."""
    from arylcloud.cli.assemble import new_writer_id
    from arylcloud.core.errors import ConflictError
    from arylcloud.core.events import LauncherStarted
    from arylcloud.launcher.state import replay

    writer = new_writer_id()
    event = LauncherStarted(
        launcher_id=writer, host=socket.gethostname(), pid=os.getpid(), adopted=True, home=journal.journal_id
    )
    for left in reversed(range(TRIES)):
        journal.catch_up(job_id, store, take_over=True)
        if replay(journal.records(job_id)).phase.ended:
            return
        try:
            journal.append(job_id, time.time(), writer, event, cause_id="adopt", mirror=store)
            return
        except ConflictError:
            if not left:
                raise
