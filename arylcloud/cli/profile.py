"""``arylcloud profile``: what a job gets out of a GPU, as measured, published or estimated.

``measure``, ``import`` and ``check`` stand in :mod:`.profilework`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arylcloud.cli import profilework

if TYPE_CHECKING:
    from arylcloud.core.job import ProfileRef
    from arylcloud.planner.estimator import Estimate
    from arylcloud.planner.memory import Fit
    from arylcloud.planner.profiles import Library, Measurement

app = typer.Typer(
    help="What a job gets out of a GPU: list, show, estimate, measure, import, check.",
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

TITLED = 100
"""Columns from which the list says what a profile's workload is, beside its name."""
SOURCED = 100
"""Columns from which a figure's rate per GPU and its source have room, too."""

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


@app.callback()
def profile() -> None:
    """Throughput profiles: work units per second of a workload on a number of GPUs."""


@app.command("list")
def list_(
    text: Annotated[str | None, typer.Argument(help="Only names and titles that contain this.")] = None,
    gpu: Annotated[str | None, typer.Option(help="Only profiles measured on this GPU.")] = None,
    as_json: Json = False,
) -> None:
    """The profiles: bundled ones, and your own files in the configuration folder."""
    from arylcloud.cli.output import emit_json, note, stdout
    from arylcloud.core import gpus
    from arylcloud.planner.profiles import key

    wanted = gpus.resolve(gpu) if gpu else None
    entries = [
        e
        for e in _library().entries
        if (wanted is None or wanted in e.gpus) and (text is None or key(text) in key(e.name + e.title))
    ]
    if as_json:
        emit_json({"profiles": entries})
        return
    from rich.table import Table

    console = stdout()
    titled = console.width >= TITLED
    sourced = titled and any(e.origin != "bundled" for e in entries)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("profile", no_wrap=not titled, overflow="fold")
    if titled:
        table.add_column("workload", ratio=3, overflow="fold")
    table.add_column("unit", no_wrap=True)
    table.add_column("figures", justify="right", no_wrap=True)
    table.add_column("measured on", ratio=2, overflow="fold")
    if sourced:
        table.add_column("from", overflow="fold")
    for e in entries:
        title = ("" if key(e.title) == key(e.name) else e.title,) if titled else ()
        file = (e.origin.rpartition("/")[2],) if sourced else ()
        table.add_row(e.name, *title, e.unit, str(e.measurements), ", ".join(e.gpus), *file)
    console.print(table)
    note(f"{len(entries)} profiles; `arylcloud profile show NAME` lists the figures with their sources")


@app.command()
def show(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Case and punctuation do not matter.")],
    gpu: Annotated[str | None, typer.Option(help="Only this GPU.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every figure, not one line per allocation.")] = False,
    as_json: Json = False,
) -> None:
    """The figures of a profile: GPU, count, precision, rate, source and date."""
    from arylcloud.cli.output import emit_json, note, stdout
    from arylcloud.core import gpus

    found = _library().get(model)
    wanted = gpus.resolve(gpu) if gpu else None
    rows = sorted(
        (m for m in found.measurements if wanted in (None, m.gpu)),
        key=lambda m: (m.gpu, m.gpus, m.nodes or 0, m.precision, m.seq_len or 0, -m.rate),
    )
    if as_json:
        emit_json(
            {
                "name": found.name,
                "title": found.title,
                "unit": found.unit,
                "aliases": found.aliases,
                "shape": found.shape,
                "measurements": rows,
            }
        )
        return
    console = stdout()
    console.print(f"{found.name}: {found.title}, in {found.unit}", markup=False)
    console.print(_figures(rows, every=every, sourced=console.width >= SOURCED))
    if not every:
        note(
            "batch: samples per step over all GPUs; seq len: tokens per sample; the fastest of each line:"
            " --all shows every figure, --json adds the full sources"
        )


def _figures(rows: list[Measurement], *, every: bool, sourced: bool) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    per_gpu = ("per GPU",) if sourced else ()
    for name in ("GPU", "GPUs", "nodes", "precision", "rate", *per_gpu, "batch", "seq len"):
        table.add_column(name, justify="left" if name in ("GPU", "precision") else "right", no_wrap=True)
    if sourced:
        table.add_column("figures", justify="right")
        table.add_column("source", overflow="fold", ratio=1)
    table.add_column("date", no_wrap=True)
    groups: dict[tuple[object, ...], list[Measurement]] = {}
    for i, m in enumerate(rows):
        groups.setdefault((m.gpu, m.gpus, m.nodes, m.precision, m.seq_len, i if every else 0), []).append(m)
    for group in groups.values():
        m = group[0]
        source = m.source.partition("@")[0] + (f" ({m.framework})" if m.framework else "")
        table.add_row(
            m.gpu,
            str(m.gpus),
            "several" if m.nodes is None else str(m.nodes),
            m.precision,
            _rate(m.rate),
            *((_rate(m.rate / m.gpus),) if sourced else ()),
            "" if m.global_batch is None else f"{m.global_batch:g}",
            "" if m.seq_len is None else str(m.seq_len),
            *((str(len(group)), source) if sourced else ()),
            m.as_of or "unknown",
        )
    return table


