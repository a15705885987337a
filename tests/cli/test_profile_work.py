"""``profile measure``, ``import`` and ``check``: on the real example, on silent jobs, on bad files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from arylcloud.cli import measuring
from arylcloud.cli.main import run
from arylcloud.planner.profiles import library

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "job.yaml"
BRIEF = ("--for", "1.5s", "--warmup", "0.3s", "--start-within", "60s")
COUNT = (
    "import time\n"
    "for i in range(1, 100000):\n"
    "    time.sleep(0.02)\n"
    "    print(f'epoch 1 step {i}, loss 0.1', flush=True)\n"
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARYLCLOUD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "160")
    # the tests' own interpreter is the one that has NumPy; and this machine has no GPU, whatever it has
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setattr(measuring, "smi", lambda _field: None)
    return tmp_path / "home" / "config" / "profiles"


def job(folder: Path, script: str, *, more: str = "") -> str:
    (folder / "train.py").write_text(script)
    path = folder / "job.yaml"
    path.write_text(f"name: mine\nworkdir: .\nrun: python3 train.py\n{more}")
    return str(path)


def document(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> dict[str, Any]:
    got = run(["profile", *args, "--json"])
    captured = capsys.readouterr()
    assert got == code, captured.err
    found: dict[str, Any] = json.loads(captured.out)
    assert found["schema_version"] == 1
    return found


# ---------------------------------------------------------------- measure


def test_the_digits_example_is_measured_and_its_profile_planned_on(
    capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path
) -> None:
    """Paced to 40 steps a second by the job itself: what is measured must be just below."""
    flags = ("--for", "3.5s", "--warmup", "0.3s", "--gpu", "t4", "--env", "DIGITS_STEP_S=0.025")
    doc = document(capsys, "measure", str(DIGITS), *flags)
    assert (doc["profile"], doc["gpu"], doc["gpus"], doc["steps_from"]) == ("digits", "T4", 1, "progress")
    rate = doc["rate"]
    assert 0 < rate["low"] <= rate["per_s"] <= rate["high"]
    assert rate["per_s"] <= 40.5
    assert rate["blocks"] >= 2
    assert doc["ended"] == "stopped"
    assert doc["peak_memory_gib"] is None
    (row,) = library(home).get("digits").measurements
    assert (row.gpu, row.gpus, row.nodes, row.kind) == ("T4", 1, 1, "measured")
    assert row.rate == pytest.approx(rate["per_s"], rel=1e-5)
    assert "profile measure" in row.source
    assert row.as_of is not None
    text = DIGITS.read_text().replace(
        "profile: {T4:1: 20, L4:1: 20, V100:1: 20, A10G:1: 20, unit: steps/s}", "profile: digits"
    )
    assert "profile: digits" in text
    (tmp_path / "job.yaml").write_text(text)
    assert run(["plan", str(tmp_path / "job.yaml"), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    measured = [c for c in plan["candidates"] if c["gpu"] == "T4" and c["gpu_count"] == 1]
    assert measured
    assert {c["throughput_source"] for c in measured} == {"measured"}


def test_steps_out_of_the_output(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    doc = document(capsys, "measure", job(tmp_path, COUNT), *BRIEF, "--pattern", r"step (?P<step>\d+)")
    assert doc["steps_from"] == "pattern"
    assert doc["rate"]["per_s"] < 50.5
    # a CPU stands for no GPU: nothing to plan on
    assert (doc["profile"], doc["file"], doc["gpu"]) == (None, None, None)


def test_steps_out_of_checkpoints(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = (
        "import os, time\n"
        "for i in range(1, 1000):\n"
        "    time.sleep(0.1)\n"
        "    os.makedirs(os.path.join(os.environ['ARYL_CHECKPOINT_DIR'], f'step-{10 * i}'))\n"
    )
    doc = document(capsys, "measure", job(tmp_path, script), *BRIEF, "--gpu", "L4", "-n", "other")
    assert (doc["steps_from"], doc["profile"]) == ("checkpoints", "other")
    assert doc["rate"]["per_s"] < 101
    assert list(tmp_path.glob("step-*")) == []  # checkpoints go to a scratch folder


def test_a_job_that_ends_early_is_measured_all_the_same(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = COUNT.replace("100000", "60")
    doc = document(
        capsys, "measure", job(tmp_path, script), "--for", "60s", "--warmup", "0s", "--pattern", r"step (\d+)"
    )
    assert doc["ended"] == "finished"
    assert doc["rate"]["steps"] == 58


@pytest.mark.parametrize(
    ("script", "flags", "code", "message", "hint"),
    [
        ("import time\ntime.sleep(60)\n", ("--start-within", "0.5s"), 2, "nothing tells", "--pattern"),
        ("print('no data')\nraise SystemExit(7)\n", (), 100, "failed with exit code 7", "no data"),
        (COUNT.replace("{i},", "{i}x,"), ("--pattern", r"step (\w+)"), 2, "is no number of steps", r"\d"),
        (COUNT.replace("100000", "4"), ("--pattern", r"step (\d+)"), 2, "too few steps to measure", "--for"),
    ],
)  # fmt: skip
def test_a_clear_no(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    home: Path,
    script: str,
    flags: tuple[str, ...],
    code: int,
    message: str,
    hint: str,
) -> None:
    error = document(capsys, "measure", job(tmp_path, script), "--gpu", "T4", *BRIEF, *flags, code=code)[
        "error"
    ]
    assert message in error["message"]
    assert hint in error["hint"]
    assert not list(home.glob("*")) if home.exists() else True


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--for", "soon"), "--for"),
        (("--pattern", "step ("), "is no regular expression"),
        (("--pattern", "step"), "has no group"),
        (("--gpu", "Z9"), "no GPU is known by the name 'Z9'"),
        (("--batch", "0"), "--batch 0 is not a number > 0"),
        (("--precision", "int3"), "'int3' is no precision"),
    ],
)
def test_bad_flags_cost_no_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    ran = "open('ran', 'w')\n"
    error = document(capsys, "measure", job(tmp_path, ran), *flags, code=2)["error"]
    assert message in error["message"]
    assert not (tmp_path / "ran").exists()


def test_setup_runs_only_when_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = job(tmp_path, COUNT, more="setup: echo done > was-set-up\n")
    document(capsys, "measure", path, *BRIEF, "--pattern", r"step (\d+)")
    assert not (tmp_path / "was-set-up").exists()
    document(capsys, "measure", path, *BRIEF, "--pattern", r"step (\d+)", "--setup")
    assert (tmp_path / "was-set-up").exists()
    failing = job(tmp_path, "raise SystemExit(1)\n", more="setup: 'true'\n")
    hints = [
        document(capsys, "measure", failing, *more, code=100)["error"]["hint"] for more in ((), ("--setup",))
    ]
    assert hints == [
        "setup: has not been run here; --setup runs it; it printed nothing",
        "it printed nothing",
    ]
    broken = job(tmp_path, COUNT, more="setup: echo gone wrong; exit 3\n")
    error = document(capsys, "measure", broken, *BRIEF, "--setup", code=100)["error"]
    assert error["message"] == "setup failed with exit code 3"
    assert error["hint"] == "gone wrong"


def test_the_gpu_is_what_nvidia_smi_says(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    """A stand-in for nvidia-smi on the path: two A100s, of which one is visible."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(
        "#!/bin/sh\ncase $1 in *name) echo 'NVIDIA A100-SXM4-80GB'; echo 'NVIDIA A100-SXM4-80GB';; "
        "*) echo 10240; echo 1024;; esac\n"
    )
    (tools / "nvidia-smi").chmod(0o755)
    monkeypatch.undo()
    monkeypatch.setenv("ARYLCLOUD_HOME", str(home.parents[1]))
    monkeypatch.setenv("PATH", f"{tools}:{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(measuring, "_SMI_S", 0.1)
    doc = document(
        capsys, "measure", job(tmp_path, COUNT), *BRIEF, "--pattern", r"step (\d+)", "--batch", "64"
    )
    assert (doc["reported_as"], doc["gpu"], doc["gpus"]) == ("NVIDIA A100-SXM4-80GB", "A100-80GB", 1)
    assert doc["peak_memory_gib"] == pytest.approx(11.0)
    (row,) = library(home).get("mine").measurements
    assert (row.gpu, row.global_batch) == ("A100-80GB", 64)
    assert " on " not in row.source


@pytest.mark.parametrize(
    ("device", "said"), [(False, "this CPU; kept as 2 × T4, as --gpu says"), (True, "2 × T4, as --gpu says")]
)
def test_a_cpu_that_stands_for_a_gpu_is_told_as_one(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
    device: bool,
    said: str,
) -> None:
    monkeypatch.setattr(measuring, "gpu_device", lambda: device)
    path = job(tmp_path, COUNT)
    asked = ("--pattern", r"step (\d+)", "--gpu", "T4", "--gpus", "2")
    assert run(["profile", "measure", path, *BRIEF, *asked]) == 0
    captured = capsys.readouterr()
    assert f"measuring mine on {said}: 0.3 s warm-up" in captured.err
    assert f"(95 %) on {said}: " in " ".join(captured.out.split())
    (row,) = library(home).get("mine").measurements
    assert row.source.startswith(f"arylcloud profile measure on {said}: ")
    assert run(["profile", "show", "mine"]) == 0
    assert "--gpu" in capsys.readouterr().out


# ---------------------------------------------------------------- import and check

GAVEL = {
    "v100": {"('LM (batch size 5)', 1)": {"null": 100.5}},
    "k80": {"('LM (batch size 5)', 1)": {"null": 20}},
}


def test_import_and_list(capsys: pytest.CaptureFixture[str], tmp_path: Path, home: Path) -> None:
    path = tmp_path / "Simulation throughputs.json"
    path.write_text(json.dumps(GAVEL))
    doc = document(capsys, "import", str(path), "--source", "our own run")
    assert doc["profiles"] == ["LM (batch size 5)"]
    assert (doc["figures"], doc["file"]) == (2, str(home / "simulation-throughputs.json"))
    listed = {p["name"]: p for p in document(capsys, "list")["profiles"]}
    assert listed["LM (batch size 5)"]["origin"] == doc["file"]
    shown = document(capsys, "show", "lm batch size 5")
    assert {m["source"] for m in shown["measurements"]} == {"our own run"}
    assert run(["profile", "list", "LM"]) == 0
    assert "simulation-throughputs.json" in capsys.readouterr().out
    (tmp_path / "again.json").write_text(json.dumps(GAVEL))
    assert run(["profile", "import", str(tmp_path / "again.json")]) == 0
    assert "LM (batch size 5) stands in" in capsys.readouterr().err


def test_a_bad_import_changes_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path, home: Path) -> None:
    (tmp_path / "bad.json").write_text('{"v100": 1}')
    error = document(capsys, "import", str(tmp_path / "bad.json"), code=2)["error"]
    assert "not an object of jobs" in error["message"]
    assert not (home / "bad.json").exists()
    assert "cannot be read" in document(capsys, "import", "nosuch.csv", code=2)["error"]["message"]


