"""Training by pipeline templates: what a job says of its layers, and what each rank is told to hold.

A *replica* is one copy of the model, laid over several machines; a *stage* is what one machine holds of it, a
run of layers. Layers are counted from 0, runs are written ``[first, last)``.
"""

from __future__ import annotations

from dataclasses import dataclass

Run = tuple[int, ...]
"""``(first, last)``: two numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """``aryl: pipeline``: the model as layers, and how few machines hold it."""

    layer_s: tuple[float, ...]
    """Forward and backward of one microbatch, per layer; what counts is their proportion."""
    least_nodes: int
    """n0: so many machines hold one replica at least."""
    failures: int = 1
    """f: so many machines may be lost at once, and every layer is still held by one: f + 1 replicas."""
    microbatches: int
    """Of one step, over all replicas."""

    @property
    def least_world(self) -> int:
        """The fewest machines with f + 1 replicas."""
        return (self.failures + 1) * self.least_nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStage:
    """What one rank holds in one epoch."""

    rank: int
    first: int
    last: int
    fetch: tuple[Run, ...] = ()
    """Runs of its layers that it did not hold in the epoch before: they come from the checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReplica:
    """All layers, in order: one stage per rank."""

    stages: tuple[PipelineStage, ...]
    microbatches: int
    """Of a step, for this replica."""

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(stage.rank for stage in self.stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelines:
    """Who does what in one epoch. Every rank is in one replica, every replica holds every layer."""

    layers: int
    replicas: tuple[PipelineReplica, ...]

    def stage(self, rank: int) -> PipelineStage | None:
        return next((s for r in self.replicas for s in r.stages if s.rank == rank), None)

    @property
    def fetched(self) -> int:
        """Layers that ranks have to fetch, each counted as often as it is fetched."""
        return sum(last - first for r in self.replicas for s in r.stages for first, last in s.fetch)


def problem(spec: PipelineSpec, nodes_min: int, nodes_max: int) -> tuple[str, str] | None:
    """What keeps the table from covering each number of machines from ``nodes_min`` to ``nodes_max``, and a
    hint; None = nothing does."""
    n0, copies, layers = spec.least_nodes, spec.failures + 1, len(spec.layer_s)
    if n0 > layers:
        return f"{layers} layers cannot be laid over {n0} machines", "each machine holds one layer at least"
    if nodes_min < spec.least_world:
        hint = f"nodes: {spec.least_world}..{max(nodes_max, spec.least_world)}, or fewer failures"
        return f"{copies} replicas of {n0} machines need {spec.least_world}, not {nodes_min}", hint
    if spec.microbatches < nodes_max // n0:
        least = nodes_max // n0
        return f"{spec.microbatches} microbatches for up to {least} replicas", f"microbatches: {least}"
    for nodes in range(nodes_min, nodes_max + 1):
        if not _covered(nodes, n0, min(layers, nodes - spec.failures * n0), copies):
            text = f"{nodes} machines cannot be divided into replicas of {n0} to {layers} machines"
            return text, f"a machine holds one layer at least, and there are {layers} layers"
    return None


def _covered(nodes: int, least: int, most: int, copies: int) -> bool:
    """Whether replicas of least … most machines, ``copies`` of them or more, add up to ``nodes``."""
    return any(q * least <= nodes <= q * most for q in range(copies, nodes // least + 1))
