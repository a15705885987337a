"""Where many jobs can run together, and what each of them gets out of every place: from files to arrays.

A *pool* is GPUs of one kind that are counted together: the user's own (``own_usd_per_hour``), a quota that
the user states for a GPU wherever it is bought, or, where nothing is stated, the offers of one GPU, market
and region under an assumed quota. A *way* is one job in one pool on a number of GPUs: hours and dollars of
the whole job there.

In an own pool a job takes its work over its throughput, and GPU-hours cost what the user says: no boot, no
losses, no traffic. On offers it takes what :func:`~arylcloud.planner.evaluate.evaluate` says of its best
offer in the pool, boot, losses, checkpoints, traffic and storage included, as ``plan`` of one job shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arylcloud.core import gpus as known_gpus
from arylcloud.core.errors import InfeasibleError
from arylcloud.core.job import JobSpec
from arylcloud.core.offer import Offer
from arylcloud.planner.cost import Totals, pessimistic
from arylcloud.planner.estimator import Estimate, Refusal, estimate_configs
from arylcloud.planner.evaluate import Evaluation, limited, within
from arylcloud.planner.gate import within_memory
from arylcloud.planner.profiles import Library
from arylcloud.planner.single import asked_zone
from arylcloud.pricing.codes import group_codes
from arylcloud.pricing.table import MARKETS, OfferTable

QUOTA = 32
"""GPUs of a kind, market and region where the user states no capacity."""
KINDS, PLACES = 6, 2
"""Of each job the best so many (GPU, market), and the best so many regions of each, become pools."""
NAMED_NONE = (1,)
"""GPUs per machine of a job that names no accelerators, in a pool of the user's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    gpu: str
    gpus: int
    own_usd_per_hour: float | None = None
    """Of one GPU, as the user says; None: bought from the offers."""
    market: str | None = None
    """With ``place`` (``cloud/region``): a quota of one region and market; None = any."""
    place: str | None = None
    assumed: bool = False
    """Nobody has stated the quota."""

    @property
    def name(self) -> str:
        """``A100``; ``A100 spot aws/us-east-1``."""
        if self.place is None:
            return self.gpu
        return f"{self.gpu} {(self.market or '').replace('_', '-')} {self.place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The whole job in one pool."""

    pool: int
    gpus: int
    """In all."""
    nodes: int
    hours_p50: float
    hours_p90: float
    usd_mean: float
    usd_p90: float
    misses: int
    """0: within the job's own limits; else how it falls short. Smaller first."""
    score: float
    """The job's own objective; smaller first."""
    estimate: Estimate
    offer: Offer | None
    """None in a pool of the user's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Menu:
    """All pools, and of every job its ways."""

    pools: tuple[Pool, ...]
    ways: tuple[tuple[Way, ...], ...]


def menu(
    specs: Sequence[JobSpec],
    *,
    capacity: Mapping[str, int] | None,
    costs: Mapping[str, float],
    library: Library,
    table: OfferTable | None,
    evaluations: Sequence[Evaluation],
) -> Menu:
    """``capacity``: GPUs by canonical name; None: the offers under assumed quotas. ``costs``: of the user's
    own pools, $ per GPU-hour. ``table`` and ``evaluations`` (of every job): None and () where every pool is
    the user's own. :class:`InfeasibleError`: a job that runs nowhere."""
    found: list[list[Way]]
    if capacity is None:
        assert table is not None
        pools, found = _by_region(specs, table, evaluations)
    else:
        pools = tuple(
            Pool(gpu=gpu, gpus=count, own_usd_per_hour=costs.get(gpu)) for gpu, count in capacity.items()
        )
        found = [_own(spec, pools, library) for spec in specs]
        if table is not None:
            for ways, spec, every in zip(found, specs, evaluations, strict=True):
                at = {p.gpu: j for j, p in enumerate(pools) if p.own_usd_per_hour is None}
                adverse = _adverse(every)
                for i in _bests(spec, table, every, ("gpu",)):
                    gpu = table.gpu_names[table.gpu[every.cands.rows[i]]]
                    if gpu in at:
                        ways.append(_bought(spec, table, every, adverse, i, at[gpu]))
    for spec, ways in zip(specs, found, strict=True):
        fits = [way for way in ways if way.gpus <= pools[way.pool].gpus]
        if not fits:
            raise _nowhere(spec, pools, ways, library)
    return Menu(pools=pools, ways=tuple(tuple(ways) for ways in found))


