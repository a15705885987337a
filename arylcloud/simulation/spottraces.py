"""Traces of spot capacity and prices: what could be had in each zone, and for how much, as it was.

CSV (``.gz`` too), one row per interval of a zone: ``cloud, region, zone, instance_type, offset_s, duration_s,
available, spot_usd_per_hour, on_demand_usd_per_hour`` (``gpu_name, gpu_count`` where known). ``available`` is
0/1 or the number of machines that could be had; prices are per machine. A column ``trace`` tells several
traces in one file apart: ``FILE#NAME`` names one of them.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import UsageError
from arylcloud.simulation.cluster.throughputs import number, rows_of, whole

Floats = NDArray[np.float64]
COLUMNS: Final = (
    "cloud", "region", "zone", "instance_type", "gpu_name", "gpu_count", "offset_s", "duration_s",
    "available", "spot_usd_per_hour", "on_demand_usd_per_hour",
)  # fmt: skip
MOST_LOOKS: Final = 50_000_000
"""Ticks × zones that a replay holds in memory: a year of minutes in 95 zones."""
_NEEDED: Final = tuple(name for name in COLUMNS if not name.startswith("gpu_"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneSteps:
    """One zone: row i of every column holds from ``offset_s[i]`` until the next."""

    offset_s: Floats
    """Ascending from 0, shape (k,)."""
    available: NDArray[np.int64]
    """Machines that could be had."""
    spot_usd_per_hour: Floats
    on_demand_usd_per_hour: Floats
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotTrace:
    """Zones over one time; what all of them know ends with the shortest."""

    name: str
    places: tuple[str, ...]
    """``cloud/region/zone``."""
    instance_type: str
    gpu: str | None
    gpu_count: int | None
    zones: tuple[ZoneSteps, ...]
    notes: tuple[str, ...] = ()
    """What was left out or assumed in making it, for whoever reads its figures."""

    @property
    def span_s(self) -> float:
        return min(zone.end_s for zone in self.zones)

    @property
    def regions(self) -> tuple[str, ...]:
        """``cloud/region`` of every zone, each once, in order of appearance."""
        return tuple(dict.fromkeys(region_of(place) for place in self.places))

    def only(self, places: Iterable[str]) -> SpotTrace:
        """The same trace with some of its zones."""
        wanted = list(places)
        at = [self.places.index(place) for place in wanted]
        return SpotTrace(
            name=self.name,
            places=tuple(wanted),
            instance_type=self.instance_type,
            gpu=self.gpu,
            gpu_count=self.gpu_count,
            zones=tuple(self.zones[i] for i in at),
            notes=self.notes,
        )


def region_of(place: str) -> str:
    """
    >>> region_of("aws/us-east-1/us-east-1a")
    'aws/us-east-1'
    """
    return place.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A trace looked at every ``tick_s``, for gangs of ``machines``: T ticks, Z zones, R regions."""

    tick_s: float
    places: tuple[str, ...]
    regions: tuple[str, ...]
    region: NDArray[np.intp]
    """Of each zone, (Z,)."""
    up: NDArray[np.bool_]
    """The whole gang could be had at the beginning of the tick, (T, Z)."""
    spot_usd: Floats
    """Of the gang, $ per hour, (T, Z)."""
    on_demand_usd: Floats
    """(T, R): the cheapest zone's of the region."""


def grid(trace: SpotTrace, *, tick_s: float = 600.0, machines: int = 1) -> Grid:
    """Sample at 0, ``tick_s``, 2 ``tick_s``…, whole ticks only."""
    ticks = int(trace.span_s / tick_s + 1e-9)
    if ticks < 1:
        raise UsageError(
            f"the trace is shorter than one tick of {tick_s:g} s", hint="a longer trace, or shorter ticks"
        )
    if ticks * len(trace.zones) > MOST_LOOKS:
        raise UsageError(
            f"{ticks:,} ticks of {len(trace.zones)} zones are more than {MOST_LOOKS:,} looks",
            hint="longer ticks, or a shorter trace: offset_s and duration_s are seconds",
        )
    regions = trace.regions
    region = np.array([regions.index(region_of(place)) for place in trace.places], dtype=np.intp)
    rows = rows_at(trace, ticks, tick_s)
    listed = np.stack([zone.on_demand_usd_per_hour[r] for zone, r in zip(trace.zones, rows, strict=True)], 1)
    return Grid(
        tick_s=tick_s,
        places=trace.places,
        regions=regions,
        region=region,
        up=np.stack([zone.available[r] >= machines for zone, r in zip(trace.zones, rows, strict=True)], 1),
        spot_usd=machines
        * np.stack([zone.spot_usd_per_hour[r] for zone, r in zip(trace.zones, rows, strict=True)], 1),
        on_demand_usd=machines
        * np.stack([listed[:, region == r].min(axis=1) for r in range(len(regions))], 1),
    )


def rows_at(trace: SpotTrace, ticks: int, tick_s: float) -> list[NDArray[np.intp]]:
    """Of each zone, the row in force at 0, ``tick_s``, 2 ``tick_s``…, (ticks,)."""
    at_s = np.arange(ticks) * tick_s
    return [np.searchsorted(zone.offset_s, at_s, side="right") - 1 for zone in trace.zones]


