"""``arylcloud scale``: another number of machines for a running elastic job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from arylcloud.launcher.state import JobState

app = typer.Typer(add_completion=False)


@app.command()
def scale(
    job: Annotated[str, typer.Argument(help="Id, name or beginning of an id.")],
    nodes: Annotated[
        str,
        typer.Argument(metavar="N|auto", help="How many machines; `auto` leaves it to the planner again."),
    ],
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Do not wait until it is done.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Change the number of machines of a running job within its `nodes: a..b`, at a checkpoint."""
    from arylcloud.cli.assemble import open_journal, open_prefix
    from arylcloud.cli.jobs import resolve_running
    from arylcloud.cli.output import emit_json, note
    from arylcloud.cli.request import answers, write_request
    from arylcloud.cli.settings import folders
    from arylcloud.cli.spawn import ensure_launcher
    from arylcloud.core.errors import UsageError
    from arylcloud.core.events import RequestSeen, ScaleRefused, SizeChosen
    from arylcloud.launcher.fold import replay

    places = folders()
    journal = open_journal(places)
    job_id = resolve_running(journal, job)
    state = replay(journal.records(job_id))
    least, most = state.spec.nodes_min, state.spec.nodes_max
    if state.phase.ended:
        raise UsageError(f"{job_id} is {state.phase}: it runs nowhere", hint=f"`arylcloud resume {job_id}`")
    if least == most:
        raise UsageError(
            f"{job_id} runs on {most} machine{'s' if most > 1 else ''} throughout",
            hint="a range in its file, as in `nodes: 1..4`, lets the number change while it runs",
        )
    wanted: int | str = nodes
    if nodes != "auto":
        wanted = int(nodes) if nodes.isascii() and nodes.isdigit() else 0
        if not least <= wanted <= most:
            raise UsageError(
                f"N is {nodes}, the job has nodes: {least}..{most}", hint=f"{least} to {most}, or auto"
            )
    _refuse_turn(state)
    number = write_request(open_prefix(state.prefix_uri), "scale", {"nodes": wanted})
    ensure_launcher(journal, job_id, places)
    if detach:
        if json_:
            emit_json({"job_id": job_id, "request": number, "detached": True})
        else:
            note(f"asked {job_id} for {wanted} machines; `arylcloud events {job_id}` tells what became of it")
        return 0
    chosen: int | None = None
    for now, event in answers(journal, state, number, quiet=json_):
        match event:
            case RequestSeen() if event.number == number:
                _refuse_turn(now)  # it was given its turn meanwhile
            case ScaleRefused() if event.number == number:
                raise UsageError(f"{job_id} is not scaled: {event.text}")
            case SizeChosen() if chosen is None:
                chosen = event.nodes
            case None if chosen is not None:
                present = len(now.epoch.members) if now.epoch is not None else 0
                if nodes == "auto" or present == chosen:
                    if json_:
                        emit_json({"job_id": job_id, "request": number, "nodes": chosen, "present": present})
                    break
    return 0


def _refuse_turn(state: JobState) -> None:
    from arylcloud.core.errors import UsageError

    if state.turn_nodes is not None:
        raise UsageError(
            f"{state.job_id} has its turn in a queue, which counts {state.turn_nodes} of its machines",
            hint=f"`arylcloud stop {state.job_id}`, then `arylcloud resume {state.job_id}` runs it outside",
        )
