"""Live prices laid over the catalogue: answers in, one checked table out. Pure.

A part that answered replaces every row of its regions and markets: what it does not list is not sold there
any more. A part that did not answer leaves its rows, with their age. What cannot be true does not go in: a
row without a price above 0 or twice in one answer, a spot price above the on-demand price of the same time;
and an answer in which much is wrong, or most is missing, is not taken at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.live import Answer, Known, Part, PriceColumns, Shape
from arylcloud.pricing.codes import group_codes, key_codes
from arylcloud.pricing.doctor import SPOT_TOLERANCE_USD
from arylcloud.pricing.history import Changes, changes_of
from arylcloud.pricing.livefile import PartState
from arylcloud.pricing.table import (
    COLUMNS,
    MARKETS,
    ON_DEMAND,
    SPOT,
    TEXT_COLUMNS,
    OfferTable,
    concat,
    vocabulary_field,
)

MOST_WRONG: Final = 0.2
"""An answer of which more than this share cannot be true is not taken."""
LEAST_LEFT: Final = 0.5
"""Nor one with less than this share of the machines that we know there, unless it comes twice."""
FEW: Final = 10
"""Shares of fewer rows than this say nothing."""
SAME_TIME_S: Final = 7 * 86400
"""Spot and on-demand prices are compared only if they are known from about the same time."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A part, and what came of asking it: an answer, or that nothing has changed since the last one."""

    cloud: str
    part: Part
    answer: Answer | None
    """None = unchanged: the cloud says so itself (its list's version)."""

    @property
    def name(self) -> str:
        return f"{self.cloud}/{self.part.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    table: OfferTable
    rows: Mapping[str, int]
    """Part → offers taken from it."""
    doubts: Mapping[str, str]
    """Part → why its answer was not taken."""
    doubted: Mapping[str, int]
    """Part → kinds of machines in an answer that was not taken."""
    left_out: Mapping[str, int]
    """Rows that cannot be true, by reason."""


def known_of(table: OfferTable, cloud: str) -> Known:
    """What ``table`` knows of one cloud's machines, for its source to ask and compose with."""
    rows = np.flatnonzero(table.mask("cloud", [cloud]))
    types = table.instance_type[rows]
    # of several rows of a type the one that knows the number of GPUs, then the first
    order = np.lexsort((rows, table.gpu_count[rows] <= 0, types))
    first = order[np.append(True, types[order][1:] != types[order][:-1])[: order.size]]
    shapes = {}
    for i in rows[first].tolist():
        row = table.row(i)
        shapes[row.instance_type] = Shape(
            gpu=row.gpu,
            gpu_count=row.gpu_count,
            gpu_mem_gib=row.gpu_mem_gib,
            vcpus=row.vcpus,
            mem_gib=row.mem_gib,
        )
    places: dict[str, set[tuple[str, str | None]]] = {name: set() for name in shapes}
    columns = (types.tolist(), table.region[rows].tolist(), table.zone[rows].tolist())
    for name, region, zone in set(zip(*columns, strict=True)):
        at = (table.region_names[region], table.zone_names[zone] if zone >= 0 else None)
        places[table.instance_type_names[name]].add(at)
    return Known(
        shapes=shapes,
        places={name: frozenset(found) for name, found in places.items()},
        regions=frozenset(region for found in places.values() for region, _ in found),
    )


