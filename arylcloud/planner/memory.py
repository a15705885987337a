"""Does the training fit into a GPU's memory? For transformers of known shape; for others: not known.

Rule, per GPU, mixed precision with Adam (Rajbhandari et al. 2020, ZeRO; Korthikanti et al. 2022):

    16·N/G   weights 2 + gradients 2 + fp32 weights 4 + two moments 8 bytes per parameter, over G GPUs
             (sharded; G = 1 where every GPU holds everything)
  +  4·N/L   the layer at work and the next one, gathered in 16 bit (sharded on more than one GPU)
  +  2·L·s·d one saved input per layer (activations recomputed), micro-batch of one sample
  + 34·s·d   the layer at work, attention without a stored score matrix
  +  6·s·V   logits in 16 and 32 bit, V = 50,000 where it is not said
  + 1.5 GiB  CUDA context and fragmentation

with s at most 8,192: longer samples are split over GPUs (context parallel), where there are enough.
It is a lower bound for ordinary code: a GPU below it is left out, one above it may still be too small
for a larger micro-batch. A measurement on the same GPU settles it without a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from arylcloud.core import gpus
from arylcloud.core.job import ProfileRef
from arylcloud.planner.conditions import reference_seq_len
from arylcloud.planner.profiles import Library, Profile, Shape

STATE_BYTES: Final = 16.0
OVERHEAD_GIB: Final = 1.5
MEMORY: Final = "not enough GPU memory"
"""Label of a refusal by this rule."""
VOCABULARY: Final = 50_000
LONG_SAMPLE: Final = 8192
_GIB: Final = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """``fits`` None = not known: nothing is left out for it."""

    fits: bool | None
    need_gib: float | None
    """Per GPU; None where no rule applies."""
    method: str
    short_gib: float | None = None
    """What a GPU lacks, where it does not fit."""


def need_gib(
    shape: Shape, seq_len: int, gpus_total: int, *, sharded: bool = True, vocabulary: int = VOCABULARY
) -> float:
    """Least memory per GPU, GiB (formula: the module's docstring).

    >>> mpt_7b = Shape(params=6.7e9, layers=32, hidden=4096)
    >>> round(need_gib(mpt_7b, 2048, 1)), round(need_gib(mpt_7b, 2048, 8))
    (103, 16)
    """
    held = min(seq_len, max(LONG_SAMPLE, seq_len // gpus_total))
    width = shape.hidden * held
    shards = gpus_total if sharded else 1
    states = STATE_BYTES * shape.params / shards
    gathered = 4.0 * shape.params / shape.layers if shards > 1 else 0.0
    activations = (2.0 * shape.layers + 34.0) * width + 6.0 * held * vocabulary
    return (states + gathered + activations) / _GIB + OVERHEAD_GIB


def fits(
    profile: ProfileRef,
    configs: Sequence[tuple[str, int, int]],
    *,
    library: Library | None = None,
    seq_len: int | None = None,
    sharded: bool = True,
) -> list[Fit]:
    """One answer per (canonical GPU, GPUs per node, nodes), in order.

    ``library`` is needed for a profile by name only; UsageError where the name is unknown.
    """
    shape, measured, name = _known(profile, library)
    length = seq_len or profile.seq_len or (profile.shape.seq_len if profile.shape else None)
    if length is None and measured is not None:
        length = reference_seq_len(measured)
    fewest: dict[str, int] = {}
    for m in measured.measurements if measured else ():
        fewest[m.gpu] = min(m.gpus, fewest.get(m.gpu, m.gpus))
    for rate in profile.rates:
        gpu = gpus.resolve(rate.gpu)
        fewest[gpu] = min(rate.count, fewest.get(gpu, rate.count))
    return [_fit(c, shape, length, fewest.get(c[0]), name, sharded=sharded) for c in configs]


def _known(profile: ProfileRef, library: Library | None) -> tuple[Shape | None, Profile | None, str]:
    if profile.shape is not None:
        s = profile.shape
        return Shape(params=s.params, layers=s.layers, hidden=s.hidden), None, "this shape"
    if profile.name is None or library is None:
        return None, None, "this job"
    found = library.get(profile.name)
    return found.shape, found, found.name


def _fit(
    config: tuple[str, int, int],
    shape: Shape | None,
    seq_len: int | None,
    fewest: int | None,
    name: str,
    *,
    sharded: bool,
) -> Fit:
    gpu, per_node, nodes = config
    total = per_node * nodes
    need = need_gib(shape, seq_len, total, sharded=sharded) if shape and seq_len else None
    if fewest is not None and total >= fewest:
        return Fit(fits=True, need_gib=need, method=f"ran on {fewest} × {gpu}")
    spec = gpus.BY_NAME.get(gpu)
    have = spec.mem_gib if spec else None
    if need is None or have is None:
        what = f"{gpu}'s memory" if need is not None else f"the memory that {name} needs"
        return Fit(fits=None, need_gib=need, method=f"{what} is not known: not checked")
    how = f"{need:.1f} GiB per GPU at least (16 bytes per parameter"
    how += f" over {total} GPUs" if sharded and total > 1 else ""
    method = f"{how}, activations recomputed); {gpu} has {have:g}"
    return Fit(fits=need <= have, need_gib=need, method=method, short_gib=max(0.0, need - have) or None)
