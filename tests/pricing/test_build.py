"""The bundled figures are those of the sources, and their build is reproducible."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import os
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from arylcloud.pricing.catalogue import data_file, load_bundled

FOLDER = os.environ.get("ARYLCLOUD_STUDY_DATA")
pytestmark = pytest.mark.skipif(FOLDER is None, reason="ARYLCLOUD_STUDY_DATA names no folder of study data")
FILES = ("offers.bin", "quarantine.csv", "spot_advisor.json", "tariffs.json")


@pytest.fixture(scope="module")
def prices() -> Path:
    assert FOLDER is not None
    return Path(FOLDER) / "prices"


@pytest.fixture(scope="module")
def build() -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "build_catalogue.py"
    spec = importlib.util.spec_from_file_location("build_catalogue", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def raw_rows(prices: Path) -> list[dict[str, str]]:
    with gzip.open(prices / "offers.csv.gz", "rt", newline="") as file:
        return [row for row in csv.DictReader(file) if row["cloud"] in ("aws", "azure", "gcp")]


def raw_key(row: dict[str, str]) -> tuple[str, ...]:
    market = row["market"].replace("-", "_")
    return (row["cloud"], row["region"], row["zone"], row["instance_type"], market)


def test_the_same_input_gives_the_committed_bytes(build: ModuleType, prices: Path, tmp_path: Path) -> None:
    counts = build.build(prices, tmp_path)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == data_file(name).read_bytes(), name
    assert counts["rows"] == 4416
    assert counts["duplicate"] == 132  # 134 by key; two of them are among the 36
    assert counts["spot equals on-demand"] == 36


def test_every_raw_row_is_offered_or_left_out_with_a_reason(prices: Path) -> None:
    raw = Counter((*raw_key(row), float(row["price_usd_hour"])) for row in raw_rows(prices))
    offered = Counter(
        (o.cloud, o.region, o.zone or "", o.instance_type, o.market.value, o.usd_per_hour)
        for o in load_bundled().offers()
    )
    with data_file("quarantine.csv").open(newline="") as file:
        left = list(csv.DictReader(file))
    assert all(row["reason"] for row in left)
    left_out = Counter(
        (r["cloud"], r["region"], r["zone"], r["instance_type"], r["market"], float(r["usd_per_hour"]))
        for r in left
    )
    assert offered + left_out == raw


def test_the_newest_of_each_key_is_the_one_that_stays(prices: Path) -> None:
    newest: dict[tuple[str, ...], dict[str, str]] = {}
    listed = {raw_key(r)[:4]: r["price_usd_hour"] for r in raw_rows(prices) if r["market"] == "on-demand"}
    for row in raw_rows(prices):
        key = raw_key(row)
        fallback = row["market"] == "spot" and listed.get((key[0], key[1], "", key[3]))
        if fallback and float(fallback) == float(row["price_usd_hour"]):
            continue
        if key not in newest or row["as_of"] > newest[key]["as_of"]:
            newest[key] = row
    found = {
        (o.cloud, o.region, o.zone or "", o.instance_type, o.market.value): o for o in load_bundled().offers()
    }
    assert found.keys() == newest.keys()
    for key, row in newest.items():
        assert found[key].usd_per_hour == float(row["price_usd_hour"]), key
        assert found[key].as_of == (row["as_of"] or None), key
        assert found[key].source == row["source"], key
        count = float(row["gpu_count"] or 0)
        assert found[key].gpu_count == (int(count) if count >= 1 else None), key


def test_rows_without_a_whole_number_of_gpus_are_kept_and_not_plannable(prices: Path) -> None:
    raw = raw_rows(prices)
    assert sum(r["cloud"] == "azure" and not r["gpu_count"] for r in raw) == 450
    assert sum(r["cloud"] == "aws" and r["gpu_count"] == "0" for r in raw) == 65
    table = load_bundled()
    zero = table.take(table.gpu_count == 0)
    by_cloud = Counter(o.cloud for o in zero.offers())
    assert by_cloud["aws"] == 65
    assert not zero.plannable.any()
