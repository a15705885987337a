"""Losses per machine-hour of every offer, each with where the figure comes from.

Mean lives are assumed by band (AWS's Spot Advisor, Azure's eviction rates), and corrected by what own
machines have seen (``ownrates``). Bands are monthly ranks, not rates: p3.2xlarge lived 0.7–10.5 h in 2023. So
they are shown as "assumed", and the p90 uses a third of the life where nothing was lost yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import IntegrityError
from arylcloud.pricing.ownrates import Factors, Kind, Tally, adverse, factors
from arylcloud.pricing.table import SPOT, OfferTable

MEAN_LIFE_H: Final[dict[str, float]] = {"<5%": 48, "5-10%": 24, "10-15%": 12, "15-20%": 8, ">20%": 4}
NO_BAND_LIFE_H: Final = 12.0
P90_LIFE_FACTOR: Final = 1 / 3
_TOLD_BY: Final = {"aws": "Spot Advisor band", "azure": "Azure eviction rate"}
"""What the bands of each cloud are called."""
_ASSUMED: Final = "assumed: "
_KIND: Final = ("cloud", "region", "instance_type")

Quantile = Literal["mean", "p90"]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnHistory:
    """What we saw ourselves of one instance type in a zone (None: in all of the region, its zones too)."""

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    hours: float
    """Machine-hours watched."""
    losses: int
    recent_hours: float
    """Of them, by how much they still say: what is older counts for less."""
    recent_losses: float

    @property
    def kind(self) -> Kind:
        return self.cloud, self.region, self.instance_type


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazards:
    """Losses per machine-hour of row i are ``rates[source[i]]``, by ``sources[source[i]]``."""

    rates: Floats
    """By source."""
    adverse: Floats
    """By source: p90 / mean; 1 where nothing is lost."""
    source: NDArray[np.int16]
    sources: tuple[str, ...]

    @property
    def per_hour(self) -> Floats:
        """Of every row."""
        return self.of(slice(None))

    def of(self, rows: NDArray[np.intp] | slice) -> Floats:
        found: Floats = self.rates.take(self.source[rows])
        return found

    def source_of(self, i: int) -> str:
        return self.sources[int(self.source[i])]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotAdvisor:
    """Interruption bands of one cloud, by (region, instance type)."""

    as_of: str
    bands: Mapping[tuple[str, str], str]
    cloud: str = "aws"
    also: tuple[SpotAdvisor, ...] = ()
    """Those of other clouds."""


def bundled_advisor() -> SpotAdvisor:
    """The bands that come with the package (under a millisecond: no cache)."""
    return read_advisor(Path(__file__).parent / "data" / "spot_advisor.json")


def read_advisor(path: Path) -> SpotAdvisor:
    document = json.loads(path.read_bytes())
    if document.get("schema_version") != 1 or set(document["bands"]) - set(MEAN_LIFE_H):
        raise IntegrityError(f"{path} has bands or a schema that this version does not know")
    bands = {
        (region, name): band
        for band, by_region in document["bands"].items()
        for region, names in by_region.items()
        for name in names
    }
    cloud = document.get("cloud", "aws")
    if cloud not in _TOLD_BY:
        raise IntegrityError(f"{path} has bands of {cloud}, which this version does not know")
    return SpotAdvisor(as_of=document["as_of"], bands=bands, cloud=cloud)


def hazard_per_hour(
    table: OfferTable,
    quantile: Quantile = "mean",
    *,
    advisor: SpotAdvisor | None = None,
    history: Iterable[OwnHistory] = (),
) -> Hazards:
    """Losses per machine-hour of every row of ``table``: 0 on demand and reserved; on spot 1 / assumed mean
    life, corrected by own ``history`` (a zone's entry counts where one of its region is there, too)."""
    advisor = bundled_advisor() if advisor is None else advisor
    advisors = (advisor, *advisor.also)
    sources = _assumed(advisors)
    source = (table.market == SPOT).astype(np.int16)
    for number, one in enumerate(advisors):
        _apply_bands(table, one, source, 2 + number * len(MEAN_LIFE_H))
    history = tuple(history)
    if history:
        _apply_own(table, advisors, history, source, sources)
    mean = np.array([one.per_hour for one in sources])
    p90 = np.array([one.p90_per_hour for one in sources])
    return Hazards(
        rates=mean if quantile == "mean" else p90,
        adverse=np.divide(p90, mean, out=np.ones_like(mean), where=mean > 0),
        source=source,
        sources=tuple(one.text for one in sources),
    )


@dataclass(frozen=True, slots=True)
class _Source:
    per_hour: float
    p90_per_hour: float
    text: str


def _assumed(advisors: Iterable[SpotAdvisor]) -> list[_Source]:
    """Never, no band, each band of each cloud."""
    lives = [(NO_BAND_LIFE_H, f"no band, mean life {NO_BAND_LIFE_H:g} h")]
    for one in advisors:
        told = f"{_TOLD_BY[one.cloud]} {{}} ({one.as_of}), mean life {{:g}} h"
        lives += [(life, told.format(band, life)) for band, life in MEAN_LIFE_H.items()]
    never = _Source(0.0, 0.0, "not interrupted by the cloud (on demand or reserved)")
    assumed = [_Source(1 / life, 1 / (life * P90_LIFE_FACTOR), f"{_ASSUMED}{text}") for life, text in lives]
    return [never, *assumed]


def _apply_own(
    table: OfferTable,
    advisors: tuple[SpotAdvisor, ...],
    history: tuple[OwnHistory, ...],
    source: NDArray[np.int16],
    sources: list[_Source],
) -> None:
    """Adds sources, and sets ``source`` of the rows that they speak of: of a cloud, of a type in a region, of
    a zone, the nearer ones later."""
    regional = {own.kind: own for own in history if own.zone is None}
    zonal = {(own.kind, own.zone): own for own in history if own.zone is not None and own.kind in regional}
    assumed = {kind: _assumed_code(advisors, kind) for kind in regional}

    def tally(own: OwnHistory) -> Tally:
        expected = own.recent_hours * sources[assumed[own.kind]].per_hour
        return Tally(losses=own.recent_losses, expected=expected)

    found = factors(
        {kind: tally(own) for kind, own in regional.items()},
        {place: tally(own) for place, own in zonal.items()},
    )
    base = len(sources)
    for cloud in found.cloud:
        _apply_cloud(table, cloud, found, regional, source, sources[:base], sources)
    for kind, rows in _rows_of(table, sorted(regional)).items():
        own, before = regional[kind], sources[assumed[kind]]
        seen = f"{_losses(own.losses, own.hours)} in {own.region}"
        source[rows] = len(sources)
        sources.append(_corrected(before, found.kind[kind], own.recent_losses, f"own: {seen}"))
        names = [table.zone_names[code] if code >= 0 else None for code in table.zone[rows].tolist()]
        for zone in sorted({name for name in names if name is not None and (kind, name) in zonal}):
            here = zonal[kind, zone]
            source[rows[[name == zone for name in names]]] = len(sources)
            text = f"own: {_losses(here.losses, here.hours)} in {zone}" + (
                f", {seen}" if here.hours < own.hours else ""
            )
            theta = found.zone[kind, zone]
            sources.append(_corrected(before, theta, own.recent_losses, text))


def _apply_cloud(
    table: OfferTable,
    cloud: str,
    found: Factors,
    regional: Mapping[Kind, OwnHistory],
    source: NDArray[np.int16],
    base: list[_Source],
    sources: list[_Source],
) -> None:
    """Each assumed life of a cloud's spot offers once more, corrected by all that was seen at that cloud."""
    own = [one for kind, one in regional.items() if kind[0] == cloud]
    said = _losses(sum(one.losses for one in own), sum(one.hours for one in own))
    rows = np.flatnonzero((source > 0) & table.mask("cloud", [cloud]))
    used = np.bincount(source[rows], minlength=len(base))
    turned = np.zeros(len(base), dtype=np.int16)
    for code in np.flatnonzero(used).tolist():
        turned[code] = len(sources)
        text = f"own: {said} of other machines at {cloud}"
        sources.append(_corrected(base[code], found.cloud[cloud], 0, text))
    source[rows] = turned.take(source[rows])


def _rows_of(table: OfferTable, kinds: Iterable[Kind]) -> dict[Kind, NDArray[np.intp]]:
    """Spot rows by cloud, region and type; a kind without an offer is left out."""
    columns = [np.asarray(getattr(table, name), dtype=np.int64) for name in _KIND]
    sizes = [len(table.vocabulary(name)) for name in _KIND]
    wanted: dict[Kind, tuple[int, ...]] = {}
    for kind in kinds:
        codes = tuple(table.code(name, text) for name, text in zip(_KIND, kind, strict=True))
        if min(codes) >= 0:
            wanted[kind] = codes
    numbers = np.zeros(sizes, dtype=np.int16)
    for i, at in enumerate(wanted.values(), start=1):
        numbers[at] = i
    spot = np.flatnonzero(table.market == SPOT)
    cloud, region, name = (column[spot] for column in columns)
    number = numbers.ravel().take((cloud * sizes[1] + region) * sizes[2] + name)
    known = np.flatnonzero(number)
    return {kind: spot[known[number[known] == i]] for i, kind in enumerate(wanted, start=1)}


def _corrected(before: _Source, theta: float, losses: float, seen: str) -> _Source:
    rate = before.per_hour * theta
    text = f"{seen}; before: {before.text.removeprefix(_ASSUMED)}"
    return _Source(rate, rate * adverse(losses, 1 / P90_LIFE_FACTOR), text)


def _losses(losses: int, hours: float) -> str:
    spent = f"{hours:.2g}" if hours < 10 else f"{hours:,.0f}"
    return f"{losses or 'no'} {'loss' if losses == 1 else 'losses'} in {spent} h"


def _assumed_code(advisors: Iterable[SpotAdvisor], kind: Kind) -> int:
    """Position among ``_assumed``."""
    for number, one in enumerate(advisors):
        band = one.bands.get(kind[1:]) if one.cloud == kind[0] else None
        if band is not None:
            return 2 + number * len(MEAN_LIFE_H) + [*MEAN_LIFE_H].index(band)
    return 1


def _apply_bands(table: OfferTable, advisor: SpotAdvisor, source: NDArray[np.int16], first: int) -> None:
    """Sets ``source`` (1 on spot, else 0) of the cloud's spot rows that have a band, by (region, type), to
    ``first`` and the numbers after it."""
    regions = {name: i for i, name in enumerate(table.region_names)}
    types = {name: i for i, name in enumerate(table.instance_type_names)}
    band_code = {band: first + i for i, band in enumerate(MEAN_LIFE_H)}
    banded = {
        regions[region] * len(types) + types[name]: band_code[band]
        for (region, name), band in advisor.bands.items()
        if region in regions and name in types
    }
    lookup = np.zeros(len(regions) * len(types), dtype=np.int16)
    lookup[np.array([*banded], dtype=np.intp)] = [*banded.values()]
    rows = np.flatnonzero((source > 0) & table.mask("cloud", [advisor.cloud]))
    found = lookup.take(table.region.take(rows) * len(types) + table.instance_type.take(rows))
    source[rows] = np.where(found > 0, found, source[rows])
