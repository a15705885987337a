"""The front door to the solvers of :class:`JobLP`: which method, and from where.

From scratch: the interior point, or, where jobs are many, prices of an eighth of them first (a sample with an
eighth of the workers; the same again for the sample), which settle all but a few of the jobs. With the last
answer at hand: its prices settle all but a few, or, where jobs are few, the interior point starts near it.
Whatever a short cut gives is certified on the whole program, and where it falls short the search starts over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from arylcloud.core.errors import ArylError
from arylcloud.planner.kernels import interior, prices
from arylcloud.planner.kernels.jobform import F, JobLP, Solution

GAP = 1e-7
"""Relative, certified."""
FEW = 500
"""Up to here the interior point itself costs less than to settle jobs first."""
MANY = 5000
PART = 8
SAMPLE_GAP = 1e-6
STEADY = 0.01
"""By how much prices are taken to have moved since the last answer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Warm:
    """What is worth keeping of an answer when a few jobs come and go: the types' prices, and t."""

    type_value: F
    t: float

    @classmethod
    def of(cls, found: Solution) -> Warm:
        return cls(type_value=found.type_value, t=found.t)


def solve(lp: JobLP, *, warm: Warm | None = None, gap: float = GAP) -> Solution:
    """To a certified relative ``gap``; :class:`ArylError` where that fails. Without hard rate rows."""
    n = len(lp.gpus)
    found: Solution | None = None
    if warm is not None and len(warm.type_value) == len(lp.capacity) and n > FEW:
        found = prices.solve(lp, warm.type_value, warm.t, gap=gap, width=STEADY)
    if found is None and n > MANY:
        found = _from_sample(lp, gap)
    return interior.solve(lp, gap=gap) if found is None else found


def _from_sample(lp: JobLP, gap: float) -> Solution | None:
    n = len(lp.gpus)
    count = n // PART
    chosen = np.sort(np.random.default_rng(0).choice(n, count, replace=False))
    part = count / n
    try:
        found = solve(taken(lp, chosen, part), gap=max(gap, SAMPLE_GAP))
    except ArylError:
        return None
    # a program in t has its prices per unit of t: of fewer workers, more
    scale = 1.0 if lp.slope is None else part
    return prices.solve(lp, found.type_value * scale, found.t, gap=gap, width=1.5 / np.sqrt(count))


def taken(lp: JobLP, jobs: np.typing.NDArray[np.int64], part: float) -> JobLP:
    """The program of some of the jobs with that part of the workers."""

    def of(row: F | None) -> F | None:
        return None if row is None else row[..., jobs]

    return replace(
        lp,
        rate=lp.rate[:, jobs],
        gpus=lp.gpus[jobs],
        capacity=lp.capacity * part,
        time=of(lp.time),
        gain=of(lp.gain),
        need=of(lp.need),
        slope=of(lp.slope),
        fade=of(lp.fade),
    )
