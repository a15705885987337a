"""A workload's rate on a GPU from its rates on others: low-rank completion of log throughput.

Over all GPUs the log rates of a workload are a_m + x_m, with a_m free (its scale) and x_m ~ N(μ, K). μ and
K are learned from the profile library (:mod:`.factors`), their prior is the power law
T ∝ peak^0.36·bandwidth^0.50 with exponents of each workload's own, so K is low-rank in (peak, bandwidth)
plus what GPUs share. Given rates on some GPUs, the others' are the conditional mean; with one GPU known
that is the power law corrected by what the library knows of both, with two or more the workload's own
exponents show.

The band: the 5th and 95th percentile of (truth − estimate)/s over workloads that the fit had not seen,
by class of GPUs (:data:`CLASSES`); s is the conditional spread. The point lies below the median by
0.3 of the variance: errors are judged relative to the truth, and too high costs more than too low.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import mul
from pathlib import Path
from typing import Any, Final, NamedTuple

from arylcloud.core import gpus
from arylcloud.planner import flops

Node = tuple[str, str]
"""(canonical GPU, precision class): what a rate belongs to."""

FILE: Final = "factors.bin"
CLASSES: Final = ("old", "submission", "same_code")
"""``old``: a GPU from before tensor cores is involved; ``submission``: whole machines as vendors tune them
(MLPerf); ``same_code``: one program on every GPU. Errors differ by that more than by anything else."""
CAUTION: Final = 0.30
"""Share of the variance that the point lies below the median; 1 would minimise the mean relative error."""
_OLD: Final = frozenset({"Kepler", "Maxwell", "Pascal"})
Z90: Final = 1.645
_DIGITS: Final = 1e4
MOST_KNOWN: Final = 4


class Known(NamedTuple):
    """A rate that is known; ``variance`` of its logarithm (0 = as measured)."""

    node: Node
    log_rate: float
    variance: float
    kind: str
    """Precision as its source has it: tells submissions."""


class Completed(NamedTuple):
    """Logarithms."""

    centre: float
    spread: float
    """Standard deviation under the model, before calibration."""
    name: str
    """Class of the calibration: ``old/1``, ``same_code/2``…"""


class Factors:
    """What the library says of GPUs, by node; the lower triangle of ``cov`` is given row by row."""

    def __init__(
        self,
        nodes: Sequence[Node],
        mean: Sequence[float],
        cov: Sequence[float],
        bands: Mapping[str, tuple[float, float]],
    ) -> None:
        self.index = {node: i for i, node in enumerate(nodes)}
        self.nodes = tuple(nodes)
        self.mean = mean
        lower = [cov[i * (i + 1) // 2 : (i + 1) * (i + 2) // 2] for i in range(len(nodes))]
        self.cov = [[*row, *(lower[j][i] for j in range(i + 1, len(nodes)))] for i, row in enumerate(lower)]
        self.bands = bands
        """Class → (5th, 95th percentile) of (truth − median)/spread."""

    def document(self) -> dict[str, Any]:
        return {
            "nodes": [list(node) for node in self.nodes],
            "mean": [round(m * _DIGITS) for m in self.mean],
            "cov": json.dumps(
                [round(c * _DIGITS) for i, row in enumerate(self.cov) for c in row[: i + 1]],
                separators=(",", ":"),
            ),
            "bands": {name: [round(b, 3) for b in band] for name, band in sorted(self.bands.items())},
        }

    @staticmethod
    def of(document: Mapping[str, Any]) -> Factors:
        return Factors(
            [(gpu, precision) for gpu, precision in document["nodes"]],
            [m / _DIGITS for m in document["mean"]],
            [c / _DIGITS for c in json.loads(document["cov"])],
            {name: (low, high) for name, (low, high) in document["bands"].items()},
        )


@lru_cache(maxsize=1)
def bundled() -> Factors:
    """The package's own; IntegrityError where the file is damaged."""
    from arylcloud.planner.profile_files import unpack

    path = Path(__file__).parent / "data" / FILE
    return Factors.of(unpack(path.read_bytes(), what=f"the bundled file {FILE}"))


