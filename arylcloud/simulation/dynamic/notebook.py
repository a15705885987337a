"""The study's own convention, faults and all: what its notebook computed, so that its table can be held to.

Days, not moments. A rental can be seen only on days with a row. The choice takes the day's lowest row; a
job that stays pays the day's last row, or the day before's where there is none; one that chooses again pays
the row chosen. AWS is compared by price per GPU, Azure by price per instance (so only its 1-GPU types win);
both are paid per GPU. After the last day everything costs what it cost then. Starts run from the 35th-last
to the 6th-last day, six of them before Azure's first price: static jobs cannot see Azure there, dynamic
ones move to it later. Moves are free. algorithms.md 2.2; ``single_job_cost_analysis.ipynb`` of
``training_on_a_dime``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from arylcloud.simulation.dynamic.series import Floats, Index, PriceSeries, Rental
from arylcloud.simulation.dynamic.study import BASELINE, rates_over

DAY_S = 86400.0
_BEFORE_END = (35, 5)


class Strategy(StrEnum):
    """Each with all that the one before may do."""

    BASELINE = "baseline"
    GPU_TYPE = "gpu_type"
    PACKED = "packed"
    MULTI_CLOUD = "multi_cloud"
    DYNAMIC = "dynamic"

    def may_use(self, rental: Rental) -> bool:
        if self is Strategy.BASELINE:
            return rental.instance_type == BASELINE
        if self is Strategy.GPU_TYPE:
            return rental.cloud == "aws" and rental.gpu_count == 1
        return rental.cloud == "aws" or self in (Strategy.MULTI_CLOUD, Strategy.DYNAMIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Days:
    """Rows by calendar day (UTC); shapes (m, days), NaN = no row on that day."""

    rentals: tuple[Rental, ...]
    low: Floats
    """$ per GPU-hour."""
    closing: Floats
    starts: Index
    """Days of the study's starts."""


def days_of(series: PriceSeries, region: str) -> Days:
    """AWS's ``region`` and all of Azure, from the first day with a row to the last."""
    part = series.only(lambda r: r.cloud == "azure" or r.region == region)
    day = (part.at_s // DAY_S).astype(np.intp)
    day -= day.min()
    shape = (len(part.rentals), int(day.max()) + 1)
    low = np.full(shape, np.inf)
    np.minimum.at(low, (part.rental, day), part.usd_per_gpu_hour)
    closing = np.full(shape, np.nan)
    closing[part.rental, day] = part.usd_per_gpu_hour  # in order of time: the last one stays
    low[np.isnan(closing)] = np.nan
    base = np.array([r.instance_type == BASELINE for r in part.rentals])
    known = np.flatnonzero(np.isfinite(low[base]).any(axis=0))
    from_end, to_end = _BEFORE_END
    return Days(rentals=part.rentals, low=low, closing=closing, starts=known[-from_end:-to_end])


def mean_usd(days: Days, by_gpu: Mapping[str, float], v100_days: float) -> dict[Strategy, float]:
    """Mean cost over the starts of work that one V100 does in ``v100_days``."""
    rate = rates_over(days.rentals, by_gpu)
    work = by_gpu["V100"] * DAY_S * v100_days
    return {s: float(np.mean([_one(days, rate, work, int(d), s) for d in days.starts])) for s in Strategy}


def _one(days: Days, rate: Floats, work: float, day: int, strategy: Strategy) -> float:
    usable = np.array([strategy.may_use(rental) for rental in days.rentals])
    seen = np.array([rental.gpu_count if rental.cloud == "azure" else 1 for rental in days.rentals])
    last = days.low.shape[1] - 1

    def choose(today: int) -> int:
        score = np.where(usable, rate / (days.low[:, today] * seen), np.nan)
        return int(np.nanargmax(score))

    here = choose(day)
    price = float(days.low[here, day])
    usd, left, speed = 0.0, work, float(rate[here])
    while day < last:
        hours = min(24.0, left / speed / 3600.0)
        usd += hours * price
        left -= speed * hours * 3600.0
        if left <= 1e-9 * work:
            return usd
        day += 1
        if strategy is Strategy.DYNAMIC:
            here = choose(day)
            speed = float(rate[here])
            price = float(days.low[here, day])
        elif not np.isnan(days.closing[here, day]):
            price = float(days.closing[here, day])
    return usd + left / speed / 3600.0 * price
