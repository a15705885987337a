"""Integer codes of combinations: what makes grouping 200,000 rows a matter of milliseconds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from arylcloud.pricing.table import OfferTable

_MOST_CODES = 50_000_000


def group_codes(
    table: OfferTable,
    *columns: str,
    rows: NDArray[np.intp] | None = None,
    also: Iterable[NDArray[Any]] = (),
) -> NDArray[np.int64]:
    """One integer ≥ 0 per row (of ``rows``), equal where all ``columns`` (codes, markets or counts) are.
    ``also``: more columns of integers ≥ −1, of the table's length."""
    also = tuple(also)
    values = [*(getattr(table, name) for name in columns), *also]
    sizes = [*(_size(table, name) for name in columns), *(_most(column) for column in also)]
    small = math.prod(sizes) < 2**31 and all(column.itemsize <= 4 for column in values)
    kind = np.int32 if small else np.int64  # half the memory to pass over
    few = rows is not None and rows.size < len(table) // 4  # else whole columns are the shorter way
    codes: NDArray[Any] = np.zeros(rows.size if few and rows is not None else len(table), dtype=kind)
    shift = 0  # −1 (unknown, the whole region) is a value, too: every column is moved up by one, at the end
    for column, size in zip(values, sizes, strict=True):
        codes *= size
        codes += column.take(rows) if few else column
        shift = shift * size + 1
    codes += shift
    if rows is not None and not few:
        codes = codes.take(rows)
    return codes.astype(np.int64, copy=False)


def _size(table: OfferTable, name: str) -> int:
    """How many values a column can have, unknown included; a vocabulary says so without a pass."""
    names: tuple[str, ...] | None = getattr(table, f"{name}_names", None)
    return _most(getattr(table, name)) if names is None else len(names) + 1


def _most(column: NDArray[Any]) -> int:
    return int(column.max()) + 2 if column.size else 2


def key_codes(table: OfferTable) -> NDArray[np.int64]:
    """Identity of a row: cloud, region, zone, instance type and market (``Offer.key``)."""
    return group_codes(table, "cloud", "region", "zone", "instance_type", "market")


def grouped(code: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Where each distinct value stands first, in order of the values, and the position of every entry in
    that list: ``np.unique`` with index and inverse for integers ≥ 0, without sorting where they are small.

    >>> first, position = grouped(np.array([7, 3, 7]))
    >>> first.tolist(), position.tolist()
    ([1, 0], [1, 0, 1])
    """
    most = int(code.max(initial=-1)) + 1
    if most > _MOST_CODES:
        _, first, position = np.unique(code, return_index=True, return_inverse=True)
        return first, position.astype(np.int64, copy=False)
    here = np.arange(code.size, dtype=np.int32)
    of_code = np.empty(most, dtype=np.int32)  # only what is written is read
    # of many writes to one place numpy keeps the last: backwards, so that it is the first
    of_code[code[::-1]] = here[::-1]
    first = np.flatnonzero(of_code.take(code) == here)
    first = first[np.argsort(code[first])]
    of_code[code[first]] = here[: first.size]
    return first, of_code.take(code).astype(np.int64)


def member_of(code: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """``np.isin`` for integers ≥ 0, by a table where they are small."""
    most = max(int(code.max(initial=-1)), int(others.max(initial=-1))) + 1
    if most > _MOST_CODES:
        return np.isin(code, others)
    seen = np.zeros(most, dtype=bool)
    seen[others] = True
    found: NDArray[np.bool_] = seen.take(code)
    return found
