"""Losses per machine-hour of every offer, each with where the figure comes from.

Own history by Nelson–Aalen (≥ 20 losses) goes before assumed mean lives by band: AWS's Spot Advisor, Azure's
eviction rates. Bands are monthly ranks, not rates: p3.2xlarge lived 0.7–10.5 h in 2023. So they are shown as
"assumed", and the p90 uses a third of the life.
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
from arylcloud.pricing.table import SPOT, OfferTable

MEAN_LIFE_H: Final[dict[str, float]] = {"<5%": 48, "5-10%": 24, "10-15%": 12, "15-20%": 8, ">20%": 4}
NO_BAND_LIFE_H: Final = 12.0
P90_LIFE_FACTOR: Final = 1 / 3
_TOLD_BY: Final = {"aws": "Spot Advisor band", "azure": "Azure eviction rate"}
"""What the bands of each cloud are called."""
MIN_LOSSES: Final = 20
"""Fewer losses than this say too little: the assumed life stays."""

Quantile = Literal["mean", "p90"]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalEstimate:
    """Nelson–Aalen: H(t) = Σ_{t_i ≤ t} d_i / n_i, variance Σ d_i / n_i² (Aalen 1978)."""

    times_h: Floats
    """Distinct times of losses, ascending, shape (k,)."""
    cumulative: Floats
    variance: Floats
    at_risk: NDArray[np.int64]
    losses: int

    def per_hour(self, quantile: Quantile = "mean") -> float:
        """H(t)/t at the last loss that at least a tenth of all machines (and ≥ 5) lived to see: beyond
        it single machines move the curve. p90: H plus 1.2816 standard errors."""
        enough = np.flatnonzero(self.at_risk >= max(5.0, 0.1 * float(self.at_risk[0])))
        at = int(enough[-1]) if enough.size else 0
        total = float(self.cumulative[at])
        if quantile == "p90":
            total += 1.2816 * float(np.sqrt(self.variance[at]))
        return total / float(self.times_h[at])


def nelson_aalen(lives_h: Floats, lost: NDArray[np.bool_]) -> SurvivalEstimate:
    """Survival of machines. ``lives_h[i]`` > 0: hours that machine i was watched; ``lost[i]``: the cloud
    took it then (False: we ended it, or it still runs: censored). ValueError where nothing was lost.

    >>> estimate = nelson_aalen(np.array([1.0, 2.0, 2.0, 4.0]), np.array([True, True, False, True]))
    >>> estimate.cumulative.round(4).tolist()
    [0.25, 0.5833, 1.5833]
    """
    lives = np.asarray(lives_h, dtype=float)
    if lives.shape != np.shape(lost) or not np.all(lives > 0) or not np.all(np.isfinite(lives)):
        raise ValueError("lives_h and lost need one shape, and lives must be positive hours")
    times, events = np.unique(lives[lost], return_counts=True)
    if times.size == 0:
        raise ValueError("without a loss there is no hazard to estimate")
    at_risk = lives.size - np.searchsorted(np.sort(lives), times, side="left")
    return SurvivalEstimate(
        times_h=times,
        cumulative=np.cumsum(events / at_risk),
        variance=np.cumsum(events / at_risk**2),
        at_risk=at_risk.astype(np.int64),
        losses=int(events.sum()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnHistory:
    """What we saw ourselves of one instance type in a zone (None: anywhere in the region)."""

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    estimate: SurvivalEstimate


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
    """Losses per machine-hour of every row of ``table``: 0 on demand and reserved; on spot own
    ``history`` of ≥ 20 losses (a zone's before its region's), else 1 / assumed mean life."""
    advisor = bundled_advisor() if advisor is None else advisor
    advisors = (advisor, *advisor.also)
    # a zone's own history after its region's, so that it stands
    known = [own for own in sorted(history, key=_zoned) if own.estimate.losses >= MIN_LOSSES]
    source = (table.market == SPOT).astype(np.int16)
    for number, one in enumerate(advisors):
        _apply_bands(table, one, source, 2 + number * len(MEAN_LIFE_H))
    for number, own in enumerate(known, start=2 + len(advisors) * len(MEAN_LIFE_H)):
        rows = (table.market == SPOT) & table.mask("cloud", [own.cloud])
        rows &= table.mask("region", [own.region]) & table.mask("instance_type", [own.instance_type])
        if own.zone is not None:
            rows &= table.mask("zone", [own.zone])
        source[rows] = number
    rates, mean, p90 = (_rates(len(advisors), known, which) for which in (quantile, "mean", "p90"))
    return Hazards(
        rates=rates,
        adverse=np.divide(p90, mean, out=np.ones_like(mean), where=mean > 0),
        source=source,
        sources=(
            "not interrupted by the cloud (on demand or reserved)",
            f"assumed: no band, mean life {NO_BAND_LIFE_H:g} h",
            *(
                f"assumed: {_TOLD_BY[one.cloud]} {band} ({one.as_of}), mean life {life:g} h"
                for one in advisors
                for band, life in MEAN_LIFE_H.items()
            ),
            *(f"own history: {own.estimate.losses} losses, Nelson–Aalen" for own in known),
        ),
    )


def _zoned(own: OwnHistory) -> bool:
    return own.zone is not None


def _rates(advisors: int, known: Iterable[OwnHistory], quantile: Quantile) -> Floats:
    """Losses per machine-hour by source: never, no band, each band of each cloud, own history."""
    factor = 1.0 if quantile == "mean" else P90_LIFE_FACTOR
    assumed = [1 / (life * factor) for life in (NO_BAND_LIFE_H, *[*MEAN_LIFE_H.values()] * advisors)]
    return np.array([0.0, *assumed, *(own.estimate.per_hour(quantile) for own in known)])


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
