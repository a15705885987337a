"""Published traces, one JSON file per zone: both conventions, times put together, faults with their file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arylcloud.core.errors import UsageError
from arylcloud.simulation.spottraces import SpotTrace, grid, read_spot_trace, write_spot_trace
from arylcloud.simulation.zonetraces import Usd, read_zone_files, zone_files

USD = Usd(spot=0.27, on_demand=0.9)
INFO = {"price": 2.0, "on_demand_price": 10.0}


def put(folder: Path, name: str, data: Any, *, prices: Any = None, **metadata: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"metadata": {"gap_seconds": 600, **metadata}, "data": data}
    path.write_text(json.dumps(document if prices is None else {**document, "prices": prices}))
    return path


def only(folder: Path, **more: Any) -> SpotTrace:
    ((_, files),) = zone_files(folder).items()
    return read_zone_files(files, **more)


def test_machines_are_counted_as_spot_traces_has_them(tmp_path: Path) -> None:
    put(tmp_path, "us-west-2b_k80_1.json", [0, 0, 3, 3])
    put(tmp_path, "us-west-2a_k80_1.json", [4, 2, 2, 0, 1])
    put(tmp_path, "us-west-2a_v100_8.json", [1])
    kinds = zone_files(tmp_path)
    assert {kind: len(files) for kind, files in kinds.items()} == {"k80_1": 2, "v100_8": 1}
    found = read_zone_files(kinds["k80_1"], usd=USD)
    assert found.places == ("aws/us-west-2/us-west-2a", "aws/us-west-2/us-west-2b")
    world = grid(found, machines=2)
    assert world.up.tolist() == [[True, False], [True, False], [True, True], [False, True]]
    assert world.spot_usd == pytest.approx(np.full((4, 2), 0.54))
    assert world.on_demand_usd == pytest.approx(np.full((4, 1), 1.8))


def test_one_means_none_where_a_file_says_what_skynomads_say(tmp_path: Path) -> None:
    put(tmp_path, "us-east4-a_h100_16/full.json", [1, 0, 0], prices=[2.0, 2.5, 2.5], price_info=INFO)
    put(tmp_path, "us-east4-a_h100_16/0.json", [1, 1, 1], price_info=INFO)
    put(tmp_path, "us-central1-b_h100_16/full.json", [0, 0, 1], price_info=INFO)
    found = only(tmp_path)
    assert found.places == ("gcp/us-central1/us-central1-b", "gcp/us-east4/us-east4-a")
    world = grid(found)
    assert world.up.tolist() == [[True, False], [True, True], [False, True]]
    assert world.spot_usd[:, 1] == pytest.approx([2.0, 2.5, 2.5])
    assert world.on_demand_usd == pytest.approx(np.full((3, 2), 10.0))


def test_zeros_and_ones_alone_are_asked_about(tmp_path: Path) -> None:
    put(tmp_path, "us-west-2a_k80_1.json", [0, 1, 1])
    with pytest.raises(UsageError, match="nothing tells which"):
        only(tmp_path, usd=USD)
    assert grid(only(tmp_path, usd=USD, ones="up")).up[:, 0].tolist() == [False, True, True]
    assert grid(only(tmp_path, usd=USD, ones="down")).up[:, 0].tolist() == [True, False, False]


def test_zones_begin_together_at_the_latest_start(tmp_path: Path) -> None:
    put(tmp_path, "us-west-2a_x.json", [0, 1, 2, 3, 4], start_time="2025-10-04T00:00:00")
    put(tmp_path, "us-west-2b_x.json", [5, 6, 7], start_time="2025-10-04T02:15:00+02:00")
    found = only(tmp_path, usd=USD)
    early, late = found.zones
    assert early.offset_s.tolist() == [0, 300, 900, 1500]
    assert early.available.tolist() == [1, 2, 3, 4]
    assert (early.end_s, late.end_s, found.span_s) == (2100, 1800, 1800)
    put(tmp_path, "us-west-2c_x.json", [5])
    with pytest.raises(UsageError, match=r"start_time in 2 of 3"):
        only(tmp_path, usd=USD)
    put(tmp_path, "us-west-2c_x.json", [5], start_time="2025-10-03T00:00:00Z")
    with pytest.raises(UsageError, match="ends before another"):
        only(tmp_path, usd=USD)


def test_unequal_gaps_and_our_own_format_say_the_same(tmp_path: Path) -> None:
    put(tmp_path, "us-west-2a_x.json", [0, 2, 2, 0, 1, 0], gap_seconds=195)
    put(tmp_path, "us-west-2b_x.json", [1, 0], gap_seconds=600)
    found = only(tmp_path, usd=USD)
    assert found.zones[0].offset_s.tolist() == [0, 195, 585, 780, 975]
    assert found.span_s == 1170
    write_spot_trace(found, tmp_path / "own.csv")
    again = read_spot_trace(tmp_path / "own.csv")
    for a, b in zip(found.zones, again.zones, strict=True):
        assert a.offset_s.tolist() == b.offset_s.tolist()
        assert a.available.tolist() == b.available.tolist()
    assert only(tmp_path, usd=USD, gap_s=300).zones[1].end_s == 600


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"data": []}, "no metadata and data"),
    ({"data": {"0": 1}}, "no metadata and data"),
    ({"data": [0, None]}, r"data\[1\] is 'None'"),
    ({"data": [0, float("nan")]}, r"data\[1\] is 'nan'"),
    ({"data": [0, True]}, r"data\[1\] is 'True'"),
    ({"data": [0, 0.5]}, r"data\[1\]"),
    ({"data": [-1]}, r"data\[0\]"),
    ({"data": [10**30]}, r"data\[0\]"),
    ({"data": ["1"]}, r"data\[0\]"),
    ({"data": [2], "gap_seconds": 0}, "gap_seconds is '0'"),
    ({"data": [2], "gap_seconds": float("inf")}, "gap_seconds is 'inf'"),
    ({"data": [2], "gap_seconds": 10**400}, "gap_seconds is '1000"),
    ({"data": [2], "gap_seconds": "600"}, "gap_seconds"),
    ({"data": [2], "gap_seconds": None}, "gap_seconds is 'None'"),
    ({"data": [2], "start_time": 5}, "start_time is '5'"),
    ({"data": [2], "start_time": "yesterday"}, "start_time"),
    ({"data": [2], "start_time": "0001-01-01T00:00:00+14:00"}, "start_time"),
    ({"data": [2], "price_info": INFO}, "2 in data, where 1 is to mean none"),
    ({"data": [0], "price_info": [1]}, "price_info is not an object"),
    ({"data": [0], "price_info": {"price": 1}}, "no prices on demand"),
    ({"data": [0], "price_info": {**INFO, "price": float("nan")}}, "price is 'nan'"),
    ({"data": [0], "price_info": {**INFO, "on_demand_price": 0}}, "the price on demand is '0'"),
    ({"data": [0], "prices": [1.0, 1.0], "price_info": INFO}, "2 prices of 1 looks"),
    ({"data": [0, 0], "prices": [1.0, None], "price_info": INFO}, r"prices\[1\] is 'None'"),
    ({"data": [0], "prices": {"0": 1}, "price_info": INFO}, "price is"),
    ({"data": [2]}, "it has no prices"),
]


@pytest.mark.parametrize(("given", "said"), FAULTS)
def test_faults_are_told_with_the_file(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    path = put(tmp_path, "us-west-2a_x.json", **given)
    with pytest.raises(UsageError, match=said) as error:
        read_zone_files([path])
    assert str(path) in error.value.message
    assert error.value.hint


@pytest.mark.parametrize(
    "text", ["", "[", "[" * 100_000, "7", '{"metadata": 1, "data": [1]}', "\x1f\x8bno gzip"]
)
def test_what_is_no_such_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "us-west-2a_x.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=r"us-west-2a_x\.json"):
        read_zone_files([path], usd=USD)


def test_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no trace of a zone"):
        zone_files(tmp_path)
    put(tmp_path, "notes.json", [1])
    with pytest.raises(UsageError, match="no trace of a zone"):
        zone_files(tmp_path)
    a, b = put(tmp_path, "us-west-2a_x.json", [2]), put(tmp_path, "us-west-2a_y.json", [2])
    with pytest.raises(UsageError, match="one kind at a time"):
        read_zone_files([a, b], usd=USD)
    with pytest.raises(UsageError, match="two files"):
        read_zone_files([a, put(tmp_path, "us-west-2a_x/full.json", [2])], usd=USD)
    with pytest.raises(UsageError, match="neither a zone of AWS nor of GCP"):
        read_zone_files([put(tmp_path, "westus-3a_x.json", [2])], usd=USD)
    with pytest.raises(UsageError, match="0 zones"):
        read_zone_files([])
    with pytest.raises(UsageError, match="not a JSON file"):
        read_zone_files([tmp_path / "us-west-2z_x.json"], usd=USD)