def merge(
    table: OfferTable,
    heard: Sequence[Heard],
    states: Mapping[str, PartState],
    known: Mapping[str, Known],
    *,
    now_s: float,
) -> Merged:
    """``table`` with what was heard in the place of what it held. ``states``: what is remembered of the
    parts, ``known``: ``known_of(table, cloud)`` of every cloud that was asked."""
    left_out: dict[str, int] = {}
    doubts: dict[str, str] = {}
    doubted: dict[str, int] = {}
    taken: list[OfferTable] = []
    rows: dict[str, int] = {}
    gone = np.zeros(len(table), dtype=bool)
    as_of = table.as_of.copy()
    for one in heard:
        mine = covered(table, one.cloud, one.part)
        if one.answer is None:
            as_of[mine] = int(now_s)
            rows[one.name] = int(mine.sum())
            continue
        fresh = table_of(one.answer, one.cloud, known[one.cloud], now_s=now_s)
        wrong = _wrong(fresh)
        sound = fresh.take(~np.logical_or.reduce(list(wrong.values())))
        if doubt := _doubt(fresh, sound, table.take(mine), states.get(one.name)):
            doubts[one.name], doubted[one.name] = doubt, kinds(sound)
            continue
        for reason, mask in wrong.items():
            left_out[reason] = left_out.get(reason, 0) + int(mask.sum())
        gone |= mine
        taken.append(sound)
        rows[one.name] = len(sound)
    result = replace(table, as_of=as_of, known_digest=None).take(~gone)
    for fresh in taken:
        result = concat(result, fresh)
    result = result.canonical()
    result = result.take(np.argsort(key_codes(result), kind="stable"))
    too_dear = _spot_above(result, now_s)
    left_out["spot above on-demand"] = int(too_dear.sum())
    return Merged(
        table=result.take(~too_dear).canonical(),
        rows=rows,
        doubts=doubts,
        doubted=doubted,
        left_out={reason: n for reason, n in left_out.items() if n},
    )


def covered(table: OfferTable, cloud: str, part: Part) -> Mask:
    """Rows of the part's regions and markets."""
    mask = table.mask("cloud", [cloud])
    if part.regions:
        mask &= table.mask("region", part.regions)
    found: Mask = mask & np.isin(table.market, [MARKETS.index(market) for market in part.markets])
    return found


def table_of(answer: Answer, cloud: str, known: Known, *, now_s: float) -> OfferTable:
    """The answer's prices as offers of ``now_s``; a type of which nobody knows the GPU has none here."""
    prices = answer.prices
    n = len(prices)
    zones = dict.fromkeys(zone for zone in prices.zone if zone is not None)
    regions, types = dict.fromkeys(prices.region), dict.fromkeys(prices.instance_type)
    none = Shape(gpu=None, gpu_count=None, gpu_mem_gib=None, vcpus=None, mem_gib=None)
    shapes = [known.shapes.get(name) or answer.shapes.get(name) or none for name in types]
    gpus = dict.fromkeys(shape.gpu for shape in shapes if shape.gpu is not None)
    type_codes = _codes(prices.instance_type, types)

    def floats(values: list[float | None]) -> NDArray[np.float64]:
        column = np.array([np.nan if value is None else value for value in values], dtype="<f8")
        return column[type_codes]

    columns: dict[str, Any] = {
        "cloud": np.zeros(n, dtype="<i4"),
        "region": _codes(prices.region, regions),
        "zone": _codes(prices.zone, zones),
        "instance_type": type_codes,
        "gpu": _codes([shape.gpu for shape in shapes], gpus)[type_codes],
        "source": np.zeros(n, dtype="<i4"),
        "gpu_count": np.array([shape.gpu_count or 0 for shape in shapes], dtype="<i4")[type_codes],
        "market": np.array([MARKETS.index(market) for market in prices.market], dtype="<u1"),
        "gpu_mem_gib": floats([shape.gpu_mem_gib for shape in shapes]),
        "vcpus": floats([shape.vcpus for shape in shapes]),
        "mem_gib": floats([shape.mem_gib for shape in shapes]),
        "usd_per_hour": np.array(prices.usd_per_hour, dtype="<f8"),
        "as_of": np.full(n, int(now_s), dtype="<i8"),
    }
    assert columns.keys() == COLUMNS.keys()
    names = ((cloud,), tuple(regions), tuple(zones), tuple(types), tuple(gpus), (answer.source,))
    columns |= {vocabulary_field(c): found for c, found in zip(TEXT_COLUMNS, names, strict=True)}
    return OfferTable(**columns)


