"""Other people's files: Gavel's JSON and CSV, tables of one's own, and what is wrong with bad ones."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest

from arylcloud.core.errors import ArylError, LocalStateError, UsageError
from arylcloud.planner import profile_import, profile_store
from arylcloud.planner.profile_import import read
from arylcloud.planner.profiles import library

STUDY = os.environ.get("ARYLCLOUD_STUDY_DATA")
GAVEL: dict[str, Any] = {
    "v100": {
        "('ResNet-18 (batch size 16)', 1)": {"null": 32.35, "('A3C', 1)": [20.0, 3.0]},
        "('ResNet-18 (batch size 16)', 2)": {"null": 40.0},
        "('A3C', 1)": {"null": 7.2},
    },
    "v100_unconsolidated": {
        "('ResNet-18 (batch size 16)', 1)": {"null": 32.35},
        "('ResNet-18 (batch size 16)', 2)": {"null": 35.0},
    },
    "k80": {"('ResNet-18 (batch size 16)', 1)": {"null": 4.8}, "('A3C', 1)": {"null": 0.0}},
}


def put(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_gavels_json_becomes_profiles_that_read_back(tmp_path: Path) -> None:
    found = read(put(tmp_path, "simulation_throughputs.json", GAVEL))
    assert [p["name"] for p in found] == ["ResNet-18 (batch size 16)", "A3C"]
    rows = [(r["gpu"], r["gpus"], r["nodes"], r["rate"], r.get("batch")) for r in found[0]["measurements"]]
    assert rows == [
        ("V100", 1, 1, 32.35, 16),
        ("V100", 2, 1, 40.0, 16),
        ("V100", 2, None, 35.0, 16),
        ("K80", 1, 1, 4.8, 16),
    ]
    assert [(r["gpu"], r["rate"]) for r in found[1]["measurements"]] == [("V100", 7.2)]  # 0 = not run
    profile_store.write(tmp_path / "own" / "gavel.json", found)
    lib = library(tmp_path / "own")
    mine = lib.get("resnet 18 batch size 16")
    assert mine.unit == "steps/s"
    assert [(m.gpu, m.gpus, m.nodes) for m in mine.measurements][2] == ("V100", 2, None)
    assert mine.measurements[0].source == "imported from simulation_throughputs.json"
    entry = next(e for e in lib.entries if e.name == "A3C")
    assert entry.origin == str(tmp_path / "own" / "gavel.json")


@pytest.mark.skipif(STUDY is None, reason="ARYLCLOUD_STUDY_DATA does not name the study data")
def test_the_studys_gavel_table_is_the_bundled_one(tmp_path: Path) -> None:
    path = Path(str(STUDY)) / "gavel" / "isolated_throughputs_simulation.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = [r for r in csv.DictReader(file) if float(r["steps_per_s"]) > 0]
    rows = [r for r in rows if r["scale_factor"] != "1" or r["consolidated"] == "1"]
    found = read(path, source="Gavel")
    assert sum(len(p["measurements"]) for p in found) == len(rows) == 411
    profile_store.write(tmp_path / "gavel.json", found)
    ours, bundled = library(tmp_path), library()
    for name in ("LM (batch size 20)", "A3C", "ResNet-50 (batch size 64)"):
        pairs = [
            {(m.gpu, m.gpus, m.nodes, round(m.rate, 4)) for m in lib.get(name).measurements}
            for lib in (ours, bundled)
        ]
        assert pairs[0] == pairs[1]


def test_a_table_of_ones_own(tmp_path: Path) -> None:
    head = "name,gpu,gpus,rate,unit,precision,nodes\n"
    text = head + "mine,nvidia-a100,8,941.5,samples/s,bf16,\nmine,H100,16,3e3,samples/s,,2\n"
    found = read(put(tmp_path, "t.csv", text), source="our lab")
    profile_store.write(tmp_path / "own" / "t.json", found)
    mine = library(tmp_path / "own").get("mine")
    assert [(m.gpu, m.gpus, m.nodes, m.rate) for m in mine.measurements] == [
        ("A100", 8, 1, 941.5),
        ("H100", 16, 2, 3000.0),
    ]
    assert {m.source for m in mine.measurements} == {"our lab"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "{", "not valid JSON"),
        ("a.json", "[]", "not Gavel's layout"),
        ("a.json", {"v100": [1]}, "v100: not an object of jobs"),
        ("a.json", {"v100": {"ResNet": {"null": 1}}}, "not a job as Gavel writes it"),
        ("a.json", {"v100": {"('x', 0)": {"null": 1}}}, "not a job as Gavel writes it"),
        ("a.json", {"v100": {"__import__('os').getpid()": {"null": 1}}}, "not a job as Gavel writes it"),
        ("a.json", {"z9": {"('x', 1)": {"null": 1}}}, "no GPU is known by the name 'z9'"),
        ("a.json", {"v100": {"('x', 1)": {"null": "fast"}}}, "'fast' is no number"),
        ("a.json", {"v100": {"('x', 1)": {"null": -2}}}, "a rate of -2"),
        ("a.json", {"v100": {"('x', 1)": 3}}, "not an object of rates"),
        ("a.json", {"v100": {"('x', 1)": {"null": 0}}}, "no rates in it"),
        ("a.json", '{"v100": {"(\'x\', 1)": {"null": NaN}}}', "nan is no number"),
        ("a.csv", "", "neither Gavel's nor ours"),
        ("a.csv", "name,gpu\nx,A100\n", "neither Gavel's nor ours"),
        ("a.csv", "name,gpu,gpus,rate,unit,colour\nx,A100,1,2,steps/s,red\n", "unknown column 'colour'"),
        ("a.csv", "name,gpu,gpus,rate,unit\nx,A100,1,,steps/s\n", "line 2: rate is empty"),
        ("a.csv", "name,gpu,gpus,rate,unit\nx,A100,1,many,steps/s\n", "line 2: rate: 'many' is no number"),
        ("a.csv", "name,gpu,gpus,rate,unit\nx,A100,1\n", "line 2: not as many fields"),
        (
            "a.csv",
            "job_type,scale_factor,worker_type,steps_per_s\nx,1.5,v100,2\n",
            "1.5 is no number of GPUs",
        ),
        (
            "a.csv",
            "name,gpu,gpus,rate,unit\nx,A100,1,1,steps/s\nx,A100,2,1,images/s\n",
            "in steps/s and in images/s",
        ),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path: Path, name: str, content: object, message: str) -> None:
    with pytest.raises(ArylError) as error:
        read(put(tmp_path, name, content))
    assert message in error.value.message
    assert "\n" not in error.value.message


def test_size_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, "big.json", GAVEL)
    monkeypatch.setattr(profile_import, "MOST_BYTES", 10)
    with pytest.raises(UsageError, match="at most 10 are read"):
        read(path)
    monkeypatch.setattr(profile_import, "MOST_BYTES", 10**6)
    monkeypatch.setattr(profile_import, "MOST_ROWS", 2)
    with pytest.raises(UsageError, match="more than 2 rates"):
        read(path)


def test_what_does_not_read_back_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    good = [{"name": "x", "unit": "steps/s", "measurements": [{"gpu": "A100", "gpus": 1, "rate": 1}]}]
    profile_store.write(path, good)
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"x\.json: profile x: 'miles' is no unit"):
        profile_store.write(path, [{**good[0], "unit": "miles"}])
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(LocalStateError, match="cannot make"):
        profile_store.write(blocked / "y.json", good)


def test_measurements_gather_in_one_profile(tmp_path: Path) -> None:
    row = {"gpu": "A100", "gpus": 1, "nodes": 1, "rate": 3.0}
    path = profile_store.record(tmp_path, "My job", "steps/s", row)
    profile_store.record(tmp_path, "My job", "steps/s", {**row, "gpus": 8, "rate": 20.0})
    assert profile_store.record(tmp_path, "My job", "steps/s", {**row, "rate": 3.5}) == path
    mine = library(tmp_path).get("My job")
    assert [(m.gpus, m.rate) for m in mine.measurements] == [(8, 20.0), (1, 3.5)]
    with pytest.raises(UsageError, match="is in steps/s, this is images/s"):
        profile_store.record(tmp_path, "My job", "images/s", row)
    with pytest.raises(UsageError, match="holds another profile"):
        profile_store.record(tmp_path, "My-Job", "steps/s", row)
