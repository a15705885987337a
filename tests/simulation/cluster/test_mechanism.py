"""The kernels of a round against the loops that they stand for."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from arylcloud.planner.kernels.rounds import by_need, fill


@given(st.lists(st.sampled_from([1, 2, 4, 8]), max_size=30), st.integers(0, 40), st.randoms())
def test_fill_is_the_greedy_walk(sizes: list[int], free: int, random) -> None:  # type: ignore[no-untyped-def]
    order = list(range(len(sizes)))
    random.shuffle(order)
    expected, left = [], free
    for job in order:
        if sizes[job] <= left:
            expected.append(job)
            left -= sizes[job]
    taken, found = fill(np.array(order, dtype=np.int64), np.array(sizes, dtype=np.int64), free)
    assert (taken.tolist(), found) == (expected, left)


@given(st.lists(st.integers(0, 3), max_size=20))
def test_equal_need_keeps_the_order_of_the_tie_breakers(needs: list[int]) -> None:
    rank = np.arange(len(needs))[::-1].copy()
    found = by_need(np.array(needs, dtype=float), rank)
    assert found.tolist() == sorted(rank.tolist(), key=lambda i: -needs[i])
