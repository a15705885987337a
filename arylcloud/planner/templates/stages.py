"""A model as layers, a pipeline as stages, and how long one iteration of a pipeline takes.

A stage is a run of layers on 1, 2, 4 … GPUs of one node. With stage times ``t_i = Σ layers/g +
all-reduce(g)``, S stages, k the slowest (counted from 0, the first of equal ones) and N_b microbatches, 1F1B
takes

    T = T1 + T2 + T3,   T1 = Σ_i t_i,   T2 = (N_b − S + k − 1)·t_k,   T3 = Σ_{i≥k} t_i

so that S equal stages take ``(N_b + S − 1)·t``. Templates are compared at ``N_b = 4·S`` (arXiv 2309.08125).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arylcloud.planner.cluster import F

MICROBATCHES_PER_STAGE = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layers:
    """L layers, profiled on one GPU with one microbatch."""

    step_s: F
    """(L,) forward and backward."""
    reduce_s: F
    """(L, p) the all-reduce inside a node when the layer is on 2, 4, … 2^p GPUs."""
    param_bytes: F
    """(L,)"""
    activation_bytes: float = 0.0
    """The largest layer's."""

    def __len__(self) -> int:
        return len(self.step_s)

    def stage_s(self, gpus: int) -> F:
        """(L + 1, L + 1) time of a stage of layers [a, b) on ``gpus`` of one node; inf where a ≥ b."""
        per_layer = self.step_s / gpus
        if gpus > 1:
            per_layer = per_layer + self.reduce_s[:, gpus.bit_length() - 2]
        total = np.concatenate([[0.0], np.cumsum(per_layer)])
        spans = total[None, :] - total[:, None]
        found: F = np.where(np.arange(len(total))[:, None] < np.arange(len(total))[None, :], spans, np.inf)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Layers [first, last) on so many GPUs of one node."""

    first: int
    last: int
    gpus: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One pipeline over so many nodes."""

    nodes: int
    stages: tuple[Stage, ...]

    def iteration_s(self, microbatches: int | None = None) -> float:
        """Seconds for so many microbatches; None = four per stage."""
        count = MICROBATCHES_PER_STAGE * len(self.stages) if microbatches is None else microbatches
        return iteration_s([stage.seconds for stage in self.stages], count)

    def most_microbatches(self, seconds: float) -> int:
        """How many fit into so much time; 0 if not even one does."""
        times = [stage.seconds for stage in self.stages]
        if iteration_s(times, 1) > seconds:
            return 0
        slow = max(times)
        k = times.index(slow)
        fill = sum(times) + sum(times[k:])
        return max(1, math.floor((seconds - fill) / slow * (1 + 1e-12) + 1e-9) + len(times) - k + 1)


def iteration_s(times: Sequence[float], microbatches: int) -> float:
    """1F1B's iteration of stages with these times.

    >>> iteration_s([2.0, 2.0, 2.0], 12)  # (12 + 3 - 1)·2
    28.0
    """
    slow = max(times)
    k = list(times).index(slow)
    middle = max(0, microbatches - len(times) + k - 1)
    return sum(times) + middle * slow + sum(times[k:])


def least_nodes(layers: Layers, gpu_bytes: float, gpus_per_node: int) -> int:
    """n0: the nodes that parameters, gradients and optimizer state (6 × parameters) and activations need."""
    need = 6.0 * float(layers.param_bytes.sum()) + layers.activation_bytes
    return max(1, math.ceil(need / (gpu_bytes * gpus_per_node)))
