"""The front door to the solvers of :class:`JobLP`: which method, from where."""

from __future__ import annotations

from dataclasses import dataclass

from arylcloud.planner.kernels import interior
from arylcloud.planner.kernels.jobform import F, JobLP, Solution

GAP = 1e-7
"""Relative, certified."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Warm:
    """What is worth keeping of an answer when a few jobs come and go: the types' prices, and t."""

    type_value: F
    t: float

    @classmethod
    def of(cls, found: Solution) -> Warm:
        return cls(type_value=found.type_value, t=found.t)


def solve(lp: JobLP, *, warm: Warm | None = None, gap: float = GAP) -> Solution:
    """To a certified relative ``gap``; :class:`ArylError` where that fails."""
    del warm
    return interior.solve(lp, gap=gap)
