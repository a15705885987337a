"""Published traces of spot capacity, one JSON file per zone, as ``SpotTrace``.

``{"metadata": {"gap_seconds": 600, …}, "data": [0, 1, …], "prices": [18.98, …]}``: a look every
``gap_seconds``. Two conventions are about, and 0 and 1 alone do not tell which:

* "Can't be late" (github.com/skypilot-org/spot-traces): ``data`` counts machines, 1 = one could be had.
* SkyNomad (github.com/andylizf/skynomad-artifact): 1 = none could be had; ``metadata.price_info`` has
  ``price`` and ``on_demand_price``, and tells these files from the others.

``ones`` says which; None: files with ``price_info`` are SkyNomad's, files without it of which one has a
number above 1 count machines, any others are refused. Files are named by zone and kind,
``us-west-2a_k80_1.json``, or lie in a folder of that name as ``full.json``. Where a file has no prices, the
caller's hold. Zones begin together at the latest ``metadata.start_time``; where none has one, they are taken
to begin together, as those of one folder do. A look that was not made has no place in the format.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.bounded import read_bounded
from arylcloud.core.errors import UsageError
from arylcloud.simulation.spottraces import MOST_LOOKS, SpotTrace, ZoneSteps

Floats = NDArray[np.float64]
Ones = Literal["up", "down"]
MOST_MACHINES: Final = 1_000_000
MOST_ZONES: Final = 1_000
MOST_USD: Final = 1e6
MOST_GAP_S: Final = 86_400.0
_NAME: Final = re.compile(r"(?P<zone>[a-z]+(?:-[a-z]+)*-?[a-z]*\d(?:-[a-z]|[a-z]))_(?P<kind>[A-Za-z0-9_.-]+)")
_AWS: Final = re.compile(r"([a-z]{2}(?:-[a-z]+)+-\d)[a-z]")
_GCP: Final = re.compile(r"([a-z]+-[a-z]+\d)-[a-z]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usd:
    """Per machine and hour, where a file does not say."""

    spot: float
    on_demand: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    path: Path
    gap_s: float
    began: datetime | None
    looks: NDArray[np.int64]
    info: dict[str, Any] | None
    prices: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class _Zone:
    place: str
    gap_s: float
    began: datetime | None
    available: NDArray[np.int64]
    spot: Floats
    on_demand: float


def zone_files(folder: Path) -> dict[str, tuple[Path, ...]]:
    """Kind (``k80_1``) → its zones' files, in order of name. UsageError: no such file."""
    found: dict[str, list[Path]] = {}
    for path in (*folder.glob("*.json"), *folder.glob("*/full.json")):
        name = _NAME.fullmatch(_stem(path))
        if name is not None:
            found.setdefault(name["kind"], []).append(path)
    if not found:
        raise UsageError(
            f"{folder}: no trace of a zone in it",
            hint="files as us-west-2a_k80_1.json, or us-west-2a_k80_1/full.json",
        )
    return {kind: tuple(sorted(found[kind], key=_stem)) for kind in sorted(found)}


def read_zone_files(
    paths: Sequence[Path],
    *,
    ones: Ones | None = None,
    usd: Usd | None = None,
    gap_s: float | None = None,
) -> SpotTrace:
    """The zones of one kind. ``gap_s``: instead of the files' own. UsageError with file and entry."""
    if not 0 < len(paths) <= MOST_ZONES:
        raise UsageError(f"{len(paths)} zones: from 1 to {MOST_ZONES:,}", hint="a file per zone")
    names = [_NAME.fullmatch(_stem(path)) for path in paths]
    kinds = {name["kind"] if name is not None else str(path) for name, path in zip(names, paths, strict=True)}
    if None in names or len(kinds) > 1:
        raise UsageError(
            f"one kind at a time, and each file by its zone: {', '.join(sorted(kinds))}",
            hint="files as us-west-2a_k80_1.json, us-west-2b_k80_1.json",
        )
    files = [_read(path, gap_s) for path in paths]
    says = ones or _convention(files)
    zones = [
        _zone(file, name["zone"], says, usd)
        for file, name in zip(files, names, strict=True)
        if name is not None
    ]
    if len({zone.place for zone in zones}) < len(zones):
        raise UsageError(f"{paths[0].parent}: a zone has two files", hint="a file per zone")
    begun = [zone.began for zone in zones if zone.began is not None]
    if begun and len(begun) < len(zones):
        raise UsageError(
            f"{paths[0].parent}: metadata.start_time in {len(begun)} of {len(zones)} files",
            hint="in all of them, or in none",
        )
    latest = max(begun, default=None)
    return SpotTrace(
        name=next(iter(kinds)),
        places=tuple(zone.place for zone in zones),
        instance_type=next(iter(kinds)),
        gpu=None,
        gpu_count=None,
        zones=tuple(_steps(zone, latest) for zone in zones),
    )


def _stem(path: Path) -> str:
    return path.parent.name if path.name == "full.json" else path.stem


def _place(zone: str, path: Path) -> str:
    for cloud, pattern in (("aws", _AWS), ("gcp", _GCP)):
        region = pattern.fullmatch(zone)
        if region is not None:
            return f"{cloud}/{region[1]}/{zone}"
    raise UsageError(
        f"{path}: {zone!r} is neither a zone of AWS nor of GCP", hint="us-east-1a, us-central1-a"
    )


