"""The file format: what is written comes back; what is not quite it is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.offers import QUICK, offer, offer_lists

from arylcloud.core.errors import IntegrityError, UsageError
from arylcloud.core.offer import Offer
from arylcloud.pricing.binary import MAGIC, decode, load_file, save_file
from arylcloud.pricing.table import TEXT_COLUMNS, from_offers

TABLE = from_offers([offer(), offer(zone="use1-az1"), offer(gpu=None, gpu_count=None, usd_per_hour=None)])


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    save_file(TABLE, tmp_path / "offers.bin")
    return (tmp_path / "offers.bin").read_bytes()


@given(offer_lists)
@settings(QUICK, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_saved_rows_come_back(tmp_path: Path, offers: list[Offer]) -> None:
    path = tmp_path / "offers.bin"
    save_file(from_offers(offers), path)
    loaded = load_file(path)
    assert loaded.offers() == tuple(offers)
    assert loaded.digest == from_offers(offers).digest
    assert [p.name for p in tmp_path.iterdir()] == ["offers.bin"]


@given(st.data())
@settings(QUICK, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_flipped_bit_is_found(content: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(content) - 1))
    damaged = bytearray(content)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(IntegrityError):
        decode(bytes(damaged), what="file")


def test_every_truncation_is_found(content: bytes) -> None:
    for length in range(len(content)):
        with pytest.raises(IntegrityError):
            decode(content[:length], what="file")


def forged(content: bytes, change: dict[str, object]) -> bytes:
    """``content`` with another header and a digest that holds."""
    size = int.from_bytes(content[40:48], "little")
    header = json.dumps(json.loads(content[48 : 48 + size]) | change).encode()
    header += b" " * (-len(header) % 8)
    body = len(header).to_bytes(8, "little") + header + content[48 + size :]
    return MAGIC + hashlib.sha256(body).digest() + body


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "schema 2"),
        ({"rows": 2}, "damaged"),
        ({"rows": 10**12}, "damaged"),
        ({"rows": -1}, "damaged"),
        ({"vocabularies": []}, "damaged"),
        ({"vocabularies": {column: [] for column in TEXT_COLUMNS}},
         "codes without a name"),
        ({"vocabularies": {"cloud": [1]}}, "damaged"),
    ],
)  # fmt: skip
def test_a_digest_that_holds_does_not_make_a_header_true(
    content: bytes, change: dict[str, object], message: str
) -> None:
    with pytest.raises(IntegrityError, match=message):
        decode(forged(content, change), what="file")


def test_other_files_are_named_for_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("cloud,region\n")
    with pytest.raises(IntegrityError, match="no catalogue file"):
        load_file(tmp_path / "a.csv")
    with pytest.raises(UsageError, match="No such file"):
        load_file(tmp_path / "b.bin")
