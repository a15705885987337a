"""Offers as numpy columns: what ranks 200,000 of them in milliseconds.

Text columns are codes into a vocabulary (``table.gpu_names[table.gpu[i]]``), so that a mask over a name is
one comparison of integers. The table is frozen; every operation returns a new one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.offer import Market, Offer
from arylcloud.pricing.codes import key_codes

MARKETS: Final = (Market.ON_DEMAND, Market.SPOT, Market.RESERVED)
"""``market`` holds positions in this tuple."""
ON_DEMAND: Final = 0
SPOT: Final = 1
RESERVED: Final = 2
UNKNOWN_AS_OF: Final = -(2**63)
"""``as_of`` of a price whose age nobody knows."""

PRICE_UNKNOWN: Final = "price unknown"

TEXT_COLUMNS: Final = ("cloud", "region", "zone", "instance_type", "gpu", "source")
COLUMNS: Final[dict[str, str]] = {
    **dict.fromkeys(TEXT_COLUMNS, "<i4"),
    "gpu_count": "<i4",
    "market": "<u1",
    "gpu_mem_gib": "<f8",
    "vcpus": "<f8",
    "mem_gib": "<f8",
    "usd_per_hour": "<f8",
    "as_of": "<i8",
}
"""Every column with its type, in the order of the file format."""

Codes = NDArray[np.int32]
Floats = NDArray[np.float64]


def vocabulary_field(column: str) -> str:
    return f"{column}_names"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OfferTable:
    """``n`` offers; every column has shape (n,). Not comparable with ``==``: compare ``digest``s."""

    cloud_names: tuple[str, ...]
    region_names: tuple[str, ...]
    """Not cloud-qualified: two clouds may share a region's name. Group by (cloud, region)."""
    zone_names: tuple[str, ...]
    instance_type_names: tuple[str, ...]
    gpu_names: tuple[str, ...]
    """Canonical names (``core/gpus``), and a user's own where a GPU is not known there."""
    source_names: tuple[str, ...]
    cloud: Codes
    region: Codes
    zone: Codes
    """−1 = the whole region."""
    instance_type: Codes
    gpu: Codes
    """−1 = unknown."""
    source: Codes
    gpu_count: NDArray[np.int32]
    """0 = unknown, or a fraction of a GPU: listed, not plannable."""
    market: NDArray[np.uint8]
    """Position in ``MARKETS``."""
    gpu_mem_gib: Floats
    """Per GPU; NaN = unknown, as in the next three."""
    vcpus: Floats
    mem_gib: Floats
    usd_per_hour: Floats
    """Per instance."""
    as_of: NDArray[np.int64]
    """Unix seconds (UTC) of the price; ``UNKNOWN_AS_OF`` = age unknown."""
    known_digest: str | None = None
    """Set by the loader, which has just computed it; else ``digest`` does."""

    def __post_init__(self) -> None:
        rows = self.cloud.shape
        for name, kind in COLUMNS.items():
            column: NDArray[Any] = getattr(self, name)
            if column.shape != rows or column.ndim != 1 or column.dtype != np.dtype(kind):
                raise ValueError(f"column {name}: {kind} of shape {rows} was expected, not {column.dtype}")
            if column.flags.writeable:
                column.flags.writeable = False

    def __len__(self) -> int:
        return int(self.cloud.shape[0])

    def vocabulary(self, column: str) -> tuple[str, ...]:
        names: tuple[str, ...] = getattr(self, vocabulary_field(column))
        return names

    def code(self, column: str, name: str) -> int:
        """Code of ``name`` in a text column; −2 where no row has it (so that a mask is all False)."""
        names = self.vocabulary(column)
        return names.index(name) if name in names else -2

    def mask(self, column: str, names: Sequence[str]) -> NDArray[np.bool_]:
        """Rows whose text column is one of ``names``."""
        wanted = {self.code(column, name) for name in names}
        found: NDArray[np.bool_]
        if len(wanted) == 1:
            found = getattr(self, column) == wanted.pop()
            return found
        lookup = np.zeros(len(self.vocabulary(column)) + 1, dtype=bool)  # the last slot answers for −1
        lookup[[code for code in wanted if code >= 0]] = True
        found = lookup.take(getattr(self, column))
        return found

    def planning_needs(self) -> dict[str, NDArray[np.bool_]]:
        """What a row lacks that cannot be planned with → the rows that have it."""
        price = self.usd_per_hour
        return {
            "GPU unknown": self.gpu >= 0,
            "number of GPUs unknown, or a fraction of one": self.gpu_count > 0,
            PRICE_UNKNOWN: np.isfinite(price) & (price > 0),
        }

    @property
    def plannable(self) -> NDArray[np.bool_]:
        """Rows with a price above 0, a GPU and a whole number of them."""
        usable: NDArray[np.bool_] = np.logical_and.reduce(list(self.planning_needs().values()))
        return usable

    def take(self, index: NDArray[Any]) -> OfferTable:
        """Rows by positions or by a boolean mask; vocabularies stay as they are."""
        return replace(self, known_digest=None, **{name: getattr(self, name)[index] for name in COLUMNS})

    def row(self, i: int) -> Offer:
        gpu_count = int(self.gpu_count[i])
        return Offer(
            cloud=self.cloud_names[self.cloud[i]],
            region=self.region_names[self.region[i]],
            zone=_text(self.zone_names, self.zone[i]),
            instance_type=self.instance_type_names[self.instance_type[i]],
            gpu=_text(self.gpu_names, self.gpu[i]),
            gpu_count=gpu_count if gpu_count > 0 else None,
            gpu_mem_gib=_number(self.gpu_mem_gib[i]),
            vcpus=_number(self.vcpus[i]),
            mem_gib=_number(self.mem_gib[i]),
            market=MARKETS[self.market[i]],
            usd_per_hour=_number(self.usd_per_hour[i]),
            as_of=format_as_of(int(self.as_of[i])),
            source=self.source_names[self.source[i]],
        )

    def offers(self) -> tuple[Offer, ...]:
        return tuple(self.row(i) for i in range(len(self)))

    @property
    def as_of_range(self) -> tuple[str | None, str | None]:
        """Oldest and newest known date; (None, None) where no age is known."""
        known = self.as_of[self.as_of != UNKNOWN_AS_OF]
        if known.size == 0:
            return None, None
        return format_as_of(int(known.min())), format_as_of(int(known.max()))

    @property
    def digest(self) -> str:
        """sha256 (hex) of the canonical content: equal for equal rows in equal order."""
        if self.known_digest is not None:
            return self.known_digest
        return hashlib.sha256(b"".join(self.canonical().body())).hexdigest()

    def canonical(self) -> OfferTable:
        """The same rows with vocabularies that are sorted and hold only what some row uses."""
        changes: dict[str, Any] = {}
        for column in TEXT_COLUMNS:
            names, codes = self.vocabulary(column), getattr(self, column)
            used = np.zeros(len(names) + 1, dtype=bool)
            used[codes] = True
            kept = sorted(name for name, use in zip(names, used[:-1], strict=True) if use)
            position = {name: i for i, name in enumerate(kept)}
            recode = np.array([position.get(name, -1) for name in (*names, "")], dtype="<i4")
            recode[-1] = -1
            changes[vocabulary_field(column)] = tuple(kept)
            changes[column] = recode[codes]
        return replace(self, known_digest=None, **changes)

    def body(self) -> list[bytes]:
        """Header and raw columns as the file format has them (see ``pricing/binary``)."""
        from arylcloud.pricing.binary import body

        return body(self)


