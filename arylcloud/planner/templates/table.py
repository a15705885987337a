"""The plan table: for every number of nodes which pipelines run, their microbatches, and what comes of it.

With ``f + 1`` pipelines at least, every layer survives f losses at once. Templates of consecutive sizes n0,
n0 + 1, … cover every world size from ``(f + 1)·n0`` on. Pipelines for a world size are chosen to end an
iteration of the global batch soonest: within τ seconds a pipeline of n nodes does ``m_n(τ)`` microbatches,
so the most that N nodes can do within τ is an unbounded knapsack over sizes; the least τ that does the batch
is found by bisection, exact to a millionth, without enumerating multisets. Microbatches then go one by one to
the pipeline that would end soonest, which minimises the longest (the original: the least variance).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from arylcloud.core.errors import InfeasibleError
from arylcloud.planner.templates.stages import Template


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What runs on so many nodes."""

    nodes: int
    pipelines: tuple[int, ...]
    """Nodes of each pipeline, largest first."""
    microbatches: tuple[int, ...]
    """Of each, adding up to the global batch's."""
    iteration_s: float
    samples_per_s: float
    losses_with_copies: int
    """Nodes that may still be lost, one after another, with f + 1 pipelines left."""
    losses_until_restart: int
    """Free fall: nodes that may be lost until not one pipeline can be formed any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTable:
    """Rows by nodes; looking one up is all that a loss asks for."""

    least_nodes: int
    failures: int
    templates: Mapping[int, Template]
    rows: Mapping[int, Row]

    def at(self, nodes: int) -> Row:
        """InfeasibleError below the least world size with all copies; above the largest, its row."""
        found = self.rows.get(min(nodes, max(self.rows)))
        if found is None:
            raise InfeasibleError(
                f"{nodes} nodes: at least {min(self.rows)} are needed for {self.failures + 1} pipelines",
                hint="restart from a checkpoint with fewer copies or more nodes",
            )
        return found


def plan_table(
    templates: Mapping[int, Template],
    *,
    nodes: int,
    failures: int,
    microbatches: int,
    samples_per_microbatch: int = 1,
    sync_s: float = 0.0,
) -> PlanTable:
    """Rows for every world size from ``(failures + 1)·n0`` to ``nodes``.

    ``microbatches`` per iteration over all pipelines; ``sync_s`` = the gradients' exchange between pipelines
    that does not overlap. InfeasibleError if ``nodes`` are too few, or the batch has fewer microbatches than
    pipelines needed.
    """
    n0 = min(templates)
    first = (failures + 1) * n0
    if nodes < first:
        raise InfeasibleError(
            f"{nodes} nodes do not hold {failures + 1} pipelines of {n0}", hint="more nodes"
        )
    if microbatches < failures + 1:
        raise InfeasibleError(
            f"{microbatches} microbatches for {failures + 1} pipelines", hint="a larger batch"
        )
    rows = {
        world: row(
            templates,
            world=world,
            failures=failures,
            microbatches=microbatches,
            samples_per_microbatch=samples_per_microbatch,
            sync_s=sync_s,
        )
        for world in range(first, nodes + 1)
    }
    return PlanTable(least_nodes=n0, failures=failures, templates=templates, rows=rows)


def row(
    templates: Mapping[int, Template],
    *,
    world: int,
    failures: int,
    microbatches: int,
    samples_per_microbatch: int = 1,
    sync_s: float = 0.0,
) -> Row:
    """One row alone. InfeasibleError where no pipelines of these sizes make up ``world`` nodes."""
    n0 = min(templates)
    sizes = _pipelines(templates, world, failures + 1, microbatches)
    share, seconds = distribute([templates[n] for n in sizes], microbatches)
    whole = seconds + (sync_s if len(sizes) > 1 else 0.0)
    return Row(
        nodes=world,
        pipelines=sizes,
        microbatches=share,
        iteration_s=whole,
        samples_per_s=microbatches * samples_per_microbatch / whole,
        losses_with_copies=world - (failures + 1) * n0,
        losses_until_restart=world - n0,
    )


def distribute(pipelines: list[Template], microbatches: int) -> tuple[tuple[int, ...], float]:
    """Microbatches for each pipeline, at least one, and the longest's seconds, which is the least possible.

    ValueError for fewer microbatches than pipelines.
    """
    if microbatches < len(pipelines):
        raise ValueError(f"{microbatches} microbatches for {len(pipelines)} pipelines")
    share = [1] * len(pipelines)
    heap = [(template.iteration_s(2), i) for i, template in enumerate(pipelines)]
    heapq.heapify(heap)
    for _ in range(microbatches - len(pipelines)):
        _, i = heap[0]
        share[i] += 1
        heapq.heapreplace(heap, (pipelines[i].iteration_s(share[i] + 1), i))
    return tuple(share), max(t.iteration_s(k) for t, k in zip(pipelines, share, strict=True))


def _pipelines(
    templates: Mapping[int, Template], world: int, copies: int, microbatches: int
) -> tuple[int, ...]:
    low, high = 0.0, max(t.iteration_s(microbatches) for t in templates.values())
    best = _within(templates, world, copies, microbatches, high)
    if best is None:
        raise InfeasibleError(
            f"no pipelines of these sizes make up {world} nodes", hint="consecutive sizes do"
        )
    for _ in range(40):
        middle = (low + high) / 2
        found = _within(templates, world, copies, microbatches, middle)
        if found is None:
            low = middle
        else:
            best, high = found, middle
        if high - low <= 1e-6 * high:
            break
    return best


def _within(
    templates: Mapping[int, Template], world: int, copies: int, microbatches: int, seconds: float
) -> tuple[int, ...] | None:
    """Sizes that add up to ``world``, ``copies`` of them or more, and do the batch in time; else None."""
    able = {n: t.most_microbatches(seconds) for n, t in templates.items() if n <= world}
    able = {n: m for n, m in able.items() if m > 0}
    # most[c][w]: microbatches of w nodes in c pipelines (or more), the last one's size, c before it
    none = (-1, 0, 0)
    most = [[none] * (world + 1) for _ in range(copies + 1)]
    most[0][0] = (0, 0, 0)
    for w in range(1, world + 1):
        for c in range(1, copies + 1):
            for before in {c - 1, c} if c == copies else {c - 1}:
                for n, m in able.items():
                    if n <= w and most[before][w - n][0] >= 0:
                        got = most[before][w - n][0] + m
                        if got > most[c][w][0]:
                            most[c][w] = (got, n, before)
    if most[copies][world][0] < microbatches:
        return None
    sizes, c, w = [], copies, world
    while w:
        _, n, before = most[c][w]
        sizes.append(n)
        w, c = w - n, before
    if len(sizes) > microbatches:
        return None  # a pipeline without work
    return tuple(sorted(sizes, reverse=True))
