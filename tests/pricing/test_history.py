"""Prices as they were: what is appended is what is read, whatever a crash leaves at the end of a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arylcloud.pricing import history
from arylcloud.pricing.history import KEPT_S, MOST_SEGMENTS, append, by_region, changes_of, file_of, read

KEYS = (
    "aws/us-east-1/use1-az4:p5.48xlarge:spot",
    "aws/us-east-1:g5.xlarge:on_demand",
    "aws/eu-west-1:a:spot",
)
ROWS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.integers(0, 40), st.floats(0.01, 100.0, allow_nan=False)), max_size=12
)


def told(rows: list[tuple[str, int, float]]) -> dict[tuple[str, int], float]:
    return {(key, at_s): usd for key, at_s, usd in rows}


def stored(path: Path) -> dict[tuple[str, int], float]:
    found = {}
    changes = read(path)
    for key in changes.keys:
        at_s, usd = changes.series(key)
        assert at_s.tolist() == sorted(set(at_s.tolist()))
        found |= {(key, at): price for at, price in zip(at_s.tolist(), usd.tolist(), strict=True)}
    assert len(found) == len(changes)
    return found


def columns(rows: list[tuple[str, int, float]]) -> history.Changes:
    return changes_of([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])


@settings(max_examples=60, deadline=None)
@given(batches=st.lists(ROWS, max_size=5), cut=st.integers(0, 200))
def test_what_is_appended_is_read(tmp_path_factory: pytest.TempPathFactory, batches: list, cut: int) -> None:
    path = tmp_path_factory.mktemp("h") / "r.his"
    model: dict[tuple[str, int], float] = {}
    for rows in batches:
        append(path, columns(rows), now_s=50.0)
        model |= told(rows)
        assert stored(path) == model
    if not path.is_file():
        assert not model
        return
    # a crash while the last batch was written: all of it or nothing, and the next one is whole
    whole = path.read_bytes()
    last = [rows for rows in batches if rows][-1]
    before = told([row for rows in [b for b in batches if b][:-1] for row in rows])
    torn = whole[: len(whole) - 1 - cut % 60]
    path.write_bytes(torn)
    assert stored(path) == before
    append(path, columns(last), now_s=50.0)
    assert stored(path) == model


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "r.his"
    for at_s in (1, 2, 3):
        append(path, columns([(KEYS[0], at_s, 1.0 * at_s)]), now_s=5.0)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    assert sorted(at_s for _, at_s in stored(path)) == [1, 2]


def test_many_segments_become_one_and_old_prices_go_but_not_the_one_in_force(tmp_path: Path) -> None:
    path = tmp_path / "r.his"
    now_s = 2.0 * KEPT_S
    old = [(KEYS[0], 1, 1.0), (KEYS[0], 2, 2.0), (KEYS[1], 1, 9.0)]
    append(path, columns(old), now_s=now_s)
    for step in range(MOST_SEGMENTS - 1):
        append(path, columns([(KEYS[0], int(now_s) - 1000 + step, 3.0 + step)]), now_s=now_s)
    big = path.stat().st_size
    append(path, columns([(KEYS[0], int(now_s), 99.0)]), now_s=now_s)
    assert path.stat().st_size < big / 5
    kept = stored(path)
    assert (KEYS[0], 1) not in kept, "over before the time that is kept"
    assert kept[KEYS[0], 2] == 2.0, "in force when it begins"
    assert kept[KEYS[1], 1] == 9.0, "still in force"
    assert kept[KEYS[0], int(now_s)] == 99.0
    assert len(kept) == 2 + MOST_SEGMENTS


def test_each_region_has_its_own() -> None:
    rows = [(KEYS[0], 1, 1.0), (KEYS[2], 2, 2.0), (KEYS[1], 3, 3.0), (KEYS[2], 4, 4.0)]
    parts = by_region(columns(rows))
    assert {region: len(part) for region, part in parts.items()} == {"us-east-1": 2, "eu-west-1": 2}
    assert parts["eu-west-1"].series(KEYS[2])[1].tolist() == [2.0, 4.0]


def test_nothing_is_nothing(tmp_path: Path) -> None:
    assert len(read(file_of(tmp_path, "aws", "us-east-1"))) == 0
    append(tmp_path / "a" / "b.his", columns([]), now_s=0.0)
    assert not (tmp_path / "a").exists()