def _text(names: tuple[str, ...], code: np.int32) -> str | None:
    return names[code] if code >= 0 else None


def _number(value: np.float64) -> float | None:
    return None if np.isnan(value) else float(value)


def parse_as_of(text: str | None) -> int:
    """Unix seconds of an ISO date or date-time (UTC where no offset is named); ValueError otherwise.

    >>> parse_as_of("2026-07-30")
    1785369600
    """
    if not text:
        return UNKNOWN_AS_OF
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp())


def format_as_of(seconds: int) -> str | None:
    """ISO date, or date-time where the price is dated to the second."""
    if seconds == UNKNOWN_AS_OF:
        return None
    moment = datetime.fromtimestamp(seconds, UTC)
    if seconds % 86400 == 0:
        return moment.date().isoformat()
    return moment.isoformat().replace("+00:00", "Z")


def from_offers(offers: Sequence[Offer]) -> OfferTable:
    """Columns of ``offers``, in their order. ValueError where an ``as_of`` is no ISO date."""
    vocabularies: dict[str, dict[str, int]] = {column: {} for column in TEXT_COLUMNS}

    def codes(column: str) -> Codes:
        seen = vocabularies[column]
        found = [
            -1 if (text := getattr(offer, column)) is None else seen.setdefault(text, len(seen))
            for offer in offers
        ]
        return np.array(found, dtype="<i4")

    def floats(column: str) -> Floats:
        found = [np.nan if (v := getattr(offer, column)) is None else v for offer in offers]
        return np.array(found, dtype="<f8")

    texts: dict[str, Any] = {column: codes(column) for column in TEXT_COLUMNS}
    texts |= {vocabulary_field(column): tuple(vocabularies[column]) for column in TEXT_COLUMNS}
    return OfferTable(
        **texts,
        gpu_count=np.array([offer.gpu_count or 0 for offer in offers], dtype="<i4"),
        market=np.array([MARKETS.index(offer.market) for offer in offers], dtype="<u1"),
        gpu_mem_gib=floats("gpu_mem_gib"),
        vcpus=floats("vcpus"),
        mem_gib=floats("mem_gib"),
        usd_per_hour=floats("usd_per_hour"),
        as_of=np.array([parse_as_of(offer.as_of) for offer in offers], dtype="<i8"),
    )


def concat(first: OfferTable, second: OfferTable) -> OfferTable:
    """All rows of ``first``, then all rows of ``second``; nothing is removed."""
    changes: dict[str, Any] = {}
    for column in TEXT_COLUMNS:
        names = list(first.vocabulary(column))
        position = {name: i for i, name in enumerate(names)}
        for name in second.vocabulary(column):
            if name not in position:
                position[name] = len(names)
                names.append(name)
        recode = np.array([*(position[name] for name in second.vocabulary(column)), -1], dtype="<i4")
        changes[vocabulary_field(column)] = tuple(names)
        changes[column] = np.concatenate([getattr(first, column), recode[getattr(second, column)]])
    for column in COLUMNS.keys() - set(TEXT_COLUMNS):
        changes[column] = np.concatenate([getattr(first, column), getattr(second, column)])
    return replace(first, known_digest=None, **changes)


def overlay(base: OfferTable, over: OfferTable) -> OfferTable:
    """``over`` laid on ``base``: rows of ``base`` with a key that ``over`` has, too, are gone."""
    if not len(over):
        return base
    both = concat(base, over)
    keys = key_codes(both)
    keep = np.concatenate([~np.isin(keys[: len(base)], keys[len(base) :]), np.ones(len(over), dtype=bool)])
    return both.take(keep)


_expected = {*COLUMNS, *(vocabulary_field(c) for c in TEXT_COLUMNS), "known_digest"}
assert {f.name for f in fields(OfferTable)} == _expected  # the file format writes every column
