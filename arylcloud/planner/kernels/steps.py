"""Multiple-choice knapsack by the steps of upper hulls: the linear bound, and often the exact answer.

Of each group the items on the upper convex hull of (weight, value) from (0, 0) are steps of falling value
per weight; taking steps over all groups in order of that ratio solves the linear relaxation (Kellerer,
Pferschy, Pisinger: *Knapsack Problems*, 2004, §11.2). Exact when all steps weigh the same, or when everything
fits; else the gap to the bound is known, and :func:`best_items_within` asks the dynamic programme where it is
too wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from arylcloud.planner.cluster import F, I
from arylcloud.planner.kernels.knapsack import best_items

GAP = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Taken:
    """(g,) the item of each group, -1 = none; its total value, and what no choice exceeds."""

    item: I
    value: float
    bound: float


def by_steps(value: F, weight: I, capacity: int) -> Taken:
    """Greedy over hull steps; value and weight (g, k), weights ≥ 1, in any order.

    Where the next step does not fit, smaller ones may still, and that group's best item that fits is tried.

    >>> value = np.array([[30.0, 33.0], [3.3, 6.7]])
    >>> found = by_steps(value, np.array([[3, 4], [1, 4]]), 4)
    >>> found.item, round(found.value, 2), round(found.bound, 2)
    (array([0, 0]), 33.3, 33.3)
    """
    rows = [hull(w, v) for w, v in zip(weight.tolist(), value.tolist(), strict=True)]
    steps = [(-slope, g, item, heavier) for g, row in enumerate(rows) for slope, item, heavier in row]
    steps.sort(key=lambda step: step[0])  # stable: within a group slopes fall
    chosen, left = [-1] * len(rows), capacity
    bound: float | None = None
    total = 0.0
    shut: set[int] = set()
    for slope, g, item, heavier in steps:
        if g in shut:
            continue
        if heavier <= left:
            chosen[g] = item
            left -= heavier
            total -= slope * heavier
            continue
        if bound is None:
            bound = total - slope * left
        shut.add(g)
        better = _within(value[g], weight[g], chosen[g], left)
        if better is not None:
            gained, spent = _gain(value[g], weight[g], chosen[g], better)
            chosen[g] = better
            left -= spent
            total += gained
    return Taken(item=np.array(chosen, dtype=np.int64), value=total, bound=total if bound is None else bound)


def best_items_within(value: F, weight: I, capacity: int, gap: float = GAP) -> I:
    """Items of a total value within ``gap`` (a share) of the most possible; exact where steps fail that."""
    found = by_steps(value, weight, capacity)
    if found.bound - found.value <= gap * found.value:
        return found.item
    return best_items(value, weight, capacity)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Units:
    """(g,) units of each group, their total value, and what no choice exceeds."""

    units: I
    value: float
    bound: float


def by_units(value: F, held: I, bonus: F, capacity: int, gap: float = 0.0) -> Units:
    """Steps where item i of a group weighs i, its values are concave, and one item is worth more.

    ``value`` (g, k + 1) for 0 … k units, concave and rising to the group's end (repeat the last value
    beyond); ``held`` (g,) the item that has ``bonus`` (g,) on top: what the group has now, which costs no
    change. Exact but for the one group at whose bonus the capacity ends; where that leaves a wider ``gap`` to
    the bound, as a share, single steps of others are tried instead.

    >>> found = by_units(np.array([[0.0, 4, 6, 7], [0, 4, 6, 7]]), np.array([0, 3]), np.array([0.0, 4]), 4)
    >>> found.units, found.value  # the second keeps three: 7 + 4
    (array([1, 3]), 15.0)
    """
    groups, width = value.shape
    rows, at = np.arange(groups), np.arange(width)
    top = value[rows, held] + bonus
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = (value - top[:, None]) / (at - held[:, None])
    left = np.where(at < held[:, None], slope, np.inf)
    low = left.argmin(axis=1)
    right = np.where(at > held[:, None], slope, -np.inf)
    high = right.argmax(axis=1)
    last = held == width - 1
    gain = value[:, 1:] - value[:, :-1]
    unit = at[1:]
    gain = np.where((unit > low[:, None]) & (unit <= held[:, None]), left[rows, low][:, None], gain)
    ahead = np.where(last, -np.inf, right[rows, high])
    gain = np.where((unit > held[:, None]) & (unit <= high[:, None]), ahead[:, None], gain)
    flat = gain.ravel()
    best = np.argsort(-flat, kind="stable")[:capacity]
    best = best[flat[best] > 0]
    units = np.bincount(best // (width - 1), minlength=groups) if width > 1 else np.zeros(groups, dtype=int)
    bonused = value.copy()
    bonused[rows, held] = top
    bound = float(flat[best].sum() + bonused[:, 0].sum())
    total = float(bonused[rows, units].sum())
    if bound - total > max(gap, 1e-9) * abs(bound):
        units, total = _mend(bonused, units, total, low, held, high)
    return Units(units=units, value=total, bound=bound)


def _mend(value: F, units: I, total: float, low: I, held: I, high: I) -> tuple[I, float]:
    """The group that the end of capacity caught inside a chord goes back to its start, and what that frees
    goes, as far as it brings more, to the best single steps of the others."""
    for chord in (low, held):
        end = held if chord is low else high
        for g in np.flatnonzero((units > chord) & (units < end)):
            other = units.copy()
            spare = int(units[g] - chord[g])
            other[g] = chord[g]
            for _ in range(spare):
                step = np.where(
                    other < value.shape[1] - 1,
                    value[np.arange(len(other)), np.minimum(other + 1, value.shape[1] - 1)]
                    - value[np.arange(len(other)), other],
                    -np.inf,
                )
                step[g] = -np.inf
                most = int(step.argmax())
                if step[most] <= 0:
                    break
                other[most] += 1
            found = float(value[np.arange(len(other)), other].sum())
            if found > total:
                units, total = other, found
    return units, total


def hull(weight: Sequence[int], value: Sequence[float]) -> list[tuple[float, int, int]]:
    """One group's steps: (value per weight, item reached, weight added), slopes falling.

    Weights ≥ 1; an item of no positive value is no step.
    """
    corner: list[tuple[int, float, int]] = [(0, 0.0, -1)]
    for i in sorted(range(len(weight)), key=lambda i: (weight[i], -value[i])):
        w, v = weight[i], value[i]
        if v <= corner[-1][1]:
            continue
        while len(corner) > 1:
            (w0, v0, _), (w1, v1, _) = corner[-2:]
            if (v1 - v0) * (w - w1) > (v - v1) * (w1 - w0):
                break
            corner.pop()
        corner.append((w, v, i))
    return [((v1 - v0) / (w1 - w0), item, w1 - w0) for (w0, v0, _), (w1, v1, item) in pairwise(corner)]


def _within(value: F, weight: I, held: int, left: int) -> int | None:
    """The best item of a group that fits besides what it holds, if that is better."""
    spare = left + (int(weight[held]) if held >= 0 else 0)
    now = float(value[held]) if held >= 0 else 0.0
    fits = np.where(weight <= spare, value, -np.inf)
    best = int(np.argmax(fits))
    return best if fits[best] > now else None


def _gain(value: F, weight: I, held: int, item: int) -> tuple[float, int]:
    before = (float(value[held]), int(weight[held])) if held >= 0 else (0.0, 0)
    return float(value[item]) - before[0], int(weight[item]) - before[1]
