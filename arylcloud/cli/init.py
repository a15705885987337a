"""``arylcloud init``: a commented job file that ``plan`` accepts as it is, and something for it to run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from arylcloud.cli.jobtemplate import Answers
    from arylcloud.core.job import JobSpec

app = typer.Typer(add_completion=False)

SCRIPT = "train.py"
RUN = f"python3 {SCRIPT}"  # Ubuntu, as the clouds have it, knows no `python`


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="File to write.")] = Path("job.yaml"),
    name: Annotated[str | None, typer.Option("--name", "-n", help="Name of the job.")] = None,
    run: Annotated[str | None, typer.Option("--run", help="Command that trains.")] = None,
    gpus: Annotated[
        str | None, typer.Option("--gpus", "--gpu", help="NAME:N, several with commas; empty = any.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", help="Throughput profile (`profile list`).")
    ] = None,
    work: Annotated[str | None, typer.Option("--work", help="Such as 40000 steps.")] = None,
    deadline: Annotated[str | None, typer.Option("--deadline", help="Such as 36h.")] = None,
    budget: Annotated[str | None, typer.Option("--budget", help="Such as $500.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Write a commented job file, from flags or from a few questions; and train.py, a small training to
    start from, where no other command is named and no train.py is there."""
    from arylcloud.cli.jobfile import load_job
    from arylcloud.cli.jobtemplate import Answers, render
    from arylcloud.cli.output import emit_json, note
    from arylcloud.core.errors import LocalStateError, UsageError

    if path.exists() and not force:
        raise UsageError(f"{path} exists", hint="--force overwrites it")
    answers = Answers(
        name=name or path.absolute().parent.name or "job",
        run=run or RUN,
        gpus=gpus or "",
        profile=profile or "",
        work=work or "",
        deadline=deadline or "",
        budget=budget or "",
    )
    if sys.stdin.isatty() and not yes and not json_ and run is None:
        answers = _ask(answers)
    text = render(answers)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_text(text, encoding="utf-8")
        try:
            # what does not load must not stand there under its final name
            spec, _secrets = load_job(part)
            _check_profile(spec)
        except UsageError as error:
            raise UsageError(error.message.replace(str(part), str(path)), hint=error.hint) from error
        else:
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        script = _script_beside(path) if answers.run == RUN else None
    except OSError as error:
        raise LocalStateError(f"{path}: cannot be written: {error.strerror or error}") from error
    if json_:
        emit_json({"path": str(path), "name": answers.name, "script": str(script) if script else None})
    if script is not None:
        note(f"wrote {script}: it trains on Python alone, for about 10 s; put yours in its place")
    note(
        f"wrote {path}; next: `arylcloud plan {path}`, or on this machine, for nothing: "
        f"`arylcloud launch {path} --infra local`"
    )


def _script_beside(path: Path) -> Path | None:
    """A train.py where the job file looks for it. One that is there is somebody's work: it stays, with
    ``--force``, too."""
    from importlib.resources import files

    from arylcloud.core.errors import LocalStateError

    script = path.with_name(SCRIPT)
    try:
        out = script.open("x", encoding="utf-8")
    except FileExistsError:
        return None
    try:
        with out:
            out.write(files("arylcloud.cli").joinpath("starter.py").read_text(encoding="utf-8"))
    except OSError as error:  # half of one would be taken for somebody's work
        script.unlink(missing_ok=True)
        raise LocalStateError(f"{script}: cannot be written: {error.strerror or error}") from error
    return script


def _check_profile(spec: JobSpec) -> None:
    """UsageError where ``plan`` would have nothing to go by: an unknown profile, or work in a unit that its
    rates cannot be turned into."""
    if spec.profile is None:
        return
    from arylcloud.cli.compose import profiles
    from arylcloud.cli.settings import folders
    from arylcloud.planner.estimator import estimate_configs

    unit = spec.work.unit if spec.work is not None else None
    estimate_configs(spec.profile, (), library=profiles(folders()), work_unit=unit)


def _ask(known: Answers) -> Answers:
    """Questions on the terminal; Enter keeps what stands in brackets. What a job file could not say is told
    at once, and asked again."""
    from arylcloud.cli.jobtemplate import Answers
    from arylcloud.cli.output import note
    from arylcloud.cli.places import parse_accelerator
    from arylcloud.core import units
    from arylcloud.core.errors import UsageError

    def ask(question: str, default: str, read: Callable[[str], object] | None = None) -> str:
        while True:
            said = str(typer.prompt(question, default=default, show_default=bool(default), err=True)).strip()
            try:
                if said and read is not None:
                    read(said)
            except UsageError as error:
                note(error.message + (f" ({error.hint})" if error.hint else ""))
                continue
            return said

    def gpus(text: str) -> None:
        for part in text.split(","):
            parse_accelerator(part, what="GPUs")

    return Answers(
        name=ask("name of the job", known.name),
        run=ask("command that trains", known.run),
        gpus=ask("GPUs per machine, such as A100:8, H100:8 (Enter: any)", known.gpus, gpus),
        profile=ask("throughput profile, such as mpt-125m (Enter: none)", known.profile, _profile_named),
        work=ask(
            "work to do, such as 40000 steps (Enter: not known)",
            known.work,
            lambda text: units.parse_work(text, what="work"),
        ),
        deadline=ask(
            "deadline, such as 36h (Enter: none)",
            known.deadline,
            lambda text: units.parse_duration_s(text, what="deadline"),
        ),
        budget=ask(
            "budget, such as $500 (Enter: none)",
            known.budget,
            lambda text: units.parse_usd(text, what="budget"),
        ),
    )


def _profile_named(name: str) -> None:
    from arylcloud.cli.compose import profiles
    from arylcloud.cli.settings import folders
    from arylcloud.core.job import ProfileRef
    from arylcloud.planner.estimator import estimate_configs

    estimate_configs(ProfileRef(name=name), (), library=profiles(folders()), work_unit=None)
