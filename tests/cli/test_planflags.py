"""``plan`` and ``launch`` take the same flags, and they mean the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
from e2e.market import job, market, on_demand, spot
from e2e.support import Home

from arylcloud.cli import launch, plan
from arylcloud.cli.jobfile import Overrides
from arylcloud.cli.main import run
from arylcloud.cli.planflags import FLAGS, given
from arylcloud.pricing.table import parse_as_of

NewHome = Callable[..., Home]
JOB = """\
name: bert
run: python train.py
resources: {accelerators: [A100:8, V100:8, L4:8]}
aryl: {profile: mpt-125m, work: 40000 steps}
"""


def options(app: typer.Typer) -> dict[str, tuple[Any, ...]]:
    command = typer.main.get_command(app)
    return {p.name or "": (tuple(p.opts), p.default, getattr(p, "help", "")) for p in command.params}


def test_every_override_is_one_flag_of_both_commands() -> None:
    assert {f.name for f in fields(Overrides)} == set(FLAGS)
    of_plan, of_launch = options(plan.app), options(launch.app)
    for name in FLAGS:
        assert of_plan[name] == of_launch[name]


def test_flags_that_were_typed_are_named() -> None:
    assert given(Overrides()) == ()
    assert given(Overrides(max_age="24h", env=("A=1",), use_spot=True)) == (
        "--max-age",
        "--use-spot",
        "--env",
    )


def test_launch_plans_with_its_flags(new_home: NewHome) -> None:
    home = new_home(market(spot("calm", 0.10), on_demand("calm", 0.40)))
    path = str(home.job_file(job(steps=10)))
    flags = ("--market", "on_demand", "--deadline", "90h", "--budget", "$77", "--nodes", "2",
             "--max-usd-per-hour", "0.5", "--objective", "time", "-n", "other", "--env", "A=b")  # fmt: skip
    found = home.cli("launch", path, "--infra", "local", *flags, "--dryrun", "--json", code=0).json
    spec = found["job"]
    assert spec["market"] == "on_demand"
    assert spec["name"] == "other"
    assert spec["envs"]["A"] == "b"
    assert (spec["nodes_min"], found["chosen"]["nodes"]) == (2, 2)
    assert spec["constraints"]["deadline_s"] == 90 * 3600
    assert spec["constraints"]["budget_usd"] == 77
    assert spec["constraints"]["max_usd_per_hour"] == 0.5
    assert spec["objective"]["cost_weight"] == 0
    assert found["chosen"]["offer"]["market"] == "on_demand"
    said = home.cli("launch", path, "--infra", "local", "--max-usd-per-hour", "0.01", "-y", "--json", code=3)
    assert "max_usd_per_hour" in said.json["error"]["message"]


def test_a_plan_is_launched_as_it_was_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job_file, file = tmp_path / "job.yaml", tmp_path / "p.json"
    job_file.write_text(JOB)
    assert run(["plan", str(job_file), "-o", str(file), "--json"]) == 0
    capsys.readouterr()
    assert run(["launch", str(file), "--deadline", "3h", "--use-spot", "-y", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert "--deadline, --use-spot" in error["message"]
    assert "plan again" in error["hint"]


def test_only_prices_of_an_age_that_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)

    def planned(*args: str) -> dict[str, Any]:
        assert run(["plan", str(file), "--limit", "100000", "--json", *args]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    every = planned()
    dates = [c["as_of"] for c in every["candidates"]]
    assert None in dates, "the bundled catalogue has prices of unknown age"
    known = sorted(parse_as_of(date) for date in dates if date)
    some = planned("--max-age", "3000d")
    assert [c["as_of"] for c in some["candidates"]].count(None) == 0
    assert len(some["candidates"]) == len(known)
    (reason,) = [r for r in some["rejected"] if "unknown age" in r["reason"]]
    assert reason["count"] >= len(dates) - len(known)
    assert run(["plan", str(file), "--max-age", "1s", "--json"]) == 3
    error = json.loads(capsys.readouterr().out)["error"]
    assert "unknown age" in error["message"]
    assert "--max-age" in error["hint"]
    assert run(["plan", str(file), "--max-age", "30", "--json"]) == 2
    assert "--max-age: 30 has no unit" in capsys.readouterr().out
