"""``arylcloud stop``: a final checkpoint, then every machine is released."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from arylcloud.core.errors import ArylError, StoreError
    from arylcloud.launcher.state import JobState

app = typer.Typer(add_completion=False)


@app.command()
def stop(
    job: Annotated[
        str | None, typer.Argument(help="Id, name or beginning of an id; the newest if left out.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Do not wait until it is done.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Stop with a final checkpoint and release every machine; `resume` goes on later, anywhere."""
    from arylcloud.cli.assemble import open_journal, open_prefix
    from arylcloud.cli.attach import follow
    from arylcloud.cli.jobs import resolve_job
    from arylcloud.cli.output import emit_json, note
    from arylcloud.cli.request import write_request
    from arylcloud.cli.settings import folders
    from arylcloud.cli.spawn import ensure_launcher
    from arylcloud.core.errors import StoreError
    from arylcloud.launcher.fold import replay

    places = folders()
    journal = open_journal(places)
    job_id = resolve_job(journal, job)
    state = replay(journal.records(job_id))
    if not state.phase.ended:
        try:
            store = open_prefix(state.prefix_uri)
            write_request(store, "stop", {})
        except StoreError as error:
            raise _unreachable(state, error) from error
        ensure_launcher(journal, job_id, places)
        if not detach:
            state = follow(journal, store, job_id, places, quiet=json_, since_seq=state.seq)
    if json_:
        emit_json(
            {"job_id": job_id, "phase": state.phase, "code": state.phase_code, "text": state.phase_text}
        )
    elif state.phase.ended:
        note(f"{job_id} is {state.phase}: {state.phase_text}; no machine of it is left")
    else:
        note(f"{job_id} is stopping; `arylcloud status {job_id}` shows it")
    return 0


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
