"""``arylcloud profile measure``, ``import`` and ``check``: new figures, and how far to trust estimates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arylcloud.cli.measuring import Run
    from arylcloud.core.job import JobSpec
    from arylcloud.planner.model_left_out import Held
    from arylcloud.planner.steprate import StepRate

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def measure(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="A job file; its run: is what is measured.")],
    for_: Annotated[str, typer.Option("--for", help="How long, after the warm-up.")] = "60s",
    warmup: Annotated[str, typer.Option(help="Left out, from the first step on.")] = "10s",
    start_within: Annotated[str, typer.Option(help="How long until the first step at most.")] = "10m",
    pattern: Annotated[
        str | None, typer.Option(help=r"Where the output tells the steps done: 'step (\d+)'.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="This machine's GPU, where nvidia-smi cannot say.")] = None,
    gpus_: Annotated[int | None, typer.Option("--gpus", min=1, help="How many the job uses.")] = None,
    batch: Annotated[float | None, typer.Option(help="Samples per step, all GPUs together.")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, tf32, bf16, fp16, fp8 or fp4.")] = None,
    name: Annotated[str | None, typer.Option("-n", "--name", help="Of the profile; else the job's.")] = None,
    env: Annotated[list[str] | None, typer.Option(help="K=V, or K from your environment.")] = None,
    setup: Annotated[bool, typer.Option("--setup", help="Run the job's setup: first.")] = False,
    as_json: Json = False,
) -> None:
    """Run the job's own steps here for a while, and keep the rate as a profile."""
    import tempfile

    from arylcloud.cli import measuring
    from arylcloud.cli.interrupts import Interrupts
    from arylcloud.cli.jobfile import Overrides, load_job
    from arylcloud.cli.output import note
    from arylcloud.core import units
    from arylcloud.core.errors import Interrupted, UsageError
    from arylcloud.planner.profile_files import precision_class
    from arylcloud.planner.steprate import step_rate

    for_s = units.parse_duration_s(for_, what="--for")
    warmup_s = 0.0 if warmup in ("0", "0s") else units.parse_duration_s(warmup, what="--warmup")
    start_s = units.parse_duration_s(start_within, what="--start-within")
    wanted = measuring.compiled(pattern)
    if batch is not None and not batch > 0:
        raise UsageError(
            f"--batch {batch:g} is not a number > 0", hint="samples per step over all GPUs: --batch 64"
        )
    if precision is not None:
        precision_class(precision, what="--precision")
    spec, secrets = load_job(job, Overrides(env=tuple(env or ())))
    reported, kind, count = _machine(gpu, gpus_)
    where = _where(kind, count, seen=reported is not None)
    note(f"measuring {spec.name} on {where}: {warmup_s:g} s warm-up, then {for_s:g} s")
    with tempfile.TemporaryDirectory(prefix="arylcloud-measure-") as folder, Interrupts() as interrupts:
        scratch = Path(folder)
        environment = measuring.environment(spec, secrets, scratch, count if kind else 0)
        if setup and spec.setup:
            _set_up(spec, environment, scratch)
        run = measuring.run_for(
            spec,
            environment,
            scratch,
            for_s=for_s,
            warmup_s=warmup_s,
            start_s=start_s,
            pattern=wanted,
            wish=lambda: interrupts.wish,
            set_up=setup,
        )
        if interrupts.wish is not None:
            raise Interrupted("interrupted: nothing was kept", hint="a shorter --for")
    rate = step_rate(run.readings, warmup_s=warmup_s)
    said_batch = batch or (spec.profile.batch if spec.profile else None)
    kept = _keep(name or spec.name, kind, count, where, rate, warmup_s, said_batch, precision)
    _told(spec, rate, run, warmup_s, reported, kind, count, where, kept, as_json=as_json)


def _machine(gpu: str | None, count: int | None) -> tuple[str | None, str | None, int]:
    """(as nvidia-smi names it, canonical name or None for a CPU, how many)."""
    import os

    from arylcloud.cli.measuring import smi
    from arylcloud.core import gpus
    from arylcloud.core.errors import UsageError

    seen = smi("name")
    if seen is None:
        return None, gpus.resolve(gpu) if gpu else None, count or 1
    found = gpus.resolve(gpu) if gpu else gpus.find(seen[0])
    if found is None:
        close = ", ".join(gpus.nearest(seen[0])) or "`arylcloud prices` lists every GPU"
        raise UsageError(f"this machine's GPU, {seen[0]!r}, is not known by that name", hint=f"--gpu {close}")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    usable = len(seen) if visible is None else len([v for v in visible.split(",") if v.strip()])
    return seen[0], found, count or max(1, usable)


