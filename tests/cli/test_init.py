import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arylcloud.cli.init import _ask
from arylcloud.cli.jobfile import load_job
from arylcloud.cli.jobtemplate import Answers, render
from arylcloud.cli.main import run


def test_init_writes_what_plan_accepts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "job.yaml"
    flags = ["--gpus", "A100:8, V100:8", "--profile", "mpt-125m", "--work", "40000 steps", "--deadline",
             "72h", "--budget", "$5000", "--name", "my job"]  # fmt: skip
    assert run(["init", str(path), *flags, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["path"] == str(path)
    spec, _ = load_job(path)
    assert spec.name == "my job"
    assert spec.constraints.budget_usd == 5000
    assert [a.gpu for a in spec.resources.accelerators] == ["A100", "V100"]
    assert run(["plan", str(path), "--json"]) == 0


def test_init_without_anything_is_a_valid_file_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    assert run(["init", str(path)]) == 0
    assert load_job(path)[0].run == "python3 train.py"
    assert run(["plan", str(path), "--json"]) == 0
    assert "no profile" in json.loads(capsys.readouterr().out)["chosen"]["why"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--profile", "nosuch"], "nosuch"),
        (["--profile", "resnet-50", "--work", "1e9 tokens"], "tokens"),
    ],
)
def test_init_refuses_what_plan_would_refuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], says: str
) -> None:
    path = tmp_path / "job.yaml"
    assert run(["init", str(path), *flags]) == 2
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_init_overwrites_only_when_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("mine")
    assert run(["init", str(path)]) == 2
    assert "exists" in capsys.readouterr().err
    assert path.read_text() == "mine"
    assert run(["init", str(path), "--force"]) == 0


def test_a_disk_that_is_full_leaves_no_half_of_a_script(tmp_path: Path) -> None:
    """The job file has room, the script has not: the next init is not to take half of one for a user's."""
    limits = (3000, 3000)
    done = subprocess.run(
        [sys.executable, "-m", "arylcloud", "init", str(tmp_path / "job.yaml")],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits),
    )
    assert done.returncode == 2
    assert "train.py: cannot be written" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["job.yaml"]


def test_a_bad_answer_leaves_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    assert run(["init", str(path), "--gpus", "Z9:1"]) == 2
    assert "Z9" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


text = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1).filter(
    str.strip
)


@given(name=text, command=text)
def test_any_text_survives_the_template(
    tmp_path_factory: pytest.TempPathFactory, name: str, command: str
) -> None:
    path = tmp_path_factory.mktemp("t") / "job.yaml"
    answers = Answers(name=name, run=command, gpus="", profile="", work="", deadline="", budget="")
    path.write_text(render(answers), encoding="utf-8")
    spec, _ = load_job(path)
    assert (spec.name, spec.run) == (name, command)


def test_an_answer_that_cannot_be_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = iter(
        ["j", "python x.py", "Z9:8", "A100:8, 2xH100", "nosuch", "mpt-125m", "many", "40000 steps", "36",
         "36h", "lots", ""]
    )  # fmt: skip
    monkeypatch.setattr("typer.prompt", lambda *_args, **_named: next(said))
    empty = Answers(name="", run="", gpus="", profile="", work="", deadline="", budget="")
    assert _ask(empty) == Answers(
        name="j", run="python x.py", gpus="A100:8, 2xH100", profile="mpt-125m", work="40000 steps",
        deadline="36h", budget="",
    )  # fmt: skip
    told = capsys.readouterr().err.splitlines()
    assert [next(bad for bad in ("Z9", "nosuch", "many", "36", "lots") if bad in line) for line in told] == [
        "Z9", "nosuch", "many", "36", "lots"
    ]  # fmt: skip