def _by_region(
    specs: Sequence[JobSpec], table: OfferTable, evaluations: Sequence[Evaluation]
) -> tuple[tuple[Pool, ...], list[list[Way]]]:
    """Pools of (GPU, market, region): those that are among any job's best."""
    columns = ("gpu", "market", "cloud", "region")
    bests = [_bests(s, table, every, columns) for s, every in zip(specs, evaluations, strict=True)]

    def key(every: Evaluation, i: int) -> tuple[str, str, str]:
        row = every.cands.rows[i]
        place = f"{table.cloud_names[table.cloud[row]]}/{table.region_names[table.region[row]]}"
        return table.gpu_names[table.gpu[row]], MARKETS[table.market[row]].value, place

    kept: dict[tuple[str, str, str], int] = {}
    for every, best in zip(evaluations, bests, strict=True):
        kinds: dict[tuple[str, str], int] = {}
        for i in sorted(best, key=lambda i: (int(every.tiers[i]), float(every.scores[i]))):
            gpu, market, place = key(every, i)
            if (gpu, market) not in kinds and len(kinds) >= KINDS:
                continue
            if (gpu, market, place) not in kept:
                if kinds.get((gpu, market), 0) >= PLACES:
                    continue
                kept[gpu, market, place] = len(kept)
            kinds[gpu, market] = kinds.get((gpu, market), 0) + 1
    ways: list[list[Way]] = []
    for spec, every, best in zip(specs, evaluations, bests, strict=True):
        adverse, at = _adverse(every), [(i, kept.get(key(every, i))) for i in best]
        ways.append([_bought(spec, table, every, adverse, i, j) for i, j in at if j is not None])
    least = [max([QUOTA, *(w.gpus for own in ways for w in own if w.pool == j)]) for j in range(len(kept))]
    pools = tuple(
        Pool(gpu=gpu, gpus=least[j], market=market, place=place, assumed=True)
        for (gpu, market, place), j in kept.items()
    )
    return pools, ways


def usable(spec: JobSpec, every: Evaluation) -> NDArray[np.bool_]:
    """Candidates that end, that may be lost only where the job stands it, and that keep the job's own budget
    and max_runtime at p90. Of an ordered job only those of its first alternative that has any."""
    mask = every.finite if every.safe is None else every.finite & every.safe
    for name in limited(spec.constraints):
        if name != "deadline" and every.adverse is not None:
            mask = mask & within(every.adverse, spec.constraints, name)
    preference = every.cands.preference
    if preference is not None and mask.any():
        mask = mask & (preference == preference[mask].min())
    return mask


def _bests(spec: JobSpec, table: OfferTable, every: Evaluation, columns: tuple[str, ...]) -> list[int]:
    """The best candidate of every combination of ``columns`` and number of GPUs."""
    at = np.flatnonzero(usable(spec, every))
    if not at.size:
        return []
    rows = every.cands.rows[at]
    total = table.gpu_count[rows].astype(np.int64) * every.cands.nodes[at]
    code = group_codes(table, *columns, rows=rows) * (int(total.max()) + 1) + total
    order = np.lexsort((rows, every.usd[at], every.scores[at], every.tiers[at], code))
    first = np.ones(at.size, dtype=bool)
    first[1:] = code[order][1:] != code[order][:-1]
    return [int(i) for i in at[order[first]]]


def _adverse(every: Evaluation) -> Totals:
    return every.adverse or pessimistic(every.cands.cost_of_groups(), every.central)


def _bought(spec: JobSpec, table: OfferTable, every: Evaluation, adverse: Totals, i: int, pool: int) -> Way:
    cands, group = every.cands, every.cands.group[i]
    row, nodes = int(cands.rows[i]), int(cands.nodes[i])
    return Way(
        pool=pool,
        gpus=int(table.gpu_count[row]) * nodes,
        nodes=nodes,
        hours_p50=float(every.hours[i]),
        hours_p90=float(adverse.hours_of_group[group]),
        usd_mean=float(every.usd[i]),
        usd_p90=float(adverse.usd_per_price[group] * adverse.price[i] + adverse.usd_fixed[group]),
        misses=int(every.tiers[i]),
        score=float(every.scores[i]),
        estimate=cands.estimate(i),
        offer=asked_zone(spec, table.row(row)),
    )


