"""``plan --problem FILE --policy NAME``: the document, the table, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from arylcloud.cli.main import run
from arylcloud.planner.policies.registry import POLICIES

TWO = {
    "num_workers": {"t4": 1, "v100": 1},
    "costs": {"t4": 0.35, "v100": 2.5},
    "jobs": [
        {"job_type": "LM", "num_steps_remaining": 1000},
        {"job_type": "GAN", "num_steps_remaining": 600},
    ],
    "throughputs": [[1, 4], [1, 2]],
    "pairs": [{"i": 0, "j": 1, "throughputs": [[0.5, 0.5], [3, 1.5]]}],
}
KEYS = {"policy", "objective", "allocation", "fallback", "seconds", "bound", "throughputs", "violation"}


@pytest.fixture
def two(tmp_path: Path) -> Path:
    path = tmp_path / "two.json"
    path.write_text(json.dumps(TWO))
    return path


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> dict[str, Any]:
    assert run(["plan", *map(str, args), "--json"]) == 2
    error: dict[str, Any] = json.loads(capsys.readouterr().out)["error"]
    assert error["kind"] == "usage"
    assert error["hint"]
    return error


def test_one_document(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--problem", str(two), "--policy", "sjf", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert next(iter(found)) == "schema_version"
    assert found.keys() >= KEYS
    assert found["worker_types"] == ["t4", "v100"]
    assert found["allocation"] == [[0, 1], [1, 0]]
    assert found["throughputs"] == [4, 1]
    assert found["fallback"] is False
    assert found["seconds"] >= 0


def test_a_gzipped_file_of_instances(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "all.json.gz"
    fewer = {
        **TWO,
        "id": "small",
        "jobs": TWO["jobs"][:1],
        "throughputs": TWO["throughputs"][:1],
        "pairs": None,
    }
    path.write_bytes(gzip.compress(json.dumps({"instances": [{**TWO, "id": "two"}, fewer]}).encode()))
    command = ["plan", "--problem", str(path), "--policy", "max_min_fairness_perf", "--json"]
    assert run([*command, "--instance", "small"]) == 0
    assert json.loads(capsys.readouterr().out)["throughputs"] == pytest.approx([4])
    error = refused(capsys, *command[1:-1])
    assert "two, small" in error["hint"]


def test_the_table(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--problem", str(two), "--policy", "allox"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["job", "type", "GPUs", "t4", "v100", "steps/s", "in", "all"]
    assert said[1].split() == ["0", "LM", "1", "–", "100.0%", "4"]
    assert said[2].split() == ["1", "GAN", "1", "–", "–", "0"]  # it waits for the fast one
    assert said[4].startswith("allox: objective 800, ")


def test_what_a_worker_is_worth_and_who_has_no_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [{"num_steps_remaining": 1000}, {"num_steps_remaining": 600, "scale_factor": 4}]
    path = tmp_path / "large.json"
    path.write_text(json.dumps({**TWO, "jobs": jobs, "pairs": []}))
    assert run(["plan", "--problem", str(path), "--policy", "min_total_duration_perf"]) == 0
    said = capsys.readouterr().out
    worth = next(line for line in said.splitlines() if line.startswith("one more worker improves"))
    assert [float(part.split()[-1]) >= 0 for part in worth.split(":")[1].split(",")] == [True, True]
    assert "more GPUs than any type on which they run has: jobs 1 (" in said


def test_the_seed_draws_the_lots(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def drawn(seed: int) -> str:
        assert run(["plan", "--problem", str(two), "--policy", "fifo", "--seed", str(seed), "--json"]) == 0
        return str(json.loads(capsys.readouterr().out)["allocation"])

    assert drawn(3) == drawn(3)
    assert len({drawn(seed) for seed in range(12)}) == 2


def test_deadlines_that_are_not_there_are_said(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "max_sum_throughput_normalized_by_cost_perf_SLOs"
    assert run(["plan", "--problem", str(two), "--policy", name, "--json"]) == 0
    caught = capsys.readouterr()
    json.loads(caught.out)
    assert "no deadlines" in caught.err


def test_what_is_refused(two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert all(name in refused(capsys, "--problem", two, "--policy", "x")["hint"] for name in POLICIES)
    assert all(name in refused(capsys, "--policy", "x")["hint"] for name in POLICIES)
    assert "needs a policy" in refused(capsys, "--problem", two)["message"]
    assert "configurations" in refused(capsys, "--problem", two, "--policy", "sia")["message"]
    assert "--gpus" in refused(capsys, "--problem", two, "--policy", "sjf", "--gpus", "8")["message"]
    assert "job.yaml" in refused(capsys, "job.yaml", "--problem", two, "--policy", "sjf")["message"]
    assert "no such file" in refused(capsys, "--problem", "none.json", "--policy", "sjf")["message"]
    assert (
        "no instance 'z'"
        in refused(capsys, "--problem", two, "--policy", "sjf", "--instance", "z")["message"]
    )
    assert "cannot be read" in refused(capsys, "--problem", tmp_path, "--policy", "sjf")["message"]
    for content in (b"", b"{", b"[]", b"\x1f\x8bnot gzip", b"\xff\xfe", gzip.compress(b"{}")[:-4]):
        bad = tmp_path / "bad.json"
        bad.write_bytes(content)
        assert "bad.json" in refused(capsys, "--problem", bad, "--policy", "sjf")["message"]


def test_a_small_file_that_unpacks_to_far_too_much(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arylcloud.core.bounded.MOST_BYTES", 1 << 20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(json.dumps(TWO).encode() + b" " * (1 << 20)))
    error = refused(capsys, "--problem", path, "--policy", "fifo")
    assert "more than 1 MiB" in error["message"]
