"""The catalogue's file format: a checked header and raw columns that numpy views without copying.

    magic     8 bytes   b"ARYLOFR1"
    digest   32 bytes   sha256 of everything that follows
    length    8 bytes   of the header, little-endian
    header              JSON: schema_version, rows, vocabularies; padded with blanks to a multiple of 8
    columns             little-endian, in the order of ``COLUMNS``, each padded with zeros to 8

Nothing read from disk is trusted: magic, schema, digest, lengths and every code are checked, and nothing
is executed. The same rows always give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Final

import numpy as np

from arylcloud.core.errors import IntegrityError, UsageError
from arylcloud.pricing.table import COLUMNS, MARKETS, TEXT_COLUMNS, OfferTable, vocabulary_field

MAGIC: Final = b"ARYLOFR1"
SCHEMA_VERSION: Final = 1
_ALIGN: Final = 8


def body(table: OfferTable) -> list[bytes]:
    """Everything after the digest, of a canonical table."""
    header = json.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "rows": len(table),
            "vocabularies": {column: table.vocabulary(column) for column in TEXT_COLUMNS},
        },
        separators=(",", ":"),
        ensure_ascii=False,
    ).encode()
    header += b" " * (-len(header) % _ALIGN)
    parts = [len(header).to_bytes(8, "little"), header]
    for name, kind in COLUMNS.items():
        raw = np.ascontiguousarray(getattr(table, name), dtype=kind).tobytes()
        parts.append(raw + b"\0" * (-len(raw) % _ALIGN))
    return parts


def save_file(table: OfferTable, path: Path) -> None:
    """Write ``table``; readers see the old file or the new one, never a mixture."""
    content = b"".join(body(table.canonical()))
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_bytes(MAGIC + hashlib.sha256(content).digest() + content)
    scratch.replace(path)


def load_file(path: Path) -> OfferTable:
    """Read what ``save_file`` wrote. UsageError where there is no such file, IntegrityError where its
    content does not hold."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the catalogue {path}: {error.strerror or error}") from error
    return decode(data, what=str(path))


def decode(data: bytes, *, what: str) -> OfferTable:
    view = memoryview(data)
    if bytes(view[:8]) != MAGIC:
        raise IntegrityError(
            f"{what} is no catalogue file of arylcloud", hint="a CSV catalogue is read from offers.csv"
        )
    digest = hashlib.sha256(view[40:])
    if digest.digest() != bytes(view[8:40]):
        raise IntegrityError(f"{what} is damaged: its digest does not hold", hint="write or install it again")
    size = int.from_bytes(view[40:48], "little")
    try:
        header = json.loads(bytes(view[48 : 48 + size]))
        if header["schema_version"] != SCHEMA_VERSION:
            raise IntegrityError(
                f"{what} has schema {header['schema_version']}; this version reads {SCHEMA_VERSION}",
                hint="upgrade arylcloud, or rebuild the file",
            )
        rows = int(header["rows"])
        names = {column: _names(header["vocabularies"][column]) for column in TEXT_COLUMNS}
        columns = _columns(data, 48 + size, rows)
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{what} is damaged: {error}") from error
    for column in TEXT_COLUMNS:
        lowest = -1 if column in ("zone", "gpu") else 0
        _within(columns[column], lowest, len(names[column]), column, what)
    _within(columns["market"], 0, len(MARKETS), "market", what)
    columns |= {vocabulary_field(column): names[column] for column in TEXT_COLUMNS}
    return OfferTable(**columns, known_digest=digest.hexdigest())


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or set(map(type, value)) - {str}:
        raise ValueError("a vocabulary is no list of names")
    return tuple(value)


def _columns(data: bytes, offset: int, rows: int) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name, kind in COLUMNS.items():
        columns[name] = np.frombuffer(data, dtype=kind, count=rows, offset=offset)
        length = rows * np.dtype(kind).itemsize
        offset += length + (-length % _ALIGN)
    if offset != len(data):
        raise ValueError(f"{len(data)} bytes where the header speaks of {offset}")
    return columns


def _within(column: Any, low: int, high: int, name: str, what: str) -> None:
    if column.size and (int(column.min()) < low or int(column.max()) >= high):
        raise IntegrityError(f"{what} is damaged: column {name} has codes without a name")
