"""``simulate --aryl`` as a person and as a script use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arylcloud.cli.main import run


@pytest.fixture
def usual(tmp_path: Path) -> list[str]:
    """Two servers, overloaded; inference busy by day and idle by night."""
    jobs = ["job_id,submit_s,duration_s,num_gpus"]
    jobs += [f"j{i},{i * 400},{3000 + 37 * i},{(1, 2, 4, 8)[i % 4]}" for i in range(120)]
    (tmp_path / "jobs.csv").write_text("\n".join(jobs) + "\n")
    load = [f"servegen:language/m-small,{i * 600},{200 if 40 < i % 144 < 110 else 20}" for i in range(288)]
    (tmp_path / "requests.csv").write_text("\n".join(["trace,timestamp_s,requests_per_s", *load]) + "\n")
    curves = [f"A100,m,64,{n},{n**0.7}" for n in (1, 2, 4, 8, 16)]
    head = "gpu_type,model,global_batch_size,num_gpus,iterations_per_s"
    (tmp_path / "curves.csv").write_text("\n".join([head, *curves]) + "\n")
    files = ["--trace", str(tmp_path / "jobs.csv"), "--inference", str(tmp_path / "requests.csv")]
    return ["--aryl", "2:4", *files, "--elastic", "0.3", "--fungible", "0.5"]


def _call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = run(["simulate", *args])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_schedulers_side_by_side(
    capsys: pytest.CaptureFixture[str], usual: list[str], tmp_path: Path
) -> None:
    curves = ["--scaling", str(tmp_path / "curves.csv")]
    code, out, _ = _call(capsys, *usual, *curves, "--policy", "fifo,loaning_only,aryl,default", "--json")
    assert code == 0
    found = json.loads(out)
    rows = found["policies"]
    assert list(rows) == ["fifo", "loaning_only", "aryl", "default"]
    assert rows["fifo"]["jobs"] == 120
    assert rows["fifo"]["queue_h"] > rows["aryl"]["queue_h"]
    assert rows["loaning_only"]["ended"] > 0 == rows["fifo"]["ended"]
    assert rows["fifo"]["queue_h"] > rows["default"]["queue_h"] > 0
    for row in rows.values():
        assert row["queue_h"] == pytest.approx(row["queue_mean_s"] / 3600)
        assert row["work_usage"] <= row["utilization"] + 1e-9 <= 1 + 1e-9
    assert found["settings"]["resize_s"] == 63.0
    assert found["inference_servers"] == 4


def test_one_scheduler_and_a_table(capsys: pytest.CaptureFixture[str], usual: list[str]) -> None:
    code, out, _ = _call(capsys, *usual, "--policy", "aryl", "--json", "--days", "0:1")
    found = json.loads(out)
    assert code == 0
    assert found["policy"] == "aryl"
    assert found["settings"]["resize_s"] == 0.0
    assert {"avg_jct_h", "median_jct_h", "p99_jct_h", "makespan_h", "utilization", "preemptions"} <= set(
        found
    )
    code, out, err = _call(capsys, *usual, "--policy", "fifo,aryl")
    assert code == 0
    assert "queue s" in out
    assert "growth is linear and free" in err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--policy", "sia"], "no scheduler 'sia' for --aryl"),
        (["--policy", "aryl", "--capacity", "v100=4"], "no --capacity"),
        (["--policy", "aryl", "--csv"], "no --capacity, --generate or --csv"),
        (["--policy", "aryl", "--days", "5:9"], "no job is submitted then"),
        (["--policy", "aryl", "--days", "x"], "--days 'x' is not A:B"),
    ],
)
def test_bad_flags_say_what_is_wrong(
    capsys: pytest.CaptureFixture[str], usual: list[str], args: list[str], words: str
) -> None:
    code, _, err = _call(capsys, *usual, *args)
    assert code == 2
    assert words in err


def test_what_is_missing_is_named(capsys: pytest.CaptureFixture[str], usual: list[str]) -> None:
    for flag in ("--trace", "--inference"):
        at = usual.index(flag)
        code, _, err = _call(capsys, *usual[:at], *usual[at + 2 :], "--policy", "aryl")
        assert (code, f"--aryl needs {flag} FILE" in err) == (2, True)
    code, _, err = _call(capsys, "--trace", "x.csv", "--policy", "fifo")
    assert (code, "--capacity" in err) == (2, True)
    code, _, err = _call(capsys, "--aryl", "2", *usual[2:], "--policy", "aryl")
    assert (code, "--aryl '2' is not A:B" in err) == (2, True)
