"""The front door to the solvers of :class:`JobLP`: which method, and from where.

From scratch: the interior point, or, where jobs are many, prices of an eighth of them first (a sample with an
eighth of the workers; the same again for the sample), which settle all but a few of the jobs. With the last
answer at hand: its prices settle all but a few, or, where jobs are few, the interior point starts near it.
Whatever a short cut gives is certified on the whole program, and where it falls short the search starts over;
where the interior point itself does, HiGHS has the last word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import ArylError
from arylcloud.planner.kernels import bottleneck, interior, linear, prices
from arylcloud.planner.kernels.jobform import F, JobLP, Solution

GAP = 1e-7
"""Relative, certified."""
FEW = 500
"""Up to here the interior point itself costs less than to settle jobs first."""
MANY = 5000
PART = 8
SAMPLE_GAP = 1e-6
STEADY = 0.005
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
    """To a certified relative ``gap`` (:data:`linear.GAP` where HiGHS has the last word: see
    :attr:`Solution.gap`); :class:`ArylError` where that fails. Without hard rate rows."""
    n = len(lp.gpus)
    found: Solution | None = None
    if warm is not None and len(warm.type_value) == len(lp.capacity) and n > FEW:
        found = prices.solve(lp, warm.type_value, warm.t, gap=gap, width=STEADY)
    if found is None and n > MANY:
        found = _from_sample(lp, gap)
    if found is not None:
        return found
    try:
        return interior.solve(lp, gap=gap)
    except ArylError:
        if lp.fade is not None:
            raise
        return linear.solve(lp)


def _from_sample(lp: JobLP, gap: float) -> Solution | None:
    n = len(lp.gpus)
    chosen, part = sample(n)
    few = taken(lp, chosen, part)
    try:
        if lp.slope is not None:
            tried, _ = sample(n, MANY // 4)
            hint = interior.solve(taken(lp, tried, len(tried) / n), gap=SAMPLE_GAP)
            if hint.t >= bottleneck.alone(lp).min():
                # one job of the whole keeps t lower than all the others would
                return bottleneck.at_bottleneck(lp, hint.type_value, hint.t, chosen, gap=gap)
        found = solve(few, gap=max(gap, SAMPLE_GAP))
    except ArylError:
        return None
    # a program in t has its prices per unit of t: of fewer workers, more
    value = found.type_value if lp.slope is None else found.type_value * part
    return prices.solve(lp, value, found.t, gap=gap, width=unsure(chosen))


def sample(n: int, most: int | None = None) -> tuple[NDArray[np.int64], float]:
    """(an eighth of the jobs or ``most`` of them, their part of n), the same at every call."""
    count = n // PART if most is None else most
    chosen = np.sort(np.random.default_rng(0).choice(n, count, replace=False))
    return chosen, len(chosen) / n


def unsure(chosen: NDArray[np.int64]) -> float:
    """By how much a sample's prices may be off, relatively."""
    return float(1.5 / np.sqrt(len(chosen)))


def taken(lp: JobLP, jobs: NDArray[np.int64], part: float) -> JobLP:
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
