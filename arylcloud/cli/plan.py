"""``arylcloud plan``: where and how to run a job, what it takes, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arylcloud.cli.planflags import given, plan_flags
from arylcloud.core.errors import UsageError

if TYPE_CHECKING:
    from arylcloud.cli.jobfile import Overrides

app = typer.Typer(add_completion=False)


@app.command()
@plan_flags
def plan(
    *,
    job: Annotated[Path | None, typer.Argument(help="Job file (ours or SkyPilot's).")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the plan here; `launch` takes it.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many candidates to show.")] = 20,
    problem: Annotated[
        Path | None,
        typer.Option("--problem", metavar="FILE", help="No job: a cluster problem (docs/problem-file.md)."),
    ] = None,
    instance: Annotated[
        str | None, typer.Option("--instance", metavar="ID", help="Which problem of the file.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", metavar="NAME", help="The policy that solves --problem.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="For policies that draw lots.")] = 0,
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

    if problem is not None:
        from arylcloud.cli.problem import solve_problem

        typed = (*(() if job is None else (str(job),)), *given(flags))
        if typed:
            raise UsageError(
                f"--problem takes no job and none of its flags: {' '.join(typed)}", hint="leave them out"
            )
        solve_problem(problem, policy, instance=instance, seed=seed, as_json=json_)
        return
    if policy is not None:
        from arylcloud.planner.policies.registry import policy as known

        known(policy)
        raise UsageError("--policy solves a cluster problem", hint="add --problem FILE")
    if job is None:
        raise UsageError(
            "Missing argument 'JOB'", hint="`arylcloud plan job.yaml`; `arylcloud init` writes one"
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