def _read(path: Path, gap_s: float | None) -> _File:
    try:
        document = json.loads(read_bounded(path))
    except (OSError, EOFError, zlib.error, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path}: not a JSON file: {error}", hint='{"metadata": …, "data": […]}') from error
    metadata = document.get("metadata") if isinstance(document, dict) else None
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(metadata, dict) or not isinstance(data, list) or not data:
        raise UsageError(
            f"{path}: no metadata and data in it", hint='{"metadata": {"gap_seconds": 600}, "data": [0, 1]}'
        )
    if len(data) > MOST_LOOKS:
        raise UsageError(f"{path}: {len(data):,} looks, more than {MOST_LOOKS:,}", hint="a shorter trace")
    info = metadata.get("price_info")
    if info is not None and not isinstance(info, dict):
        raise UsageError(f"{path}: price_info is not an object", hint='{"price": 1.2, "on_demand_price": 4}')
    return _File(
        path=path,
        gap_s=_number(
            metadata.get("gap_seconds") if gap_s is None else gap_s, f"{path}: gap_seconds", MOST_GAP_S
        ),
        began=_began(metadata.get("start_time"), path),
        looks=_looks(data, path),
        info=info,
        prices=document.get("prices"),
    )


def _convention(files: Sequence[_File]) -> Ones:
    informed = [file.info is not None for file in files]
    if all(informed):
        return "down"
    if not any(informed) and max(int(file.looks.max()) for file in files) > 1:
        return "up"
    raise UsageError(
        f"{files[informed.index(False)].path}: zeros and ones, and nothing tells which of them is a machine "
        "that could be had",
        hint="say it: --ones up for skypilot-org/spot-traces, --ones down for files of SkyNomad's kind",
    )


def _zone(file: _File, zone: str, ones: Ones, usd: Usd | None) -> _Zone:
    looks = file.looks
    if ones == "down":
        if looks.max() > 1:
            raise UsageError(
                f"{file.path}: {looks.max()} in data, where 1 is to mean none", hint="0 and 1 only"
            )
        looks = 1 - looks
    spot, on_demand = _usd(file, usd)
    return _Zone(
        place=_place(zone, file.path),
        gap_s=file.gap_s,
        began=file.began,
        available=looks,
        spot=spot,
        on_demand=on_demand,
    )


def _looks(data: list[Any], path: Path) -> NDArray[np.int64]:
    for i, value in enumerate(data):
        if type(value) is not int or not 0 <= value <= MOST_MACHINES:
            raise UsageError(
                f"{path}: data[{i}] is {str(value)[:40]!r}, not a number of machines",
                hint=f"whole, from 0 to {MOST_MACHINES:,}; a look that was not made is not to be guessed",
            )
    return np.array(data, dtype=np.int64)


def _number(value: Any, where: str, most: float) -> float:
    if type(value) not in (int, float) or not (0 < value <= most and math.isfinite(value)):
        raise UsageError(
            f"{where} is {str(value)[:40]!r}, not a number above 0, at most {most:g}", hint="a number, as 600"
        )
    return float(value)


def _usd(file: _File, usd: Usd | None) -> tuple[Floats, float]:
    path, looks, info = file.path, file.looks.size, file.info or {}
    listed = info.get("on_demand_price", None if usd is None else usd.on_demand)
    prices = file.prices
    if prices is None:
        prices = info.get("price", None if usd is None else usd.spot)
    if listed is None or prices is None:
        raise UsageError(
            f"{path}: it has no prices{'' if prices is None else ' on demand'}: they are to be given",
            hint="--usd SPOT,ON_DEMAND: per machine and hour",
        )
    on_demand = _number(listed, f"{path}: the price on demand", MOST_USD)
    if not isinstance(prices, list):
        return np.full(looks, _number(prices, f"{path}: price", MOST_USD)), on_demand
    if len(prices) != looks:
        raise UsageError(f"{path}: {len(prices)} prices of {looks} looks", hint="one for each look")
    return np.array([_number(p, f"{path}: prices[{i}]", MOST_USD) for i, p in enumerate(prices)]), on_demand


def _began(text: Any, path: Path) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"{path}: start_time is {str(text)[:40]!r}", hint="as 2025-10-04T00:10:00+00:00"
        ) from error


def _steps(zone: _Zone, latest: datetime | None) -> ZoneSteps:
    """From ``latest`` on; rows where machines or price change."""
    behind_s = (latest - zone.began).total_seconds() if latest is not None and zone.began is not None else 0.0
    first = int(behind_s // zone.gap_s)
    if first >= zone.available.size:
        raise UsageError(
            f"{zone.place} ends before another zone begins", hint="zones that were looked at together"
        )
    available, spot = zone.available[first:], zone.spot[first:]
    offset_s = (first + np.arange(available.size)) * zone.gap_s - behind_s
    changes = np.ones(available.size, dtype=bool)
    changes[1:] = (np.diff(available) != 0) | (np.diff(spot) != 0)
    offset_s = np.maximum(offset_s, 0.0)
    return ZoneSteps(
        offset_s=offset_s[changes],
        available=available[changes],
        spot_usd_per_hour=spot[changes],
        on_demand_usd_per_hour=np.full(int(changes.sum()), zone.on_demand),
        end_s=float(zone.available.size * zone.gap_s - behind_s),
    )
