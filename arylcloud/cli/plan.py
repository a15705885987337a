"""``arylcloud plan``: where and how to run a job, what it takes, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arylcloud.cli.planflags import given, plan_flags
from arylcloud.core.errors import UsageError

if TYPE_CHECKING:
    from arylcloud.cli.jobfile import Overrides
    from arylcloud.core.job import JobSpec

app = typer.Typer(add_completion=False)


@app.command()
@plan_flags
def plan(
    *,
    job: Annotated[
        list[Path] | None,
        typer.Argument(metavar="JOB", help="Job file (ours or SkyPilot's); several are placed together."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the plan here; `launch` takes it.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many candidates to show.")] = 20,
    past: Annotated[
        str | None,
        typer.Option(
            "--past",
            metavar="TRACE",
            help="A job with a deadline: what it would have cost on this past, or own.",
        ),
    ] = None,
    problem: Annotated[
        Path | None,
        typer.Option("--problem", metavar="FILE", help="No job: a cluster problem (docs/problem-file.md)."),
    ] = None,
    instance: Annotated[
        str | None, typer.Option("--instance", metavar="ID", help="Which problem of the file.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="NAME", help="The policy for several jobs, or for --problem."),
    ] = None,
    capacity: Annotated[
        str | None,
        typer.Option("--capacity", metavar="GPUS", help="Several jobs: what there is, a100=32,v100=64."),
    ] = None,
    costs: Annotated[
        str | None,
        typer.Option("--costs", metavar="USD", help="Of your own GPUs, $ per GPU-hour: a100=1.2,v100=.6."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", metavar="K", min=1, help="Thousands of jobs: in K random parts."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="For policies that draw lots.")] = 0,
    flags: Overrides,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Rank where and how to run a job: hours and dollars of every offer, and why the first is first.

    Several jobs (or one with --policy or --capacity) are placed together; `launch` takes one job at a time.
    """
    from arylcloud.cli.compose import make_plan, store_of_plan
    from arylcloud.cli.jobfile import load_job
    from arylcloud.cli.output import emit_json, note
    from arylcloud.cli.planfile import save_plan
    from arylcloud.cli.planview import document, show
    from arylcloud.cli.settings import folders

    if problem is not None:
        from arylcloud.cli.problem import solve_problem

        many = (("--capacity", capacity), ("--costs", costs), ("--partition", partition))
        typed = (*map(str, job or ()), *given(flags), *(name for name, value in many if value is not None))
        if typed:
            raise UsageError(
                f"--problem takes no job and none of its flags: {' '.join(typed)}", hint="leave them out"
            )
        solve_problem(problem, policy, instance=instance, seed=seed, as_json=json_)
        return
    if instance is not None:
        raise UsageError(
            "--instance names a problem of --problem FILE", hint="add --problem, or leave it out"
        )
    if policy is not None and not job:
        from arylcloud.planner.policies.registry import policy as known

        known(policy)
        raise UsageError(
            "--policy needs jobs, or a cluster problem", hint="name job files, or --problem FILE"
        )
    if not job:
        raise UsageError(
            "Missing argument 'JOB'", hint="`arylcloud plan job.yaml`; `arylcloud init` writes one"
        )
    if len(job) > 1 or any(x is not None for x in (policy, capacity, costs, partition)):
        from arylcloud.cli.planmany import plan_jobs

        plan_jobs(
            job,
            flags,
            policy=policy,
            capacity=capacity,
            costs=costs,
            partition=partition,
            seed=seed,
            output=output,
            as_json=json_,
        )
        return
    spec, _secrets = load_job(job[0], flags, need_secrets=False)
    found = make_plan(spec, folders(), limit=limit, store_place=store_of_plan())
    if output is not None:
        save_plan(found, output)
    replayed, why = None, None
    if past is not None:
        from arylcloud.cli.planpast import line, past_or_why

        replayed, why = past_or_why(spec, past)
    if json_:
        emit_json({**document(found), **({} if past is None else {"backtest": replayed})})
    else:
        show(found)
        _say_spotless(spec)
        if past is not None:
            note(why or line(replayed or {}))
            for text in (replayed or {}).get("notes", ()):
                note(text)
        else:
            _say_past(spec)
    if output is not None:
        note(f"written to {output}; run it with `arylcloud launch {output}`")


def _say_past(spec: JobSpec) -> None:
    """Of a job with a deadline, where this home has a history. Not replayed unasked: that takes as long again
    as the plan, and reading a journal takes longer the more jobs it holds."""
    from arylcloud.cli.output import note
    from arylcloud.cli.settings import folders

    due = spec.constraints.deadline_s is not None and spec.work is not None and spec.profile is not None
    if not (due and spec.nodes_max == 1 and folders().journal.is_file()):
        return
    from arylcloud.cli.planpast import goes_by

    if goes_by(spec) is not None:
        note("--past own adds what the job's deadline policy would have cost on this home's history")


def _say_spotless(spec: JobSpec) -> None:
    """Of named GPUs whose spot prices nobody here knows: on demand they look like all that there is."""
    if spec.market == "on_demand" or not spec.resources.accelerators:
        return
    from arylcloud.cli.compose import offer_table
    from arylcloud.cli.output import hanging, note
    from arylcloud.cli.settings import folders
    from arylcloud.core.gpus import serving
    from arylcloud.pricing.select import say_spotless, spotless

    table = offer_table(spec, folders())
    asked = table.mask("gpu", [name for a in spec.resources.accelerators for name in serving(a.gpu)])
    if spec.resources.clouds:
        asked &= table.mask("cloud", spec.resources.clouds)
    if (text := say_spotless(spotless(table, asked))) is not None:
        note(hanging(text, 2))
