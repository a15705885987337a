"""``plan`` of several job files: the document, the screen at any width, what is refused, with which code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from arylcloud.cli.main import run
from arylcloud.planner.policies.registry import POLICIES

POOL = ("--capacity", "a100=8,v100=8", "--costs", "a100=1.2,v100=.6")
KEYS = {"policy", "jobs", "offers", "totals", "baselines", "binding"}


@pytest.fixture
def jobs(tmp_path: Path) -> list[str]:
    """Two jobs of 8 GPUs and one of 1; the first two have deadlines."""
    for name, gpus, aryl in (
        ("lm", 8, "profile: mpt-125m, work: 40000 steps, deadline: 40h"),
        ("bert", 8, "profile: bert-large-squad, work: 6e7 samples, deadline: 40h"),
        ("small", 1, "profile: resnet-50, work: 1e8 images"),
    ):
        resources = f"{{accelerators: [A100:{gpus}, V100:{gpus}]}}"
        text = f"name: {name}\nrun: x\nresources: {resources}\naryl: {{{aryl}}}\n"
        (tmp_path / f"{name}.yaml").write_text(text)
    return [str(tmp_path / f"{name}.yaml") for name in ("lm", "bert", "small")]


def document(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert run(["plan", *args, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: pytest.CaptureFixture[str], code: int, *args: str) -> dict[str, Any]:
    assert run(["plan", *args, "--json"]) == code
    error: dict[str, Any] = json.loads(capsys.readouterr().out)["error"]
    assert error["hint"], error
    return error


def screen(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert run(["plan", *args]) == 0
    return capsys.readouterr().out


def test_the_json_that_scripts_rely_on(jobs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, *jobs, *POOL)
    assert next(iter(found)) == "schema_version"
    assert found.keys() >= KEYS
    assert found["policy"] == "min_cost"
    assert [job["name"] for job in found["jobs"]] == ["lm", "bert", "small"]
    for job in found["jobs"]:
        assert job["usd"].keys() == {"mean", "p90"}
        assert job["hours"]["p50"] <= job["hours"]["p90"]
        assert sum(held["usd"] for held in job["gets"]) == pytest.approx(job["usd"]["mean"])
        assert all(held["at"] is None for held in job["gets"])
    assert [job["meets_deadline"] for job in found["jobs"]] == [True, True, None]
    assert sum(job["usd"]["mean"] for job in found["jobs"]) == pytest.approx(found["totals"]["usd"]["mean"])
    assert [(p["name"], p["gpus"], p["own"]) for p in found["offers"]] == [
        ("A100", 8, True),
        ("V100", 8, True),
    ]
    assert {b["name"] for b in found["baselines"]} == {"alone", "isolated", "fifo_perf", "max_min_fairness"}
    assert found["catalogue"] is None


def test_the_file_is_the_document(
    jobs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "many.json"
    found = document(capsys, *jobs, *POOL, "-o", str(path))
    written = json.loads(path.read_text())
    assert written.pop("kind") == "arylcloud-plan-of-many"
    assert written == found
    assert run(["launch", str(path), "--json"]) == 2  # not yet, and no traceback
    assert "is no plan" in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize("columns", [80, 100, 120, 150])
@pytest.mark.parametrize(
    "more",
    [
        POOL,
        (),
        ("--capacity", "a100=16,v100=16"),
        (*POOL, "--policy", "max_min_fairness_perf", "--deadline", "9d"),
    ],
)
def test_the_screen_fits(
    jobs: list[str],
    columns: int,
    more: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = screen(capsys, *jobs, *more)
    assert max(map(len, out.splitlines())) <= columns
    flat = " ".join(out.split())
    for text in ("3 jobs · policy", "ends p50-p90", "deadline", "$ mean", "there are", "GPU-h", "beside",
                 "all jobs: $", "alone", "isolated", "what binds", "what the figures rest on",
                 "p90: pessimistic", "beside: the same jobs", "an equal part of every"):  # fmt: skip
        assert text in flat, text
    assert "\x1b" not in out
    if not more:
        assert "32?" in flat
        assert "quotas are not known" in flat
        assert "more that no job uses" in flat
    if more == ("--capacity", "a100=16,v100=16"):
        assert "p4d.24xlarge" in flat or "Standard_ND96asr_v4" in flat


def test_what_binds_is_said(jobs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A slow type that is short, and a deadline that only a dearer one keeps."""
    out = screen(capsys, *jobs[:2], "--capacity", "a100=16,v100=8", "--costs", "a100=3,v100=.3")
    assert "to this set" in out
    assert "8 more V100 are worth $" in out
    assert "+8: $" in out
    found = document(capsys, *jobs[:2], "--capacity", "a100=16,v100=8", "--costs", "a100=3,v100=.3")
    kinds = {b["kind"] for b in found["binding"]}
    assert "capacity" in kinds
    assert found["objective_unit"] == "$"


