"""From the plan table to ranks: who holds which layers, and what of them has to be fetched.

The table's row for so many machines says which replicas there are; ``spread`` in which zones their places
lie; and of all ways to put the machines of a zone into its places the one is taken in which the fewest layers
have to be fetched: a machine that stays keeps what it holds wherever the row allows that. Borrowing and
merging (``shrink``) is one of these ways, whenever it ends at the row's sizes. A machine is one stage, with
all its GPUs; how it uses these is its command's affair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from arylcloud.core.pipeline import PipelineReplica, Pipelines, PipelineSpec, PipelineStage, Run
from arylcloud.planner.templates.matching import cheapest
from arylcloud.planner.templates.search import templates
from arylcloud.planner.templates.spread import spread
from arylcloud.planner.templates.stages import Layers, Template
from arylcloud.planner.templates.table import Row, row


def assign(
    spec: PipelineSpec, *, nodes_max: int, zones: Sequence[str], held: Sequence[Run | None]
) -> Pipelines:
    """``zones`` and ``held`` by rank: where it is, and the layers that it held before (None = none).

    Pure. Fewer machines than f + 1 replicas need get as many replicas as they hold; InfeasibleError where
    not even one can be laid over them, or ``core.pipeline.problem`` names one."""
    world = len(zones)
    at = lookup(spec, nodes_max=nodes_max, world=world)
    made = _templates(spec, nodes_max)
    places = spread(at.pipelines, zones)
    runs = [[(stage.first, stage.last) for stage in made[size].stages] for size in at.pipelines]
    rank_of = _place(places, runs, zones, held)
    replicas = []
    for i, stages in enumerate(runs):
        parts = [
            PipelineStage(
                rank=rank_of[i, j], first=run[0], last=run[1], fetch=missing(run, held[rank_of[i, j]])
            )
            for j, run in enumerate(stages)
        ]
        replicas.append(PipelineReplica(stages=tuple(parts), microbatches=at.microbatches[i]))
    return Pipelines(layers=len(spec.layer_s), replicas=tuple(replicas))


def lookup(spec: PipelineSpec, *, nodes_max: int, world: int) -> Row:
    """The table's row for so many machines. InfeasibleError as of ``assign``."""
    copies = max(1, min(spec.failures + 1, world // spec.least_nodes))
    return _row(spec, max(nodes_max, world), world, copies - 1)


def missing(run: Run, held: Run | None) -> tuple[Run, ...]:
    """What of ``run`` is not in ``held``.

    >>> missing((2, 8), (3, 5))
    ((2, 3), (5, 8))
    """
    (first, last), (low, high) = run, held or (0, 0)
    low, high = max(first, low), min(last, high)
    if low >= high:
        return ((first, last),)
    return tuple((a, b) for a, b in ((first, low), (high, last)) if a < b)


def _place(
    places: Sequence[Sequence[str]],
    runs: Sequence[Sequence[Run]],
    zones: Sequence[str],
    held: Sequence[Run | None],
) -> dict[tuple[int, int], int]:
    """(replica, stage) → rank, zone by zone: fewest layers fetched, and among equals in order of rank."""
    found: dict[tuple[int, int], int] = {}
    for zone in sorted(set(zones)):
        ranks = [r for r, name in enumerate(zones) if name == zone]
        open_ = [(i, j) for i, names in enumerate(places) for j, name in enumerate(names) if name == zone]
        weight = len(ranks) ** 2 + 1  # more than all deviations from the order of ranks together
        cost = [
            [
                weight * sum(b - a for a, b in missing(runs[i][j], held[rank])) + abs(at - place)
                for place, (i, j) in enumerate(open_)
            ]
            for at, rank in enumerate(ranks)
        ]
        for at, place in enumerate(cheapest(cost)):
            found[open_[place]] = ranks[at]
    return found


@lru_cache(maxsize=16)
def _templates(spec: PipelineSpec, nodes_max: int) -> Mapping[int, Template]:
    layers = Layers(
        step_s=np.array(spec.layer_s),
        reduce_s=np.zeros((len(spec.layer_s), 0)),
        param_bytes=np.zeros(len(spec.layer_s)),
    )
    return templates(layers, 1, 1, max(1, nodes_max - spec.failures * spec.least_nodes))


@lru_cache(maxsize=256)
def _row(spec: PipelineSpec, nodes_max: int, world: int, failures: int) -> Row:
    least = min(spec.least_nodes, world)
    able = {n: t for n, t in _templates(spec, nodes_max).items() if n >= least}
    return row(able, world=world, failures=failures, microbatches=spec.microbatches)
