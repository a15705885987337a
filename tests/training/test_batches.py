"""The same samples in the same order with the same weights, however many processes there are."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arylcloud import training as aryl
from arylcloud.training.batches import place, share

sizes = st.integers(1, 300)
worlds = st.integers(1, 9)


@given(size=sizes, seed=st.integers(-5, 2**70), times=st.integers(0, 10**6))
def test_each_pass_is_every_sample_once(size: int, seed: int, times: int) -> None:
    order = aryl.Order(size, seed=seed)
    assert sorted(order.take(times * size, size)) == list(range(size))


@given(size=sizes, seen=st.integers(0, 10**9), count=st.integers(0, 700), shuffle=st.booleans())
def test_any_place_is_found_without_the_way_there(size: int, seen: int, count: int, shuffle: bool) -> None:
    order = aryl.Order(size, seed=3, shuffle=shuffle)
    assert order.take(seen, count) == [order.at(seen + n) for n in range(count)]


def test_orders_are_mixed_and_differ() -> None:
    """Ranks of a sample over many passes are uniform (chi-squared), passes and seeds do not repeat."""
    order = aryl.Order(64, seed=7)
    passes = [tuple(order.take(64 * n, 64)) for n in range(640)]
    assert len(set(passes)) == len(passes)
    assert aryl.Order(64, seed=8).take(0, 64) != list(passes[0])
    for sample in (0, 31, 63):
        found = Counter(one.index(sample) for one in passes)
        chi = sum((found[n] - 10) ** 2 / 10 for n in range(64))
        assert chi < 120, chi  # 63 degrees of freedom: one in 10^5
    after = Counter(b - a for one in passes for a, b in pairwise(one))
    assert after.most_common(1)[0][1] < 900  # of 40,320 steps, 63 kinds of the commonest length in a row


def test_an_order_is_the_same_for_ever() -> None:
    """Checkpoints outlive versions: this is what position 0, 1, … of these orders has always been."""
    assert aryl.Order(10, seed=0).take(0, 20) == GOLDEN_10
    assert aryl.Order(10**12, seed=5).take(10**15, 3) == GOLDEN_BIG


GOLDEN_10 = [0, 1, 2, 9, 8, 3, 4, 7, 6, 5, 6, 5, 1, 0, 4, 7, 2, 9, 3, 8]
GOLDEN_BIG = [961954813463, 693891349754, 422229375779]


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[tuple[int, int]], int]:
    """(world, steps that it does) in turn, and a global batch that all of them can share."""
    found = draw(st.lists(st.tuples(worlds, st.integers(0, 5)), min_size=1, max_size=6))
    return found, draw(st.integers(max(world for world, _ in found), 40))


@settings(max_examples=60, deadline=None)
@given(
    life=lives(),
    size=st.integers(1, 60),
    micro=st.none() | st.integers(1, 12),
    until=st.none() | st.integers(1, 400),
)
def test_any_sequence_of_worlds_sees_what_a_fixed_one_sees(
    life: tuple[list[tuple[int, int]], int], size: int, micro: int | None, until: int | None
) -> None:
    """Law: the samples of each global step, in order, and the weight of each, are those of one process."""
    parts, batch = life
    order = aryl.Order(size, seed=1)

    def done(world: int, seen: int, count: int) -> list[tuple[list[int], list[Fraction], int]]:
        """(samples in order, weight of each, seen afterwards) of the next steps."""
        each = [
            iter(
                aryl.Steps(
                    order,
                    global_batch=batch,
                    micro_batch=micro,
                    seen=seen,
                    until=until,
                    rank=rank,
                    world=world,
                )
            )
            for rank in range(world)
        ]
        found = []
        for steps in zip(*each, strict=True) if until is not None else zip(*each, strict=False):
            if len(found) == count:
                break
            micros = [m for step in steps for m in step.micro]
            assert all(1 <= len(m.indices) <= (micro or batch) for m in micros)
            assert len({(step.seen, step.size, step.number) for step in steps}) == 1
            weights = [
                Fraction(m.weight).limit_denominator(10**6) / len(m.indices)
                for m in micros
                for _ in m.indices
            ]
            found.append(([i for m in micros for i in m.indices], weights, steps[0].seen))
        return found

    elastic: list[tuple[list[int], list[Fraction], int]] = []
    for world, count in parts:
        elastic += done(world, elastic[-1][2] if elastic else 0, count)
    assert elastic == done(1, 0, len(elastic))
    for samples, weights, _ in elastic:
        assert sum(weights) == 1
        assert set(weights) == {Fraction(1, len(samples))}
    if elastic:
        assert [i for samples, _, _ in elastic for i in samples] == order.take(0, elastic[-1][2])


@given(size=st.integers(0, 500), world=worlds)
def test_shares_are_whole_and_even(size: int, world: int) -> None:
    cuts = [share(size, rank, world) for rank in range(world)]
    assert [n for a, b in cuts for n in range(a, b)] == list(range(size))
    lengths = {b - a for a, b in cuts}
    assert max(lengths) - min(lengths) <= 1


def test_the_sum_of_weighted_losses_is_the_mean() -> None:
    values = [math.sin(n) for n in range(50)]
    for world in (1, 3, 7):
        (total,) = {
            round(
                sum(
                    m.weight * sum(values[i] for i in m.indices) / len(m.indices)
                    for rank in range(world)
                    for m in next(
                        iter(
                            aryl.Steps(aryl.Order(50), global_batch=50, micro_batch=4, rank=rank, world=world)
                        )
                    ).micro
                ),
                12,
            )
        }
        assert total == round(sum(values) / 50, 12)


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ({"global_batch": 2, "rank": 0, "world": 3}, "some would get none"),
        ({"global_batch": 2, "micro_batch": 0, "rank": 0, "world": 1}, "micro-batches of 0"),
        ({"global_batch": 2, "rank": 3, "world": 3}, "rank 3 of 3"),
        ({"global_batch": 2, "rank": 0}, "both or neither"),
    ],
)
def test_what_cannot_be_dealt_out_is_said(steps: dict[str, int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        next(iter(aryl.Steps(aryl.Order(10), **steps)))
    with pytest.raises(ValueError, match="at least one"):
        aryl.Order(0)


def test_where_a_process_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "ARYL_NODE_RANK", "ARYL_NUM_NODES"):
        monkeypatch.delenv(name, raising=False)
    assert place(None, None) == (0, 1)
    monkeypatch.setenv("ARYL_NODE_RANK", "1")
    monkeypatch.setenv("ARYL_NUM_NODES", "3")
    assert place(None, None) == (1, 3)
    monkeypatch.setenv("RANK", "5")  # torchrun, two processes a node
    monkeypatch.setenv("WORLD_SIZE", "6")
    assert place(None, None) == (5, 6)
    assert place(0, 2) == (0, 2)


def test_rates_by_a_stated_rule() -> None:
    assert aryl.scaled_rate(0.1, batch=64, base_batch=256) == pytest.approx(0.025)
    assert aryl.scaled_rate(0.1, batch=64, base_batch=256, rule="sqrt") == pytest.approx(0.05)
    with pytest.raises(ValueError, match="no rule"):
        aryl.scaled_rate(0.1, batch=1, base_batch=1, rule="cubic")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batches of 0"):
        aryl.scaled_rate(0.1, batch=0, base_batch=1)


def test_the_library_needs_the_standard_library_alone() -> None:
    """… and torch only where the adapter is imported by name."""
    code = (
        "import sys; from arylcloud import training; "
        "print([m for m in sys.modules if m.partition('.')[0] in ('torch', 'numpy', 'rich', 'typer')])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
