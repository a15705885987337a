"""Traces, throughput tables and recipes: what is read, and what is refused with the line that is wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from arylcloud.core.errors import UsageError
from arylcloud.simulation.cluster.generate import generate, parse_recipe
from arylcloud.simulation.cluster.replay import fleet
from arylcloud.simulation.cluster.throughputs import Throughputs, read_throughputs, uniform
from arylcloud.simulation.cluster.traces import read_trace
from arylcloud.simulation.cluster.workload import bind

TYPES = ("k80", "v100")
RATES = """job_type,scale_factor,worker_type,consolidated,steps_per_s
LM (batch size 5),1,v100,1,20
LM (batch size 5),1,v100,0,1
LM (batch size 5),1,k80,1,4
LM (batch size 5),2,v100,1,30
LM (batch size 5),2,k80,1,0
A3C,1,v100,1,6
A3C,1,k80,1,3
"""
PAIRS = """worker_type,consolidated,scale_factor,job_type_a,job_type_b,steps_per_s_a,steps_per_s_b
v100,1,1,LM (batch size 5),A3C,12,4
v100,0,1,LM (batch size 5),A3C,9,9
v100,1,1,A3C,A3C,3,3
"""
NEW = "LM (batch size 5)\tcmd %s\tdir\t--steps\t1\t{steps}\t{gpus}\t{weight}\t{slo}\t{at}\n"
OLD = "A3C\tcmd\t--flag\t0\t700\t12.5\t1\n"


@pytest.fixture
def table(tmp_path: Path) -> Throughputs:
    (tmp_path / "isolated_x.csv").write_text(RATES)
    (tmp_path / "colocated_x.csv.gz").write_bytes(gzip.compress(PAIRS.encode()))
    return read_throughputs(tmp_path / "isolated_x.csv")


def line(**change: object) -> str:
    return NEW.format(**{"steps": 100, "gpus": 1, "weight": 1, "slo": "-1.0", "at": "0.0", **change})


def trace(tmp_path: Path, text: str, name: str = "jobs.trace") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_ten_columns(tmp_path: Path, table: Throughputs) -> None:
    found = read_trace(trace(tmp_path, line(at=7.5, gpus=2, weight=5, slo=1.2) + "\n" + line(at=1)))
    assert found.arrival_s.tolist() == [1.0, 7.5], "in order of arrival"
    assert found.gpus.tolist() == [1, 2]
    assert found.weight.tolist() == [1.0, 5.0]
    bound = bind(found, table, TYPES, shared=False)
    assert bound.rate[bound.job_class].tolist() == [[4.0, 20.0], [0.0, 30.0]], "consolidated rows only"
    assert bound.deadline_s.tolist() == [np.inf, pytest.approx(7.5 + 1.2 * 100 / 30)]


def test_the_older_seven_columns(tmp_path: Path) -> None:
    found = read_trace(trace(tmp_path, OLD))
    assert (found.steps[0], found.arrival_s[0], found.gpus[0], found.weight[0]) == (700.0, 12.5, 1, 1.0)
    assert np.isnan(found.slo_factor[0])


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ("a\tb\tc\n", "3 tab-separated columns"),
        (line(steps="many"), "total_steps is 'many'"),
        (line(steps=0), "total_steps"),
        (line(steps="1.5"), "whole number"),
        (line(gpus=0), "scale_factor"),
        (line(weight=0), "priority_weight"),
        (line(weight=-1), "priority_weight"),
        (line(at="nan"), "arrival_time"),
        (line(at=-5), "arrival_time"),
        (line(slo="inf"), "SLO"),
        (line().replace("LM (batch size 5)", "", 1), "no job type"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, bad: str, word: str) -> None:
    path = trace(tmp_path, line() + bad)
    with pytest.raises(UsageError, match=word) as error:
        read_trace(path)
    assert f"{path}:2" in error.value.message


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_trace(tmp_path / "nosuch.trace")
    with pytest.raises(UsageError, match="no job"):
        read_trace(trace(tmp_path, "\n"))
    (tmp_path / "x.trace").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not a text file"):
        read_trace(tmp_path / "x.trace")
    (tmp_path / "x.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(UsageError, match="no column job_id"):
        read_trace(tmp_path / "x.csv.gz")
    (tmp_path / "y.csv.gz").write_bytes(gzip.compress(b"job_id,submit_s,duration_s,num_gpus\n")[:-4])
    with pytest.raises(UsageError, match="cannot read"):
        read_trace(tmp_path / "y.csv.gz")
    with pytest.raises(UsageError, match="cannot read"):
        read_throughputs(tmp_path)


@pytest.mark.parametrize("name", ["bomb.trace.gz", "bomb.csv.gz"])
def test_a_small_file_that_unpacks_to_far_too_much(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arylcloud.core.bounded.MOST_BYTES", 1 << 20)
    (tmp_path / name).write_bytes(gzip.compress(b"\n" * (2 << 20)))
    for read in (read_trace, read_throughputs):
        with pytest.raises(UsageError, match="more than 1 MiB") as error:
            read(tmp_path / name)
        assert error.value.hint


def test_jobs_csv(tmp_path: Path, table: Throughputs) -> None:
    text = "job_id,submit_s,duration_s,num_gpus,model\nb,50,100,1,A3C\na,7,60,2,\nc,60,10,64,\n"
    found = read_trace(trace(tmp_path, text, "jobs.csv"))
    assert list(found.names) == ["a", "b", "c"]
    bound = bind(found, table, TYPES, shared=False)
    assert [table.classes[c] for c in bound.job_class] == [
        ("LM (batch size 5)", 2),
        ("A3C", 1),
        ("LM (batch size 5)", 2),
    ], "unknown types are drawn among those of the size, or of the next below"
    assert bound.steps.tolist() == [1800.0, 600.0, 300.0], "seconds on v100"
    again = bind(read_trace(trace(tmp_path, text, "jobs.csv")), table, TYPES, shared=False)
    assert again.job_class.tolist() == bound.job_class.tolist()


def test_jobs_csv_without_a_table(tmp_path: Path) -> None:
    text = "job_id,submit_s,duration_s,num_gpus\na,7,60.5,3\n"
    bound = bind(read_trace(trace(tmp_path, text, "jobs.csv")), uniform(TYPES, (3,)), TYPES, shared=False)
    assert (bound.steps.tolist(), bound.rate.tolist()) == ([60.0], [[1.0, 1.0]])


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("job_id,submit_s,num_gpus\na,1,1\n", "no column duration_s"),
        ("job_id,submit_s,duration_s,num_gpus\na,1,0,1\n", ":2: duration_s"),
        ("job_id,submit_s,duration_s,num_gpus\na,1,5,1\nb,x,5,1\n", ":3: submit_s"),
        ("job_id,submit_s,duration_s,num_gpus\na,1,5,1.5\n", ":2: num_gpus"),
    ],
)
def test_a_bad_csv_is_named(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        read_trace(trace(tmp_path, text, "jobs.csv"))


def test_jobs_without_a_rate_are_named(tmp_path: Path, table: Throughputs) -> None:
    path = trace(tmp_path, line() + line(gpus=16))
    with pytest.raises(UsageError, match=r"jobs.trace:2: no throughput for .* on 16 GPUs") as error:
        bind(read_trace(path), table, TYPES, shared=False)
    assert "1, 2" in (error.value.hint or "")
    path = trace(tmp_path, line().replace("size 5", "size 6"))
    with pytest.raises(UsageError, match="job type 'LM \\(batch size 6\\)'") as error:
        bind(read_trace(path), table, TYPES, shared=False)
    assert "LM (batch size 5)" in (error.value.hint or "")
    with pytest.raises(UsageError, match="worker type 'h100'"):
        bind(read_trace(trace(tmp_path, line())), table, ("h100",), shared=False)


def test_pairs_are_found_beside_and_read_both_ways(table: Throughputs) -> None:
    lm, a3c = table.index["LM (batch size 5)", 1], table.index["A3C", 1]
    v100 = table.worker_types.index("v100")
    assert (table.shared()[lm, a3c, v100], table.shared()[a3c, lm, v100]) == (12.0, 4.0)
    assert table.shared()[lm, lm].sum() == 0, "not measured: they cannot share"


def test_without_pairs_packing_says_which_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "isolated_x.csv").write_text(RATES)
    with pytest.raises(UsageError, match="no co-located") as error:
        read_throughputs(tmp_path / "isolated_x.csv").shared()
    assert "colocated" in (error.value.hint or "")


def test_gavels_json_is_the_same_table(tmp_path: Path, table: Throughputs) -> None:
    lm, lm2, a3c = "('LM (batch size 5)', 1)", "('LM (batch size 5)', 2)", "('A3C', 1)"
    document = {
        "v100": {
            lm: {"null": 20, a3c: [12, 4]},
            lm2: {"null": 30},
            a3c: {"null": 6, a3c: [3, 3], lm: [4, 12]},
        },
        "k80": {lm: {"null": 4}, lm2: {"null": 0}, a3c: {"null": 3}},
        "v100_unconsolidated": {lm: {"null": 1}},
    }
    path = tmp_path / "simulation_throughputs.json"
    path.write_text(json.dumps(document))
    found = read_throughputs(path)
    assert found.classes == table.classes
    assert found.worker_types == table.worker_types
    assert (found.isolated == table.isolated).all()
    assert (found.shared() == table.shared()).all()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "not a JSON file"),
        ("[]", "not Gavel's layout"),
        ('{"v100": {"LM": {"null": 1}}}', "is not a key"),
        ('{"v100": {"(\'LM\', 1)": {}}}', "no rate alone"),
        ('{"v100": {"(\'LM\', 1)": {"null": -1}}}', "null is"),
        ('{"v100": {}}', "no throughput"),
    ],
)
def test_a_bad_json_table_is_named(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=word):
        read_throughputs(path)


def test_recipes() -> None:
    assert parse_recipe("single:5.6", seed=0).jobs_per_hour == 5.6
    assert parse_recipe("multi:2/h", seed=0).jobs_per_hour == 2.0
    found = parse_recipe("multi:700", seed=3)
    assert (found.count, found.multi_gpu, found.jobs_per_hour) == (700, True, None)
    for bad in ("", "single", "single:", "both:3", "single:0", "single:-1", "single:1e3", "multi:0.0", "x:1"):
        with pytest.raises(UsageError, match="no recipe"):
            parse_recipe(bad, seed=0)


def test_generated_jobs(table: Throughputs) -> None:
    recipe = parse_recipe("single:4.0", seed=1, priorities=True, slos=True)
    many, few = (generate(recipe, n, table, TYPES) for n in (20_000, 50))
    assert few.steps.tolist() == many.steps[:50].tolist(), "the first n do not depend on n"
    assert few.arrival_s.tolist() == many.arrival_s[:50].tolist()
    assert many.arrival_s[0] == 0
    assert np.diff(many.arrival_s).mean() == pytest.approx(900, rel=0.03)
    hours = many.duration_s / 3600
    assert hours.mean() == pytest.approx(16.8, rel=0.05), "Gavel's mean"
    assert (hours >= 10**1.5 / 60).all()
    assert (hours <= 10**4 / 60).all()
    assert (hours > 1000 / 60).mean() == pytest.approx(0.2, abs=0.01)
    assert (many.weight == 5).mean() == pytest.approx(0.2, abs=0.01)
    parts = [(many.slo_factor == f).mean() for f in (1.2, 2, 10)]
    assert parts == pytest.approx([0.33, 0.34, 0.33], abs=0.02)
    assert set(many.job_type) == {"LM (batch size 5)", "A3C"}
    other = generate(parse_recipe("single:4.0", seed=2), 50, table, TYPES)
    assert other.steps.tolist() != few.steps.tolist()


def test_generated_sizes_need_rates(table: Throughputs) -> None:
    with pytest.raises(UsageError, match=r"no job type on [48] GPUs"):
        generate(parse_recipe("multi:50", seed=0), 50, table, TYPES)


def test_a_fleet_has_gpus_and_whole_prices() -> None:
    found = fleet({"v100": 2, "k80": 1}, {"k80": 0.1, "v100": 0.7, "a100": 3})
    assert found.worker_types == TYPES
    assert found.usd_per_hour is not None
    assert found.usd_per_hour.tolist() == [0.1, 0.7]
    with pytest.raises(UsageError, match="no price for v100"):
        fleet({"v100": 2}, {"k80": 1})
    with pytest.raises(UsageError, match="without GPUs"):
        fleet({"v100": 0})
