"""Which offers a job may use at all, and how many fall to which requirement.

Boolean masks over the table's columns, one requirement after the other; a row is counted under the
first that it fails. Places first, so that "price unknown: 3" speaks of offers that were asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import UsageError
from arylcloud.core.gpus import serving
from arylcloud.core.job import Accelerator, JobSpec, MarketChoice, Resources
from arylcloud.core.plan import Rejection
from arylcloud.pricing.codes import group_codes, member_of
from arylcloud.pricing.table import ON_DEMAND, PRICE_UNKNOWN, RESERVED, SPOT, OfferTable, format_as_of

Mask = NDArray[np.bool_]
CLOSED = {"aws": ("us-gov-", "us-iso", "cn-"), "azure": ("usgov", "usdod", "china")}
"""Regions that an ordinary account cannot use, by the beginning of their names."""
LOCAL = "local"
"""The local cloud's offers are used only by a job that names it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Feasible:
    rows: NDArray[np.intp]
    """Positions in the table, ascending, shape (n,)."""
    preference: NDArray[np.int16] | None
    """Of each row: position of the first alternative that it serves; None where order is no matter."""
    rejected: tuple[Rejection, ...]


def feasible(spec: JobSpec, table: OfferTable) -> Feasible:
    """Offers that satisfy every requirement that needs no forecast. UsageError: a name nobody knows."""
    check_names(spec.resources, table)
    ok = np.ones(len(table), dtype=bool)
    rejected: list[Rejection] = []

    def require(reason: str, mask: Mask) -> None:
        bad = ok & ~mask
        count = int(np.count_nonzero(bad))
        if count:
            rejected.append(Rejection(reason=reason, count=count, example=table.row(int(bad.argmax())).key))
            np.logical_and(ok, mask, out=ok)

    needs = table.planning_needs()
    priced = needs.pop(PRICE_UNKNOWN)
    for reason, mask in _requirements(spec.resources, spec.market, table, needs):
        require(reason, mask)
    alternatives = _alternatives(spec, table)
    if spec.resources.any_of:
        require("fits none of the alternatives", _any(alternatives))
    require(PRICE_UNKNOWN, priced)
    require("the zone's own price takes the place of the region's", ~_shadowed(table, ok))
    since_s = spec.constraints.priced_since_s
    if since_s is not None:  # an unknown age is the smallest number there is
        require(f"price from before {format_as_of(int(since_s))}, or of unknown age", table.as_of >= since_s)
    cap = spec.constraints.max_usd_per_hour
    if cap is not None:
        require(f"dearer than max_usd_per_hour ${cap:g} per machine", table.usd_per_hour <= cap)
    rows = np.flatnonzero(ok)
    preference = None
    if spec.resources.ordered:
        preference = _preference(table, alternatives, rows)
    return Feasible(rows=rows, preference=preference, rejected=tuple(rejected))


def _requirements(
    resources: Resources, market: MarketChoice, table: OfferTable, needs: Mapping[str, Mask] | None = None
) -> Iterator[tuple[str, Mask]]:
    """(reason for rejection, rows that pass), cheap and telling ones first."""
    if resources.clouds:
        yield f"not in cloud {_list(resources.clouds)}", table.mask("cloud", resources.clouds)
    named = (resources, *resources.any_of)
    if LOCAL in table.cloud_names and not any(LOCAL in one.clouds for one in named):
        yield "the local cloud, which is used only where it is named", ~table.mask("cloud", [LOCAL])
    closed = _closed(table, {place for one in named for place in (*one.regions, *one.zones)})
    if closed is not None:
        yield "in a region of governments or of China, which is used only where it is named", ~closed
    if resources.regions:
        yield f"not in {_list(resources.regions)}", _in_regions(table, resources.regions)
    if resources.zones:
        yield f"not in {_list(resources.zones)}", _in_zones(table, resources.zones)
    if resources.instance_types:
        reason = f"not of type {_list(resources.instance_types)}"
        yield reason, table.mask("instance_type", resources.instance_types)
    yield from (needs or {}).items()
    if resources.accelerators:
        names = tuple(dict.fromkeys(a.gpu for a in resources.accelerators))
        yield f"GPU is not {_list(names)}", table.mask("gpu", [n for name in names for n in serving(name)])
        wanted = _list([f"{a.gpu}:{a.count}" for a in resources.accelerators])
        yield f"number of GPUs per machine does not fit {wanted}", _serves_any(table, resources.accelerators)
    chosen = resources.market or market
    if chosen != "auto":
        asked = SPOT if chosen == "spot" else ON_DEMAND
        # reserved machines are the user's own: they serve whoever does not insist on spot
        mask = table.market == asked
        yield f"market is not {chosen}", mask if asked == SPOT else mask | (table.market == RESERVED)
    if resources.min_vcpus is not None:
        yield f"fewer than {resources.min_vcpus:g} vCPUs, or not known", table.vcpus >= resources.min_vcpus
    if resources.min_mem_gib is not None:
        reason = f"less than {resources.min_mem_gib:g} GiB of memory, or not known"
        yield reason, table.mem_gib >= resources.min_mem_gib


