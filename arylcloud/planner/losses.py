"""What a job that shrinks gets out of fewer machines, known before one is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arylcloud.core.job import JobSpec
from arylcloud.planner.evaluate import Evaluation

MOST = 6
"""Rows that a reader takes in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One number of machines of the chosen offer."""

    machines: int
    throughput: float
    """Work units per second of all of them."""
    usd_per_unit: float


def worlds(every: Evaluation, first: int) -> tuple[World, ...]:
    """The candidate's own number of machines and each smaller one that the job allows, largest first; sizes
    without an estimate are left out."""
    cands = every.cands
    row, most = cands.rows[first], int(cands.nodes[first])
    at = np.flatnonzero((cands.rows == row) & (cands.nodes <= most))
    price = float(cands.table.usd_per_hour[row])
    found = []
    for i in sorted(at.tolist(), key=lambda i: -int(cands.nodes[i])):
        machines, rate = int(cands.nodes[i]), cands.estimate(i).throughput
        found.append(
            World(machines=machines, throughput=rate, usd_per_unit=machines * price / (3600.0 * rate))
        )
    return tuple(found)


def say(spec: JobSpec, sizes: Sequence[World]) -> str | None:
    """One sentence, None where the job does not shrink."""
    if spec.on_node_loss != "shrink" or len(sizes) < 2 or spec.work is None:
        return None
    unit = spec.work.unit
    one = unit[:-1] if unit.endswith("s") else unit
    head, rest = sizes[0], sizes[1:]
    parts = [
        f"{w.machines} {w.throughput:.3g} ({w.throughput / head.throughput:.0%}), ${w.usd_per_unit:.3g}"
        for w in rest[:MOST]
    ]
    left_out = f"; {len(rest) - MOST} smaller sizes" if len(rest) > MOST else ""
    losses = head.machines - sizes[-1].machines
    return (
        f"if machines are lost it goes on with fewer: {head.machines} machines do {head.throughput:.3g} "
        f"{unit}/s at ${head.usd_per_unit:.3g} per {one}; {'; '.join(parts)}{left_out}. "
        f"It outlives {losses} {'loss' if losses == 1 else 'losses'} without a replacement, not one more"
    )