def _where(kind: str | None, count: int, *, seen: bool) -> str:
    """``seen``: by nvidia-smi. Else the kind is the user's word, and where there is no GPU at all, a CPU
    stands for it: whoever reads the figure is told."""
    from arylcloud.cli.measuring import gpu_device

    if kind is None:
        return "this CPU"
    if seen:
        return f"{count} × {kind}"
    return f"{'' if gpu_device() else 'this CPU; kept as '}{count} × {kind}, as --gpu says"


def _set_up(spec: JobSpec, environment: dict[str, str], scratch: Path) -> None:
    from arylcloud.agent.process import Command, shell_argv
    from arylcloud.cli.output import note
    from arylcloud.core.errors import UserCommandFailed

    note("setup …")
    lines: list[bytes] = []
    folder = Path(spec.workdir) if spec.workdir else scratch
    command = Command(shell_argv(spec.setup or "", scratch), cwd=folder, env=environment, output=lines.append)
    try:
        code = command.wait()
    finally:
        command.close()
    if code:
        last = b"".join(lines).decode(errors="replace").strip().splitlines()[-3:]
        raise UserCommandFailed(f"setup failed with exit code {code}", hint=" | ".join(last) or None)


def _keep(
    name: str,
    kind: str | None,
    count: int,
    where: str,
    rate: StepRate,
    warmup_s: float,
    batch: float | None,
    precision: str | None,
) -> Path | None:
    """The profile's file; None on a CPU that stands for no GPU: a plan has no use for it."""
    from datetime import UTC, datetime

    from arylcloud.cli.settings import ensure, folders
    from arylcloud.planner.profile_store import record

    if kind is None:
        return None
    half = (rate.high - rate.low) / 2 / rate.per_s
    about = "" if where == f"{count} × {kind}" else f" on {where}"
    row: dict[str, Any] = {
        "gpu": kind,
        "gpus": count,
        "nodes": 1,
        "rate": float(f"{rate.per_s:.6g}"),
        "source": f"arylcloud profile measure{about}: {rate.seconds:.0f} s after {warmup_s:g} s of warm-up, "
        f"±{half:.1%} (95 %, {rate.blocks} blocks)",
        "as_of": datetime.now(UTC).date().isoformat(),
        "kind": "measured",
    }
    if batch is not None:
        row["batch"] = batch
    if precision is not None:
        row["precision"] = precision
    return record(ensure(folders().user_profiles), name, "steps/s", row)


def _told(
    spec: JobSpec,
    rate: StepRate,
    run: Run,
    warmup_s: float,
    reported: str | None,
    kind: str | None,
    count: int,
    where: str,
    kept: Path | None,
    *,
    as_json: bool,
) -> None:
    import json

    from arylcloud.cli.output import emit_json, note, stdout

    profile = json.loads(kept.read_text(encoding="utf-8"))[0]["name"] if kept else None
    if as_json:
        emit_json(
            {
                "job": spec.name,
                "profile": profile,
                "file": None if kept is None else str(kept),
                "unit": "steps/s",
                "rate": rate,
                "warmup_s": warmup_s,
                "steps_from": run.how,
                "ended": "stopped" if run.exit_code is None else "finished",
                "gpu": kind,
                "gpus": count if kind else None,
                "reported_as": reported,
                "peak_memory_gib": run.peak_memory_gib,
            }
        )
        return
    console = stdout()
    half = (rate.high - rate.low) / 2 / rate.per_s
    console.print(
        f"{rate.per_s:.4g} steps/s ±{half:.1%} (95 %) on {where}: {rate.steps:g} steps in "
        f"{rate.seconds:.1f} s, blocks vary by {rate.variation:.1%}; steps from {run.how}",
        markup=False,
    )
    if run.peak_memory_gib is not None:
        console.print(f"GPU memory in use at most: {run.peak_memory_gib:.1f} GiB", markup=False)
    if run.exit_code is not None:
        note("the job ended by itself before the time was over")
    if kept is None:
        note("no GPU here: the rate is this CPU's, and no profile was written; --gpu NAME records it as that")
    else:
        note(f"profile {profile} in {kept}; use it with  aryl: {{profile: {profile}}}")


