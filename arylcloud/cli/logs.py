"""``arylcloud logs``: what the job printed, over all its machines and attempts."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from arylcloud.core.ports import ObjectStore
    from arylcloud.launcher.state import JobState

app = typer.Typer(add_completion=False)


@app.command()
def logs(
    job: Annotated[
        str | None, typer.Argument(help="Id, name or beginning of an id; the newest if left out.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    provision: Annotated[
        bool, typer.Option("--provision", help="Boot and setup of its machines instead of its own output.")
    ] = False,
    rank: Annotated[int, typer.Option("--rank", "-r", help="Which node's output.")] = 0,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout (not with -f).")] = False,
) -> int:
    """The output of a job, one attempt after the other; or what its machines said while they booted."""
    from arylcloud.cli.assemble import open_journal, open_prefix
    from arylcloud.cli.jobs import resolve_job
    from arylcloud.cli.output import emit_json, note
    from arylcloud.cli.settings import folders
    from arylcloud.core.errors import UsageError
    from arylcloud.launcher.fold import replay

    if json_ and follow:
        raise UsageError("--json and --follow do not go together", hint="leave one out")
    journal = open_journal(folders())
    job_id = resolve_job(journal, job)
    store = open_prefix(replay(journal.records(job_id)).prefix_uri)
    seen: dict[str, str] = {}
    if json_:
        found: dict[str, str] = {}
        for stream, text in _new_text(store, seen, provision, rank):
            found[stream] = found.get(stream, "") + text.decode(errors="replace")
        emit_json({"job_id": job_id, "streams": [{"stream": s, "text": t} for s, t in found.items()]})
        return 0
    last = ""
    while True:
        ended = replay(journal.records(job_id)).phase.ended
        for stream, text in _new_text(store, seen, provision, rank):
            if stream != last:
                note(f"── {_title(stream)} ──", style="dim")
                last = stream
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
        if not follow or ended:
            break
        time.sleep(0.3)
    if not last:
        note(_nothing(replay(journal.records(job_id)), provision))
    return 0


def _nothing(state: JobState, provision: bool) -> str:
    """Why there is nothing to show, and where there may be more."""
    from arylcloud.cli.describe import spelled

    if provision:
        return "no machine has said anything yet"
    why = spelled(state.phase_text)
    if any(ended.in_setup for ended in state.commands_ended):
        return f"no output: {why}; `arylcloud logs {state.job_id} --provision` shows its setup"
    return f"no output{'' if state.phase.ended else ' yet'} ({state.phase}: {why})"


def _title(stream: str) -> str:
    """``epoch 2, rank 0`` of ``e000002-r00``; ``machine digits-…-n0-a1`` of its boot."""
    epoch, _, rank = stream.partition("-r")
    if epoch[1:].isdigit() and rank.isdigit():
        return f"epoch {int(epoch[1:])}, rank {int(rank)}"
    return f"machine {stream.removeprefix('boot-')}"


def _new_text(
    store: ObjectStore, seen: dict[str, str], provision: bool, rank: int
) -> list[tuple[str, bytes]]:
    """(stream, text) of every segment after those in ``seen`` (stream → its newest key)."""
    from arylcloud.core import protocol as mail

    found: list[tuple[str, bytes]] = []
    wanted = f"{mail.LOGS_PREFIX}boot-" if provision else f"{mail.LOGS_PREFIX}e"
    for info in store.list(wanted):
        stream = info.key.removeprefix(mail.LOGS_PREFIX).partition("/")[0]
        if not provision and not stream.endswith(f"-r{rank:02d}"):
            continue
        if info.key <= seen.get(stream, ""):
            continue
        seen[stream] = info.key
        found.append((stream, store.get(info.key) or b""))
    return found
