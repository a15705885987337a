"""A rate of steps and how well it is known, from readings of a counter: batch means.

Readings of a step counter are correlated (a slow second follows a slow second), so the standard error of
their slope says too little. The window is cut into blocks of equal time; their rates are nearly
independent where a block is longer than what slows the steps down (Law & Kelton, Simulation Modeling and
Analysis, section 9.5.3).
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from arylcloud.core.errors import UsageError

Reading = tuple[float, float]
"""(seconds, steps done by then)."""

MOST_BLOCKS: Final = 20
LEAST_BLOCKS: Final = 4
_T975: Final = (
    12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11,
    2.10, 2.09,
)  # fmt: skip
"""Student's t at 97.5 %, by degrees of freedom from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRate:
    per_s: float
    low: float
    """95 % confidence interval of the mean rate."""
    high: float
    variation: float
    """Standard deviation of the blocks' rates over their mean."""
    blocks: int
    steps: float
    seconds: float


def step_rate(readings: Sequence[Reading], *, warmup_s: float = 0.0) -> StepRate:
    """The rate after ``warmup_s`` seconds from the first reading. Readings ascend in time; a counter that
    goes back starts anew from there (the job resumed). UsageError where too little was seen.

    >>> step_rate([(t / 10, t) for t in range(101)]).per_s
    10.0
    """
    kept = _after_last_restart(readings)
    begun = kept[0][0] + warmup_s if kept else 0.0
    kept = _changes([r for r in kept if r[0] >= begun])
    if len(kept) < 2 * LEAST_BLOCKS + 1:
        raise UsageError(
            f"too few steps to measure: the counter moved {max(0, len(kept) - 1)} times after the warm-up",
            hint=f"it has to move {2 * LEAST_BLOCKS} times: measure for longer (--for), warm up for less",
        )
    times, steps = [t for t, _ in kept], [s for _, s in kept]
    span, done = times[-1] - times[0], steps[-1] - steps[0]
    blocks = min(MOST_BLOCKS, (len(kept) - 1) // 2)
    edges = [times[0] + span * i / blocks for i in range(blocks + 1)]
    at = [_at(times, steps, edge) for edge in edges]
    rates = [(b - a) * blocks / span for a, b in pairwise(at)]
    spread = statistics.stdev(rates)
    half = _T975[blocks - 2] * spread / math.sqrt(blocks)
    rate = done / span
    return StepRate(
        per_s=rate,
        low=max(0.0, rate - half),
        high=rate + half,
        variation=spread / rate,
        blocks=blocks,
        steps=done,
        seconds=span,
    )


def _after_last_restart(readings: Sequence[Reading]) -> list[Reading]:
    start = max((i for i in range(1, len(readings)) if readings[i][1] < readings[i - 1][1]), default=0)
    return list(readings[start:])


def _changes(readings: Sequence[Reading]) -> list[Reading]:
    """One reading per value of the counter: the first that showed it."""
    found: list[Reading] = []
    for reading in readings:
        if not found or (reading[1] > found[-1][1] and reading[0] > found[-1][0]):
            found.append(reading)
    return found


def _at(times: Sequence[float], steps: Sequence[float], when: float) -> float:
    """Steps done by ``when``, on the line between the two readings around it."""
    i = min(max(bisect_right(times, when), 1), len(times) - 1)
    share = (when - times[i - 1]) / (times[i] - times[i - 1])
    return steps[i - 1] + share * (steps[i] - steps[i - 1])