def node_of(gpu: str, precision: str) -> Node | None:
    """None where the GPU's peak or bandwidth is not known.

    >>> node_of("A100", "submission"), node_of("V100", "tf32"), node_of("M60", "16bit")
    (('A100', '16bit'), ('V100', 'fp32'), None)
    """
    spec = gpus.BY_NAME.get(gpu)
    if spec is None or spec.mem_bw_gbps is None or flops.peak_tflops(spec, precision) is None:
        return None
    if precision == "tf32" and spec.tf32_tflops is None:
        return gpu, "fp32"
    if precision in ("fp8", "fp4"):
        return gpu, "fp8" if spec.fp8_tflops else "16bit"
    return gpu, "16bit" if precision == "submission" else precision


def class_of(known: Sequence[Known], target: Node) -> str:
    """Which calibration applies; ``/1`` from one GPU, ``/2`` from more."""
    old = gpus.BY_NAME[target[0]].arch in _OLD
    name = _class_of(known)
    return f"{'old' if old else name}/{min(len(known), 2)}"


def _class_of(known: Sequence[Known]) -> str:
    if any(gpus.BY_NAME[k.node[0]].arch in _OLD for k in known):
        return "old"
    return "submission" if any(k.kind == "submission" for k in known) else "same_code"


class Given:
    """Known rates, solved once for any number of targets. All nodes must be covered by the factors."""

    def __init__(self, factors: Factors, known: Sequence[Known]) -> None:
        self.factors = factors
        self.known = tuple(known)
        self.at = [factors.index[k.node] for k in known]
        matrix = [[row[j] for j in self.at] for row in (factors.cov[i] for i in self.at)]
        for i, k in enumerate(known):
            matrix[i][i] += k.variance + 1e-6
        self._lower = _cholesky(matrix)
        ones = _solve(self._lower, [1.0] * len(known))
        offsets = [k.log_rate - factors.mean[i] for k, i in zip(known, self.at, strict=True)]
        self._precision = sum(ones)
        self._scale = sum(w * r for w, r in zip(ones, offsets, strict=True)) / self._precision
        self._rest = [r - self._scale for r in offsets]

    def complete(self, target: Node) -> Completed | None:
        """The conditional median of the target's log rate and its spread; None where it is not covered."""
        t = self.factors.index.get(target)
        if t is None:
            return None
        row = self.factors.cov[t]
        to_target = [row[i] for i in self.at]
        weights = _solve(self._lower, to_target)
        centre = self.factors.mean[t] + self._scale
        centre += sum(w * r for w, r in zip(weights, self._rest, strict=True))
        variance = row[t] - sum(w * c for w, c in zip(weights, to_target, strict=True))
        variance += (1.0 - sum(weights)) ** 2 / self._precision
        return Completed(centre, math.sqrt(max(variance, 1e-6)), class_of(self.known, target))


def nearest(factors: Factors, known: Sequence[Known], target: Node) -> list[Known]:
    """The most telling: those whose rates differ from the target's the least under the model."""
    if len(known) <= MOST_KNOWN:
        return list(known)
    t = factors.index[target]
    row = factors.cov[t]

    def apart(k: Known) -> float:
        i = factors.index[k.node]
        return row[t] + factors.cov[i][i] - 2 * row[i] + k.variance

    return sorted(known, key=lambda k: (apart(k), k.node))[:MOST_KNOWN]


def banded(factors: Factors, found: Completed) -> tuple[float, float, float]:
    """(log rate, log down, log up): the point that is told, and the band around it (both sides > 0)."""
    low, high = factors.bands[found.name]
    shift = CAUTION * (found.spread * (high - low) / (2 * Z90)) ** 2
    point = found.centre - shift
    least = 0.02
    return point, max(least, -low * found.spread - shift), max(least, high * found.spread + shift)


def _cholesky(a: Sequence[Sequence[float]]) -> list[list[float]]:
    lower: list[list[float]] = []
    for i, source in enumerate(a):
        row: list[float] = []
        for j in range(i):
            above = lower[j]
            row.append((source[j] - sum(map(mul, row, above))) / above[j])
        row.append(math.sqrt(source[i] - sum(map(mul, row, row))))
        lower.append(row)
    return lower


def _solve(lower: Sequence[Sequence[float]], b: Sequence[float]) -> list[float]:
    """x with L·Lᵀ·x = b."""
    x: list[float] = []
    for row, value in zip(lower, b, strict=True):
        x.append((value - sum(map(mul, row, x))) / row[len(x)])
    for i in reversed(range(len(x))):
        x[i] /= lower[i][i]
        for j in range(i):
            x[j] -= lower[i][j] * x[i]
    return x
