"""Our converters answer as typer's own do, for every kind of plain parameter."""

import enum
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer import core
from typer._click.exceptions import BadParameter

from arylcloud.cli.lightparams import install


class Colour(enum.StrEnum):
    RED = "red"


def command(seen: list[Any]) -> Any:
    app = typer.Typer()

    @app.command()
    def go(
        path: Path,
        number: Annotated[int, typer.Option(min=1, max=9)] = 3,
        rate: Annotated[float | None, typer.Option()] = None,
        text: Annotated[str | None, typer.Option()] = None,
        flag: Annotated[bool, typer.Option("--flag")] = False,
        choice: Annotated[bool | None, typer.Option("--yes/--no")] = None,
        many: Annotated[list[str] | None, typer.Option()] = None,
        colour: Annotated[Colour, typer.Option()] = Colour.RED,
        there: Annotated[Path | None, typer.Option(exists=True)] = None,
        env: Annotated[int, typer.Option(envvar="T_ENV")] = 0,
    ) -> None:
        seen.append((path, number, rate, text, flag, choice, many, colour, there, env))

    return typer.main.get_command(app)


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """typer as it comes; ``install()`` in a test is undone after it."""
    from typer._coercion import build_runtime_param

    monkeypatch.setattr(core, "build_runtime_param", build_runtime_param)


@pytest.mark.parametrize(
    "args",
    [
        ["a/b"],
        ["a", "--number", "9", "--rate", "1.5e3", "--text", "", "--flag", "--yes"],
        ["a", "--no", "--many", "x", "--many", "y=z", "--colour", "red", "--there", "/"],
        ["ä", "--text", "2"],
    ],
)
@pytest.mark.usefixtures("usual")
def test_the_same_values(args: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_ENV", "7")
    theirs: list[Any] = []
    ours: list[Any] = []
    command(theirs)(args, standalone_mode=False)
    install()
    install()
    assert getattr(core.build_runtime_param, "light", False)
    command(ours)(args, standalone_mode=False)
    assert ours == theirs
    assert [type(x) for x in ours[0]] == [type(x) for x in theirs[0]]


@pytest.mark.parametrize(
    "args",
    [["a", "--number", "0"], ["a", "--number", "10"], ["a", "--number", "x"], ["a", "--number", "1.5"],
     ["a", "--rate", "fast"], ["a", "--colour", "blue"], ["a", "--there", "/no/such"]],
)  # fmt: skip
@pytest.mark.usefixtures("usual")
def test_the_same_refusals(args: list[str]) -> None:
    for prepare in (lambda: None, install):
        prepare()
        with pytest.raises(BadParameter):
            command([])(args, standalone_mode=False)


HEAVY = {"pydantic", "pandas", "rich", "obstore", "highspy", "scipy", "sqlite3", "asyncio", "http.client"}
HEAVY |= {"numpy.ma", "numpy.random", "numpy.fft", "random", "tempfile", "secrets"}
"""``numpy.ma`` comes with ``np.unique(x)`` and takes as long as the whole ranking."""
ROOMS = ("agent", "checkpoint", "launcher", "providers", "simulation", "training")


@pytest.mark.parametrize(
    "where", ["{}", "{infra: aws/us-east-1, accelerators: A100:8}", "{zone: us-central1-a, cloud: gcp}"]
)
def test_a_plan_imports_what_it_needs(where: str, tmp_path: Path) -> None:
    """Start-up time is a feature: what ``plan`` does not use is not loaded, and what it does is counted."""
    job = tmp_path / "job.yaml"
    job.write_text(f"run: x\nresources: {where}\naryl: {{profile: mpt-125m, work: 100 steps}}\n")
    code = (
        "import json, sys; from arylcloud.cli.main import run; rc = run(['plan', sys.argv[1]]);"
        "print(json.dumps([rc, sorted(sys.modules)]), file=sys.stderr)"
    )
    env = {**os.environ, "ARYLCLOUD_HOME": str(tmp_path / "home")}  # without a journal to learn from
    done = subprocess.run(
        [sys.executable, "-c", code, str(job)], env=env, capture_output=True, text=True, check=True
    )
    rc, modules = json.loads(done.stderr.splitlines()[-1])
    ours = [name for name in modules if name.partition(".")[0] == "arylcloud"]
    assert (rc, HEAVY & set(modules)) == (0, set()), done.stderr
    assert [name for name in ours if name.split(".")[1:2] and name.split(".")[1] in ROOMS] == []
    assert len(ours) <= 65, "each costs about a millisecond: is every one of them needed for every plan?"
    assert len(modules) <= 380
