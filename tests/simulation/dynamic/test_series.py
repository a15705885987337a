"""Prices as arrays, against the same question asked step by step."""

from __future__ import annotations

import numpy as np
import pytest

from arylcloud.core.offer import Market
from arylcloud.simulation.dynamic.series import PriceSeries, Rental, price_series

BEGIN_S = 1.58e9


def rental(
    name: str, *, gpus: int = 1, gpu: str = "V100", cloud: str = "aws", region: str = "us-east-1"
) -> Rental:
    return Rental(
        cloud=cloud, region=region, zone="", instance_type=name, gpu=gpu, gpu_count=gpus, market=Market.SPOT
    )


def invented(rng: np.random.Generator, rentals: int) -> dict[Rental, list[tuple[float, float]]]:
    return {
        rental(f"t{i}", gpus=int(rng.integers(1, 9))): [
            (BEGIN_S + float(at), float(rng.uniform(0.1, 9.0)))
            for at in rng.integers(0, 30 * 86400, int(rng.integers(1, 40)))
        ]
        for i in range(rentals)
    }


def in_force(steps: list[tuple[float, float]], at_s: float) -> float | None:
    known = [(at, i) for i, (at, _) in enumerate(steps) if at <= at_s]
    return steps[max(known)[1]][1] if known else None


@pytest.mark.parametrize("seed", range(3))
def test_prices_and_bills_are_those_of_the_steps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps = invented(rng, 12)
    series = price_series(steps)
    at_s = BEGIN_S + rng.uniform(-86400, 40 * 86400, 25).round()
    prices = series.prices(at_s)
    minute = 60.0
    for m, one in enumerate(series.rentals):
        for k, moment in enumerate(at_s):
            expected = in_force(steps[one], moment)
            if expected is None:
                assert np.isnan(prices[m, k])
                assert np.isnan(series.paid(np.array(m), np.array(moment), np.array(moment + 1.0)))
            else:
                assert prices[m, k] == pytest.approx(expected / one.gpu_count)
        first = min(at for at, _ in steps[one])
        begin = np.ceil(first / minute) * minute
        edges = begin + minute * np.arange(3 * 1440)
        sampled = [in_force(steps[one], float(edge)) or 0.0 for edge in edges[:-1]]
        naive = sum(sampled) / one.gpu_count / 60.0
        # between two minutes a price may change once or more: a minute of the dearest is the most that is off
        slack = len(steps[one]) * 9.0 / 60.0
        exact = float(series.paid(np.array(m), np.array(edges[0]), np.array(edges[-1])))
        assert exact == pytest.approx(naive, abs=slack / one.gpu_count)


def test_a_bill_is_exact_over_changes_and_adds_up() -> None:
    series = price_series({rental("a", gpus=4): [(BEGIN_S, 8.0), (BEGIN_S + 5400, 4.0)]})
    m = np.array(0)
    assert float(series.paid(m, np.array(BEGIN_S), np.array(BEGIN_S + 7200))) == pytest.approx(3.0 + 0.5)
    parts = np.array([BEGIN_S, BEGIN_S + 100.0, BEGIN_S + 6000.0, BEGIN_S + 90000.0])
    whole = float(series.paid(m, parts[0], parts[-1]))
    assert float(series.paid(np.zeros(3, dtype=np.intp), parts[:-1], parts[1:]).sum()) == pytest.approx(whole)


def test_lows_and_highs_are_those_so_far() -> None:
    series = price_series({rental("a"): [(BEGIN_S, 2.0), (BEGIN_S + 10, 1.0), (BEGIN_S + 20, 3.0)]})
    moments = BEGIN_S + np.array([-1.0, 0.0, 15.0, 99.0])
    low, high = series.seen(np.zeros(4, dtype=np.intp), moments)
    np.testing.assert_array_equal(low, [np.nan, 2.0, 1.0, 1.0])
    np.testing.assert_array_equal(high, [np.nan, 2.0, 2.0, 3.0])


def test_a_part_is_as_if_the_rest_had_never_been() -> None:
    steps = invented(np.random.default_rng(7), 9)
    wanted = {one for i, one in enumerate(sorted(steps)) if i % 3 != 1}
    part: PriceSeries = price_series(steps).only(lambda one: one in wanted)
    alone = price_series({one: steps[one] for one in wanted})
    assert part.rentals == alone.rentals
    at_s = BEGIN_S + np.linspace(-1e5, 3e6, 50)
    np.testing.assert_array_equal(part.prices(at_s), alone.prices(at_s))


def test_of_two_prices_of_one_second_the_last_counts() -> None:
    series = price_series({rental("a"): [(BEGIN_S, 2.0), (BEGIN_S, 1.0)]})
    assert series.prices(np.array([BEGIN_S]))[0, 0] == 1.0


def test_no_prices_are_no_series() -> None:
    with pytest.raises(ValueError, match="needs a rental"):
        price_series({rental("a"): []})
