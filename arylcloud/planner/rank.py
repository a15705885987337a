"""The best few of many candidates, and the Pareto set. Pure, deterministic, linear in their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

F = NDArray[np.float64]
Index = NDArray[np.intp]


def score(usd_mean: F, hours_p50: F, *, cost_weight: float, usd_per_hour_of_waiting: float) -> F:
    """cost_weight · USD + usd_per_hour_of_waiting · hours; smaller is better. Shapes (n,).

    >>> score(np.array([10.0]), np.array([2.0]), cost_weight=1.0, usd_per_hour_of_waiting=20.0)
    array([50.])
    """
    if usd_per_hour_of_waiting == 0:
        return usd_mean * cost_weight
    if cost_weight == 0:
        return hours_p50 * usd_per_hour_of_waiting
    return usd_mean * cost_weight + hours_p50 * usd_per_hour_of_waiting


def best(
    tier: NDArray[np.signedinteger[Any]], scores: F, count: int, tie_break: Callable[[Index], Index]
) -> Index:
    """Indices of the ``count`` first by (tier, score, tie_break), in order. NaN and inf scores come last.

    ``tier`` (n,) int: everything in tier 0 goes before tier 1. ``tie_break(indices)`` returns the same
    indices in their order where tier and score are equal: what decides must not be where a candidate
    happens to stand in the arrays.

    >>> best(np.array([1, 0, 0]), np.array([1.0, 3.0, 2.0]), 2, lambda i: i).tolist()
    [2, 1]
    """
    found: list[Index] = []
    left = count
    for level in range(int(tier.min()), int(tier.max()) + 1) if tier.size else ():
        if left <= 0:
            break
        members = np.flatnonzero(tier == level)
        if not members.size:
            continue
        chosen = _first(members, scores.take(members), left, tie_break)
        found.append(chosen)
        left -= chosen.size
    return np.concatenate(found) if found else np.zeros(0, dtype=np.intp)


def _first(members: Index, scores: F, count: int, tie_break: Callable[[Index], Index]) -> Index:
    # among one in 16 the last of the first ``count`` is no better than among all: a cheap first sieve
    for sample in (scores[::16], scores):
        if sample.size > 4 * count:
            cut = np.partition(sample, count - 1)[count - 1]
            # all that tie with the last one stay, so that the tie-break and not the partition decides
            keep = np.flatnonzero(~(scores > cut))
            members, scores = members[keep], scores[keep]
    by_tie = tie_break(members)
    position = np.argsort(members, kind="stable")
    tied_scores = scores[position[np.searchsorted(members[position], by_tie)]]
    return by_tie[np.argsort(tied_scores, kind="stable")][:count]


def pareto(hours: F, usd: F) -> NDArray[np.bool_]:
    """True where no other candidate is at least as fast *and* as cheap, and better in one of the two.
    Shapes (n,); infinite entries are never in the set. Of equal points all are.

    >>> pareto(np.array([1.0, 2.0, 3.0, 2.0]), np.array([9.0, 5.0, 6.0, 5.0])).tolist()
    [True, True, False, True]
    """
    mask = np.zeros(hours.shape, dtype=bool)
    alive = np.flatnonzero(np.isfinite(hours) & np.isfinite(usd))
    h, u = hours[alive], usd[alive]
    # each pivot is itself in the set and sweeps away whatever it dominates; a few passes leave few
    for weight in (0.5, 0.1, 0.9, 0.02, 0.98, 0.3, 0.7):
        if alive.size < 256:
            break
        scale_h, scale_u = max(float(h.min()), 1e-12), max(float(u.min()), 1e-12)
        pivot = np.argmin(h * (weight / scale_h) + u * ((1 - weight) / scale_u))
        keep = ~((h >= h[pivot]) & (u >= u[pivot]) & ((h > h[pivot]) | (u > u[pivot])))
        alive, h, u = alive[keep], h[keep], u[keep]
    order = np.lexsort((u, h))
    h, u = h[order], u[order]
    lowest = np.minimum.accumulate(u)
    before = np.concatenate(([np.inf], lowest[:-1]))
    new = u < before
    # an equal point directly behind a member is a member, too
    group = np.cumsum(new) - 1
    heads_h, heads_u = h[new], u[new]
    same = (h == heads_h[group]) & (u == heads_u[group]) if group.size else new
    mask[alive[order[new | same]]] = True
    return mask