@app.command()
def estimate(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="A profile; or give a shape.")
    ] = None,
    gpu: Annotated[str, typer.Option(help="A100, h100-80gb, L4…")] = "",
    gpus_per_node: Annotated[int, typer.Option("--gpus", min=1, help="GPUs of each machine.")] = 1,
    nodes: Annotated[int, typer.Option(min=1, help="Machines.")] = 1,
    batch: Annotated[float | None, typer.Option(help="Global batch: samples per step.")] = None,
    seq_len: Annotated[int | None, typer.Option(min=1, help="Tokens per sample.")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, tf32, bf16, fp16, fp8 or fp4.")] = None,
    unit: Annotated[str | None, typer.Option(help="steps, samples, images or tokens.")] = None,
    params: Annotated[float | None, typer.Option(help="Parameters of a transformer: 124e6.")] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="Its layers.")] = None,
    hidden: Annotated[int | None, typer.Option(min=1, help="Its width.")] = None,
    as_json: Json = False,
) -> None:
    """Throughput on GPUs of one kind, with the band that the truth lies in and where it comes from."""
    from arylcloud.cli.output import emit_json
    from arylcloud.core import gpus
    from arylcloud.core.errors import InfeasibleError, UsageError
    from arylcloud.planner.estimator import Refusal, estimate_configs
    from arylcloud.planner.memory import fits

    if not gpu:
        raise UsageError("--gpu is missing", hint="arylcloud profile estimate mpt-7b --gpu H100 --gpus 8")
    if batch is not None and not batch > 0:
        raise UsageError(f"--batch {batch:g} is not a number > 0")
    library = _library()
    reference = _reference(model, params, layers, hidden, seq_len)
    config = (gpus.resolve(gpu), gpus_per_node, nodes)
    found = estimate_configs(
        reference,
        [config],
        library=library,
        work_unit=unit,
        precision=precision,
        batch=batch,
        seq_len=seq_len,
    )[0]
    if isinstance(found, Refusal):
        raise InfeasibleError(found.reason, hint=found.measure)
    fit = fits(reference, [config], library=library, seq_len=seq_len)[0]
    if as_json:
        emit_json(
            {
                "model": library.resolve(model) if model else None,
                "gpu": config[0],
                "gpus": gpus_per_node,
                "nodes": nodes,
                "throughput": found.throughput,
                "unit": found.unit,
                "low": found.low,
                "high": found.high,
                "method": found.method,
                "sources": found.sources,
                "rung": found.rung,
                "precision": found.precision,
                "note": found.note,
                "memory": fit,
            }
        )
        return
    _print(found, fit, config)


def _print(found: Estimate, fit: Fit, config: tuple[str, int, int]) -> None:
    from arylcloud.cli.output import hanging, note

    gpu, per_node, nodes = config
    where = f"{per_node} × {gpu}" + (f" on each of {nodes} machines" if nodes > 1 else "")
    parts = [
        f"{_rate(found.throughput)} {found.unit} on {where}, {found.method};"
        f" band {_rate(found.low)} to {_rate(found.high)}",
        *([f"  {found.note}"] if found.note else []),
        *(f"  source: {source}" for source in found.sources),
        f"  memory: {fit.method}",
    ]
    for text in parts:
        sys.stdout.write(hanging(text, 4, sys.stdout) + "\n")
    if fit.fits is False:
        note(f"warning: this does not fit: {fit.method}", style="yellow")


def _reference(
    model: str | None, params: float | None, layers: int | None, hidden: int | None, seq_len: int | None
) -> ProfileRef:
    """The profile that is named, or the shape that is spelled out; exactly one of the two."""
    from arylcloud.core.errors import UsageError
    from arylcloud.core.job import ProfileRef, TransformerShape

    hint = "a MODEL of `arylcloud profile list`, or --params N --layers L --hidden D --seq-len N"
    sizes = {"--params": params, "--layers": layers, "--hidden": hidden}
    given = [flag for flag, value in sizes.items() if value is not None]
    if model is not None:
        if given:
            raise UsageError(f"{given[0]} and MODEL {model!r} exclude each other", hint=hint)
        return ProfileRef(name=model)
    if not given:
        raise UsageError("a MODEL or a shape is needed", hint=hint)
    if params is None or layers is None or hidden is None or seq_len is None:
        missing = next(f for f, v in {**sizes, "--seq-len": seq_len}.items() if v is None)
        raise UsageError(f"{missing} is missing: a shape has parameters, layers, width and length", hint=hint)
    if not params > 0:
        raise UsageError(f"--params {params:g} is not a number > 0")
    return ProfileRef(shape=TransformerShape(params=params, layers=layers, hidden=hidden, seq_len=seq_len))


app.command()(profilework.measure)
app.command("import")(profilework.import_)
app.command()(profilework.check)


def _library() -> Library:
    from arylcloud.cli.settings import folders
    from arylcloud.planner.profiles import library

    return library(folders().user_profiles)


def _rate(value: float) -> str:
    """Four significant digits, thousands separated: 1,143,000 · 64.74 · 0.8321."""
    if value >= 1000:
        digits = len(str(int(value))) - 4
        return f"{round(value, -digits):,.0f}"
    return f"{value:.4g}"
