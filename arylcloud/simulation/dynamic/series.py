"""Prices as they were, as arrays: step functions of many rentals side by side.

A rental is one way to have GPUs: a place, an instance type, a market. Its prices are steps: row i holds from
``at_s[i]`` until the next, the last one for ever; before the first the price is unknown (NaN), never 0.
All money is per GPU: an instance of n GPUs is taken to be filled by n like jobs (the study's "packed").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.offer import Market

Floats = NDArray[np.float64]
Index = NDArray[np.intp]

_SPAN_S: Final = 2.0**33
"""More than any Unix time here; a thousand rentals of it leave milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Rental:
    """What a series of prices is for."""

    cloud: str
    region: str
    zone: str
    """Empty = the whole region."""
    instance_type: str
    gpu: str
    gpu_count: int
    market: Market

    @property
    def place(self) -> str:
        return "/".join(part for part in (self.cloud, self.region, self.zone) if part)

    @property
    def key(self) -> str:
        """As ``Offer.key``."""
        return f"{self.place}:{self.instance_type}:{self.market.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSeries:
    """``m`` rentals, ``n`` steps in all; the steps of one rental lie together, ascending in time."""

    rentals: tuple[Rental, ...]
    rental: Index
    """Whose step it is, shape (n,), ascending."""
    at_s: Floats
    """Unix seconds, shape (n,)."""
    usd_per_gpu_hour: Floats
    """Shape (n,)."""
    _keys: Floats
    """``rental × _SPAN_S + at_s``, shape (n,), ascending."""
    _since_usd: Floats
    """What one GPU has cost from the rental's first step up to this one, shape (n,)."""
    _low: Floats
    """The lowest price of the rental up to this step, shape (n,); ``_high`` likewise."""
    _high: Floats

    @property
    def first_s(self) -> Floats:
        """When each rental's price begins to be known, shape (m,)."""
        return self.at_s[np.searchsorted(self.rental, np.arange(len(self.rentals)))]

    def price(self, rental: Index, at_s: Floats) -> Floats:
        """$ per GPU-hour in force, of the two broadcast together; NaN where not known yet."""
        row, known = self._rows(rental, at_s)
        return np.where(known, self.usd_per_gpu_hour[row], np.nan)

    def prices(self, at_s: Floats) -> Floats:
        """Every rental at times of any shape: shape (m, \\*times)."""
        return self.price(self._column(at_s), at_s[None])

    def paid(self, rental: Index, from_s: Floats, to_s: Floats) -> Floats:
        """$ for one GPU from one moment to the other at the prices in force; NaN where not known yet."""
        return self._until(rental, to_s) - self._until(rental, from_s)

    def seen(self, rental: Index, at_s: Floats) -> tuple[Floats, Floats]:
        """Lowest and highest $ per GPU-hour up to that moment; NaN where not known yet."""
        row, known = self._rows(rental, at_s)
        return np.where(known, self._low[row], np.nan), np.where(known, self._high[row], np.nan)

    def only(self, wanted: Callable[[Rental], bool]) -> PriceSeries:
        """The rentals for which ``wanted`` holds."""
        kept = np.array([wanted(rental) for rental in self.rentals], dtype=bool)
        rows = kept[self.rental]
        owner = (np.cumsum(kept) - 1)[self.rental[rows]].astype(np.intp)
        return PriceSeries(
            rentals=tuple(r for r, keep in zip(self.rentals, kept, strict=True) if keep),
            rental=owner,
            at_s=self.at_s[rows],
            _keys=owner * _SPAN_S + self.at_s[rows],
            usd_per_gpu_hour=self.usd_per_gpu_hour[rows],
            _since_usd=self._since_usd[rows],
            _low=self._low[rows],
            _high=self._high[rows],
        )

    def _column(self, at_s: Floats) -> Index:
        return np.arange(len(self.rentals), dtype=np.intp).reshape((-1,) + (1,) * at_s.ndim)

    def _until(self, rental: Index, at_s: Floats) -> Floats:
        row, known = self._rows(rental, at_s)
        usd = self._since_usd[row] + self.usd_per_gpu_hour[row] * (at_s - self.at_s[row]) / 3600.0
        return np.where(known, usd, np.nan)

    def _rows(self, rental: Index, at_s: Floats) -> tuple[Index, NDArray[np.bool_]]:
        """The step in force, and whether there is one: one search, the rentals one behind the other."""
        row = np.searchsorted(self._keys, rental * _SPAN_S + at_s, side="right") - 1
        row = np.maximum(row, 0)
        known = (self.rental[row] == rental) & (self.at_s[row] <= at_s)
        return row.astype(np.intp), known


def price_series(steps: Mapping[Rental, Iterable[tuple[float, float]]]) -> PriceSeries:
    """From (Unix seconds, $ per instance-hour) of each rental, in any order; of one second the last counts.

    Rentals are ordered by their fields, so that ties between equal prices fall alike everywhere.
    """
    rentals = tuple(sorted(rental for rental, rows in steps.items() if rows))
    if not rentals:
        raise ValueError("a series of prices needs a rental with a price")
    owner: list[Index] = []
    times: list[Floats] = []
    prices: list[Floats] = []
    totals: list[Floats] = []
    lows: list[Floats] = []
    highs: list[Floats] = []
    for i, rental in enumerate(rentals):
        latest = dict(sorted(steps[rental], key=lambda step: step[0]))
        at_s = np.fromiter(latest, dtype=np.float64, count=len(latest))
        usd = np.fromiter(latest.values(), dtype=np.float64, count=len(latest)) / rental.gpu_count
        owner.append(np.full(at_s.size, i, dtype=np.intp))
        times.append(at_s)
        prices.append(usd)
        lows.append(np.minimum.accumulate(usd))
        highs.append(np.maximum.accumulate(usd))
        totals.append(np.concatenate(([0.0], np.cumsum(usd[:-1] * np.diff(at_s) / 3600.0))))
    return PriceSeries(
        rentals=rentals,
        rental=np.concatenate(owner),
        _keys=np.concatenate([i * _SPAN_S + at_s for i, at_s in enumerate(times)]),
        at_s=np.concatenate(times),
        usd_per_gpu_hour=np.concatenate(prices),
        _since_usd=np.concatenate(totals),
        _low=np.concatenate(lows),
        _high=np.concatenate(highs),
    )