def _codes(values: Sequence[str | None], names: Mapping[Any, Any]) -> NDArray[np.int32]:
    code = {name: i for i, name in enumerate(names)}
    return np.array([-1 if value is None else code[value] for value in values], dtype="<i4")


def _wrong(table: OfferTable) -> dict[str, Mask]:
    """Rows that cannot be true, by reason."""
    price = table.usd_per_hour
    keys = key_codes(table)
    order = np.argsort(keys, kind="stable")
    again = np.zeros(len(table), dtype=bool)
    again[order[1:]] = keys[order[1:]] == keys[order[:-1]]
    return {
        "no price above 0": ~(np.isfinite(price) & (price > 0)),
        "the same offer twice": again,
    }


def _doubt(fresh: OfferTable, sound: OfferTable, held: OfferTable, before: PartState | None) -> str | None:
    """Why an answer is not taken, or None."""
    wrong = len(fresh) - len(sound)
    if wrong > max(FEW, MOST_WRONG * len(fresh)):
        return f"{wrong:,} of {len(fresh):,} prices cannot be true"
    now, then = kinds(sound), kinds(held)
    if then < FEW or now >= LEAST_LEFT * then:
        return None
    if before is not None and before.doubted == now:
        return None  # it said so before: the cloud means it
    return f"only {now:,} kinds of machines where there were {then:,}: taken if it comes again"


def kinds(table: OfferTable) -> int:
    """How many machines are told of, however many zones each of them is in."""
    return len(set(group_codes(table, "region", "instance_type", "market").tolist()))


def _spot_above(table: OfferTable, now_s: float) -> Mask:
    """Spot rows dearer than the on-demand price of their region, as far as both are known from one time."""
    place = group_codes(table, "cloud", "region", "instance_type")
    size = int(place.max(initial=-1)) + 1
    usd, at = np.full(size, np.nan), np.zeros(size)
    rows = table.market == ON_DEMAND
    np.fmax.at(usd, place[rows], table.usd_per_hour[rows])
    np.maximum.at(at, place[rows], table.as_of[rows].astype(float))
    near = np.abs(at[place] - table.as_of.astype(float)) <= SAME_TIME_S
    fresh = table.as_of >= now_s - SAME_TIME_S
    with np.errstate(invalid="ignore"):
        above = table.usd_per_hour > usd[place] + SPOT_TOLERANCE_USD
    found: Mask = (table.market == SPOT) & above & near & fresh
    return found


def changes_heard(before: OfferTable, one: Heard, *, now_s: float) -> Changes:
    """For the history: the changes that the cloud itself keeps, else the prices that are not those of
    ``before``, since when they are said to be in force (else: now)."""
    answer = one.answer
    if answer is None:
        return changes_of([], [], [])
    if answer.changes is not None:
        told = answer.changes
        return changes_of(_keys(one.cloud, told), told.at_s, told.usd_per_hour)
    rows = np.flatnonzero(covered(before, one.cloud, one.part) & before.mask("source", [answer.source]))
    held = {before.row(int(i)).key: float(before.usd_per_hour[i]) for i in rows}
    told = answer.prices
    new = [
        (key, at_s if at_s > 0 else now_s, usd)
        for key, at_s, usd in zip(_keys(one.cloud, told), told.at_s, told.usd_per_hour, strict=True)
        if held.get(key) != usd and np.isfinite(usd)
    ]
    keys, at_s, usd_per_hour = zip(*new, strict=True) if new else ((), (), ())
    return changes_of(keys, at_s, usd_per_hour)


def _keys(cloud: str, prices: PriceColumns) -> list[str]:
    """``Offer.key`` of every row."""
    columns = (prices.region, prices.zone, prices.instance_type, prices.market)
    return [
        f"{cloud}/{region}/{zone}:{name}:{market.value}"
        if zone
        else f"{cloud}/{region}:{name}:{market.value}"
        for region, zone, name, market in zip(*columns, strict=True)
    ]
