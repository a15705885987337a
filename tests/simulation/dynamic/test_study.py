"""The pricing study of 2020, held to its own table; and what it claims, on its prices and on later ones."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from arylcloud.core.errors import UsageError
from arylcloud.pricing.tariffs import load_tariffs
from arylcloud.simulation.dynamic.modern import (
    MODERN_BEGIN_S,
    MODERN_END_S,
    modern_prices,
    modern_rates,
)
from arylcloud.simulation.dynamic.moving import free_moves, priced_moves
from arylcloud.simulation.dynamic.notebook import Strategy, days_of, mean_usd
from arylcloud.simulation.dynamic.replay import DAY_S, replay
from arylcloud.simulation.dynamic.series import PriceSeries
from arylcloud.simulation.dynamic.study import (
    BASELINE,
    MODELS,
    rates_over,
    study_prices,
    study_rates,
    unix_s,
)

STUDY = os.environ.get("ARYLCLOUD_STUDY_DATA")
needs_study = pytest.mark.skipif(STUDY is None, reason="ARYLCLOUD_STUDY_DATA does not name the study data")
STARTS = unix_s("2020-02-24") + DAY_S * np.arange(24)
US_EAST_1 = {
    Strategy.GPU_TYPE: (1.32, 1.00, 1.00, 1.01, 1.00, 1.00),
    Strategy.PACKED: (1.71, 1.08, 1.08, 1.31, 1.08, 1.11),
    Strategy.MULTI_CLOUD: (3.10, 1.54, 1.70, 2.38, 1.49, 2.36),
    Strategy.DYNAMIC: (3.53, 1.64, 1.81, 2.76, 1.53, 3.21),
}
CLEAN = {
    "us-east-1": ((3.91, 3.91), (1.74, 1.82), (2.00, 2.08), (3.00, 3.00), (1.65, 1.66), (3.30, 3.68)),
    "us-west-2": ((4.35, 4.35), (1.93, 2.03), (2.22, 2.31), (3.33, 3.33), (1.84, 1.84), (3.67, 4.09)),
}

Rates = dict[str, dict[str, float]]


@pytest.fixture(scope="module")
def folder() -> Path:
    return Path(STUDY or "")


@pytest.fixture(scope="module")
def prices(folder: Path) -> PriceSeries:
    return study_prices(folder)


@pytest.fixture(scope="module")
def rates(folder: Path) -> Rates:
    return study_rates(folder)


@needs_study
def test_the_published_table_within_3_percent(prices: PriceSeries, rates: Rates) -> None:
    days = days_of(prices, "us-east-1")
    assert len(days.starts) == 30
    found = [mean_usd(days, rates[model], 4) for model in MODELS]
    for strategy, published in US_EAST_1.items():
        ours = [usd[Strategy.BASELINE] / usd[strategy] for usd in found]
        assert ours == pytest.approx(published, rel=0.03)


@needs_study
@pytest.mark.parametrize("region", CLEAN)
def test_the_clean_table_within_2_percent(prices: PriceSeries, rates: Rates, region: str) -> None:
    both = prices.only(lambda r: r.cloud == "azure" or r.region == region)
    base = prices.only(lambda r: r.region == region and r.instance_type == BASELINE)
    for model, expected in zip(MODELS, CLEAN[region], strict=True):
        work, rate = rates[model]["V100"] * DAY_S * 4, rates_over(both.rentals, rates[model])
        usd = replay(base, rates_over(base.rentals, rates[model]), work, STARTS, every_s=None).usd.sum()
        static = replay(both, rate, work, STARTS, every_s=None).usd.sum()
        dynamic = replay(both, rate, work, STARTS, moving=free_moves(len(both.rentals))).usd.sum()
        assert (usd / static, usd / dynamic) == pytest.approx(expected, rel=0.02)


@needs_study
@pytest.mark.parametrize(("gb", "lengths"), [(1.0, (1, 2, 4, 8)), (101.0, (4,))])
def test_with_priced_moves_no_model_from_no_start_ends_dearer_than_staying(
    prices: PriceSeries, rates: Rates, gb: float, lengths: tuple[int, ...]
) -> None:
    regions = sorted({r.region for r in prices.rentals if r.cloud == "aws"})
    assert len(regions) >= 6
    moved = 0
    for region in [*regions, "any"]:
        both = prices.only(lambda r, at=region: r.cloud == "azure" or at in (r.region, "any"))  # type: ignore[misc]
        moving = priced_moves(both.rentals, load_tariffs(), gb=gb)
        for model, by_gpu in rates.items():
            rate = rates_over(both.rentals, by_gpu)
            for length in lengths:
                work = by_gpu["V100"] * DAY_S * length
                static = replay(both, rate, work, STARTS, every_s=None)
                dynamic = replay(both, rate, work, STARTS, moving=moving, guarded=True)
                dearer = np.flatnonzero(dynamic.usd > static.usd * (1 + 1e-9))
                assert not dearer.size, (region, model, length, dearer)
                moved += int(dynamic.moves.sum())
    assert moved > 100 * len(lengths)


@needs_study
@pytest.mark.parametrize(("smaller_clouds", "days_apart"), [(False, 14), (True, 3)])
def test_nor_at_the_prices_of_2023_to_2026(folder: Path, smaller_clouds: bool, days_apart: int) -> None:
    series, rates = modern_prices(folder, smaller_clouds=smaller_clouds), modern_rates(folder)
    assert len(rates) == 10
    moving = priced_moves(series.rentals, load_tariffs(), gb=10.0, unknown_usd_per_gb=0.12)
    begin, end = MODERN_BEGIN_S[smaller_clouds], MODERN_END_S[smaller_clouds] - 30 * DAY_S
    starts, moved, saved = np.arange(begin, end, days_apart * DAY_S), 0, 0.0
    for by_gpu in rates.values():
        rate, work = rates_over(series.rentals, by_gpu), by_gpu["A100-PCIE"] * DAY_S * 30
        static = replay(series, rate, work, starts, every_s=None)
        dynamic = replay(series, rate, work, starts, moving=moving, guarded=True)
        assert (dynamic.usd <= static.usd * (1 + 1e-9)).all()
        moved += int(dynamic.moves.sum())
        saved += float((static.usd - dynamic.usd).sum())
    assert moved > 0
    assert saved > 0.0


def test_a_folder_without_the_data_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"spot_history\.csv\.gz is not there"):
        study_prices(tmp_path)
