"""Multiple-choice knapsack: at most one item of each group, total weight within capacity, most value.

Exact dynamic programme over capacity, one group after the other, O(capacity · items) time and
O(capacity · groups) for the way back, a byte each up to 127 items per group (Kellerer, Pferschy, Pisinger:
*Knapsack Problems*, 2004, §11.5).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.cluster import F, I


def best_items(value: F, weight: I, capacity: int) -> I:
    """(g,) the item chosen in each of g groups, -1 = none; value and weight: (g, k).

    Items of no positive value, and of more weight than fits, are never taken. Of equal totals the lighter
    wins, then the earlier item. Weights are ≥ 0 and integral.

    >>> value = np.array([[30.0, 33.0], [3.3, 6.7]])
    >>> best_items(value, np.array([[3, 4], [1, 4]]), 4)
    array([0, 0])
    """
    groups, items = value.shape
    if weight.min(initial=0) < 0:
        raise ValueError("negative weight")
    capacity = int(min(capacity, weight.max(axis=1, initial=0).sum()))
    best = np.zeros(max(capacity, 0) + 1)
    came = np.full((groups, len(best)), -1, dtype=np.int8 if items <= np.iinfo(np.int8).max else np.int32)
    spent, order = 0, np.argsort(weight, axis=1, kind="stable")
    for g in range(groups):
        old, new = best, best.copy()
        choice, fits = came[g], (value[g] > 0) & (weight[g] <= capacity)
        # Nothing beyond what all groups so far can weigh differs from the entry before it.
        end = min(capacity, spent + int(weight[g][fits].max(initial=0))) + 1
        for item in order[g].tolist():
            gain, size = float(value[g, item]), int(weight[g, item])
            if not fits[item]:
                continue
            reached = old[: end - size] + gain
            better = reached > new[size:end]
            np.copyto(new[size:end], reached, where=better)
            choice[size:end][better] = item
        spent = end - 1
        new[spent:] = new[spent]
        choice[spent + 1 :] = choice[spent]
        best = new
    return _back(came, weight, best)


def _back(came: NDArray[np.int8] | NDArray[np.int32], weight: I, best: F) -> I:
    chosen = np.full(len(came), -1, dtype=np.int64)
    left = int(np.argmax(best >= best[-1])) if len(best) else 0
    for g in range(len(came) - 1, -1, -1):
        item = int(came[g, left])
        if item >= 0:
            chosen[g] = item
            left -= int(weight[g, item])
    return chosen
