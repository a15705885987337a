"""``arylcloud plan``: where and how to run a job, what it takes, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arylcloud.cli.planflags import plan_flags

if TYPE_CHECKING:
    from arylcloud.cli.jobfile import Overrides

app = typer.Typer(add_completion=False)


@app.command()
@plan_flags
def plan(
    *,
    job: Annotated[Path, typer.Argument(help="Job file (ours or SkyPilot's).")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the plan here; `launch` takes it.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many candidates to show.")] = 20,
    flags: Overrides,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Rank where and how to run a job: hours and dollars of every offer, and why the first is first."""
    from arylcloud.cli.compose import make_plan
    from arylcloud.cli.jobfile import load_job
    from arylcloud.cli.output import emit_json, note
    from arylcloud.cli.planfile import save_plan
    from arylcloud.cli.planview import document, show
    from arylcloud.cli.settings import folders

    spec, _secrets = load_job(job, flags, need_secrets=False)
    found = make_plan(spec, folders(), limit=limit)
    if output is not None:
        save_plan(found, output)
    if json_:
        emit_json(document(found))
    else:
        show(found)
    if output is not None:
        note(f"written to {output}; run it with `arylcloud launch {output}`")
