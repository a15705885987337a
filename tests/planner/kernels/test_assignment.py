"""AlloX's assignment: against every assignment there is, against an LP, and by its own dual prices."""

from __future__ import annotations

from itertools import permutations, product

import highspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arylcloud.planner.cluster import F, I
from arylcloud.planner.kernels import assignment
from arylcloud.planner.kernels.assignment import Assignment, least_total_completion


def problem(seed: int, n: int, m: int) -> tuple[F, I]:
    """Durations of different scales, some impossible, some equal; a few machines."""
    rng = np.random.default_rng(seed)
    seconds = rng.uniform(1, 9, (n, m)) * 10 ** rng.uniform(0, 3, (n, 1))
    if seed % 3 == 0:
        seconds = np.ceil(seconds / 10)  # many ties
    seconds[rng.random((n, m)) < 0.15] = np.inf
    seconds[:, 0] = np.where(np.isinf(seconds).all(axis=1), 5.0, seconds[:, 0])
    return seconds, rng.integers(1, 4, m)


def total(seconds: F, kind: I, position: I) -> float:
    return float((position * seconds[np.arange(len(kind)), kind]).sum())


def proven(seconds: F, machines: I, found: Assignment) -> float:
    """The dual objective: ``Σ_i min_jk (k·d_ij + p_jk) − Σ M·p`` is at most the optimum for any p ≥ 0."""
    best, paid = np.full(len(seconds), np.inf), 0.0
    for j, given_prices in enumerate(found.prices):
        assert (given_prices >= 0).all()
        prices = np.append(given_prices, 0.0)
        best = np.minimum(best, (seconds[:, [j]] * np.arange(1, len(prices) + 1) + prices).min(axis=1))
        paid += machines[j] * prices.sum()
    return float(best.sum() - paid)


def check(seconds: F, machines: I, found: Assignment) -> None:
    assert found.total == pytest.approx(total(seconds, found.kind, found.position))
    assert np.isfinite(found.total)
    places = list(zip(found.kind.tolist(), found.position.tolist(), strict=True))
    assert all(places.count(place) <= machines[place[0]] for place in places)
    running = np.bincount(found.kind[found.first], minlength=len(machines))
    np.testing.assert_array_equal(
        running, np.minimum(machines, np.bincount(found.kind, minlength=len(machines)))
    )


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 5), m=st.integers(1, 3))
def test_no_assignment_is_cheaper(seed: int, n: int, m: int) -> None:
    seconds, machines = problem(seed, n, m)
    found = least_total_completion(seconds, machines)
    check(seconds, machines, found)
    best = np.inf
    for kind in product(range(m), repeat=n):
        cost = 0.0
        for j in range(m):
            own = sorted((seconds[i, j] for i in range(n) if kind[i] == j), reverse=True)
            cost += sum((k // machines[j] + 1) * d for k, d in enumerate(own))
        best = min(best, cost)
    assert found.total == pytest.approx(best, rel=1e-9)


def test_longest_last_is_the_best_order() -> None:
    """What the brute force above takes for granted, by trying every order on two machines."""
    durations, machines = [5.0, 3.0, 8.0, 1.0], 2
    by_rule = sum((k // machines + 1) * d for k, d in enumerate(sorted(durations, reverse=True)))
    orders = (sum((k // machines + 1) * d for k, d in enumerate(order)) for order in permutations(durations))
    assert by_rule == min(orders)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 120), m=st.integers(1, 5))
def test_the_prices_prove_the_optimum(seed: int, n: int, m: int) -> None:
    seconds, machines = problem(seed, n, m)
    found = least_total_completion(seconds, machines)
    check(seconds, machines, found)
    assert proven(seconds, machines, found) == pytest.approx(found.total, rel=1e-9)


def test_as_a_linear_program() -> None:
    seconds, machines = problem(7, 30, 3)
    n, m = seconds.shape
    places = [(j, k) for j in range(m) for k in range(1, n // int(machines[j]) + 2)]
    lp = highspy.Highs()
    lp.silent()
    lp.setOptionValue("threads", 1)  # as everywhere: HiGHS refuses another number in the same process
    x = {
        (i, place): lp.addVariable(lb=0, ub=1, obj=place[1] * seconds[i, place[0]])
        for i in range(n)
        for place in places
        if np.isfinite(seconds[i, place[0]])
    }
    for i in range(n):
        lp.addConstr(sum(v for (job, _), v in x.items() if job == i) == 1)
    for place in places:
        lp.addConstr(sum(v for (_, at), v in x.items() if at == place) <= int(machines[place[0]]))
    lp.minimize()
    assert lp.getModelStatus() == highspy.HighsModelStatus.kOptimal
    found = least_total_completion(seconds, machines)
    assert found.total == pytest.approx(lp.getInfo().objective_function_value, rel=1e-8)


def test_many_jobs_for_few_machines() -> None:
    rng = np.random.default_rng(0)
    seconds = rng.lognormal(8, 1.5, (400, 1)) * rng.uniform(0.2, 1, (400, 3))
    machines = np.array([1, 2, 3])
    found = least_total_completion(seconds, machines)
    check(seconds, machines, found)
    assert proven(seconds, machines, found) == pytest.approx(found.total, rel=1e-9)


def test_nobody_and_the_examples() -> None:
    import doctest

    none = least_total_completion(np.zeros((0, 2)), np.array([1, 1]))
    assert none.total == 0
    assert len(none.first) == 0
    assert doctest.testmod(assignment).failed == 0
