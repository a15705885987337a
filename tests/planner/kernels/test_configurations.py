"""Sia's integer programme and the knapsack, against every choice there is."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arylcloud.core.errors import ArylError
from arylcloud.planner.kernels import configurations, highs
from arylcloud.planner.kernels.configurations import best_configurations
from arylcloud.planner.kernels.knapsack import best_items

SEEDS = st.integers(0, 2**32 - 1)


def total(utility: np.ndarray, choice: tuple[int, ...]) -> float:
    return float(sum(utility[i, j] for i, j in enumerate(choice) if j >= 0))


def used(choice: tuple[int, ...], gpus: np.ndarray, kind: np.ndarray, types: int) -> np.ndarray:
    held = [j for j in choice if j >= 0]
    return np.bincount(kind[held], weights=gpus[held], minlength=types) if held else np.zeros(types)


@given(SEEDS)
@settings(max_examples=150, deadline=None)
def test_no_choice_is_better_than_the_proven_one(seed: int) -> None:
    """Few jobs × few configurations: every choice is tried."""
    rng = np.random.default_rng(seed)
    n, types = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    k = int(rng.integers(1, 7))
    gpus = 2.0 ** rng.integers(0, 4, k)
    kind = rng.integers(0, types, k)
    utility = np.round(rng.uniform(-0.3, 1, (n, k)), int(rng.integers(1, 6)))
    workers = rng.integers(0, 12, types).astype(float)
    found = best_configurations(utility, gpus, kind, workers)
    choice = tuple(found.config.tolist())
    assert (used(choice, gpus, kind, types) <= workers).all()
    every = product(range(-1, k), repeat=n)
    best = max(total(utility, c) for c in every if (used(c, gpus, kind, types) <= workers).all())
    assert found.objective == pytest.approx(best, abs=1e-9)
    assert found.objective == pytest.approx(total(utility, choice), abs=1e-9)
    assert found.bound >= best - 1e-9


def test_a_solver_whose_start_is_its_answer_is_not_believed() -> None:
    """HiGHS 1.16, handed this instance's rounded choice as a start, returns it beside a better bound."""
    utility = np.array(
        [
            [0.04590745, 0.32249102, 0.46277974, 0.60455552, 0.17645686, 0.38193691, 0.5416995, 0.66591635],
            [0.1184277, 0.30289529, 0.45269576, 0.57434412, 0.1, 0.24400383, 0.40487181, 0.53550775],
            [0.46508267, 0.62959593, 0.7514822, 0.84178655, 0.04590745, 0.35910973, 0.5213892, 0.67131289],
        ]
    )
    gpus, kind = np.tile([1.0, 2.0, 4.0, 8.0], 2), np.repeat([0, 1], 4)
    found = best_configurations(utility, gpus, kind, np.array([6.0, 9.0]))
    assert found.config.tolist() == [7, 2, 1]


