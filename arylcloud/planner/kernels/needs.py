"""Programs with hard rows, ``Σ_j rate_ij·x_ij ≥ need_i``: first whether they can all be met, then the best.

Whether is a program itself, ``max t, rate_i ≥ need_i·t``, of the jobs that need something and no others; its
answer, t ≥ 1 or the proof of less, is what a person wants to know, and its point starts the second program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from arylcloud.core.errors import ArylError
from arylcloud.planner.kernels import interior, linear, prices
from arylcloud.planner.kernels.jobform import F, JobLP, Solution
from arylcloud.planner.kernels.jobs import (
    FEW,
    GAP,
    MANY,
    SAMPLE_GAP,
    STEADY,
    Warm,
    sample,
    solve,
    taken,
    unsure,
)

ROOM = 1.05
"""The first program stops here: enough to start well inside."""

JUST = 9e-7
"""A set that is only just met leaves the second program no interior: its needs are lowered by up to this."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Met:
    """``solution`` None: not all needs can be met; together no more than ``part`` < 1 of every one, for sure.
    Else ``part`` ≥ 1, and says no more."""

    solution: Solution | None
    part: float


def meet(lp: JobLP, *, warm: Warm | None = None, gap: float = GAP, how_far: bool = False) -> Met:
    """The largest gain that meets every need > 0, or by how much they are too large together: exactly with
    ``how_far``, else what was known when it was seen that they are."""
    assert lp.need is not None
    assert lp.gain is not None
    asks = lp.need > 0
    if not asks.any():
        return Met(solution=solve(replace(lp, need=None), warm=warm, gap=gap), part=np.inf)
    found = _short_cut(lp, warm, gap)
    if found is not None:
        return Met(solution=found, part=1.0)
    alone = most_alone(lp)
    if not how_far and (alone[asks] < lp.need[asks] * (1 - gap)).any():
        return Met(solution=None, part=float((alone[asks] / lp.need[asks]).min()))
    first = interior.solve(
        JobLP(
            rate=lp.rate[:, asks],
            gpus=lp.gpus[asks],
            capacity=lp.capacity,
            time=None if lp.time is None else lp.time[asks],
            slope=lp.need[asks],
        ),
        gap=gap,
        stop_above=ROOM,
        stop_below=-np.inf if how_far else 1.0,
    )
    if first.objective < 1.0 - 2 * gap:
        return Met(solution=None, part=first.bound)
    need = lp.need * min(1.0, first.objective * (1.0 - JUST))
    inside = np.zeros_like(lp.rate)
    inside[:, asks] = first.x / np.sqrt(np.clip(first.objective, 1.0, ROOM))
    within = replace(lp, need=need)
    try:
        best = interior.solve(within, gap=gap, start=inside)
    except ArylError:
        best = linear.solve(within)
    return Met(solution=best, part=first.bound)


def _short_cut(lp: JobLP, warm: Warm | None, gap: float) -> Solution | None:
    """As in :mod:`arylcloud.planner.kernels.jobs`: from the last prices, or from a sample's."""
    n = len(lp.gpus)
    if warm is not None and len(warm.type_value) == len(lp.capacity) and n > FEW:
        found = prices.solve(lp, warm.type_value, 0.0, gap=gap, width=STEADY)
        if found is not None:
            return found
    if n <= MANY:
        return None
    chosen, part = sample(n)
    try:
        of_sample = meet(taken(lp, chosen, part), gap=max(gap, SAMPLE_GAP)).solution
    except ArylError:
        return None
    if of_sample is None:
        return None
    return prices.solve(lp, of_sample.type_value, 0.0, gap=gap, width=unsure(chosen))


def most_alone(lp: JobLP) -> F:
    """(n,) what each job's rate row could reach with the cluster to itself: its best types first, each as
    long as it has room."""
    order = np.argsort(-lp.rate, axis=0)
    rate = np.take_along_axis(lp.rate, order, axis=0)
    left = np.ones(len(lp.gpus)) if lp.time is None else lp.time.copy()
    reached = np.zeros(len(lp.gpus))
    for j in range(len(lp.capacity)):
        takes = np.minimum(left, lp.capacity[order[j]] / lp.gpus)
        reached += rate[j] * takes
        left -= takes
    return reached
