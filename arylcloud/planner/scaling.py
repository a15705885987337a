"""How much of linear a job keeps when it runs on more GPUs: efficiency by fabric and network.

``rate(n GPUs) = n × rate(1 GPU) × efficiency``, with efficiency = within one machine × between
machines. Medians, 10th and 90th percentiles over published weak-scaling series (DeepLearningExamples,
llm-foundry, MLPerf; the study's ``scaling.csv`` of 2026-08, which also has unpublishable rows behind the
figures for PCIe and slow networks); between the counts of a table it is interpolated in log₂ n, beyond
its end the last figure holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from arylcloud.core import gpus


class Efficiency(NamedTuple):
    """Fractions of linear scaling: the usual one, and the range that 8 of 10 jobs fall into."""

    median: float
    p10: float
    p90: float


class Fabric(StrEnum):
    """What joins the GPUs of one machine."""

    NVSWITCH = "nvswitch"
    """All-to-all at ≥ 600 GB/s: SXM boards from A100 on; TPU, MI300 and Gaudi links behave alike."""
    NVLINK2 = "nvlink2"
    """V100's ring."""
    PCIE5 = "pcie5"
    """H100 PCIe and NVL."""
    PCIE = "pcie"
    """Everything else, and unknown: the cautious table."""


class Network(StrEnum):
    """What joins the machines."""

    FAST = "fast"
    """InfiniBand, or ≥ 400 Gb/s with RDMA, per machine of 8 GPUs."""
    SLOW = "slow"
    """50–100 Gb/s and less, and unknown."""


_ONE: Final = Efficiency(1.0, 1.0, 1.0)
_INTRA: Final[Mapping[Fabric, Mapping[int, Efficiency]]] = {
    Fabric.NVSWITCH: {
        1: _ONE,
        2: Efficiency(0.98, 0.84, 1.0),
        4: Efficiency(0.96, 0.83, 1.0),
        8: Efficiency(0.94, 0.70, 1.0),
    },
    Fabric.NVLINK2: {
        1: _ONE,
        2: Efficiency(0.95, 0.79, 1.0),
        4: Efficiency(0.91, 0.74, 0.99),
        8: Efficiency(0.87, 0.66, 0.99),
    },
    Fabric.PCIE5: {
        1: _ONE,
        2: Efficiency(0.998, 0.94, 1.0),
        4: Efficiency(0.99, 0.90, 1.0),
        8: Efficiency(0.99, 0.79, 1.0),
    },
    Fabric.PCIE: {
        1: _ONE,
        2: Efficiency(0.93, 0.78, 1.0),
        4: Efficiency(0.90, 0.60, 1.0),
        8: Efficiency(0.85, 0.50, 1.0),
        16: Efficiency(0.80, 0.45, 1.0),
    },
}
_INTER: Final[Mapping[Network, Mapping[int, Efficiency]]] = {
    Network.FAST: {
        1: _ONE,
        2: Efficiency(0.98, 0.93, 1.0),
        4: Efficiency(0.955, 0.915, 0.99),
        8: Efficiency(0.93, 0.86, 0.98),
        32: Efficiency(0.90, 0.845, 0.95),
    },
    # T4 at 50 Gb/s, 2 × 4 GPUs: the worst tenth keeps a quarter (large models, small batches)
    Network.SLOW: {1: _ONE, 2: Efficiency(0.73, 0.26, 0.89), 16: Efficiency(0.65, 0.22, 0.89)},
}
# MLPerf against 8 GPUs, where the global batch stays (nearly) what it was: strong scaling
_STRONG: Final[Mapping[int, Efficiency]] = {
    8: _ONE,
    16: Efficiency(0.937, 0.84, 1.0),
    32: Efficiency(0.74, 0.45, 0.92),
    128: Efficiency(0.66, 0.29, 0.77),
    512: Efficiency(0.39, 0.24, 0.77),
}


@lru_cache(maxsize=256)
def fabric_of(gpu: str) -> Fabric:
    """Fabric inside a cloud machine with GPUs of this (canonical) name.

    >>> fabric_of("H100").value, fabric_of("V100").value, fabric_of("L4").value
    ('nvswitch', 'nvlink2', 'pcie')
    """
    spec = gpus.BY_NAME.get(gpu)
    if spec is None:
        return Fabric.PCIE
    if gpu in ("H100-PCIE", "H100-NVL"):
        return Fabric.PCIE5
    if "PCIE" in gpu:
        return Fabric.PCIE
    if spec.vendor == "Google" or (spec.nvlink_gbps or 0) >= 600:
        return Fabric.NVSWITCH
    return Fabric.NVLINK2 if spec.arch == "Volta" else Fabric.PCIE


