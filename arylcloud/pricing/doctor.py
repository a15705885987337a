"""What is wrong, or odd, in a catalogue. One finding per kind of fault, with a count and an example.

Errors are figures that cannot be true and would mislead a plan; warnings are what a reader should know;
info says what the catalogue does not hold.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from arylcloud.core import gpus
from arylcloud.pricing.codes import group_codes, key_codes
from arylcloud.pricing.table import (
    ON_DEMAND,
    RESERVED,
    SPOT,
    UNKNOWN_AS_OF,
    OfferTable,
)

SPOT_TOLERANCE_USD: Final = 1e-4
"""Publishers round spot prices to four decimals: that much above on-demand is rounding."""
MEMORY_TOLERANCE: Final = 0.15
"""GB for GiB, and memory that the driver keeps, explain less than this."""

Level = Literal["error", "warning", "info"]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One kind of fault, with how many rows show it."""

    level: Level
    code: str
    """Stable, for scripts."""
    message: str
    count: int
    """Rows concerned; 0 for a statement about the whole catalogue."""
    example: str | None = None


class _Case:
    """A table under examination. Findings speak only of rows in ``focus``."""

    def __init__(self, table: OfferTable, focus: Mask | None) -> None:
        self.table = table
        self.focus = np.ones(len(table), dtype=bool) if focus is None else focus

    def finding(
        self, level: Level, code: str, message: str, rows: Mask, detail: Callable[[int], str] | None = None
    ) -> Iterator[Finding]:
        found = np.flatnonzero(rows & self.focus)
        if found.size:
            i = int(found[0])
            example = self.name(i) + (f": {detail(i)}" if detail else "")
            yield Finding(level=level, code=code, message=message, count=int(found.size), example=example)

    def name(self, i: int) -> str:
        return self.table.row(i).key

    def usd(self, i: int) -> str:
        return f"${self.table.usd_per_hour[i]:.7g}/h"

    @cached_property
    def priced(self) -> Mask:
        price = self.table.usd_per_hour
        return np.isfinite(price) & (price > 0)

    @cached_property
    def on_demand_price(self) -> NDArray[np.float64]:
        """Of each row's (cloud, region, type): NaN where none is listed; the dearest of several."""
        _, group = np.unique(group_codes(self.table, "cloud", "region", "instance_type"), return_inverse=True)
        prices = np.full(int(group.max(initial=-1)) + 1, np.nan)
        rows = (self.table.market == ON_DEMAND) & self.priced
        np.fmax.at(prices, group[rows], self.table.usd_per_hour[rows])
        found: NDArray[np.float64] = prices[group]
        return found


def examine(
    table: OfferTable, *, focus: Mask | None = None, now_s: float | None = None
) -> tuple[Finding, ...]:
    """All findings, errors first. ``focus`` (shape (n,)): speak only of these rows, though they are
    compared with all; ``now_s`` (Unix seconds): also look for prices from the future."""
    case = _Case(table, focus)
    found = [
        *_prices(case),
        *_spot(case),
        *_duplicates(case),
        *_more_for_less(case),
        *_ages(case, now_s),
        *_gpus(case),
    ]
    if focus is None:
        found += gaps(table)
    order = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(found, key=lambda finding: order[finding.level]))


def _prices(case: _Case) -> Iterator[Finding]:
    price = case.table.usd_per_hour
    yield from case.finding("error", "price_missing", "no price", np.isnan(price))
    yield from case.finding("error", "price_infinite", "the price is infinite", np.isinf(price), case.usd)
    yield from case.finding(
        "error", "price_not_positive", "the price is not above 0", np.isfinite(price) & (price <= 0), case.usd
    )


def _spot(case: _Case) -> Iterator[Finding]:
    spot = (case.table.market == SPOT) & case.priced & ~np.isnan(case.on_demand_price)
    above = np.where(spot, case.table.usd_per_hour - case.on_demand_price, -np.inf)

    def detail(i: int) -> str:
        return f"{case.usd(i)} spot, ${case.on_demand_price[i]:.7g}/h on demand"

    dearer = above > SPOT_TOLERANCE_USD
    yield from case.finding("error", "spot_above_on_demand", "spot costs more than on-demand", dearer, detail)
    same = spot & (np.abs(above) <= SPOT_TOLERANCE_USD)
    yield from case.finding(
        "warning",
        "spot_equals_on_demand",
        f"spot costs what on-demand does (within ${SPOT_TOLERANCE_USD:g}): perhaps a fallback, not a price",
        same,
        detail,
    )


def _duplicates(case: _Case) -> Iterator[Finding]:
    keys = key_codes(case.table)
    _, group, counts = np.unique(keys, return_inverse=True, return_counts=True)
    yield from case.finding(
        "error", "duplicate", "the same place, type and market stand more than once", counts[group] > 1
    )


def _more_for_less(case: _Case) -> Iterator[Finding]:
    """Within one family, place and market: a shape with more GPUs that costs less than one with fewer."""
    table = case.table
    wrong = np.zeros(len(table), dtype=bool)
    odd = np.zeros(len(table), dtype=bool)
    against: dict[int, int] = {}
    for rows in _groups(table, case.priced & (table.gpu_count > 0) & (table.gpu >= 0)):
        count, price = table.gpu_count[rows], table.usd_per_hour[rows]
        more, fewer = np.nonzero((count[:, None] > count[None, :]) & (price[:, None] < price[None, :]))
        for a, b in zip(rows[more].tolist(), rows[fewer].tolist(), strict=True):
            if not (case.focus[a] or case.focus[b]):
                continue
            at = a if case.focus[a] else b
            against[at] = b if at == a else a
            ratio_a, ratio_b = (table.vcpus[i] / table.gpu_count[i] for i in (a, b))
            alike = ratio_a == ratio_b and table.market[a] != SPOT  # each spot pool has a price of its own
            (wrong if alike else odd)[at] = True

    def detail(i: int) -> str:
        other = against[i]
        return (
            f"{table.gpu_count[i]} GPUs {case.usd(i)}, "
            f"{table.row(other).instance_type} with {table.gpu_count[other]} {case.usd(other)}"
        )

    yield from case.finding(
        "error", "more_gpus_for_less", "more GPUs cost less, with the same vCPUs per GPU", wrong, detail
    )
    yield from case.finding(
        "warning",
        "more_gpus_for_less_other_shape",
        "more GPUs cost less, on spot or in shapes of different (or unknown) vCPUs per GPU",
        odd & ~wrong,
        detail,
    )


