"""``arylcloud resume``: go on from the last checkpoint; or give a job a launcher again."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def resume(
    job: Annotated[
        str | None, typer.Argument(help="Id, name or beginning of an id; the newest if left out.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Do not watch it.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document at the end.")] = False,
) -> int:
    """Go on from the last checkpoint. A job that runs without a launcher gets one again."""
    from arylcloud.checkpoint.store import open_store
    from arylcloud.cli.assemble import new_writer_id, open_journal
    from arylcloud.cli.jobs import resolve_job
    from arylcloud.cli.launch import finish
    from arylcloud.cli.settings import folders
    from arylcloud.core import protocol as mail
    from arylcloud.core.codec import dumps
    from arylcloud.core.errors import UsageError
    from arylcloud.core.events import JobPhaseChanged
    from arylcloud.core.phases import JobPhase
    from arylcloud.launcher.fold import replay

    places = folders()
    journal = open_journal(places)
    job_id = resolve_job(journal, job)
    state = replay(journal.records(job_id))
    store = open_store(state.prefix_uri)
    if state.phase is JobPhase.SUCCEEDED:
        raise UsageError(
            f"{job_id} has finished: there is nothing to resume", hint="`arylcloud launch` runs it anew"
        )
    if state.phase.ended:
        if state.spec.secret_names:
            values = {name: os.environ[name] for name in state.spec.secret_names if name in os.environ}
            missing = sorted(set(state.spec.secret_names) - set(values))
            if missing:
                raise UsageError(
                    f"secrets are removed when a job ends; not in the environment: {', '.join(missing)}",
                    hint=f"export {missing[0]}=… and resume again",
                )
            store.put(mail.SECRETS_KEY, dumps(values))
        with journal.claim(job_id):
            journal.catch_up(job_id, store)
            journal.append(
                job_id,
                at_s=time.time(),
                writer=new_writer_id(),
                event=JobPhaseChanged(phase=JobPhase.PENDING, code="resumed", text="resumed by the user"),
                cause_id=None,
                mirror=store,
            )
    return finish(journal, store, job_id, places, detach=detach, as_json=json_)