def network_of(gpu: str, gpus_per_node: int) -> Network:
    """The network that clouds sell with such a machine; only whole boards of 8 (GB200: 4) get a fast one.

    >>> network_of("A100", 8).value, network_of("A100", 1).value, network_of("T4", 4).value
    ('fast', 'slow', 'slow')
    """
    whole = 4 if gpu.startswith(("GB", "TPU")) else 8
    fast = fabric_of(gpu) is Fabric.NVSWITCH and gpus_per_node >= whole
    return Network.FAST if fast else Network.SLOW


def intra(gpu: str, gpus_per_node: int) -> Efficiency:
    return _at(_INTRA[fabric_of(gpu)], gpus_per_node)


def inter(network: Network, nodes: int) -> Efficiency:
    return _at(_INTER[network], nodes)


def strong(gpus_total: int) -> Efficiency:
    """What is left where the global batch is fixed, relative to 8 GPUs (1 below)."""
    return _at(_STRONG, max(gpus_total, 8))


@lru_cache(maxsize=4096)
def efficiency(gpu: str, gpus_per_node: int, nodes: int, *, fixed_batch: bool = False) -> Efficiency:
    """Fraction of linear scaling from one GPU. ``fixed_batch``: a work unit is a step of fixed size.

    >>> round(efficiency("H100", 8, 1).median, 3), round(efficiency("H100", 8, 4).median, 3)
    (0.94, 0.898)
    >>> round(efficiency("T4", 4, 2).median, 3)
    0.657
    """
    parts = [intra(gpu, gpus_per_node), inter(network_of(gpu, gpus_per_node), nodes)]
    if fixed_batch:
        parts.append(strong(gpus_per_node * nodes))
    return Efficiency(*(math.prod(part[i] for part in parts) for i in range(3)))


class Step(NamedTuple):
    """From one count to another: the factor on the rate, and the logarithms of its band (both ≥ 0)."""

    factor: float
    log_down: float
    log_up: float


@lru_cache(maxsize=4096)
def step(
    gpu: str,
    start: tuple[int, int],
    end: tuple[int, int],
    *,
    fixed_batch: bool = False,
    start_network: Network | None = None,
) -> Step:
    """Factor from ``start`` = (GPUs per node, nodes) to ``end`` on the same GPU.

    Only the parts that change are uncertain: from 8 GPUs to two machines of 8, the network alone.
    ``start_network``: what the start was measured on (None: what clouds sell with such a machine).

    >>> s = step("A100", (8, 1), (8, 2))
    >>> round(s.factor, 2), round(s.log_down, 3)
    (1.96, 0.052)
    """
    pairs = [
        (intra(gpu, start[0]), intra(gpu, end[0])),
        (
            inter(start_network or network_of(gpu, start[0]), start[1]),
            inter(network_of(gpu, end[0]), end[1]),
        ),
    ]
    if fixed_batch:
        pairs.append((strong(start[0] * start[1]), strong(end[0] * end[1])))
    factor = (end[0] * end[1]) / (start[0] * start[1])
    down = up = 0.0
    for old, new in pairs:
        if old == new:
            continue
        factor *= new.median / old.median
        wider = max(old, new, key=lambda e: e.median / e.p10)
        down += math.log(wider.median / wider.p10) ** 2
        up += math.log(wider.p90 / wider.median) ** 2
    return Step(factor, math.sqrt(down), math.sqrt(up))


def _at(table: Mapping[int, Efficiency], n: int) -> Efficiency:
    if n in table:
        return table[n]
    counts = list(table)
    if n > counts[-1]:
        return table[counts[-1]]
    above = next(i for i, count in enumerate(counts) if count > n)
    low, high = counts[above - 1], counts[above]
    w = math.log(n / low) / math.log(high / low)
    a, b = table[low], table[high]
    return Efficiency(*(x + (y - x) * w for x, y in zip(a, b, strict=True)))
