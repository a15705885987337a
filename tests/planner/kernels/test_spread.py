"""What a part holds, handed out: every need met, nobody above his time, and a cut where that cannot be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arylcloud.planner.kernels.spread import Segments, cuts, folded, joined, raised, segments, spread

SEEDS = st.integers(0, 2**32 - 1)


def parts(seed: int, *, tight: float) -> tuple[np.ndarray, np.ndarray, Segments]:
    """(needs, where parts begin, what they hold). Needs are a mixture of the rates there are, ``tight`` 0, or
    each part's unit pieces of time themselves, 1: what can just be served."""
    rng = np.random.default_rng(seed)
    size = rng.integers(1, 7, int(rng.integers(1, 5)))
    first = np.append(0, np.cumsum(size)[:-1])
    part, rate, time = [], [], []
    for p, n in enumerate(size):
        many = int(rng.integers(1, 5))
        part += [p] * many
        rate += rng.choice([0.0, 0.5, 1.0, 2.0, 3.7], many).tolist()
        time += (rng.dirichlet(np.ones(many)) * n * rng.uniform(0.3, 1.0)).tolist()
    held = segments(np.array(part), np.array(rate), np.array(time), np.arange(len(part)), size.astype(float))
    needs = []
    for p, n in enumerate(size):
        own = held.part == p
        at = np.append(0.0, np.cumsum(held.time[own]))
        given_ = np.append(0.0, np.cumsum(held.time[own] * held.rate[own]))
        pieces = np.diff(np.interp(np.arange(n + 1), at, given_))
        mixed = rng.dirichlet(np.ones(n), n) if n > 1 else np.ones((1, 1))
        even = (mixed + mixed.T) @ pieces / 2  # nearly doubly stochastic; made so by the common factor
        even *= pieces.sum() / max(even.sum(), 1e-300)
        needs.append(np.sort(tight * pieces + (1 - tight) * np.minimum(even, pieces.max()))[::-1])
    return np.concatenate(needs), first, held


def short_by(need: np.ndarray, first: np.ndarray, held: Segments) -> float:
    """The definition: the most by which any k neediest need more than the best k units of time give."""
    worst = -np.inf
    for p, begin in enumerate(first):
        stop = first[p + 1] if p + 1 < len(first) else len(need)
        own = held.part == p
        for k in range(1, stop - begin + 1):
            left, most = float(k), 0.0
            for rate, time in zip(held.rate[own], held.time[own], strict=True):
                taken = min(left, time)
                most, left = most + taken * rate, left - taken
            worst = max(worst, need[begin : begin + k].sum() - most)
    return worst


@settings(max_examples=150)
@given(seed=SEEDS, tight=st.floats(0, 1))
def test_served_if_and_only_if_no_cut(seed: int, tight: float) -> None:
    need, first, held = parts(seed, tight=tight)
    short = short_by(need, first, held)
    if len(cuts(need, first, held)):
        assert short > 0
        return
    assert short < 1e-6
    lifted = raised(need, first, held)
    assert (lifted >= need).all()
    member, segment, time = spread(lifted, first, held)
    got = np.bincount(member, weights=time * held.rate[segment], minlength=len(need))
    np.testing.assert_allclose(got, lifted, atol=1e-7)
    assert (np.bincount(member, weights=time, minlength=len(need)) <= 1 + 1e-9).all()
    used = np.bincount(segment, weights=time, minlength=len(held.time))
    assert (used <= held.time + 1e-9).all()
    # all that is held is handed out: nothing is lost on the way
    np.testing.assert_allclose((used * held.rate).sum(), (held.time * held.rate).sum(), atol=1e-7)


@settings(max_examples=50)
@given(seed=SEEDS)
def test_equal_needs_get_equal_rates(seed: int) -> None:
    need, first, held = parts(seed, tight=0.0)
    size = np.diff(np.append(first, len(need)))
    level = np.add.reduceat(need, first) / size * 0.9
    lifted = raised(np.repeat(level, size), first, held)
    for begin, n in zip(first, size, strict=True):
        assert np.ptp(lifted[begin : begin + n]) <= 1e-12


def test_a_cut_falls_where_the_neediest_lack_most() -> None:
    """Two members need 2 and 1.9; one unit of time runs at 2, the others at 1."""
    held = segments(
        np.array([0, 0]), np.array([2.0, 1.0]), np.array([1.0, 2.0]), np.arange(2), np.array([3.0])
    )
    assert cuts(np.array([2.0, 1.9, 0.1]), np.array([0]), held).tolist() == [2]
    assert cuts(np.array([2.0, 1.0, 1.0]), np.array([0]), held).tolist() == []


@settings(max_examples=60)
@given(seed=SEEDS)
def test_company_is_a_transport(seed: int) -> None:
    """Either side's members sit beside someone exactly as long as they are to."""
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(1, 4))
    sides = []
    total = rng.uniform(0.1, 3, columns)
    for offset in (0, 100):
        column = np.sort(np.append(np.arange(columns), rng.integers(0, columns, 5)))
        amount = rng.uniform(0.01, 1, len(column))
        amount *= (total / np.bincount(column, weights=amount))[column]
        sides.append((np.arange(len(column)) + offset, column, amount))
    a, b, column, time = joined(sides[0], sides[1], columns)
    for members, (member, _, amount) in ((a, sides[0]), (b, sides[1])):
        np.testing.assert_allclose(
            np.bincount(members, weights=time, minlength=200)[member], amount, atol=1e-9
        )
    np.testing.assert_array_equal(sides[0][1][a], column)
    assert len(time) <= len(a) + len(b)


@pytest.mark.parametrize(
    ("amounts", "greedy"), [([1.0, 1.0], []), ([0.5, 0.3, 0.2], []), ([0.6, 0.3, 0.1], [0]), ([2.0], [0])]
)
def test_nobody_sits_beside_himself(amounts: list[float], greedy: list[int]) -> None:
    member, column = np.arange(len(amounts)), np.zeros(len(amounts), dtype=np.int64)
    low, high, found = folded(member, column, np.array(amounts), 1)
    assert found.tolist() == greedy
    if not greedy:
        a, b, _, time = joined(low, high, 1)
        assert (a != b).all()
        each = np.bincount(np.append(a, b), weights=np.append(time, time), minlength=len(amounts))
        np.testing.assert_allclose(each, amounts, atol=1e-12)
