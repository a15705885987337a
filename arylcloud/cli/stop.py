"""``arylcloud stop``: a final checkpoint, then every machine is released."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from arylcloud.core.errors import ArylError, StoreError
    from arylcloud.core.ports import ObjectStore
    from arylcloud.launcher.journal import Journal
    from arylcloud.launcher.state import JobState

app = typer.Typer(add_completion=False)
CLAIM_S: Final = 20.0
"""The queue has a job that waits for no longer than it takes to give it its turn."""


@app.command()
def stop(
    job: Annotated[
        str | None, typer.Argument(help="Id, name or beginning of an id; the one that runs if left out.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Do not wait until it is done.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Stop with a final checkpoint and release every machine; `resume` goes on later, anywhere."""
    from arylcloud.cli.assemble import open_journal, open_prefix
    from arylcloud.cli.attach import follow
    from arylcloud.cli.describe import spelled
    from arylcloud.cli.jobs import resolve_running
    from arylcloud.cli.output import emit_json, note
    from arylcloud.cli.request import write_request
    from arylcloud.cli.settings import folders
    from arylcloud.cli.spawn import ensure_launcher
    from arylcloud.core.errors import StoreError
    from arylcloud.launcher.fold import replay
    from arylcloud.launcher.queueview import made_way

    places = folders()
    journal = open_journal(places)
    job_id = resolve_running(journal, job)
    state = replay(journal.records(job_id))
    comes_back = made_way(state)
    if not state.phase.ended or comes_back:
        try:
            store = open_prefix(state.prefix_uri)
            number = write_request(store, "stop", {})
            if comes_back:
                state = _keep_stopped(journal, store, job_id, number)
        except StoreError as error:
            raise _unreachable(state, error) from error
    if not state.phase.ended:
        ensure_launcher(journal, job_id, places)
        if not detach:
            state = follow(journal, store, job_id, places, quiet=json_, since_seq=state.seq)
    if json_:
        _say_others(journal, job_id)
        emit_json(
            {"job_id": job_id, "phase": state.phase, "code": state.phase_code, "text": state.phase_text}
        )
        return 0
    if state.phase.ended:
        note(f"{job_id} is {state.phase}: {spelled(state.phase_text)}; no machine of it is left")
    else:
        note(f"{job_id} is stopping; `arylcloud status {job_id}` shows it")
    _say_others(journal, job_id)
    return 0


def _say_others(journal: Journal, job_id: str) -> None:
    """What goes on costing: whoever has stopped a job may think that nothing runs any more."""
    from arylcloud.cli.jobs import at_work
    from arylcloud.cli.output import note, rate

    for state in at_work(journal):
        if state.job_id == job_id or state.phase.ended:
            continue
        prices = [
            x.offer.usd_per_hour if x.usd_per_hour is None else x.usd_per_hour for x in state.open_leases
        ]
        known = [usd for usd in prices if usd is not None]
        costs = rate(sum(known)) if len(known) == len(prices) else "at a price that is not known"
        note(f"still running: {state.job_id}, {costs if prices else 'no machine just now'}")


def _keep_stopped(journal: Journal, store: ObjectStore, job_id: str, number: int) -> JobState:
    """Of a job that has made way, and has no launcher: journal that a user has stopped it (request
    ``number``), so that the queue does not go on with it. Where the queue is giving it its turn just now, it
    or the new launcher reads the request."""
    from arylcloud.cli.assemble import new_writer_id
    from arylcloud.cli.request import asker
    from arylcloud.core.errors import ConflictError
    from arylcloud.core.events import RequestSeen
    from arylcloud.launcher.journaltime import journal_now_s
    from arylcloud.launcher.queueview import made_way

    deadline_s = time.monotonic() + CLAIM_S
    while made_way(journal.state(job_id)):
        try:
            with journal.claim(job_id):
                journal.catch_up(job_id, store)
                if made_way(journal.state(job_id)):
                    event = RequestSeen(number=number, verb="stop", args={}, by=asker())
                    at_s = journal_now_s(journal, job_id, store, time.time())
                    cause = f"request {number}"
                    journal.append(job_id, at_s, new_writer_id(), event, cause, mirror=store)
        except ConflictError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)
    return journal.state(job_id)


def _unreachable(state: JobState, error: StoreError) -> ArylError:
    """Machines and launchers are asked through the mailbox alone. Of the same kind and exit code as the
    error itself."""
    left = [x for x in state.open_leases if x.instance_id is not None]
    names = ", ".join(f"{x.offer.cloud} {x.instance_id}" for x in left)
    otherwise = (
        f"; or end {names} in the cloud's own console, where {'it costs' if len(left) == 1 else 'they cost'}"
        if left
        else "; no machine of it is known here"
    )
    return type(error)(
        f"{state.job_id} was not asked to stop, its mailbox cannot be reached: {error.message}",
        hint=f"`arylcloud stop {state.job_id}` again once it answers{otherwise}",
        code=error.code,
    )
