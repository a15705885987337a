"""``arylcloud migrate``: move a running job by checkpoint, make-before-break."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from arylcloud.cli.settings import Folders
    from arylcloud.launcher.state import JobState

app = typer.Typer(add_completion=False)


@app.command()
def migrate(
    job: Annotated[
        str | None, typer.Argument(help="Id, name or beginning of an id; the one that runs if left out.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="CLOUD/REGION/ZONE:TYPE:MARKET or its beginning, as `plan` and `status` write it.",
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Do not wait until it is done.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Move a running job to another market; without --to, to the best one if that pays."""
    from arylcloud.cli.assemble import open_journal, open_prefix
    from arylcloud.cli.jobs import resolve_running
    from arylcloud.cli.output import emit_json, note
    from arylcloud.cli.request import answers, write_request
    from arylcloud.cli.settings import folders
    from arylcloud.cli.spawn import ensure_launcher
    from arylcloud.core.errors import NotFinished, UsageError
    from arylcloud.core.events import MigrationEnded
    from arylcloud.launcher.fold import replay

    places = folders()
    journal = open_journal(places)
    job_id = resolve_running(journal, job)
    state = replay(journal.records(job_id))
    if state.phase.ended:
        raise UsageError(f"{job_id} is {state.phase}: it runs nowhere", hint=f"`arylcloud resume {job_id}`")
    if to is not None:
        to = _named(to, state, places)
    store = open_prefix(state.prefix_uri)
    number = write_request(store, "migrate", {"to": to} if to else {})
    ensure_launcher(journal, job_id, places)
    if detach and json_:
        emit_json({"job_id": job_id, "request": number, "detached": True})
        return 0
    if detach:
        note(f"asked {job_id} to move; `arylcloud events {job_id}` tells what became of it")
        return 0
    for _, event in answers(journal, state, number, quiet=json_):
        if isinstance(event, MigrationEnded):
            if not event.done:
                raise NotFinished(
                    f"{job_id} has not moved: {event.text}",
                    hint=f"it goes on where it is: `arylcloud status {job_id}`",
                )
            if json_:
                emit_json({"job_id": job_id, "done": True, "text": event.text})
            break
    return 0


def _named(text: str, state: JobState, places: Folders) -> str:
    """The offer, or the beginning of one, in full. UsageError where the job accepts nothing of that name,
    with what comes nearest. (Where no plan can be made now, the launcher has the word.)"""
    from difflib import get_close_matches

    from arylcloud.cli.assemble import ALL_OFFERS
    from arylcloud.cli.compose import make_plan
    from arylcloud.cli.places import full_place
    from arylcloud.core.errors import InfeasibleError, UsageError
    from arylcloud.launcher.offers import covers

    wanted = full_place(text)
    try:
        plan = make_plan(state.spec, places, limit=ALL_OFFERS, store_place=state.store_place)
    except InfeasibleError:
        return wanted
    offers = [c.offer for c in plan.candidates]
    here = [lease.offer for lease in state.open_leases]
    if any(o.key == wanted or covers(wanted, o) for o in (*offers, *here)):
        return wanted
    keys = {o.key: None for o in offers}
    parts = {o.place: None for o in offers} if ":" not in wanted else {}
    close = get_close_matches(wanted, [*parts, *keys], n=3, cutoff=0.4)
    names = ", ".join(close or list(keys)[:3])
    raise UsageError(
        f"{text} is no offer that {state.spec.name} accepts",
        hint=f"CLOUD/REGION/ZONE:TYPE:MARKET or its beginning, such as {names}",
    )