def test_without_nodes_for_a_proof_there_is_an_answer_with_its_bound_or_a_clear_no(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Odd jobs on even machines: the relaxation is fractional, so that there is something to prove."""
    rng = np.random.default_rng(0)
    gpus, kind = np.tile([1.0, 2.0, 3.0, 5.0], 3), np.repeat([0, 1, 2], 4)
    utility = rng.uniform(0.1, 1, (30, 12)) * gpus**0.5
    exact = best_configurations(utility, gpus, kind, np.full(3, 11.0))
    with pytest.raises(ArylError, match="no proof"):
        best_configurations(utility, gpus, kind, np.full(3, 11.0), nodes=0)
    monkeypatch.setattr(configurations, "CLOSE", 0.1)
    near = best_configurations(utility, gpus, kind, np.full(3, 11.0), nodes=0)
    assert near.objective <= exact.objective + 1e-9 <= near.bound + 2e-9


@pytest.mark.parametrize("unit", [2.0**-60, 2.0**-30, 2.0**30, 2.0**60])
def test_the_unit_of_utility_does_not_matter(unit: float) -> None:
    rng = np.random.default_rng(0)
    gpus, kind = np.tile([1.0, 2.0, 3.0, 5.0], 3), np.repeat([0, 1, 2], 4)
    utility = rng.uniform(0.1, 1, (30, 12)) * gpus**0.5
    one = best_configurations(utility, gpus, kind, np.full(3, 11.0))
    other = best_configurations(utility * unit, gpus, kind, np.full(3, 11.0))
    assert other.config.tolist() == one.config.tolist()
    assert (other.objective, other.bound) == (one.objective * unit, one.bound * unit)
    np.testing.assert_array_equal(other.worker_value, one.worker_value * unit)


def test_no_jobs_and_no_workers() -> None:
    gpus, kind = np.array([1.0, 2.0]), np.array([0, 0])
    nobody = best_configurations(np.zeros((0, 2)), gpus, kind, np.array([4.0]))
    assert nobody.config.shape == (0,)
    nothing = best_configurations(np.ones((2, 2)), gpus, kind, np.array([0.0]))
    assert nothing.config.tolist() == [-1, -1]
    assert nothing.objective == 0.0


def test_the_solver_says_nothing_on_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(3)
    utility = rng.uniform(0.1, 1, (12, 8))
    best_configurations(utility, np.tile([1.0, 2, 4, 8], 2), np.repeat([0, 1], 4), np.array([9.0, 11.0]))
    assert capfd.readouterr() == ("", "")


def test_a_status_that_is_not_optimal_is_an_error() -> None:
    lp = highs.model(
        np.ones(1),
        starts=np.array([0, 1]),
        rows=np.array([0]),
        values=np.ones(1),
        upper=np.ones(1),
        row_lower=np.array([2.0]),
        row_upper=np.array([np.inf]),
        maximise=True,
    )
    with pytest.raises(ArylError, match="the impossible: not solved"):
        highs.solved(lp, "the impossible")


def test_a_process_that_ran_highs_with_threads_of_its_own_before() -> None:
    """HiGHS keeps the threads of the first run and refuses to run with another number of them."""
    script = """
import numpy as np
from highspy._core import _Highs
from arylcloud.planner.kernels.configurations import best_configurations
other = _Highs()
other.setOptionValue("output_flag", False)
other.setOptionValue("threads", 2)
other.addVar(0.0, 1.0)
other.run()
utility = np.array([[1.0, 1.5], [1.0, 1.9]])
found = best_configurations(utility, np.array([1.0, 2.0]), np.zeros(2, int), np.array([3.0]))
print(found.config.tolist())
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("[0, 1]\n", "")


@given(SEEDS)
@settings(max_examples=200, deadline=None)
def test_the_knapsack_equals_the_best_of_all_choices(seed: int) -> None:
    """Value first, then the lighter."""
    rng = np.random.default_rng(seed)
    groups, items, capacity = int(rng.integers(1, 6)), int(rng.integers(1, 5)), int(rng.integers(0, 20))
    value = rng.integers(-2, 10, (groups, items)).astype(float)
    weight = rng.integers(0, 9, (groups, items))
    chosen = tuple(best_items(value, weight, capacity).tolist())

    def heavy(choice: tuple[int, ...]) -> int:
        return int(sum(weight[i, j] for i, j in enumerate(choice) if j >= 0))

    every = product(range(-1, items), repeat=groups)
    best = max((total(value, c), -heavy(c)) for c in every if heavy(c) <= capacity)
    assert (total(value, chosen), -heavy(chosen)) == best


def test_two_jobs_of_aryls_worked_example() -> None:
    """2–6 workers, 100 and 20 worker-hours left, 4 GPUs free: 33.33 hours are saved."""
    more = np.arange(1, 5)
    value = np.stack([100 / 2 - 100 / (2 + more), 20 / 2 - 20 / (2 + more)])
    chosen = best_items(value, np.tile(more, (2, 1)), 4)
    assert sum(value[i, j] for i, j in enumerate(chosen) if j >= 0) == pytest.approx(100 / 3)


def test_no_item_weighs_less_than_nothing() -> None:
    with pytest.raises(ValueError, match="negative"):
        best_items(np.ones((1, 2)), np.full((1, 2), -1), 5)


@pytest.mark.parametrize("items", [127, 128, 300])
def test_a_group_may_have_as_many_items_as_a_job_has_sizes(items: int) -> None:
    value = np.arange(1, items + 1, dtype=float)[None, :]
    weight = np.arange(1, items + 1)[None, :]
    assert best_items(value, weight, items).tolist() == [items - 1]
    assert best_items(np.repeat(value, 2, axis=0), np.repeat(weight, 2, axis=0), 2 * items).tolist() == [
        items - 1,
        items - 1,
    ]
