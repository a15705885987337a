"""Where the program of cut classes starts: a basis that its parent's prices fit.

When a part is cut into pieces, one of them (the *heir*) keeps the part's basic columns. Every other piece
has two rows of its own, rate and time, and makes two columns of its own basic: repetitions, for this piece,
of two basic columns of the part whose entries in these two rows are independent. The new basis is then block
triangular, so regular; and at it each piece has the prices that the part had, at which no column paid and so
none of their repetitions pays: dual feasible. Two independent columns there are, as the part's own two rows
are independent in its basis, unless one of the two is t; then the piece starts from its slacks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.cluster import F, I
from arylcloud.planner.kernels.classparts import Pairs

B = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Basis:
    """True = basic; S parts, m types."""

    own: B
    """(2,) u and t."""
    alone: B
    """(S, m)."""
    pairs: B
    rate: B
    """(S,) the rate row's slack."""
    time: B
    types: B
    """(m,)."""

    @property
    def columns(self) -> B:
        return np.concatenate([self.own, self.alone.ravel(), self.pairs])

    @property
    def rows(self) -> B:
        return np.concatenate([self.rate, self.time, self.types])


def inherited(
    basis: Basis, old: Pairs, *, alone: F, beside: tuple[F, F], parent: I, size: F
) -> tuple[Pairs, Basis | None]:
    """(the pairs of the pieces, a basis for them; None where none was found).

    ``alone`` (S, m) and ``beside`` (the first's, the second's of every pair of ``old``): rates, about 1;
    ``parent`` (pieces,) sorted; ``size`` (pieces,).
    """
    s, m = alone.shape
    pieces = len(parent)
    many = np.bincount(parent, minlength=s)
    heir = np.append(0, np.cumsum(many)[:-1])
    # every combination of the pieces of both sides
    wide = many[old.second]
    each = many[old.first] * wide
    source = np.repeat(np.arange(len(old)), each)
    place = np.arange(len(source)) - np.repeat(np.cumsum(each) - each, each)
    a, b, kind = old.first[source], old.second[source], old.type[source]
    first, second = heir[a] + place // wide[source], heir[b] + place % wide[source]
    status = (first == heir[a]) & (second == heir[b]) & basis.pairs[source]
    gone = (a == b) & ((first > second) | ((first == second) & (size[first] < 2)))

    single = np.zeros((pieces, m), dtype=bool)
    of_rate, of_time = np.zeros(pieces, dtype=bool), np.zeros(pieces, dtype=bool)
    single[heir], of_rate[heir], of_time[heir] = basis.alone, basis.rate, basis.time
    key = (first * pieces + second) * m + kind
    order = np.argsort(key)
    sorted_key = key[order]
    touching = _touching(basis, old, beside, many)
    is_heir = np.zeros(pieces, dtype=bool)
    is_heir[heir] = True
    for piece in np.flatnonzero(~is_heir).tolist():
        part = int(parent[piece])
        choice = _independent(basis, part, alone, touching.get(part, []))
        if choice is None:
            of_rate[piece] = of_time[piece] = True
            continue
        for what, which in choice:
            if what == "time":
                of_time[piece] = True
            elif what == "rate":
                of_rate[piece] = True
            elif what == "alone":
                single[piece, which] = True
            else:
                u, v = int(old.first[which]), int(old.second[which])
                x, y = (piece, int(heir[v])) if u == part else (int(heir[u]), piece)
                if u == v:
                    x, y = min(x, y), max(x, y)
                at = np.searchsorted(sorted_key, (x * pieces + y) * m + old.type[which])
                status[order[at]] = True
    held = ~gone
    found = Basis(
        own=basis.own, alone=single, pairs=status[held], rate=of_rate, time=of_time, types=basis.types
    )
    low, high = np.minimum(first, second)[held], np.maximum(first, second)[held]
    square = int(found.columns.sum() + found.rows.sum()) == 2 * pieces + m
    return Pairs(first=low, second=high, type=kind[held]), found if square else None


def _touching(basis: Basis, old: Pairs, beside: tuple[F, F], many: I) -> dict[int, list[tuple[float, int]]]:
    """(its rate there, pair) of the basic pairs of every part that is cut."""
    found: dict[int, list[tuple[float, int]]] = {}
    for q in np.flatnonzero(basis.pairs).tolist():
        a, b = int(old.first[q]), int(old.second[q])
        if many[a] > 1:
            found.setdefault(a, []).append((float(beside[0][q]), q))
        if many[b] > 1 and a != b:
            found.setdefault(b, []).append((float(beside[1][q]), q))
    return found


def _independent(
    basis: Basis, part: int, alone: F, touching: list[tuple[float, int]]
) -> tuple[tuple[str, int], tuple[str, int]] | None:
    """Two basic columns of the part whose (rate, time) entries are independent, as far as can be."""
    candidates: list[tuple[str, int, float, float]] = []
    if basis.time[part]:
        candidates.append(("time", 0, 0.0, 1.0))
    if basis.rate[part]:
        candidates.append(("rate", 0, 1.0, 0.0))
    candidates += [
        ("alone", j, float(alone[part, j]), 1.0) for j in np.flatnonzero(basis.alone[part]).tolist()
    ]
    candidates += [("pair", q, rate, 1.0) for rate, q in touching]
    best, found = 1e-9, None
    for i, x in enumerate(candidates):
        for y in candidates[:i]:
            area = abs(x[2] * y[3] - x[3] * y[2])
            if area > best:
                best, found = area, ((x[0], x[1]), (y[0], y[1]))
    return found
