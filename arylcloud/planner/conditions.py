"""Which of a profile's measurements count under the job's conditions, reduced to one point per allocation.

Rows differ in precision, batch, sequence length, framework and submitter. The choice, in this order:

* precision: the class that is asked for; else per GPU the usual one (16 bit or an MLPerf submission,
  then fp8, tf32, fp32, fp4);
* sequence length: the one that is asked for, else the *reference*: the one measured on most GPU types;
  a GPU without it contributes its nearest, corrected by FLOPs per token where the shape is known;
* batch: the nearest to the one asked for, else each submitter's fastest;
* family: rows of one origin (MLPerf, DeepLearningExamples, Gavel…) can be compared, those of two often
  cannot (other code, other precision): of those that a GPU has, the one that covers most GPU types comes
  first, unless a batch is asked for; the others' allocations are kept as second;
* submitters: the median, with the spread between them as band.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from arylcloud.core.plan import ThroughputSource
from arylcloud.planner.flops import flops_per_token
from arylcloud.planner.profiles import Measurement, Profile

REPEAT_BAND: Final = math.log(1.068)
"""95th percentile of the spread between submitters of the same thing: no figure is known better."""

_TIERS: Final = (("16bit", "submission"), ("fp8",), ("tf32",), ("fp32",), ("fp4",))


class Conditions(NamedTuple):
    """What the job says about itself; None = nothing."""

    precision: str | None = None
    """A class: ``fp32 tf32 16bit fp8 fp4``."""
    batch: float | None = None
    seq_len: int | None = None


class Point(NamedTuple):
    """The rate of one allocation under the conditions; the band is [rate·e^−down, rate·e^up]."""

    gpus: int
    nodes: int | None
    rate: float
    log_down: float
    log_up: float
    precision: str
    framework: str
    kind: ThroughputSource
    sources: tuple[str, ...]
    note: str
    family: str = ""
    """Where it comes from; empty for a user's own."""
    submitters: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        """(GPUs per node, nodes); where the number of nodes is not stated, as if they held 8 each."""
        nodes = self.nodes or max(1, self.gpus // 8)
        return max(1, self.gpus // nodes), nodes


class Points(NamedTuple):
    """GPU → (GPUs, nodes) → point; GPUs without a row that counts are absent."""

    first: Mapping[str, Mapping[tuple[int, int | None], Point]]
    second: Mapping[str, Mapping[tuple[int, int | None], Point]]
    """Of other families, where the first has no such allocation."""


def reference_seq_len(profile: Profile) -> int | None:
    """The sequence length measured on most GPU types, then in most rows, then the shortest."""
    seen: dict[int, set[str]] = defaultdict(set)
    rows: dict[int, int] = defaultdict(int)
    for m in profile.measurements:
        if m.seq_len is not None:
            seen[m.seq_len].add(m.gpu)
            rows[m.seq_len] += 1
    return max(seen, key=lambda s: (len(seen[s]), rows[s], -s), default=None)


def reference_batch(profile: Profile, seq_len: int | None) -> float | None:
    """Global batch of the profile's own steps, where its source states one: of the fastest run on the
    fewest GPUs at ``seq_len``."""
    stated = [
        m
        for m in profile.measurements
        if m.batch_stated and m.global_batch is not None and m.seq_len in (seq_len, None)
    ]
    if not stated:
        return None
    fewest = min(m.gpus for m in stated)
    return max((m for m in stated if m.gpus == fewest), key=lambda m: m.rate).global_batch


def points(profile: Profile, conditions: Conditions) -> Points:
    """One point per GPU and allocation."""
    seq_len = conditions.seq_len or reference_seq_len(profile)
    by_gpu: dict[str, list[Measurement]] = defaultdict(list)
    for m in _of_precision(profile.measurements, conditions.precision):
        by_gpu[m.gpu].append(m)
    if conditions.precision is None:
        for gpu, rows in by_gpu.items():
            by_gpu[gpu] = next(r for tier in _TIERS if (r := [m for m in rows if m.precision in tier]))
    ranks = _families(by_gpu)
    first: dict[str, dict[tuple[int, int | None], Point]] = {}
    second: dict[str, dict[tuple[int, int | None], Point]] = {}
    for gpu, all_rows in by_gpu.items():
        rows, factor, spread, note = _at_seq_len(all_rows, seq_len, profile)
        groups: dict[int, dict[tuple[int, int | None], list[Measurement]]] = defaultdict(dict)
        for m in rows:
            rank = 0 if conditions.batch is not None else ranks[_family(m)]
            groups[rank].setdefault((m.gpus, m.nodes), []).append(m)
        first[gpu], second[gpu] = {}, {}
        for n, rank in enumerate(sorted(groups)):
            for where, group in groups[rank].items():
                if n == 0:
                    first[gpu][where] = _reduce(group, conditions.batch, factor, spread, note)
                elif where not in first[gpu] and where not in second[gpu]:
                    second[gpu][where] = _reduce(group, conditions.batch, factor, spread, note)
    return Points(first, second)


def _families(by_gpu: Mapping[str, Sequence[Measurement]]) -> dict[str, int]:
    """Rank of each family: a user's own first, then by the number of GPU types that it covers."""
    covered: dict[str, set[str]] = defaultdict(set)
    for gpu, rows in by_gpu.items():
        for m in rows:
            covered[_family(m)].add(gpu)
    ranked = sorted(covered, key=lambda f: (f != "", -len(covered[f]), f))
    return {family: i for i, family in enumerate(ranked)}


def _family(m: Measurement) -> str:
    """Where a row comes from; empty for a user's own."""
    if m.kind != "published":
        return ""
    return "MLPerf" if m.source.startswith("mlcommons/") else m.source.partition("@")[0]


def _of_precision(rows: Sequence[Measurement], precision: str | None) -> Sequence[Measurement]:
    """Rows of the class; all of them where the profile has none (the note names what is used)."""
    if precision is None:
        return rows
    same = [m for m in rows if m.precision == precision]
    if precision == "16bit":
        have = {m.gpu for m in same}
        same += [m for m in rows if m.precision == "submission" and m.gpu not in have]
    return same or rows


def _at_seq_len(
    rows: list[Measurement], seq_len: int | None, profile: Profile
) -> tuple[list[Measurement], float, float, str]:
    """Rows at ``seq_len`` or the nearest; factor on their rates, log of extra spread, a note."""
    lengths = {m.seq_len for m in rows if m.seq_len is not None}
    if seq_len is None or not lengths or seq_len in lengths:
        return [m for m in rows if m.seq_len in (seq_len, None)] if lengths else rows, 1.0, 0.0, ""
    unknown = [m for m in rows if m.seq_len is None]
    if unknown:
        return unknown, 1.0, 0.0, ""
    nearest = min(lengths, key=lambda s: (abs(math.log(s / seq_len)), s))
    rows = [m for m in rows if m.seq_len == nearest]
    note = f"measured at seq_len {nearest}, not {seq_len}"
    shape = profile.shape
    if profile.unit != "tokens/s":
        # samples grow with their length, at least linearly
        return rows, nearest / seq_len, abs(math.log(seq_len / nearest)) / 2, note
    if shape is None:
        return rows, 1.0, abs(math.log(seq_len / nearest)) / 4, note
    factor = flops_per_token(shape.params, shape.layers, shape.hidden, nearest) / flops_per_token(
        shape.params, shape.layers, shape.hidden, seq_len
    )
    return rows, factor, abs(math.log(factor)) / 2, note


def _reduce(
    rows: Iterable[Measurement], batch: float | None, factor: float, spread: float, note: str
) -> Point:
    if batch is not None:
        rows = list(rows)
        known = [m for m in rows if m.global_batch is not None] or rows
        best = min(_batch_distance(m, batch) for m in known)
        rows = [m for m in known if _batch_distance(m, batch) <= best + 1e-9]
    fastest: dict[object, Measurement] = {}
    for i, m in enumerate(rows):
        # an MLPerf row is a submitter of its own; elsewhere a source's rows differ in batch and options
        submitter: object = i if m.precision == "submission" else (m.source, m.framework)
        if submitter not in fastest or m.rate > fastest[submitter].rate:
            fastest[submitter] = m
    chosen = sorted(fastest.values(), key=lambda m: m.rate)
    rates = [m.rate for m in chosen]
    middle = (rates[(len(rates) - 1) // 2] + rates[len(rates) // 2]) / 2
    cut = len(rates) // 10  # of ten submitters the fastest and the slowest are left out
    down = max(REPEAT_BAND, math.log(middle / rates[cut]))
    up = max(REPEAT_BAND, math.log(rates[len(rates) - 1 - cut] / middle))
    centre = chosen[(len(chosen) - 1) // 2]
    batches = sorted({m.global_batch for m in chosen if m.global_batch is not None})
    notes = [centre.framework] if centre.framework else []
    if centre.precision not in ("16bit", "submission"):
        notes.append(centre.precision)
    if note:
        notes.append(note)
    if batch is not None and batches and best > math.log(1.05):
        notes.append(f"measured at batch {batches[0]:g}, not {batch:g}")
        spread = math.hypot(spread, best / 4)
    if len(chosen) > 1:
        notes.append(f"median of {len(chosen)} submitters")
    return Point(
        gpus=centre.gpus,
        nodes=centre.nodes,
        rate=middle * factor,
        log_down=math.hypot(down, spread),
        log_up=math.hypot(up, spread),
        precision=centre.precision,
        framework=centre.framework,
        kind=centre.kind,
        sources=_sources(chosen),
        note="; ".join(notes),
        family=_family(centre),
        submitters=len(chosen),
    )


def _batch_distance(m: Measurement, batch: float) -> float:
    return math.inf if m.global_batch is None else abs(math.log(m.global_batch / batch))


def _sources(rows: Sequence[Measurement], limit: int = 4) -> tuple[str, ...]:
    texts = list(dict.fromkeys(f"{m.source}, {m.as_of}" if m.as_of else m.source for m in rows))
    if len(texts) <= limit:
        return tuple(texts)
    return (*texts[: limit - 1], f"and {len(texts) - limit + 1} more")