def read_spot_trace(source: str | Path) -> SpotTrace:
    """``FILE`` or ``FILE#NAME``. UsageError with the line for bad input, several traces and none named."""
    text, _, name = str(source).partition("#")
    found = read_spot_traces(Path(text))
    if name:
        if name not in found:
            raise UsageError(f"{text}: no trace {name!r} in it", hint=f"it has {', '.join(found)}")
        return found[name]
    if len(found) > 1:
        raise UsageError(
            f"{text} holds {len(found)} traces: {', '.join(found)}",
            hint=f"name one: {text}#{next(iter(found))}",
        )
    return next(iter(found.values()))


def read_spot_traces(path: Path) -> dict[str, SpotTrace]:
    """Every trace of a file by its name (``""`` where the file has no column ``trace``)."""
    rows: dict[str, dict[str, list[tuple[float, float, int, float, float]]]] = {}
    kinds: dict[str, dict[tuple[str, str, str], int]] = {}
    for line, row in rows_of(path, _NEEDED):
        where = f"{path}:{line}"
        name = row.get("trace") or ""
        names = [row[key] or "" for key in ("cloud", "region", "zone")]
        if not all(names):
            raise UsageError(
                f"{where}: cloud, region or zone is empty", hint="all three, as aws,us-east-1,us-east-1a"
            )
        at = (
            number(row["offset_s"], where, "offset_s"),
            number(row["duration_s"], where, "duration_s"),
            whole(row["available"], where, "available"),
            _price(row["spot_usd_per_hour"], where, "spot_usd_per_hour"),
            _price(row["on_demand_usd_per_hour"], where, "on_demand_usd_per_hour"),
        )
        zone = rows.setdefault(name, {}).setdefault("/".join(names), [])
        _follows(zone, at, where)
        zone.append(at)
        kind = (row["instance_type"] or "", row.get("gpu_name") or "", row.get("gpu_count") or "")
        kinds.setdefault(name, {}).setdefault(kind, line)
    if not rows:
        raise UsageError(f"{path}: no interval in it", hint="a row per interval of a zone")
    return {name: _trace(path, name, zones, kinds[name]) for name, zones in rows.items()}


def _price(text: str | None, where: str, name: str) -> float:
    value = number(text, where, name)
    if value <= 0:
        raise UsageError(
            f"{where}: {name} is {text!r}: a machine without a price cannot be replayed",
            hint="a price above 0; where there was no capacity, the last one",
        )
    return value


def _follows(zone: list[tuple[float, float, int, float, float]], at: tuple[float, ...], where: str) -> None:
    expected = zone[-1][0] + zone[-1][1] if zone else 0.0
    if abs(at[0] - expected) > 1e-3:
        raise UsageError(
            f"{where}: the zone's interval begins at {at[0]:.10g} s, not at {expected:.10g} s",
            hint="a zone's rows in order of time, from 0 on, each from where the one before ends",
        )
    if at[1] <= 0:
        raise UsageError(f"{where}: duration_s is {at[1]:g}, not more than 0", hint="seconds, as 600")


def _trace(
    path: Path,
    name: str,
    zones: dict[str, list[tuple[float, float, int, float, float]]],
    kinds: dict[tuple[str, str, str], int],
) -> SpotTrace:
    if len(kinds) > 1:
        line = list(kinds.values())[1]
        raise UsageError(
            f"{path}:{line}: another instance type than above: {' / '.join(kind[0] for kind in kinds)}",
            hint="one trace is of one instance type: tell them apart by a column `trace`",
        )
    ((instance_type, gpu, count),) = kinds
    steps = []
    for rows in zones.values():
        columns = np.array(rows, dtype=np.float64)
        steps.append(
            ZoneSteps(
                offset_s=columns[:, 0],
                available=columns[:, 2].astype(np.int64),
                spot_usd_per_hour=columns[:, 3],
                on_demand_usd_per_hour=columns[:, 4],
                end_s=float(columns[-1, 0] + columns[-1, 1]),
            )
        )
    return SpotTrace(
        name=name,
        places=tuple(zones),
        instance_type=instance_type,
        gpu=gpu or None,
        gpu_count=whole(count, str(path), "gpu_count") if count else None,
        zones=tuple(steps),
    )


def write_spot_trace(trace: SpotTrace, path: Path) -> None:
    """The same format; ``.gz`` by the name. The same trace gives the same bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("trace", *COLUMNS) if trace.name else COLUMNS)
    for place, zone in zip(trace.places, trace.zones, strict=True):
        kind = (*place.split("/", 2), trace.instance_type, trace.gpu or "", trace.gpu_count or "")
        ends = np.append(zone.offset_s[1:], zone.end_s)
        for i, begin in enumerate(zone.offset_s):
            row = (
                *kind,
                f"{begin:.10g}",
                f"{ends[i] - begin:.10g}",
                int(zone.available[i]),
                f"{zone.spot_usd_per_hour[i]:.10g}",
                f"{zone.on_demand_usd_per_hour[i]:.10g}",
            )
            writer.writerow((trace.name, *row) if trace.name else row)
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
