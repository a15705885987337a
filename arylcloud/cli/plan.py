"""``arylcloud plan``: where and how to run a job, what it takes, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def plan(
    job: Annotated[Path, typer.Argument(help="Job file (ours or SkyPilot's).")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the plan here; `launch` takes it.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many candidates to show.")] = 20,
    objective: Annotated[
        str | None, typer.Option("--objective", help="cost, time, or mixed:USD_PER_HOUR.")
    ] = None,
    deadline: Annotated[str | None, typer.Option("--deadline", help="Such as 36h, from now.")] = None,
    budget: Annotated[str | None, typer.Option("--budget", help="Such as $500, all machines.")] = None,
    max_usd_per_hour: Annotated[
        str | None, typer.Option("--max-usd-per-hour", help="Price cap per machine.")
    ] = None,
    market: Annotated[str | None, typer.Option("--market", help="auto, spot or on_demand.")] = None,
    use_spot: Annotated[bool, typer.Option("--use-spot", help="Spot only.")] = False,
    nodes: Annotated[str | None, typer.Option("--nodes", help="Machines: 2, or 1..4.")] = None,
    gpus: Annotated[str | None, typer.Option("--gpus", help="N or NAME:N per machine.")] = None,
    infra: Annotated[
        str | None, typer.Option("--infra", help="CLOUD, CLOUD/REGION or …/ZONE; `local` = this machine.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", "-n", help="Name of the job.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", help="K=V for the command; repeatable.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Rank where and how to run a job: hours and dollars of every offer, and why the first is first."""
    from arylcloud.cli.compose import make_plan
    from arylcloud.cli.jobfile import Overrides, load_job
    from arylcloud.cli.output import emit_json, note
    from arylcloud.cli.planfile import save_plan
    from arylcloud.cli.planview import document, show
    from arylcloud.cli.settings import folders

    flags = Overrides(
        name=name,
        env=tuple(env or ()),
        gpus=gpus,
        infra=infra,
        use_spot=use_spot,
        market=market,
        nodes=nodes,
        objective=objective,
        deadline=deadline,
        budget=budget,
        max_usd_per_hour=max_usd_per_hour,
    )
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
