"""How wrong the ladder is where it was measured after all: hide a GPU, estimate it, compare."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from arylcloud.core.units import RATE_UNITS
from arylcloud.planner.conditions import Conditions, points
from arylcloud.planner.estimator import Estimate, estimate_profile
from arylcloud.planner.profiles import Profile


class Miss(NamedTuple):
    """One figure that was hidden and estimated."""

    profile: str
    gpu: str
    gpus: int
    rung: str
    measured: float
    estimated: float
    in_band: bool

    @property
    def rel_error(self) -> float:
        return abs(self.estimated / self.measured - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    figures: int
    median: float
    """Of the relative errors."""
    p95: float
    in_band: float
    """Fraction of the true figures inside the band that was shown."""


def hidden_gpu(profile: Profile, *, gpus: int, known: int | None = None) -> list[Miss]:
    """Estimate each GPU with a one-node figure at ``gpus`` GPUs from the others' figures at that count.

    ``known``: how many other GPUs are shown at a time (None: all; 1: every ordered pair).
    """
    if profile.unit not in RATE_UNITS:
        return []
    have = {
        gpu: where[gpus, 1]
        for gpu, where in points(profile, Conditions()).first.items()
        if (gpus, 1) in where
    }
    rows = [m for m in profile.measurements if m.gpus == gpus and m.nodes == 1]
    misses: list[Miss] = []
    for gpu, truth in have.items():
        others = [g for g in have if g != gpu]
        for shown in [others] if known is None else [[g] for g in others]:
            kept = replace(profile, shape=None, measurements=tuple(m for m in rows if m.gpu in shown))
            found = estimate_profile(kept, [(gpu, gpus, 1)])[0] if shown else None
            if isinstance(found, Estimate):
                misses.append(
                    Miss(
                        profile=profile.name,
                        gpu=gpu,
                        gpus=gpus,
                        rung=found.rung,
                        measured=truth.rate,
                        estimated=found.throughput,
                        in_band=found.low <= truth.rate <= found.high,
                    )
                )
    return misses


def score(misses: Iterable[Miss]) -> Score | None:
    """Median and 95th percentile (nearest rank) of the relative errors; None without figures."""
    found = list(misses)
    if not found:
        return None
    errors = sorted(m.rel_error for m in found)
    return Score(
        figures=len(errors),
        median=errors[(len(errors) - 1) // 2],
        p95=errors[math.ceil(0.95 * len(errors)) - 1],
        in_band=sum(m.in_band for m in found) / len(found),
    )