def _own(spec: JobSpec, pools: Sequence[Pool], library: Library) -> list[Way]:
    """Ways of a job in the pools that are the user's own."""
    assert spec.profile is not None
    assert spec.work is not None
    limits, aim = spec.constraints, spec.objective
    asked = [
        (pool, per_node, nodes)
        for pool, p in enumerate(pools)
        if p.own_usd_per_hour is not None
        for per_node in _counts(spec, p.gpu)
        for nodes in range(spec.nodes_min, spec.nodes_max + 1)
    ]
    best: dict[tuple[int, int], Way] = {}
    for (pool, per_node, nodes), estimate in zip(asked, _estimates(spec, asked, pools, library), strict=True):
        if isinstance(estimate, Refusal):
            continue
        price = pools[pool].own_usd_per_hour
        assert price is not None
        total = per_node * nodes
        p50 = spec.work.amount / estimate.throughput / 3600.0
        p90 = max(p50, spec.work.amount / estimate.low / 3600.0)
        if limits.max_runtime_s is not None and p90 > limits.max_runtime_s / 3600.0:
            continue
        if limits.budget_usd is not None and p90 * total * price > limits.budget_usd:
            continue
        way = Way(
            pool=pool,
            gpus=total,
            nodes=nodes,
            hours_p50=p50,
            hours_p90=p90,
            usd_mean=p50 * total * price,
            usd_p90=p90 * total * price,
            misses=int(limits.deadline_s is not None and p90 > limits.deadline_s / 3600.0),
            score=aim.cost_weight * p50 * total * price + aim.usd_per_hour_of_waiting * p50,
            estimate=estimate,
            offer=None,
        )
        old = best.get((pool, total))
        if old is None or (way.score, way.nodes) < (old.score, old.nodes):
            best[pool, total] = way
    return list(best.values())


def _counts(spec: JobSpec, gpu: str) -> tuple[int, ...]:
    """GPUs per machine that the job asks for, of this kind."""
    every = [a for one in (spec.resources, *spec.resources.any_of) for a in one.accelerators]
    if not every:
        return NAMED_NONE
    return tuple(sorted({a.count for a in every if a.gpu == gpu or gpu in known_gpus.serving(a.gpu)}))


def _estimates(
    spec: JobSpec, asked: Sequence[tuple[int, int, int]], pools: Sequence[Pool], library: Library
) -> tuple[Estimate | Refusal, ...]:
    assert spec.profile is not None
    assert spec.work is not None
    configs = tuple((pools[pool].gpu, per_node, nodes) for pool, per_node, nodes in asked)
    found = estimate_configs(spec.profile, configs, library=library, work_unit=spec.work.unit)
    return within_memory(spec.profile, configs, found, library)


def _nowhere(spec: JobSpec, pools: Sequence[Pool], ways: Sequence[Way], library: Library) -> InfeasibleError:
    """Why a job runs in no pool, and what would do."""
    have = ", ".join(f"{p.gpu}={p.gpus}" for p in pools)
    if ways:
        least = min(ways, key=lambda w: w.gpus - pools[w.pool].gpus)
        gpu = pools[least.pool].gpu
        return InfeasibleError(
            f"{spec.name}: needs {least.gpus} {gpu} at once, and there are {pools[least.pool].gpus}",
            hint=f"--capacity with {gpu.lower()}={least.gpus}, or a smaller job",
        )
    every = [a for one in (spec.resources, *spec.resources.any_of) for a in one.accelerators]
    asked = [
        (j, count, spec.nodes_min)
        for j, p in enumerate(pools)
        if p.own_usd_per_hour is not None
        for count in _counts(spec, p.gpu)
    ]
    refused = [e for e in _estimates(spec, asked, pools, library) if isinstance(e, Refusal)] if asked else []
    if refused:
        return InfeasibleError(f"{spec.name}: {refused[0].reason}", hint=refused[0].measure)
    if asked:
        return InfeasibleError(
            f"{spec.name}: over its own budget or max_runtime in every pool ({have})",
            hint="raise its budget or max_runtime, or add a faster GPU to --capacity",
        )
    wants = ", ".join(f"{a.gpu}:{a.count}" for a in every) or "what its resources say"
    return InfeasibleError(
        f"{spec.name}: runs in none of the pools ({have}): it asks for {wants}",
        hint="add one of its GPUs to --capacity, or allow one of these in its resources",
    )
