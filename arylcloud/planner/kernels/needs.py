"""Programs with hard rows, ``Σ_j rate_ij·x_ij ≥ need_i``: first whether they can all be met, then the best.

Whether is a program itself, ``max t, rate_i ≥ need_i·t``, of the jobs that need something and no others; its
answer, t ≥ 1 or the proof of less, is what a person wants to know, and its point starts the second program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from arylcloud.planner.kernels import interior
from arylcloud.planner.kernels.jobform import F, JobLP, Solution

ROOM = 1.05
"""The first program stops here: enough to start well inside."""

JUST = 9e-7
"""A set that is only just met leaves the second program no interior: its needs are lowered by up to this."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Met:
    """``solution`` None: not all needs can be met; together no more than ``part`` < 1 of every one."""

    solution: Solution | None
    part: float


def meet(lp: JobLP, *, gap: float = 1e-7) -> Met:
    """The largest gain that meets every need > 0, or by how much they are too large together."""
    assert lp.need is not None
    assert lp.gain is not None
    asks = lp.need > 0
    if not asks.any():
        return Met(solution=interior.solve(replace(lp, need=None), gap=gap), part=np.inf)
    alone = most_alone(lp)
    if (alone[asks] < lp.need[asks] * (1 - gap)).any():
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
        stop_below=1.0,
    )
    if first.objective < 1.0 - 2 * gap:
        return Met(solution=None, part=first.bound)
    need = lp.need * min(1.0, first.objective * (1.0 - JUST))
    inside = np.zeros_like(lp.rate)
    inside[:, asks] = first.x / np.sqrt(np.clip(first.objective, 1.0, ROOM))
    return Met(solution=interior.solve(replace(lp, need=need), gap=gap, start=inside), part=first.bound)


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
