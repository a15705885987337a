"""The fastest pipeline for every number of nodes at once: a forward pass over stages.

For each number of stages S, states are (nodes begun, GPUs of the last one still free, layers placed); a
state keeps the one partial pipeline whose iteration would be shortest if it ended there: its sum of stage
times, its slowest stage and where that is, and the sum from there on. The iteration time does not fall apart
into the best halves, so this is a heuristic, like the original's division in two; tests hold it against brute
force. Every node's GPUs are used: powers of two that add up to the node.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from arylcloud.core.errors import InfeasibleError
from arylcloud.planner.cluster import F
from arylcloud.planner.templates.stages import (
    MICROBATCHES_PER_STAGE,
    Layers,
    Stage,
    Template,
    iteration_s,
)


def templates(layers: Layers, gpus_per_node: int, least: int, most: int) -> dict[int, Template]:
    """A template for every number of nodes in [least, most]; sizes of more GPUs than can have a layer are
    left out. InfeasibleError if none is left; ValueError unless a node has 1, 2, 4 … GPUs."""
    if gpus_per_node & (gpus_per_node - 1):
        raise ValueError(f"{gpus_per_node} GPUs in a node is no power of two")
    found: dict[int, Template] = {}
    best: dict[int, float] = {}
    for stages in range(1, min(len(layers), most * gpus_per_node) + 1):
        for template in _with_stages(layers, gpus_per_node, most, stages):
            n, seconds = template.nodes, template.iteration_s()
            # four microbatches per stage: per microbatch, or more stages would always look dearer
            rate = seconds / (MICROBATCHES_PER_STAGE * stages)
            if n >= least and rate < best.get(n, np.inf):
                found[n], best[n] = template, rate
    if not found:
        raise InfeasibleError(f"{len(layers)} layers cannot be laid over {least} nodes", hint="fewer nodes")
    return dict(sorted(found.items()))


def _with_stages(layers: Layers, gpus_per_node: int, most: int, stages: int) -> list[Template]:
    count = len(layers)
    shares = [1 << p for p in range(gpus_per_node.bit_length())]
    seconds = {g: layers.stage_s(g) for g in shares}
    # axis 0: nodes begun, 1: GPUs still free on the last of them, 2: layers placed
    shape = (most + 1, gpus_per_node, count + 1)
    total, slow, since = np.full(shape, np.inf), np.zeros(shape), np.zeros(shape)
    at = np.zeros(shape)
    total[0, 0, 0] = 0.0
    steps: list[tuple[F, F]] = []
    weight = MICROBATCHES_PER_STAGE * stages - stages - 1
    for position in range(stages):
        new = [np.full(shape, np.inf), np.zeros(shape), np.zeros(shape), np.zeros(shape)]
        came, took = np.full(shape, -1.0), np.zeros(shape)
        score = np.full(shape, np.inf)
        for g in shares:
            for free in range(gpus_per_node):
                if free and g > free:
                    continue
                rest = (free or gpus_per_node) - g
                ahead = 1 if free == 0 else 0
                # nodes begun by so many stages: none of them is empty, none holds more than one per GPU
                least, largest = -(-position // gpus_per_node), min(position, most - ahead)
                if largest < least:
                    continue
                rows = slice(least, largest + 1)
                target = slice(least + ahead, largest + 1 + ahead)
                time = seconds[g][None, :, :]
                was = total[rows, free, :, None]
                larger = time > slow[rows, free, :, None]
                k = np.where(larger, position, at[rows, free, :, None])
                worst = np.where(larger, time, slow[rows, free, :, None])
                tail = np.where(larger, 0.0, since[rows, free, :, None]) + time
                with np.errstate(invalid="ignore"):
                    value = was + time + tail + (weight + k) * worst
                value = np.where(np.isnan(value), np.inf, value)
                pick = value.argmin(axis=1)
                chosen = np.take_along_axis(value, pick[:, None, :], axis=1)[:, 0]
                better = chosen < score[target, rest]
                score[target, rest] = np.where(better, chosen, score[target, rest])
                for store, source in zip(new, (was + time, worst, tail, k), strict=True):
                    full = np.broadcast_to(source, value.shape)
                    taken = np.take_along_axis(full, pick[:, None, :], axis=1)[:, 0]
                    store[target, rest] = np.where(better, taken, store[target, rest])
                came[target, rest] = np.where(better, pick, came[target, rest])
                took[target, rest] = np.where(better, g, took[target, rest])
        total, slow, since, at = new
        steps.append((came, took))
    return [
        _walk_back(layers, gpus_per_node, n, steps, seconds)
        for n in range(1, most + 1)
        if np.isfinite(total[n, 0, count])
    ]


def _walk_back(
    layers: Layers, gpus_per_node: int, nodes: int, steps: list[tuple[F, F]], seconds: dict[int, F]
) -> Template:
    last, free, node = len(layers), 0, nodes
    found: list[Stage] = []
    for came, took in reversed(steps):
        first, gpus = int(came[node, free, last]), int(took[node, free, last])
        found.append(Stage(first=first, last=last, gpus=gpus, seconds=float(seconds[gpus][first, last])))
        before = free + gpus
        if before == gpus_per_node:
            node, before = node - 1, 0
        last, free = first, before
    return Template(nodes=nodes, stages=tuple(reversed(found)))


def brute_force(layers: Layers, gpus_per_node: int, nodes: int) -> float:
    """The shortest iteration per microbatch of any pipeline over so many nodes, every one tried."""
    best = np.inf
    times = {1 << p: layers.stage_s(1 << p) for p in range(gpus_per_node.bit_length())}
    for split in _splits(gpus_per_node, nodes):
        stages = len(split)
        for cuts in combinations(range(1, len(layers)), stages - 1):
            edges = (0, *cuts, len(layers))
            seconds = [float(times[g][edges[i], edges[i + 1]]) for i, g in enumerate(split)]
            count = MICROBATCHES_PER_STAGE * stages
            best = min(best, iteration_s(seconds, count) / count)
    return float(best)


def _splits(gpus_per_node: int, nodes: int) -> list[tuple[int, ...]]:
    """Every sequence of stage sizes over that many nodes."""

    def one(left: int) -> list[tuple[int, ...]]:
        if not left:
            return [()]
        sizes = [1 << p for p in range(left.bit_length()) if 1 << p <= left]
        return [(g, *rest) for g in sizes for rest in one(left - g)]

    found: list[tuple[int, ...]] = [()]
    for _ in range(nodes):
        found = [head + tail for head in found for tail in one(gpus_per_node)]
    return found