def test_infeasible_names_jobs_and_a_way_out_that_works(
    jobs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    few = ("--capacity", "a100=8", "--costs", "a100=1.2")
    error = refused(capsys, 3, *jobs[:2], *few, "--deadline", "25h")
    assert error["kind"] == "infeasible"
    assert "bert" in error["message"] or "lm" in error["message"]
    need = int(error["hint"].split("a100=")[1].split(";")[0])
    enough = ("--capacity", f"a100={need}", "--costs", "a100=1.2", "--deadline", "25h")
    assert document(capsys, *jobs[:2], *enough)["totals"]["jobs"] == 2
    error = refused(capsys, 3, *jobs, *POOL, "--budget", "$100")
    assert error["message"].startswith("budget $100: the cheapest plan takes $")
    error = refused(capsys, 3, *jobs, *POOL, "--deadline", "3h")
    assert "even alone: lm needs" in error["message"]
    error = refused(capsys, 3, *jobs, *POOL, "--policy", "max_min_fairness_perf", "--deadline", "37h")
    assert "--policy min_cost keeps them all" in error["hint"]


def test_what_is_refused(jobs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert all(name in refused(capsys, 2, *jobs, "--policy", "x")["hint"] for name in POLICIES)
    assert "shared" in refused(capsys, 2, *jobs, *POOL, "--policy", "gandiva")["message"].replace(
        "share GPUs", "shared"
    )
    assert "yardstick" in refused(capsys, 2, *jobs, *POOL, "--policy", "proportional")["message"]
    assert "--name names one job" in refused(capsys, 2, *jobs, "-n", "x")["message"]
    for flags, text in (
        (("--capacity", "a100"), "is not GPU=NUMBER"),
        (("--capacity", "a100=1.5"), "no number of GPUs"),
        (("--capacity", "a100=-1"), "above 0"),
        (("--capacity", "a100=x"), "no number"),
        (("--capacity", "a100=1,A100-40GB=2"), "twice"),
        (("--capacity", "zx81=1"), "no GPU is known"),
        (("--capacity", ""), "is empty"),
        (("--capacity", "a100=8", "--costs", "v100=1"), "of which --capacity has none"),
        (("--costs", "v100=1"), "of which --capacity has none"),
        (("--partition", "0"), "less than 1"),
    ):
        assert run(["plan", *jobs, *flags, "--json"]) == 2
        assert text in json.loads(capsys.readouterr().out)["error"]["message"], flags
    bare = tmp_path / "bare.yaml"
    bare.write_text("name: bare\nrun: x\n")
    error = refused(capsys, 2, *jobs, str(bare), *POOL)
    assert "jobs without profile: bare" in error["message"]
    assert "profile list" in error["hint"]
    assert run(["plan", *jobs, str(tmp_path / "none.yaml"), "--json"]) == 2
    assert "none.yaml" in json.loads(capsys.readouterr().out)["error"]["message"]
    local = refused(capsys, 2, *jobs, "--infra", "local")
    assert "local cloud" in local["message"]
    problem = refused(capsys, 2, *jobs, "--problem", "p.json", "--policy", "sjf", "--capacity", "a100=8")
    assert "--capacity" in problem["message"]


def test_one_job_with_a_capacity_is_planned_in_the_pool(
    jobs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(capsys, jobs[0], *POOL)
    assert [job["name"] for job in found["jobs"]] == ["lm"]
    assert "candidates" not in found


def test_files_of_one_name_are_told_apart(jobs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, jobs[2], jobs[2], jobs[2], *POOL)
    assert [job["name"] for job in found["jobs"]] == ["small", "small-2", "small-3"]


def test_a_plan_of_one_job_loads_nothing_of_it(jobs: list[str]) -> None:
    code = (
        "import sys; from arylcloud.cli.main import run; run(['plan', sys.argv[1], '--limit', '1'])\n"
        "bad = [m for m in sys.modules if '.policies' in m or m.endswith(('planner.many', 'planmany'))"
        " or m == 'highspy']\nsys.exit(repr(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, jobs[0]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