def _groups(table: OfferTable, usable: Mask) -> Iterator[NDArray[np.int64]]:
    """Row numbers of each group of ≥ 2 rows with one family, GPU, place and market."""
    family_of = {name: family(name) for name in table.instance_type_names}
    codes = {name: i for i, name in enumerate(dict.fromkeys(family_of.values()))}
    families = np.array([codes[family_of[name]] for name in table.instance_type_names] or [0])
    places = group_codes(table, "cloud", "region", "zone", "gpu", "market")
    members: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    rows = np.flatnonzero(usable)
    for key in zip(places[rows].tolist(), families[table.instance_type[rows]].tolist(), rows, strict=True):
        members[key[:2]].append(int(key[2]))
    yield from (np.array(group) for group in members.values() if len(group) > 1)


def family(instance_type: str) -> str:
    """The shape's series, without its size.

    >>> family("p4d.24xlarge"), family("g2-standard-8"), family("Standard_NC24ads_A100_v4")
    ('p4d', 'g2-standard', 'Standard_NCads_A100_v4')
    """
    if "." in instance_type:
        return instance_type.partition(".")[0]
    if instance_type.startswith("Standard_"):
        return re.sub(r"^(Standard_[A-Za-z]+)\d+", r"\1", instance_type)
    return re.sub(r"-\d+\w?$", "", instance_type)


def _ages(case: _Case, now_s: float | None) -> Iterator[Finding]:
    as_of = case.table.as_of
    yield from case.finding(
        "warning", "age_unknown", "nobody says how old the price is", as_of == UNKNOWN_AS_OF
    )
    if now_s is not None:
        yield from case.finding(
            "warning", "age_in_future", "the price is dated in the future", as_of > now_s + 86400
        )


def _gpus(case: _Case) -> Iterator[Finding]:
    table = case.table
    yield from case.finding(
        "warning",
        "gpu_count_unknown",
        "no whole number of GPUs is known (unknown, or a fraction): listed, not plannable",
        table.gpu_count <= 0,
    )
    known = np.array([gpus.find(name) is not None for name in (*table.gpu_names, "")])
    yield from case.finding(
        "warning",
        "gpu_unknown",
        "the GPU is not in our table: throughput cannot be estimated",
        ~known[table.gpu],
        lambda i: str(table.row(i).gpu),
    )
    expected = np.array([_memory(name) for name in (*table.gpu_names, "")])[table.gpu]
    with np.errstate(invalid="ignore"):
        off = np.abs(table.gpu_mem_gib / expected - 1) > MEMORY_TOLERANCE
    yield from case.finding(
        "warning",
        "gpu_memory",
        "the GPU's memory is not what its name says",
        off & (table.gpu_count > 0),
        lambda i: f"{table.gpu_mem_gib[i]:g} GiB, {table.row(i).gpu} has {expected[i]:g}",
    )


def _memory(name: str) -> float:
    found = gpus.find(name)
    memory = gpus.BY_NAME[found].mem_gib if found else None
    return np.nan if memory is None else memory


def gaps(table: OfferTable) -> tuple[Finding, ...]:
    """What a reader might look for in vain."""

    def info(code: str, message: str) -> Finding:
        return Finding(level="info", code=code, message=message, count=0)

    found = []
    gcp = table.instance_type[table.mask("cloud", ["gcp"])]
    if not any(table.instance_type_names[i].startswith("n1-") for i in np.unique(gcp)):
        found.append(
            info("no_gcp_n1", "no GCP N1 machines (T4, V100, P100, P4 are sold there as add-ons to N1)")
        )
    if not table.mask("gpu", ["P100"]).any():
        found.append(info("no_p100", "no P100 offers"))
    if not np.any(table.market == RESERVED):
        found.append(info("no_reserved", "no reserved capacity: lay your own over it (offers.csv)"))
    return tuple(found)


def left_out() -> tuple[Finding, ...]:
    """Rows that the build of the bundled catalogue took out, by reason (``data/quarantine.csv``)."""
    with (Path(__file__).parent / "data" / "quarantine.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    by_reason: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        by_reason[row["reason"].partition(":")[0]].append(row)
    names = {"duplicate": "an older price of the same offer"}
    return tuple(
        Finding(
            level="info",
            code="left_out_" + re.sub(r"\W+", "_", reason),
            message=f"left out of the bundled catalogue: {names.get(reason, found[0]['reason'])}",
            count=len(found),
            example=f"{found[0]['cloud']}/{found[0]['region']}:{found[0]['instance_type']}",
        )
        for reason, found in sorted(by_reason.items())
    )


def counts(findings: tuple[Finding, ...]) -> dict[str, Any]:
    """Findings per level, for summaries and exit codes."""
    levels: tuple[Level, ...] = ("error", "warning", "info")
    return {level: sum(finding.level == level for finding in findings) for level in levels}
