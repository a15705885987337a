"""A user's own offers as CSV: read with errors that name line and column, written as we read it.

Columns: ``cloud, region, instance_type, market, usd_per_hour`` are needed; ``zone, gpu, gpu_count,
gpu_mem_gib, vcpus, mem_gib, as_of, source`` may be left out or empty (= unknown; what describes a shape is
then taken from the catalogue's rows of the same instance type).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from arylcloud.core import gpus
from arylcloud.core.errors import UsageError
from arylcloud.core.offer import Market, Offer
from arylcloud.pricing.table import parse_as_of

FIELDS: Final = tuple(Offer.__dataclass_fields__)
NEEDED: Final = ("cloud", "region", "instance_type", "market", "usd_per_hour")
ALIASES: Final = {"gpu_name": "gpu", "price_usd_hour": "usd_per_hour"}
"""Names that price files of this field use, too."""


def read_csv(path: Path, *, strict: bool = True) -> tuple[Offer, ...]:
    """Offers of ``path`` in file order. UsageError names the line and the column.

    ``strict`` refuses what cannot be a price (≤ 0, not a number, infinite) and a key that stands twice;
    without it such rows come back as they are, for the doctor to speak about (NaN as it stands).
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    offers: list[Offer] = []
    lines: dict[str, int] = {}
    for line, row in _rows(text, path):
        offer = _offer(row, _Place(path, line), strict)
        first = lines.setdefault(offer.key, line)
        if strict and first != line:
            raise UsageError(f"{path}, line {line}: {offer.key} stands on line {first} already")
        offers.append(offer)
    return tuple(offers)


def _rows(text: str, path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        titles = next(reader, None)
        if titles is None:
            raise UsageError(f"{path} is empty", hint=f"first line: {','.join(FIELDS)}")
        names = [ALIASES.get(title.strip(), title.strip()) for title in titles]
        _check_titles(names, path)
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(names):
                raise UsageError(
                    f"{path}, line {reader.line_num}: {len(cells)} fields where the header has {len(names)}"
                )
            yield reader.line_num, {n: c.strip() for n, c in zip(names, cells, strict=True)}
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: {error}") from error


def _check_titles(names: list[str], path: Path) -> None:
    for name in names:
        if name not in FIELDS:
            raise UsageError(
                f"{path}, line 1: column {name!r} is unknown", hint=f"columns: {', '.join(FIELDS)}"
            )
        if names.count(name) > 1:
            raise UsageError(f"{path}, line 1: column {name} stands twice")
    for name in NEEDED:
        if name not in names:
            raise UsageError(f"{path}, line 1: column {name} is missing", hint=f"needed: {', '.join(NEEDED)}")


class _Place:
    """Where we are in the file, for messages."""

    def __init__(self, path: Path, line: int) -> None:
        self.path = path
        self.line = line

    def error(self, column: str, text: str) -> UsageError:
        return UsageError(f"{self.path}, line {self.line}, column {column}: {text}")


def _offer(row: dict[str, str], at: _Place, strict: bool) -> Offer:
    for column in ("cloud", "region", "instance_type"):
        if not row[column]:
            raise at.error(column, "must not be empty")
    gpu = row.get("gpu") or None
    return Offer(
        cloud=row["cloud"].lower(),
        region=row["region"],
        zone=row.get("zone") or None,
        instance_type=row["instance_type"],
        gpu=(gpus.find(gpu) or gpu) if gpu else None,
        gpu_count=_count(row, at),
        gpu_mem_gib=_amount(row, "gpu_mem_gib", at),
        vcpus=_amount(row, "vcpus", at),
        mem_gib=_amount(row, "mem_gib", at),
        market=_market(row["market"], at),
        usd_per_hour=_price(row["usd_per_hour"], at, strict),
        as_of=_date(row, at),
        source=row.get("source") or f"user: {at.path.name}",
    )


def _number(text: str, column: str, at: _Place) -> float:
    try:
        return float(text)
    except ValueError:
        raise at.error(column, f"{text!r} is not a number") from None


def _price(text: str, at: _Place, strict: bool) -> float | None:
    if not text:
        return None
    price = _number(text, "usd_per_hour", at)
    if strict and not (math.isfinite(price) and price > 0):
        raise at.error("usd_per_hour", f"{text} cannot be a price per hour (leave it empty if unknown)")
    return price


def _amount(row: dict[str, str], column: str, at: _Place) -> float | None:
    text = row.get(column, "")
    if not text:
        return None
    value = _number(text, column, at)
    if not (math.isfinite(value) and value > 0):
        raise at.error(column, f"{text} must be above 0 (leave it empty if unknown)")
    return value


def _count(row: dict[str, str], at: _Place) -> int | None:
    """A fraction of a GPU is None: such an offer is listed, not plannable."""
    value = _amount(row, "gpu_count", at)
    return int(value) if value is not None and value.is_integer() else None


def _market(text: str, at: _Place) -> Market:
    try:
        return Market(text.lower().replace("-", "_"))
    except ValueError:
        names = ", ".join(market.value for market in Market)
        raise at.error("market", f"{text!r} is none of {names}") from None


def _date(row: dict[str, str], at: _Place) -> str | None:
    text = row.get("as_of", "")
    try:
        parse_as_of(text)
    except ValueError:
        raise at.error("as_of", f"{text!r} is no ISO date (2026-07-30, 2026-07-30T12:00:00Z)") from None
    return text or None


def write_csv(offers: Iterable[Offer]) -> str:
    """CSV text that ``read_csv`` takes back; unknown is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(FIELDS)
    for offer in offers:
        values = (getattr(offer, name) for name in FIELDS)
        writer.writerow(["" if value is None else value for value in values])
    return out.getvalue()