def import_(
    file: Annotated[Path, typer.Argument(help="Gavel's throughputs (JSON), or a table (CSV).")],
    source: Annotated[str | None, typer.Option(help="Where the figures are from; else the file.")] = None,
    as_json: Json = False,
) -> None:
    """Profiles from Gavel's JSON or from CSV, into your profile folder."""
    from arylcloud.cli.output import emit_json, note, stdout
    from arylcloud.cli.settings import ensure, folders
    from arylcloud.planner.profile_import import counts, read
    from arylcloud.planner.profile_store import file_name, write
    from arylcloud.planner.profiles import library

    found = read(file, source=source)
    target = ensure(folders().user_profiles) / f"{file_name(file.stem)}.json"
    write(target, found)
    profiles, figures = counts(found)
    elsewhere = [
        e
        for e in library(folders().user_profiles).entries
        if e.name in {p["name"] for p in found} and e.origin != str(target)
    ]
    for e in elsewhere[:3]:
        note(f"warning: {e.name} stands in {e.origin}, too, and that one counts", style="yellow")
    if as_json:
        emit_json({"file": str(target), "profiles": [p["name"] for p in found], "figures": figures})
        return
    stdout().print(f"{profiles} profiles, {figures} figures: {target}", markup=False, soft_wrap=True)
    note("`arylcloud profile list` shows them; they lie over bundled ones of the same name")


def check(
    data: Annotated[
        Path | None, typer.Option(help="A folder of profile files: check on those, each left out in turn.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Leave-one-out errors of the estimates between GPUs, and how often their bands hold."""
    from arylcloud.cli.output import emit_json, note
    from arylcloud.cli.settings import folders
    from arylcloud.core.errors import UsageError
    from arylcloud.planner.model_left_out import held_out, library_samples, score_held
    from arylcloud.planner.profiles import library

    if data is not None and not data.is_dir():
        raise UsageError(f"--data {data} is no folder", hint="a folder of .yaml or .json profile files")
    lib = library(data if data is not None else folders().user_profiles)
    samples = library_samples(lib)
    mine = {e.name for e in lib.entries if e.origin != "bundled"}
    columns = samples if data is None else [s for s in samples if s.profile in mine]
    if not columns:
        raise UsageError(
            f"nothing to check in {data}: no profile with one precision on two GPUs, on 1 or on 8 of them",
            hint="`arylcloud profile check` without --data checks the bundled ones",
        )
    if not as_json:
        note(f"fitting without each of {len({s.family for s in columns})} families of models in turn …")
    held = held_out(columns, samples)
    residuals = held if data is None else None  # one's own have no part in the bands that are shipped
    rows = []
    for origin, rung, part in _parts(held):
        found = score_held(part, residuals)
        if found is not None:
            rows.append((origin, rung, found))
    if as_json:
        emit_json(
            {
                "left_out": "the family of models",
                "columns": [
                    {
                        "rows": origin,
                        "from": rung,
                        "figures": s.figures,
                        "median_error": s.median,
                        "p95_error": s.p95,
                        "in_band": s.covered,
                        "median_band_ratio": s.width,
                    }
                    for origin, rung, s in rows
                ],
            }
        )
        return
    _table(rows)


def _parts(held: Sequence[Held]) -> list[tuple[str, str, list[Held]]]:
    origins = sorted({h.origin for h in held})
    return [
        (origin, title, [h for h in held if h.origin == origin and (len(h.known) > 1) is many])
        for many, title in ((False, "one other GPU"), (True, "two and more"))
        for origin in origins
    ]


def _table(rows: Sequence[tuple[str, str, Any]]) -> None:
    from rich.table import Table

    from arylcloud.cli.output import note, stdout

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("rows", "estimated from"):
        table.add_column(title, no_wrap=True)
    for title in ("figures", "median error", "95th percentile", "in 90 % band", "high/low"):
        table.add_column(title, justify="right")
    for origin, rung, s in rows:
        errors = (str(s.figures), f"{s.median:.1%}", f"{s.p95:.1%}")
        table.add_row(origin, rung, *errors, f"{s.covered:.0%}", f"{s.width:.2f}")
    stdout().print(table)
    note(
        "each family of models left out of the fit and of its own bands; high/low is the band's median width"
    )
