"""Hull steps against the dynamic programme, and unit steps against every choice."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from arylcloud.planner.kernels.knapsack import best_items
from arylcloud.planner.kernels.steps import best_items_within, by_steps, by_units


def _total(value: np.ndarray, item: np.ndarray) -> float:
    return float(sum(value[g, i] for g, i in enumerate(item) if i >= 0))


@pytest.mark.parametrize("seed", range(60))
def test_steps_bound_the_exact_answer_and_fit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    value = rng.uniform(-2, 10, (rng.integers(1, 7), rng.integers(1, 6)))
    weight = rng.integers(1, 9, value.shape)
    capacity = int(rng.integers(0, 25))
    exact = _total(value, best_items(value, weight, capacity))
    found = by_steps(value, weight, capacity)
    spent = sum(weight[g, i] for g, i in enumerate(found.item) if i >= 0)
    assert spent <= capacity
    assert found.value == pytest.approx(_total(value, found.item))
    assert found.value <= exact + 1e-9 <= found.bound + 2e-9
    within = best_items_within(value, weight, capacity, gap=0.0)
    assert _total(value, within) == pytest.approx(exact)


@pytest.mark.parametrize("seed", range(20))
def test_steps_are_exact_where_concave_and_of_one_weight(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gain = np.sort(rng.uniform(0, 5, (8, 5)), axis=1)[:, ::-1]
    value, weight = gain.cumsum(axis=1), np.tile(np.arange(1, 6) * 3, (8, 1))
    capacity = int(rng.integers(0, 70))
    found = by_steps(value, weight, capacity)
    assert found.value == pytest.approx(_total(value, best_items(value, weight, capacity)))
    if capacity % 3 == 0:
        assert found.bound == pytest.approx(found.value)


@pytest.mark.parametrize("seed", range(120))
def test_units_with_a_bonus_against_every_choice(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups, width = int(rng.integers(1, 5)), int(rng.integers(2, 6))
    gain = np.sort(rng.uniform(0, 5, (groups, width - 1)), axis=1)[:, ::-1]
    value = np.concatenate([np.zeros((groups, 1)), gain.cumsum(axis=1)], axis=1)
    held, bonus = rng.integers(0, width, groups), rng.uniform(0, 4, groups)
    capacity = int(rng.integers(0, groups * width))
    full = value.copy()
    full[np.arange(groups), held] += bonus
    best = max(
        sum(full[g, k] for g, k in enumerate(units))
        for units in product(range(width), repeat=groups)
        if sum(units) <= capacity
    )
    found = by_units(value, held, bonus, capacity)
    assert found.units.sum() <= capacity
    assert found.value == pytest.approx(float(full[np.arange(groups), found.units].sum()))
    assert found.value <= best + 1e-9 <= found.bound + 2e-9
    assert best - found.value <= bonus.max() + 1e-9  # at most one group is caught at its bonus
    if not bonus.any():
        assert found.value == pytest.approx(best)
