"""What is left out before anything is priced: no estimate, not enough memory, no tariff; and the counts.

Counts are offers. An offer is left out where none of its numbers of machines is left, and is counted once,
under what the furthest of them fell to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.job import ProfileRef
from arylcloud.core.plan import Rejection
from arylcloud.planner.grouping import Ways
from arylcloud.planner.ladder import Estimate, Refusal
from arylcloud.planner.memory import MEMORY, fits
from arylcloud.planner.profiles import Library
from arylcloud.planner.same_gpu import Config
from arylcloud.pricing.table import OfferTable

NO_TARIFF = "egress tariff of the region unknown"
MOST_NAMES = 12


def within_memory(
    profile: ProfileRef,
    configs: Sequence[Config],
    estimates: Sequence[Estimate | Refusal],
    library: Library | None,
) -> tuple[Estimate | Refusal, ...]:
    """A speed is of no use where the training does not fit. Memory that is not known leaves nothing out."""
    found: list[Estimate | Refusal] = []
    for config, estimate, fit in zip(
        configs, estimates, fits(profile, configs, library=library), strict=True
    ):
        if fit.fits is False and isinstance(estimate, Estimate):
            measure = f"run it on {config[1]} × {config[0]}"
            short_gib = fit.short_gib
            found.append(Refusal(reason=fit.method, measure=measure, label=MEMORY, short_gib=short_gib))
        else:
            found.append(estimate)
    return tuple(found)


def nearest(refusals: Sequence[Refusal]) -> Refusal | None:
    """Of those for memory the one that lacks least."""
    short = [r for r in refusals if r.label == MEMORY]
    return min(short, key=lambda r: r.short_gib or math.inf, default=None)


def rejections(
    table: OfferTable,
    ways: Ways,
    span: int,
    estimates: Sequence[Estimate | Refusal],
    priced: NDArray[np.bool_],
) -> tuple[Rejection, ...]:
    """Offers none of whose ways has an estimate, by kind of refusal, or none of those a tariff. ``ways``: all
    of them, in blocks of ``span``; ``priced``: by group."""
    groups = ways.groups
    labels = tuple(dict.fromkeys(e.label for e in estimates if isinstance(e, Refusal) and e.label != MEMORY))
    stages = (*labels, MEMORY, NO_TARIFF)
    of_config = np.array(
        [stages.index(e.label) if isinstance(e, Refusal) else len(stages) for e in estimates], dtype=np.int64
    )
    stage = of_config[groups.config]
    stage[(stage == len(stages)) & ~priced] = len(stages) - 1
    best = stage.reshape(-1, span).max(axis=1)
    if (best == len(stages)).all():
        return ()
    block = ways.group if span == 1 else ways.group[::span] // span
    offers = np.bincount(block, minlength=best.size)
    found = []
    for number, label in enumerate(stages):
        blocks = np.flatnonzero(best == number)
        if not blocks.size:
            continue
        config = groups.config.reshape(-1, span)[blocks]
        refused = {int(c): e for c in config.ravel() if isinstance(e := estimates[int(c)], Refusal)}
        at = int(blocks[0])
        reason = label
        if label == MEMORY:
            least = nearest(list(refused.values()))
            assert least is not None
            at = int(blocks[[any(refused.get(int(c)) is least for c in row) for row in config].index(True)])
            reason = f"{label}; nearest: {least.reason}"
        elif label != NO_TARIFF:
            reason = f"{label}: {_few(sorted({ways.configs[c][0] for c in refused}))}"
        example = table.row(int(groups.row[at * span])).key
        found.append(Rejection(reason=reason, count=int(offers[blocks].sum()), example=example))
    return tuple(found)


def _few(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
