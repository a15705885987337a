import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arylcloud.planner.rank import best, pareto

small = st.integers(1, 6).map(float)


@given(st.lists(st.tuples(st.integers(0, 2), small), max_size=60), st.integers(1, 10))
def test_best_is_sorting_and_cutting(rows: list[tuple[int, float]], count: int) -> None:
    tier = np.array([t for t, _ in rows], dtype=np.int8)
    scores = np.array([s for _, s in rows])
    found = best(tier, scores, count, lambda at: np.sort(at)[::-1])
    wanted = sorted(range(len(rows)), key=lambda i: (rows[i][0], rows[i][1], -i))[:count]
    assert found.tolist() == wanted


@given(st.lists(st.tuples(small, small), max_size=50))
def test_pareto_is_its_definition(points: list[tuple[float, float]]) -> None:
    hours, usd = np.array([p[0] for p in points]), np.array([p[1] for p in points])
    wanted = [not any((h <= x and u <= y) and (h < x or u < y) for h, u in points) for x, y in points]
    assert pareto(hours, usd).tolist() == wanted


@pytest.mark.parametrize("seed", range(5))
def test_pareto_of_many_is_the_sorted_scan(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hours, usd = rng.integers(1, 2000, 20_000).astype(float), rng.integers(1, 2000, 20_000).astype(float)
    hours[:50] = np.inf
    found = pareto(hours, usd)
    order = np.lexsort((usd, hours))
    lowest, wanted = np.inf, set()
    for i in order.tolist():
        if np.isfinite(hours[i]) and usd[i] < lowest:
            lowest = usd[i]
            wanted.add((hours[i], usd[i]))
    assert {(hours[i], usd[i]) for i in np.flatnonzero(found)} == wanted
    assert found.tolist() == [(h, u) in wanted for h, u in zip(hours, usd, strict=True)]
