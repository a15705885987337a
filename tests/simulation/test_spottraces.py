"""Traces in and out: the same file again, and every fault with its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from arylcloud.core.errors import UsageError
from arylcloud.simulation.deadline.invent import invented
from arylcloud.simulation.spottraces import grid, read_spot_trace, read_spot_traces, write_spot_trace

HEAD = (
    "cloud,region,zone,instance_type,offset_s,duration_s,available,spot_usd_per_hour,on_demand_usd_per_hour\n"
)


def file(tmp_path: Path, *rows: str, head: str = HEAD) -> Path:
    path = tmp_path / "t.csv"
    path.write_text(head + "".join(row + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_written_and_read_again(tmp_path: Path, name: str) -> None:
    trace = invented(7, zones=4, days=3)
    write_spot_trace(trace, tmp_path / name)
    again = read_spot_trace(tmp_path / name)
    assert again.places == trace.places
    for a, b in zip(grid(again).__class__.__slots__, grid(trace).__class__.__slots__, strict=True):
        assert np.array_equal(getattr(grid(again), a), getattr(grid(trace), b))
    write_spot_trace(again, tmp_path / f"again-{name}")
    assert (tmp_path / name).read_bytes() == (tmp_path / f"again-{name}").read_bytes()


def test_sampled_at_the_beginning_of_ticks_for_gangs(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        "aws,r,a,p3,0,900,2,1.0,3.0",
        "aws,r,a,p3,900,900,4,1.1,3.1",
        "aws,r,b,p3,0,2400,3,0.9,2.9",
    )
    found = grid(read_spot_trace(path), machines=3)
    assert found.up.tolist() == [[False, True], [False, True], [True, True]]
    assert found.spot_usd[:, 0] == pytest.approx([3.0, 3.0, 3.3])
    assert found.on_demand_usd[:, 0] == pytest.approx([8.7, 8.7, 8.7])


def test_several_traces_in_a_file(tmp_path: Path) -> None:
    path = file(tmp_path, "x,aws,r,a,p3,0,900,2,1,3", "y,aws,r,a,p3,0,1200,1,1,3", head="trace," + HEAD)
    assert sorted(read_spot_traces(path)) == ["x", "y"]
    assert read_spot_trace(f"{path}#y").span_s == 1200
    with pytest.raises(UsageError, match="holds 2 traces: x, y"):
        read_spot_trace(path)
    with pytest.raises(UsageError, match="no trace 'z'"):
        read_spot_trace(f"{path}#z")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            ["aws,r,a,p3,0,900,1,1,3", "aws,r,a,p3,950,900,1,1,3"],
            "t.csv:3: the zone's interval begins at 950",
        ),
        (["aws,r,a,p3,0,0,1,1,3"], "t.csv:2: duration_s is 0"),
        (["aws,r,a,p3,0,900,1,0,3"], "t.csv:2: spot_usd_per_hour is '0'"),
        (["aws,r,a,p3,0,900,1,,3"], "t.csv:2: spot_usd_per_hour is ''"),
        (["aws,r,a,p3,0,900,0.5,1,3"], "t.csv:2: available is '0.5'"),
        (["aws,r,,p3,0,900,1,1,3"], "t.csv:2: cloud, region or zone is empty"),
        (["aws,r,a,p3,0,900,1,1,3", "aws,r,b,p4,0,900,1,1,3"], "t.csv:3: another instance type"),
        ([], "no interval in it"),
    ],
)
def test_faults_have_their_line(tmp_path: Path, rows: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_spot_trace(file(tmp_path, *rows))
