"""How wrong completion is on a workload that its fit has not seen, and the bands that follow from it.

For every family of models: fit the factors without it, then hide each of its GPUs in turn and estimate
it from one other GPU (every ordered pair) and from all others. The band of a family is made of the other
families' residuals alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from arylcloud.core.units import RATE_UNITS
from arylcloud.planner.completion import (
    CLASSES,
    Completed,
    Factors,
    Given,
    Known,
    Node,
    banded,
    bundled,
    nearest,
    node_of,
)
from arylcloud.planner.conditions import Conditions, points
from arylcloud.planner.factors import Sample, fit
from arylcloud.planner.profiles import Library, Measurement, Profile

_STEMS: Final = (
    "bert", "resnet18", "resnet50", "resnet", "ssd", "transformerxl", "transformer", "ncf", "recommendation",
    "tacotron", "waveglow", "gnmt", "dlrm", "llama", "maskrcnn", "unet", "nnunet", "efficientnet", "mpt",
    "cyclegan", "a3c", "lm",
)  # fmt: skip
_SAME: Final = {"resnet": "resnet50"}
TAIL: Final = 0.05
"""Beyond each end of the band."""
_FEW: Final = 2.0
"""With residuals of F families the tail is cut to TAIL·(1 − _FEW/F): the next family is a draw of its own."""


def family_of(name: str) -> str:
    """What is left out together: a model in all its sizes, batches and sources.

    >>> family_of("mlperf-bert"), family_of("bert_large_squad"), family_of("gavel-resnet-50-bs64")
    ('bert', 'bert', 'resnet50')
    """
    text = re.sub(r"[\W_]+", "", re.sub(r"^(mlperf|dle|gavel|biobert|timm)-", "", name.lower()))
    text = "bert" if text.startswith(("base", "biobert")) else text
    stem = next((s for s in _STEMS if text.startswith(s)), text)
    return _SAME.get(stem, stem)


def library_samples(library: Library) -> list[Sample]:
    """Each profile's workloads on one GPU and on a machine of eight (Gavel's: in every placement): per
    origin, precision and, for MLPerf, round. Steps and samples per second of the same runs count once."""
    found: list[Sample] = []
    for entry in library.entries:
        profile = library.get(entry.name)
        if profile.unit not in RATE_UNITS or (entry.name.startswith("gavel-") and profile.unit != "steps/s"):
            continue
        found += _profile_samples(profile)
    return found


def _profile_samples(profile: Profile) -> Iterable[Sample]:
    groups: dict[tuple[str, str], list[Measurement]] = defaultdict(list)
    for m in profile.measurements:
        mlperf = m.framework.startswith("MLPerf")
        if profile.name == "resnet-50" and "(Gavel)" in m.framework:
            continue  # again, as images
        origin = m.framework if mlperf else m.source.partition("@")[0]
        groups[origin if m.kind == "published" else "your own", m.precision].append(m)
    for (origin, precision), rows in groups.items():
        kept = replace(profile, measurements=tuple(rows))
        wanted = None if precision == "submission" else precision
        by_gpu = points(kept, Conditions(precision=wanted)).first
        every = {where for points_ in by_gpu.values() for where in points_}
        for count, nodes in sorted(every, key=str) if "gavel" in origin else ((1, 1), (8, 1)):
            rates = {
                node: math.log(where[count, nodes].rate)
                for gpu, where in by_gpu.items()
                if (count, nodes) in where and (node := node_of(gpu, precision)) is not None
            }
            if len(rates) > 1:
                kind = "submission" if precision == "submission" else ""
                name = f"{profile.name} {origin} {precision} ×{count}" + ("" if nodes else " apart")
                yield Sample(family_of(profile.name), name, rates, kind, profile.name, _origin(origin))


def _origin(text: str) -> str:
    """Of a measurement's source, what a table calls it.

    >>> _origin("MLPerf v3.1"), _origin("NVIDIA/DeepLearningExamples")
    ('MLPerf', 'DeepLearningExamples')
    """
    return "MLPerf" if text.startswith("MLPerf") else text.partition(":")[0].rpartition("/")[2] or text


class Held(NamedTuple):
    """One rate that was hidden; logarithms."""

    family: str
    origin: str
    target: Node
    known: tuple[Node, ...]
    truth: float
    found: Completed

    @property
    def residual(self) -> float:
        return (self.truth - self.found.centre) / self.found.spread


def held_out(columns: Sequence[Sample], library: Sequence[Sample]) -> list[Held]:
    """Every hidden rate of ``columns``, estimated by factors of ``library`` without its family."""
    held: list[Held] = []
    for family in sorted({s.family for s in columns}):
        mine = [s for s in columns if s.family == family]
        rest = [s for s in library if s.family != family]
        nodes = sorted({node for s in (*mine, *rest) for node in s.rates})
        factors = fit(rest, nodes)
        for sample in mine:
            held += hidden(sample, factors)
    return held


def hidden(sample: Sample, factors: Factors) -> list[Held]:
    """Each node of the sample from each other one, and from all others where there are two or more."""
    kinds = sample.kind or "same"
    held: list[Held] = []
    origin = sample.origin or sample.kind or "same code"
    for target, truth in sample.rates.items():
        others = [Known(n, r, 0.0, kinds) for n, r in sample.rates.items() if n != target]
        shown = [[k] for k in others]
        if len(others) > 1:
            shown.append(nearest(factors, others, target))
        for known in shown:
            found = Given(factors, known).complete(target)
            if found is not None:
                at = tuple(k.node for k in known)
                held.append(Held(sample.family, origin, target, at, truth, found))
    return held


def bands(held: Iterable[Held], *, without: str | None = None) -> dict[str, tuple[float, float]]:
    """Per class, the 5th and 95th percentile of the residuals; each figure weighs 1/√(figures of its family).
    ``without``: a family whose residuals are not used. Classes without residuals have the widest of all."""
    by_class: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for h in held:
        if h.family != without:
            by_class[h.found.name].append((h.residual, h.family))
    found = {name: _ends(v) for name, v in by_class.items()}
    for name in (f"{c}/{n}" for c in CLASSES for n in (1, 2)):
        if found and name not in found:
            found[name] = (min(low for low, _ in found.values()), max(high for _, high in found.values()))
    return found


def _ends(values: Sequence[tuple[float, str]]) -> tuple[float, float]:
    tail = TAIL * max(0.1, 1 - _FEW / len({family for _, family in values}))
    return _quantile(values, tail), _quantile(values, 1 - tail)


def _quantile(values: Sequence[tuple[float, str]], at: float) -> float:
    count = Counter(family for _, family in values)
    weighted = sorted((z, count[family] ** -0.5) for z, family in values)
    total = sum(w for _, w in weighted)
    reached = 0.0
    for z, w in weighted:
        reached += w
        if reached >= at * total:
            return z
    return weighted[-1][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    figures: int
    median: float
    """Of |estimate/truth − 1|."""
    p95: float
    covered: float
    """Fraction of the truths inside their bands."""
    widths: tuple[float, ...]
    """Of the bands, high/low, ascending."""

    @property
    def width(self) -> float:
        """Their median."""
        return self.widths[(len(self.widths) - 1) // 2]


def score_held(held: Sequence[Held], residuals: Sequence[Held] | None) -> Scored | None:
    """Errors of ``held``; the band of each family from the ``residuals`` of all others (None: the bands
    that are shipped, for workloads that had no part in them)."""
    if not held:
        return None
    errors, inside, widths = [], 0, []
    by_family = {
        f: bundled().bands if residuals is None else bands(residuals, without=f)
        for f in {h.family for h in held}
    }
    for h in held:
        point, down, up = banded(Factors((), (), (), by_family[h.family]), h.found)
        errors.append(abs(math.exp(point - h.truth) - 1))
        inside += -down <= h.truth - point <= up
        widths.append(math.exp(down + up))
    errors.sort()
    widths.sort()
    return Scored(
        figures=len(errors),
        median=errors[(len(errors) - 1) // 2],
        p95=errors[math.ceil(0.95 * len(errors)) - 1],
        covered=inside / len(errors),
        widths=tuple(widths),
    )
