"""``arylcloud simulate`` as a person and as a script use it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from arylcloud.cli.main import run

RATES = """job_type,scale_factor,worker_type,consolidated,steps_per_s
A,1,v100,1,2
A,1,k80,1,1
B,1,v100,1,8
B,1,k80,1,1
"""
PAIRS = """worker_type,consolidated,scale_factor,job_type_a,job_type_b,steps_per_s_a,steps_per_s_b
v100,1,1,A,B,1.5,6
v100,1,1,A,A,1.2,1.2
"""
KEYS = {
    "avg_jct_h", "median_jct_h", "p99_jct_h", "makespan_h", "utilization", "cost_usd", "queue_h",
    "preemptions", "jobs", "cpu_s",
}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    rows = [f"{'AB'[i % 2]}\tcmd\tdir\t-n\t0\t{2000 * (i + 1)}\t1\t1\t-1\t{i * 100.0}\n" for i in range(6)]
    (tmp_path / "jobs.trace").write_text("".join(rows))
    (tmp_path / "isolated_t.csv").write_text(RATES)
    (tmp_path / "colocated_t.csv").write_text(PAIRS)
    return {
        "trace": str(tmp_path / "jobs.trace"),
        "rates": str(tmp_path / "isolated_t.csv"),
        "folder": str(tmp_path),
    }


def call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = run(["simulate", *args])
    out = capsys.readouterr()
    return code, out.out, out.err


def usual(files: dict[str, str]) -> list[str]:
    return ["--trace", files["trace"], "--throughputs", files["rates"], "--capacity", "v100=1,k80=2"]


def test_one_policy_as_json(capsys: pytest.CaptureFixture[str], files: dict[str, str]) -> None:
    code, out, _ = call(
        capsys, *usual(files), "--policy", "fifo_perf", "--costs", "v100=.74,k80=.135", "--json"
    )
    found = json.loads(out)
    assert code == 0
    assert found.keys() >= KEYS | {"schema_version", "policy"}
    assert found["jobs"] == 6
    assert found["cost_usd"] > 0
    assert 0 < found["utilization"] <= 1


def test_from_when_deadlines_count_is_said(capsys: pytest.CaptureFixture[str], files: dict[str, str]) -> None:
    args = [*usual(files), "--policy", "fifo_perf", "--deadline-from"]
    _, out, _ = call(capsys, *args, "dispatch", "--json")
    assert json.loads(out)["settings"]["deadline_from"] == "dispatch"
    code, out, _ = call(capsys, *args, "never", "--json")
    assert code == 2
    assert json.loads(out)["error"]["kind"] == "usage"


def test_without_prices_the_cost_is_unknown(
    capsys: pytest.CaptureFixture[str], files: dict[str, str]
) -> None:
    _, out, _ = call(capsys, *usual(files), "--policy", "isolated", "--json")
    assert json.loads(out)["cost_usd"] is None


def test_several_policies_see_the_same_jobs(
    capsys: pytest.CaptureFixture[str], files: dict[str, str]
) -> None:
    args = [*usual(files), "--policy", "fifo_perf,isolated", "--policy", "gandiva"]
    code, out, _ = call(capsys, *args, "--json")
    found = json.loads(out)["policies"]
    assert code == 0
    assert list(found) == ["fifo_perf", "isolated", "gandiva"]
    alone = json.loads(call(capsys, *usual(files), "--policy", "isolated", "--json")[1])
    assert alone["avg_jct_h"] == found["isolated"]["avg_jct_h"]


def test_a_table_for_people(capsys: pytest.CaptureFixture[str], files: dict[str, str]) -> None:
    code, out, err = call(capsys, *usual(files), "--policy", "fifo_perf,gandiva", "--costs", "v100=1,k80=.5")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["policy", "fifo_perf", "gandiva"]
    assert "$" in out
    assert "6 jobs" in err
    assert "charged" in out + err, "gandiva shares GPUs here: two accounts of its cost"


def test_a_row_per_job(capsys: pytest.CaptureFixture[str], files: dict[str, str]) -> None:
    code, out, _ = call(capsys, *usual(files), "--policy", "fifo_perf,isolated", "--csv", "--window", "1:3")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [(row["policy"], row["job"]) for row in rows] == [
        ("fifo_perf", "1"), ("fifo_perf", "2"), ("isolated", "1"), ("isolated", "2"),
    ]  # fmt: skip
    for row in rows:
        late = float(row["finish_s"]) - float(row["arrival_s"])
        assert late == pytest.approx(float(row["run_s"]) + float(row["queue_s"]), abs=0.01)


def test_generated_jobs_are_reproducible(capsys: pytest.CaptureFixture[str], files: dict[str, str]) -> None:
    args = ["--generate", "single:0.2", "--throughputs", files["rates"], "--capacity", "v100=4,k80=4"]
    args += ["--policy", "isolated", "--window", "5:15", "--json", "--seed", "3"]
    one, two = (json.loads(call(capsys, *args)[1]) for _ in range(2))
    del one["cpu_s"], two["cpu_s"]
    assert one == two
    assert one["jobs"] == 10
    other = json.loads(call(capsys, *args[:-1], "4")[1])
    assert other["avg_jct_h"] != one["avg_jct_h"]


def test_a_jobs_csv_needs_no_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,duration_s,num_gpus\na,0,720,1\nb,10,360,2\n")
    _, out, _ = call(capsys, "--trace", str(path), "--capacity", "any=2", "--policy", "fifo_perf", "--json")
    found = json.loads(out)
    assert found["jobs"] == 2
    assert found["makespan_h"] >= 0.3


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (["--policy", "nosuch"], "no policy"),
        (["--policy", ","], "names none"),
        (["--capacity", "v100=36,v100=2"], "twice"),
        (["--capacity", "v100"], "TYPE=NUMBER"),
        (["--capacity", "v100=1.5"], "no number of GPUs"),
        (["--capacity", "v100=-1"], "not a number"),
        (["--capacity", "v100=0"], "without GPUs"),
        (["--capacity", ""], "empty"),
        (["--capacity", "h100=4"], "no throughput for worker type"),
        (["--costs", "v100=1"], "no price for k80"),
        (["--window", "5"], "not A:B"),
        (["--window", "5:5"], "not A:B"),
        (["--window", "0:99"], "window 0:99 of 6 jobs"),
        (["--round-s", "0"], "a round of 0 s"),
        (["--restart-s", "400"], "leaves nothing"),
        (["--generate", "single:5.6"], "give one of them"),
        (["--slos"], "for --generate"),
        (["--trace", "nosuch.trace"], "cannot read"),
        (["--json", "--csv"], "exclude each other"),
    ],
)
def test_bad_input_is_usage(
    capsys: pytest.CaptureFixture[str], files: dict[str, str], change: list[str], word: str
) -> None:
    args = [*usual(files), "--policy", "isolated", *change]
    if "--policy" in change:
        args = [*usual(files), *change]
    code, _, err = call(capsys, *args)
    assert code == 2
    assert word in err


def test_an_endless_stream_needs_a_window(capsys: pytest.CaptureFixture[str], files: dict[str, str]) -> None:
    code, _, err = call(
        capsys, "--generate", "single:1.0", "--throughputs", files["rates"], "--capacity", "v100=4",
        "--policy", "isolated",
    )  # fmt: skip
    assert (code, "--window" in err) == (2, True)
    code, _, err = call(capsys, "--generate", "single:1.0", "--capacity", "v100=4", "--policy", "isolated")
    assert (code, "--throughputs" in err) == (2, True)


def test_a_typed_trace_needs_a_table(capsys: pytest.CaptureFixture[str], files: dict[str, str]) -> None:
    code, _, err = call(capsys, "--trace", files["trace"], "--capacity", "v100=4", "--policy", "isolated")
    assert code == 2
    assert "jobs.trace:1" in err
