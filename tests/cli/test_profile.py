"""``arylcloud profile``: documents, tables, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arylcloud.cli.main import run


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path / "config" / "profiles"


def document(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> dict[str, Any]:
    assert run(["profile", *args, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["schema_version"] == 1
    return found


def test_estimate_document(capsys: pytest.CaptureFixture[str]) -> None:
    doc = document(capsys, "estimate", "MPT_7B", "--gpu", "h100-80gb", "--gpus", "8", "--seq-len", "2048")
    assert {"throughput", "unit", "low", "high", "method", "sources"} <= set(doc)
    assert (doc["model"], doc["gpu"], doc["unit"], doc["method"]) == (
        "mpt-7b",
        "H100",
        "tokens/s",
        "published",
    )
    assert doc["throughput"] == 85144.0
    assert doc["low"] < doc["throughput"] < doc["high"]
    assert doc["sources"][0].startswith("mosaicml/llm-foundry@")
    assert doc["memory"]["fits"] is True


def test_estimate_of_a_shape(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ("--params", "124e6", "--layers", "12", "--hidden", "768", "--seq-len", "1024")
    doc = document(capsys, "estimate", *shape, "--gpu", "H200", "--gpus", "8", "--nodes", "2")
    assert (doc["method"], doc["rung"], doc["nodes"]) == ("estimated", "flop_model", 2)
    steps = document(
        capsys, "estimate", *shape, "--gpu", "H200", "--gpus", "8", "--nodes", "2",
        "--unit", "steps", "--batch", "512",
    )  # fmt: skip
    assert steps["throughput"] == pytest.approx(doc["throughput"] / 512 / 1024)


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("resnet-50", "--gpu", "M60"), 3, "not measured on M60"),
        (("reznet-50", "--gpu", "A100"), 2, "no profile is called 'reznet-50'"),
        (("bert", "--gpu", "A100"), 2, "'bert' may be any of"),
        (("resnet-50", "--gpu", "Z9"), 2, "no GPU is known by the name 'Z9'"),
        (("resnet-50",), 2, "--gpu is missing"),
        (("--gpu", "A100"), 2, "a MODEL or a shape is needed"),
        (("--gpu", "A100", "--params", "1e9"), 2, "--layers is missing"),
        (("mpt-7b", "--gpu", "A100", "--params", "1e9"), 2, "exclude each other"),
        (("resnet-50", "--gpu", "A100", "--unit", "tokens"), 2, "the sequence length is needed"),
        (("resnet-50", "--gpu", "A100", "--batch", "-1"), 2, "--batch -1 is not a number > 0"),
        (("resnet-50", "--gpu", "A100", "--gpus", "0"), 2, "'--gpus'"),
        (("resnet-50", "--gpu", "A100", "--precision", "int4"), 2, "'int4' is no precision"),
    ],
)
def test_errors_have_a_line_a_code_and_mostly_a_hint(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], code: int, message: str
) -> None:
    error = document(capsys, "estimate", *args, code=code)["error"]
    assert message in error["message"]
    assert error["kind"] == ("infeasible" if code == 3 else "usage")
    if code == 3:
        assert "run some hundred steps on 1 × M60" in error["hint"]


def test_list_and_its_filters(capsys: pytest.CaptureFixture[str]) -> None:
    everything = document(capsys, "list")["profiles"]
    assert len(everything) > 150
    on_k80 = document(capsys, "list", "--gpu", "tesla k80")["profiles"]
    assert {"resnet-50", "gavel-a3c"} <= {p["name"] for p in on_k80}
    assert all("K80" in p["gpus"] for p in on_k80)
    assert [p["name"] for p in document(capsys, "list", "mpt 125")["profiles"]] == ["mpt-125m"]
    assert run(["profile", "list", "mpt"]) == 0
    screen = capsys.readouterr()
    assert "mpt-125m" in screen.out
    assert "9 profiles" in screen.err


def test_show_gives_every_figure_with_source_and_date(capsys: pytest.CaptureFixture[str]) -> None:
    doc = document(capsys, "show", "mpt-7b", "--gpu", "H100")
    assert doc["unit"] == "tokens/s"
    assert len(doc["measurements"]) == 9
    assert all(m["gpu"] == "H100" and m["source"] and m["as_of"] for m in doc["measurements"])
    assert run(["profile", "show", "mpt-7b", "--gpu", "H100"]) == 0
    screen = capsys.readouterr().out
    assert "85,140" in screen
    assert "mosaicml/llm-foundry" in screen
    assert "2024-04-22" in screen
    assert run(["profile", "show", "mpt-7b", "--gpu", "H100", "--all"]) == 0
    assert capsys.readouterr().out.count("\n") >= screen.count("\n")


def test_screen_of_an_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "estimate", "mpt-70b", "--gpu", "L4"]) == 0
    screen = capsys.readouterr()
    assert "tokens/s on 1 × L4" in screen.out
    assert "estimated" in screen.out
    assert "source: mosaicml/llm-foundry@" in screen.out
    assert "warning: this does not fit" in screen.err


def test_a_users_profile_is_found_and_its_faults_are_named(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    home.mkdir(parents=True)
    file = home / "mine.yaml"
    file.write_text("{name: mine, unit: steps/s, measurements: [{gpu: A100, gpus: 1, rate: 3.5}]}")
    doc = document(capsys, "estimate", "mine", "--gpu", "A100")
    assert (doc["throughput"], doc["unit"], doc["method"], doc["sources"]) == (
        3.5,
        "steps/s",
        "user",
        [str(file)],
    )
    file.write_text("{name: mine, measurements: [{gpu: A100, gpus: 1, rate: 3.5}]}")
    error = document(capsys, "estimate", "mine", "--gpu", "A100", code=2)["error"]
    assert error["message"] == f"{file}: profile mine has no unit"
    assert "steps/s" in error["hint"]
