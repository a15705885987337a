"""Kinds, parts and pairs: the arrays of the program of classes, and the search for pairs that pay.

What part ``a`` offers beside kind K on type j is ``β_a·rate_aKj − α_a`` (plus the worth of its steps), the
same for every partner of that kind: the best pair of two kinds is that of each one's best member, so the
search is over parts × kinds, not parts².
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.cluster import F, I


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Kinds:
    """What does not change while parts are cut; c classes, k kinds (a kind = how one is beside others)."""

    rate: F
    """(c, m)."""
    gpus: F
    """(c,)."""
    capacity: F
    """(m,)."""
    kind: I
    """(c,), values in [0, k)."""
    beside: F
    """(k, k, m) the rate of the first beside the second; 0 = not together. k = 0: no pairs at all."""
    worth: F | None
    """(c, m) objective per unit of rate on the type; None = the objective is t."""

    @property
    def scale(self) -> F:
        """(c,) the largest rate of each class, 1 where it has none."""
        best: F = self.rate.max(axis=1, initial=0.0)
        best[best <= 0] = 1.0
        return best


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Parts:
    """S parts; (S,) each."""

    of: I
    """The class."""
    size: F
    need: F
    slope: F


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Pairs:
    """Columns; (q,) each, first ≤ second."""

    first: I
    second: I
    type: I

    def __len__(self) -> int:
        return len(self.first)

    def at(self, which: NDArray[Any]) -> Pairs:
        return Pairs(first=self.first[which], second=self.second[which], type=self.type[which])


def no_pairs() -> Pairs:
    none = np.zeros(0, dtype=np.int64)
    return Pairs(first=none, second=none, type=none)


def price(kinds: Kinds, kind: I, gpus: F, size: F, weight: F, alpha: F, lam: F) -> tuple[Pairs, F, F]:
    """(for every part, kind and type the best partner, where that pays; by how much; (m,) the most by which
    any pair pays per GPU).

    (S,) each: ``kind``, ``gpus``, ``size`` and the price of time ``alpha`` of the parts; ``weight`` (S, m)
    what a part's rate is worth on each type; ``lam`` (m,) the price of a GPU.
    """
    m = len(lam)
    if not len(kinds.beside):
        return no_pairs(), np.zeros(0), np.zeros(m)
    s = len(kind)
    present, own = np.unique(kind, return_inverse=True)
    rate = kinds.beside[np.ix_(present, present)][own]
    offer = weight[:, None, :] * rate - alpha[:, None, None]
    offer[rate <= 0] = -np.inf
    order = np.argsort(own, kind="stable")
    begin = np.flatnonzero(np.append(True, np.diff(own[order]) > 0))
    # (kind, its partner's kind, type): which part of the kind offers most, and what
    who = np.empty((len(present), len(present), m), dtype=np.int64)
    for c, members in enumerate(np.split(order, begin[1:])):
        who[c] = members[offer[members].argmax(axis=0)]
    every, types = np.arange(len(present)), np.arange(m)
    best = offer[who, every[None, :, None], types]
    # the partner of each part, among each kind
    other = who[every[None, :], own[:, None]]
    theirs = best[every[None, :], own[:, None]]
    # a job is no partner of itself: a part of one takes the second best of its kind
    parts = np.arange(s)
    for p in np.flatnonzero((size < 2) & (other[parts, own] == parts[:, None]).any(axis=1)):
        mates = np.flatnonzero(own == own[p])
        mates = mates[mates != p]
        for q in np.flatnonzero(other[p, own[p]] == p):
            if len(mates):
                second = mates[offer[mates, own[p], q].argmax()]
                other[p, own[p], q], theirs[p, own[p], q] = second, offer[second, own[p], q]
            else:
                theirs[p, own[p], q] = -np.inf
    pays = offer + theirs - (gpus[:, None] * lam)[:, None, :]
    pays[:, :, kinds.capacity <= 0] = -np.inf
    over = np.maximum((pays / gpus[:, None, None]).max(axis=(0, 1)), 0.0)
    a, b, j = np.nonzero(pays > 0)
    mate = other[a, b, j]
    low, high = np.minimum(a, mate), np.maximum(a, mate)
    _, unique = np.unique((low * s + high) * m + j, return_index=True)
    return Pairs(first=low[unique], second=high[unique], type=j[unique]), pays[a, b, j][unique], over
