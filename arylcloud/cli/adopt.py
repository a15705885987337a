"""``arylcloud adopt``: take over a job whose launcher is lost, from its prefix, on any machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from arylcloud.core.events import JobSubmitted
    from arylcloud.core.ports import ObjectStore

app = typer.Typer(add_completion=False)


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
    from arylcloud.cli.assemble import (
        check_same_market,
        clouds_of,
        new_writer_id,
        open_journal,
        open_prefix,
        providers_for,
    )
    from arylcloud.cli.launch import finish
    from arylcloud.cli.settings import folders
    from arylcloud.core.clock import MarketClock
    from arylcloud.core.errors import ConflictError
    from arylcloud.launcher.holder import FRESH_S, living, take_over

    places = folders()
    store = open_prefix(uri.rstrip("/"))
    job_id = _job_of(store)
    submitted = _submission(store, job_id)
    store = _its_own_prefix(store, job_id, submitted)
    clock = MarketClock(origin_s=submitted.market_origin_s, scale=submitted.market_scale)
    check_same_market(job_id, clock, providers_for(clouds_of(submitted.spec), places))
    found = None if force else living(store)
    if found is not None:
        beat, age_s = found
        raise ConflictError(
            f"launcher {beat.launcher_id} (pid {beat.pid} on {beat.host}) was heard {age_s:.0f} s ago",
            hint=f"if it is dead, wait {FRESH_S:.0f} s or say --force: a living one then ends itself",
        )
    journal = open_journal(places)
    with journal.claim(job_id):
        take_over(journal, job_id, store, writer=new_writer_id(), wall_s=time.time)
    return finish(journal, store, job_id, places, detach=detach, as_json=json_)


def _job_of(store: ObjectStore) -> str:
    """The job whose prefix this is. What stands there was written by somebody, and becomes the name of
    files here: it must be an id, and that of this address."""
    from arylcloud.core import protocol as mail
    from arylcloud.core.codec import loads
    from arylcloud.core.errors import IntegrityError, NoSuchJob
    from arylcloud.core.tokens import is_job_id

    data = store.get(mail.JOB_KEY)
    if data is None:
        raise NoSuchJob(f"{store.uri} holds no {mail.JOB_KEY}", hint="the prefix ends with /jobs/<job id>")
    job_id = loads(mail.JobDoc, data, what=f"{store.uri}/{mail.JOB_KEY}").job_id
    if not is_job_id(job_id) or job_id != store.uri.rpartition("/")[2]:
        raise IntegrityError(
            f"{store.uri}/{mail.JOB_KEY} is of another job: {job_id[:60]!r}",
            hint="a job's prefix is adopted where the job was launched, not from a copy of another name",
        )
    return job_id


def _submission(store: ObjectStore, job_id: str) -> JobSubmitted:
    """The first record of the job's journal, as it lies in the mailbox."""
    from arylcloud.core import protocol as mail
    from arylcloud.core.errors import IntegrityError, NoSuchJob
    from arylcloud.core.events import JobSubmitted, Record

    key = mail.journal_key(1)
    data = store.get(key)
    if data is None:
        raise NoSuchJob(f"{store.uri} holds no {key}: its launch was cut short, nothing runs of it")
    first = Record.from_bytes(data, what=f"{store.uri}/{key}")
    if not isinstance(first.event, JobSubmitted) or first.job_id != job_id:
        raise IntegrityError(f"{store.uri}/{key} is not the first record of {job_id}")
    return first.event


def _its_own_prefix(store: ObjectStore, job_id: str, submitted: JobSubmitted) -> ObjectStore:
    """The prefix as the job's journal names it: machines and launchers use that address, so the fence
    has to be there. The address that the user gave must be the same place."""
    from arylcloud.checkpoint.store import file_path
    from arylcloud.cli.assemble import open_prefix
    from arylcloud.core.errors import StoreError, UsageError

    named = submitted.prefix_uri
    if named == store.uri:
        return store
    hint = f"adopt {named}, where it can be reached at that address"
    try:
        own = open_prefix(named)
    except StoreError as error:
        raise UsageError(f"{job_id} lies at {named}, not {store.uri}: {error.message}", hint=hint) from error
    if not (named.startswith("file:") and file_path(named).resolve() == file_path(store.uri).resolve()):
        raise UsageError(f"{job_id} lies at {named}; {store.uri} is another place", hint=hint)
    return own
