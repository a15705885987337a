"""``arylcloud pool``: one's own machines: entered, listed, lent, taken back. (``tend``: ``pooltend``.)"""

from __future__ import annotations

from typing import Annotated

import typer

from arylcloud.cli import pooltend
from arylcloud.cli.pooltend import chosen, provider

app = typer.Typer(
    help="Machines of your own: add, list, remove, loan, reclaim, tend.",
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="NAME…", help="Machines, by name.")]
Within = Annotated[
    str, typer.Option("--within", help="How long who has it may go on: time to save, and to move.")
]


@app.callback()
def pool() -> None:
    """One's own machines, by ssh: jobs run on them with `--infra pool`."""


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="What it is called here.")],
    host: Annotated[
        str, typer.Option(help="As ssh takes it: user@host, or a name of ~/.ssh/config; localhost: this one.")
    ],
    usd_per_hour: Annotated[
        str, typer.Option("--usd-per-hour", help="What an hour of it is worth: power, wear, or its rent.")
    ],
    gpu: Annotated[str | None, typer.Option(help="Name of its GPUs; none without.")] = None,
    gpus: Annotated[int | None, typer.Option(help="How many.")] = None,
    group: Annotated[
        str, typer.Option(help="Machines of a group reach one another: a gang stays in one.")
    ] = "own",
    type_: Annotated[
        str | None,
        typer.Option("--type", help="One name for machines that are alike; GPU and count without."),
    ] = None,
    vcpus: Annotated[float | None, typer.Option(help="Cores.")] = None,
    mem_gib: Annotated[float | None, typer.Option("--mem-gib", help="Memory, GiB.")] = None,
    address: Annotated[
        str | None, typer.Option(help="How the others of its group reach it; the host without.")
    ] = None,
    folder: Annotated[str, typer.Option(help="A folder there, for jobs and notes.")] = "~/.arylcloud/pool",
    keep: Annotated[bool, typer.Option("--keep", help="Enter it, and do not lend it yet.")] = False,
    as_json: Json = False,
) -> int:
    """Enter a machine, look whether it answers, and lend it to your jobs."""
    from datetime import UTC, datetime

    from arylcloud.cli.output import emit_json, note
    from arylcloud.cli.poolview import document
    from arylcloud.core import gpus as known
    from arylcloud.core.errors import UsageError
    from arylcloud.core.units import parse_number
    from arylcloud.providers.pool.machines import THIS, OwnMachine, offers, write

    if (gpu is None) != (gpus is None):
        raise UsageError("--gpu and --gpus go together", hint="--gpu A100 --gpus 8")
    kind = None if gpu is None else known.resolve(gpu)
    here = provider()
    before = here.machines()
    if any(m.name == name for m in before):
        raise UsageError(f"{name} is there already", hint=f"`arylcloud pool remove {name}` takes it out")
    machine = OwnMachine(
        name=name,
        host=host,
        group=group,
        instance_type=type_ or (f"{kind.lower()}x{gpus}" if kind is not None else "cpu"),
        usd_per_hour=parse_number(usd_per_hour.strip().removeprefix("$"), what="--usd-per-hour"),
        gpu=kind,
        gpu_count=gpus,
        gpu_mem_gib=None if kind is None else known.spec(kind).mem_gib,
        vcpus=vcpus,
        mem_gib=mem_gib,
        address=address,
        folder=folder,
        added_on=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    twin = next((m for m in before if (m.host, m.folder) == (host, folder) and host != THIS), None)
    if twin is not None:
        raise UsageError(
            f"{host} is in the pool already, as {twin.name}: two jobs would have it at once",
            hint="machines that share a host each need a --folder and GPUs of their own",
        )
    offers([*before, machine])
    (state,) = here.look([machine])
    if state.problem is not None:
        raise state.problem
    if not keep:
        here.lend(machine)
    write(here.file, [*before, machine])
    if as_json:
        emit_json(document(here.look([machine])))
    else:
        note(f"{name} is in the pool{'' if keep else ', and lent'}: a job runs on it with `--infra pool`")
    return 0


@app.command("list")
def list_(as_json: Json = False) -> int:
    """Every machine: whether it answers, is lent, and who has it; and how much of the pool is used."""
    from arylcloud.cli.output import emit_json
    from arylcloud.cli.poolview import document, show

    states = provider().look()
    if as_json:
        emit_json(document(states))
    else:
        show(states)
    return 0


@app.command()
def remove(
    name: Annotated[str, typer.Argument(help="As it was added.")],
    as_json: Json = False,
) -> int:
    """Take a machine out. Refused while a job has it."""
    from arylcloud.cli.output import emit_json, note
    from arylcloud.core.errors import ConflictError
    from arylcloud.providers.pool.machines import write

    here = provider()
    (machine,) = chosen(here, [name])
    (state,) = here.look([machine])
    if state.lease is not None:
        raise ConflictError(
            f"{state.lease['job_id']} has {name}",
            hint=f"`arylcloud pool reclaim {name}` takes it back first",
        )
    write(here.file, [m for m in here.machines() if m.name != name])
    if as_json:
        emit_json({"removed": name})
    else:
        note(f"{name} is no longer in the pool")
    return 0


@app.command()
def loan(
    names: Names = None,
    all_: Annotated[bool, typer.Option("--all", help="Every machine.")] = False,
    as_json: Json = False,
) -> int:
    """Lend machines to your jobs."""
    from arylcloud.cli.output import emit_json, note
    from arylcloud.cli.poolview import document
    from arylcloud.core.errors import UsageError

    here = provider()
    if all_ == bool(names):
        raise UsageError("name the machines to lend, or say --all", hint="`arylcloud pool list` shows them")
    machines = here.machines() if all_ else chosen(here, names or [])
    for machine in machines:
        here.lend(machine)
    if as_json:
        emit_json(document(here.look(machines)))
    else:
        note(f"lent: {', '.join(m.name for m in machines)}")
    return 0


@app.command()
def reclaim(
    names: Names = None,
    number: Annotated[
        int | None,
        typer.Option("-n", "--number", min=1, help="So many, by what is lost least: idle ones first."),
    ] = None,
    within: Within = "60s",
    as_json: Json = False,
) -> int:
    """Take machines back: who has one gets notice, saves, and moves on or shrinks."""
    from arylcloud.cli.output import emit_json, note
    from arylcloud.cli.poolview import document
    from arylcloud.core.errors import UsageError
    from arylcloud.core.units import parse_pause_s

    here = provider()
    if (number is None) == (not names):
        raise UsageError("name the machines to take back, or say how many: -n 2")
    within_s = parse_pause_s(within, what="--within")
    wanted = names or list(pooltend.to_return(here, number or 0).reclaim)
    machines = chosen(here, wanted)
    for machine in machines:
        here.reclaim(machine, within_s=within_s)
    states = here.look(machines)
    if as_json:
        emit_json(document(states))
        return 0
    for state in states:
        who = f"{state.lease['job_id']} has {within_s:.0f} s" if state.lease is not None else "nobody had it"
        note(f"{state.machine.name} goes back: {who}")
    return 0


app.command("tend")(pooltend.tend)
