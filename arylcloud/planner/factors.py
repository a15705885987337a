"""Learning what GPUs share (:mod:`.completion`) from a library of workloads measured on several of them.

One *sample* = one workload under one set of conditions: log rates on two or more nodes (GPU × precision).
Model: y_m = a_m + x_m, a_m free, x_m ~ N(μ, K). Estimated by expectation–maximisation with missing
entries and Student-t weights (Liu & Rubin 1995), under conjugate priors centred on the power law:

    μ₀(g) = 0.36·ln peak + 0.50·ln bandwidth
    K₀    = F·Σ·Fᵀ [exponents of the workload's own, ±0.25, F = (ln peak, ln bandwidth)]
          + s_g²·exp(−|F_i − F_j|²/2ℓ²) [GPUs alike in figures, one vendor] + s_a² [same architecture]
          + s_n²·I [one GPU's own]

A GPU that no sample has is extended from its figures: B = K₀[new, seen]·K₀[seen, seen]⁻¹ carries what was
learned of the seen ones. Samples of one family (a model in several sizes and sources) count less, each by
the root of their number.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arylcloud.core import gpus
from arylcloud.planner import flops
from arylcloud.planner.completion import Factors, Node, node_of

Floats = NDArray[np.float64]

EXPONENTS: Final = (0.36, 0.50)
_OWN: Final = 0.25
_OWN_CORRELATION: Final = -0.5
_CENTRE: Final = (5.3, 7.3)
_ALIKE, _ALIKE_LENGTH, _ARCH, _ALONE = 0.2, 1.0, 0.05, 0.15
_PRIOR_SAMPLES: Final = 6.0
_MEAN_SAMPLES: Final = 1.0
_STUDENT: Final = 3.0
_FAMILY_POWER: Final = 0.75
_ROUNDS: Final = 25
_PRECISIONS: Final = ("16bit", "tf32", "fp32", "fp8")


class Sample(NamedTuple):
    family: str
    """What is left out together."""
    name: str
    rates: Mapping[Node, float]
    """Natural logarithms."""
    kind: str = ""
    """``submission`` for MLPerf."""
    profile: str = ""
    """Of the library, where it is from there."""
    origin: str = ""
    """Who measured it."""


def all_nodes() -> list[Node]:
    """Every GPU whose figures are known, in every precision that it has its own peak for."""
    found = {node_of(spec.name, p): None for spec in gpus.SPECS for p in _PRECISIONS}
    return [node for node in found if node is not None]


def figures(nodes: Sequence[Node]) -> Floats:
    """[nodes, 2]: ln peak TFLOPS, ln GB/s."""
    rows = []
    for gpu, precision in nodes:
        spec = gpus.BY_NAME[gpu]
        peak = flops.peak_tflops(spec, precision)
        assert peak is not None
        assert spec.mem_bw_gbps is not None
        rows.append((math.log(peak), math.log(spec.mem_bw_gbps)))
    return np.array(rows, dtype=np.float64)


def prior_mean(nodes: Sequence[Node]) -> Floats:
    found: Floats = figures(nodes) @ np.array(EXPONENTS)
    return found


def prior_cov(a: Sequence[Node], b: Sequence[Node]) -> Floats:
    fa, fb = figures(a) - _CENTRE, figures(b) - _CENTRE
    own = _OWN**2 * np.array([[1.0, _OWN_CORRELATION], [_OWN_CORRELATION, 1.0]])
    apart = ((fa[:, None] - fb[None]) ** 2).sum(axis=-1)
    spec_a, spec_b = ([gpus.BY_NAME[n[0]] for n in nodes] for nodes in (a, b))
    vendor = np.array([[x.vendor == y.vendor for y in spec_b] for x in spec_a])
    arch = np.array([[x.arch == y.arch for y in spec_b] for x in spec_a])
    same = np.array([[x == y for y in b] for x in a])
    found: Floats = (
        fa @ own @ fb.T
        + _ALIKE**2 * vendor * np.exp(-apart / (2 * _ALIKE_LENGTH**2))
        + _ARCH**2 * arch
        + _ALONE**2 * same
    )
    return found


def fit(samples: Sequence[Sample], nodes: Sequence[Node] | None = None) -> Factors:
    """Factors over ``nodes`` (None: all GPUs), without bands (:mod:`.leave_one_out` adds them)."""
    useful = [s for s in samples if len(s.rates) > 1]
    seen = sorted({node for s in useful for node in s.rates})
    wanted = list(all_nodes() if nodes is None else nodes)
    if not seen:
        return _factors(wanted, prior_mean(wanted), prior_cov(wanted, wanted))
    mean, cov = _maximise(useful, seen)
    return _factors(wanted, *_extend(seen, mean, cov, wanted))


def _maximise(samples: Sequence[Sample], seen: Sequence[Node]) -> tuple[Floats, Floats]:
    index = {node: i for i, node in enumerate(seen)}
    count = Counter(s.family for s in samples)
    groups: dict[tuple[int, ...], list[tuple[list[float], float]]] = defaultdict(list)
    for s in samples:
        order = sorted(s.rates, key=lambda node: index[node])
        weight = count[s.family] ** -_FAMILY_POWER
        groups[tuple(index[n] for n in order)].append(([s.rates[n] for n in order], weight))
    data = [(list(at), np.array([y for y, _ in v]), np.array([w for _, w in v])) for at, v in groups.items()]
    mean0, cov0 = prior_mean(seen), prior_cov(seen, seen)
    mean, cov = mean0.copy(), cov0.copy()
    for _ in range(_ROUNDS):
        scatter = np.zeros_like(cov)
        drift = np.zeros_like(mean)
        total = 0.0
        for at, rates, weights in data:
            inverse = np.linalg.inv(cov[np.ix_(at, at)] + 1e-9 * np.eye(len(at)))
            ones = inverse.sum(axis=1)
            offsets = rates - mean[at]
            offsets -= (offsets @ ones / ones.sum())[:, None]
            far = np.einsum("ij,jk,ik->i", offsets, inverse, offsets)
            w = weights * (_STUDENT + len(at) - 1) / (_STUDENT + far)
            gain = cov[:, at] @ inverse
            expected = offsets @ gain.T
            by_scale = gain.sum(axis=1)
            left = cov - gain @ cov[at, :] + np.outer(by_scale, by_scale) / ones.sum()
            scatter += (expected * w[:, None]).T @ expected + weights.sum() * left
            drift += w @ expected
            total += float(weights.sum())
        moved = (drift + _MEAN_SAMPLES * (mean0 - mean)) / (total + _MEAN_SAMPLES)
        scatter += total * np.outer(moved, moved) - np.outer(drift, moved) - np.outer(moved, drift)
        mean = mean + moved
        cov = (_PRIOR_SAMPLES * cov0 + scatter) / (_PRIOR_SAMPLES + total)
    return mean, cov


def _extend(seen: Sequence[Node], mean: Floats, cov: Floats, wanted: Sequence[Node]) -> tuple[Floats, Floats]:
    index = {node: i for i, node in enumerate(seen)}
    new = [node for node in wanted if node not in index]
    if new:
        across = prior_cov(new, seen)
        b = np.linalg.solve(prior_cov(seen, seen), across.T).T
        side = b @ cov
        corner = prior_cov(new, new) - b @ across.T + side @ b.T
        mean = np.concatenate([mean, prior_mean(new) + b @ (mean - prior_mean(seen))])
        cov = np.block([[cov, side.T], [side, corner]])
        index |= {node: len(seen) + i for i, node in enumerate(new)}
    at = [index[node] for node in wanted]
    return mean[at], cov[np.ix_(at, at)]


def _factors(nodes: Sequence[Node], mean: Floats, cov: Floats) -> Factors:
    # a common shift of all rates means nothing: the scale of each workload is free
    centred = mean - float(mean.mean())
    rows = np.tril_indices(len(nodes))
    return Factors(nodes, [float(m) for m in centred], [float(c) for c in cov[rows]], {})
