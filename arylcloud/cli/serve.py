"""``arylcloud serve``: the launcher itself, for one job (as ``launch`` starts it) or for all."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from arylcloud.cli.settings import Folders
    from arylcloud.launcher.state import JobState

app = typer.Typer(add_completion=False)
log = logging.getLogger(__name__)


@app.command()
def serve(
    job: Annotated[
        str | None, typer.Option("--job", help="Only this job; ends when the job has ended.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document at the end.")] = False,
) -> int:
    """Run the launcher for all jobs of this journal, until stopped (Ctrl-C): machines go on without it."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname).1s %(name)s: %(message)s"
    )
    from arylcloud.cli.output import emit_json
    from arylcloud.cli.settings import folders

    places = folders()
    if job is not None:
        state = serve_one(job, places)
        if json_:
            emit_json({"job_id": job, "phase": state.phase, "code": state.phase_code})
        return 0
    return _serve_all(places)


def serve_one(job_id: str, places: Folders) -> JobState:
    from arylcloud.checkpoint.store import open_store
    from arylcloud.cli.assemble import Parts, build_launcher, clouds_of, open_journal, providers_for
    from arylcloud.core.errors import StoreError
    from arylcloud.launcher.state import replay

    journal = open_journal(places)
    with journal.claim(job_id):
        state = replay(journal.records(job_id))
        store = open_store(state.prefix_uri)
        parts = Parts(journal=journal, store=store, providers=providers_for(clouds_of(state.spec), places))
        while True:
            try:
                launcher = build_launcher(job_id, state, parts, places)
            except StoreError as error:  # machines may have to be ended once it is back: no reason to die
                log.warning("the mailbox cannot be read yet: %s", error.message)
                time.sleep(1.0)
            else:
                return launcher.run()


def _serve_all(places: Folders) -> int:
    """One process per job (they cannot hurt each other), started again when one has died."""
    from arylcloud.cli.assemble import open_journal
    from arylcloud.cli.output import note
    from arylcloud.cli.spawn import ensure_launcher
    from arylcloud.core.errors import ConflictError
    from arylcloud.launcher.state import replay

    journal = open_journal(places)
    elsewhere: set[str] = set()
    note("serving all jobs of this journal; Ctrl-C ends it, the machines go on")
    try:
        while True:
            for job_id in journal.jobs():
                if job_id in elsewhere or replay(journal.records(job_id)).phase.ended:
                    continue
                try:
                    ensure_launcher(journal, job_id, places)
                except ConflictError as error:
                    elsewhere.add(job_id)
                    note(f"{job_id}: {error.message}")
            time.sleep(5)
    except KeyboardInterrupt:
        return 0
