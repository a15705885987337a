"""What the plan table says of fewer machines, as a sentence in ``plan``: before one is lost."""

from __future__ import annotations

from itertools import groupby

from arylcloud.core.job import JobSpec
from arylcloud.core.pipeline import problem
from arylcloud.planner.templates.assign import lookup
from arylcloud.planner.templates.table import Row

MOST = 6
"""Sizes that a reader takes in."""


def say(spec: JobSpec, machines: int) -> str | None:
    """Of a job that trains by pipeline templates on a number of machines that may change; else None. (Also of
    one that somebody only asks about, and that no table covers.) Percentages are of the steps per second that
    ``machines`` do, by the layers' own times: no network is in them."""
    pipeline = spec.pipeline
    if pipeline is None or spec.nodes_min == spec.nodes_max:
        return None
    if problem(pipeline, spec.nodes_min, spec.nodes_max) is not None:
        return None
    sizes = range(machines, spec.nodes_min - 1, -1)
    rows = [lookup(pipeline, nodes_max=spec.nodes_max, world=n) for n in sizes]
    full = rows[0].iteration_s
    parts = [f"{row.nodes} {full / row.iteration_s:.0%} ({_shape(row)})" for row in rows[1 : MOST + 1]]
    left = f"; {len(rows) - 1 - MOST} smaller sizes" if len(rows) > MOST + 1 else ""
    fewer = f"; on fewer it does, in steps per second: {', '.join(parts)}{left}" if parts else ""
    losses, copies = machines - spec.nodes_min, pipeline.failures + 1
    return (
        f"by its pipeline table {machines} machines make {_shape(rows[0])}{fewer}. It outlives {losses} "
        f"{'loss' if losses == 1 else 'losses'} with {copies} copies of each layer, and then waits"
    )


def _shape(row: Row) -> str:
    """``1 replica of 3 + 2 of 2``."""
    counts = [(len(list(same)), size) for size, same in groupby(row.pipelines)]
    parts = [f"{count} of {size}" for count, size in counts[1:]]
    count, size = counts[0]
    return " + ".join([f"{count} replica{'' if count == 1 else 's'} of {size}", *parts])