def _closed(table: OfferTable, named: set[str]) -> Mask | None:
    """Rows in closed regions that are not among the ``named`` places; None where there are none."""
    cloud_of = np.full(len(table.region_names) + 1, -2, dtype=np.int32)  # of a region that is closed there
    for cloud, beginnings in CLOSED.items():
        for code, name in enumerate(table.region_names):
            if name.startswith(beginnings) and not any(
                f"{place}/".startswith(f"{cloud}/{name}/") for place in named
            ):
                cloud_of[code] = table.code("cloud", cloud)
    return cloud_of.take(table.region) == table.cloud if (cloud_of >= 0).any() else None


def _alternatives(spec: JobSpec, table: OfferTable) -> list[Mask]:
    """Rows that serve each alternative, in the user's order; empty where there are none to tell apart."""
    if spec.resources.any_of:
        masks = []
        for option in spec.resources.any_of:
            mask = np.ones(len(table), dtype=bool)
            for _reason, passes in _requirements(option, spec.market, table):
                mask &= passes
            masks.append(mask)
        return masks
    if spec.resources.ordered:
        return [_serves(table, accelerator) for accelerator in spec.resources.accelerators]
    return []


def _preference(table: OfferTable, alternatives: Sequence[Mask], rows: NDArray[np.intp]) -> NDArray[np.int16]:
    preference = np.full(len(table), len(alternatives), dtype=np.int16)
    for position in reversed(range(len(alternatives))):
        preference[alternatives[position]] = position
    return preference[rows]


def _serves(table: OfferTable, wanted: Accelerator) -> Mask:
    mask: Mask = table.mask("gpu", serving(wanted.gpu)) & (table.gpu_count == wanted.count)
    return mask


def _serves_any(table: OfferTable, accelerators: Sequence[Accelerator]) -> Mask:
    return _any([_serves(table, accelerator) for accelerator in accelerators])


def _any(masks: Sequence[Mask]) -> Mask:
    found: Mask = np.logical_or.reduce(masks)
    return found


def _in_regions(table: OfferTable, regions: Sequence[str]) -> Mask:
    mask = np.zeros(len(table), dtype=bool)
    for place in regions:
        cloud, _, region = place.partition("/")
        mask |= table.mask("cloud", [cloud]) & table.mask("region", [region])
    return mask


def _in_zones(table: OfferTable, zones: Sequence[str]) -> Mask:
    """An offer for the whole region can be had in any zone of it."""
    mask = np.zeros(len(table), dtype=bool)
    for place in zones:
        region, _, zone = place.rpartition("/")
        mask |= _in_regions(table, [region]) & (table.mask("zone", [zone]) | (table.zone < 0))
    return mask


def _shadowed(table: OfferTable, ok: Mask) -> Mask:
    """Whole-region rows among ``ok`` beside which a zoned row of the same place, type and market is ok."""
    shadowed = np.zeros(len(table), dtype=bool)
    whole = np.flatnonzero(ok & (table.zone < 0))
    zoned = np.flatnonzero(ok & (table.zone >= 0))
    if not whole.size or not zoned.size:
        return shadowed
    same = ("cloud", "region", "instance_type", "market")
    shadowed[whole] = member_of(group_codes(table, *same, rows=whole), group_codes(table, *same, rows=zoned))
    return shadowed


def check_names(resources: Resources, table: OfferTable) -> None:
    """A place or type that no offer carries is a typing error more often than not: say what is near."""
    for option in (resources, *resources.any_of):
        for cloud in option.clouds:
            _known("cloud", cloud, table.cloud_names)
        for region in (*option.regions, *(zone.rpartition("/")[0] for zone in option.zones)):
            cloud, _, name = region.partition("/")
            _known("cloud", cloud, table.cloud_names)
            if not _in_regions(table, [region]).any():
                here = table.region[table.mask("cloud", [cloud])]
                _known(f"{cloud} region", name, _used(here, table.region_names), present=False)
        for zone in option.zones:
            region, _, name = zone.rpartition("/")
            here = table.zone[_in_regions(table, [region])]
            zones = _used(here, table.zone_names)
            # where no offer of the region is zoned, every name may be a zone of it
            if zones:
                _known(f"zone of {region}", name, zones)
        for name in option.instance_types:
            _known("instance type", name, table.instance_type_names)


def _used(codes: NDArray[np.int32], names: Sequence[str]) -> list[str]:
    """``np.unique`` would load numpy.ma, which takes longer than all the rest here."""
    return [names[code] for code in sorted(set(codes.tolist())) if code >= 0]


def _known(kind: str, name: str, names: Sequence[str], *, present: bool | None = None) -> None:
    if present if present is not None else name in names:
        return
    from difflib import get_close_matches  # only on the way to an error message

    close = get_close_matches(name, names, n=3, cutoff=0.5)
    raise UsageError(
        f"no offer is known for {kind} {name!r}",
        hint=f"did you mean {', '.join(close)}?"
        if close
        else f"`arylcloud prices` lists every {kind.split()[-1]}",
    )


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