def test_check_of_ones_own_profiles(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Three workloads of the power law itself, a tenth off here and there: small errors, bands that hold."""
    folder = tmp_path / "own"
    folder.mkdir()
    for i, rate in enumerate((100.0, 7.0, 31.0)):
        rows = [
            {"gpu": g, "gpus": 1, "rate": rate * r}
            for g, r in (("V100", 1.0), ("A100", 1.85 + 0.1 * i), ("H100", 4.3), ("L4", 0.6 + 0.05 * i))
        ]
        profile = {"name": f"mine-{i}", "unit": "samples/s", "measurements": rows}
        (folder / f"{i}.json").write_text(json.dumps(profile))
    doc = document(capsys, "check", "--data", str(folder))
    by_rung = {c["from"]: c for c in doc["columns"]}
    assert {c["rows"] for c in doc["columns"]} == {"your own"}
    assert (by_rung["one other GPU"]["figures"], by_rung["two and more"]["figures"]) == (36, 12)
    assert by_rung["two and more"]["median_error"] < 0.25
    assert by_rung["one other GPU"]["in_band"] > 0.6
    assert run(["profile", "check", "--data", str(folder)]) == 0
    assert "95th percentile" in capsys.readouterr().out


def test_check_with_nothing_to_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "is no folder" in document(capsys, "check", "--data", "nosuch", code=2)["error"]["message"]
    error = document(capsys, "check", "--data", str(tmp_path), code=2)["error"]
    assert "nothing to check" in error["message"]
