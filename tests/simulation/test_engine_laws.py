"""Laws of the event engine (style: property suite)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arylcloud.simulation.engine import Due, Engine

times = st.floats(min_value=0, max_value=100, allow_nan=False)
plans = st.lists(st.tuples(times, st.integers(-2, 2)), max_size=40)


def _engine(plan: list[tuple[float, int]]) -> Engine[int]:
    engine: Engine[int] = Engine()
    for number, (at_s, priority) in enumerate(plan):
        engine.schedule(at_s, number, priority=priority)
    return engine


def _spawning(engine: Engine[int], seen: list[tuple[float, int]]):  # type: ignore[no-untyped-def]
    """A handler that schedules more: the children of an event come after what was there already."""

    def handle(due: Due[int]) -> None:
        seen.append((engine.now_s, due.event))
        if due.event < 40:
            engine.schedule(due.at_s + due.event % 3, due.event + 1000)

    return handle


@given(plans)
def test_events_come_in_order_of_time_priority_and_insertion(plan: list[tuple[float, int]]) -> None:
    seen: list[int] = []
    engine = _engine(plan)
    engine.run(100, lambda due: seen.append(due.event))
    assert seen == sorted(range(len(plan)), key=lambda i: (plan[i][0], plan[i][1], i))


@given(plans, times, times)
def test_running_in_two_parts_is_running_once(plan: list[tuple[float, int]], a: float, b: float) -> None:
    first, second = min(a, b), max(a, b)
    whole, parts = _engine(plan), _engine(plan)
    seen_whole: list[tuple[float, int]] = []
    seen_parts: list[tuple[float, int]] = []
    whole.run(second, _spawning(whole, seen_whole))
    parts.run(first, _spawning(parts, seen_parts))
    parts.run(second, _spawning(parts, seen_parts))
    assert seen_whole == seen_parts
    assert whole.now_s == parts.now_s == second
    assert whole.peek_s() == parts.peek_s()


@given(plans)
def test_time_never_goes_back(plan: list[tuple[float, int]]) -> None:
    moments: list[tuple[float, int]] = []
    engine = _engine(plan)
    engine.run(200, _spawning(engine, moments))
    assert [at for at, _ in moments] == sorted(at for at, _ in moments)


@pytest.mark.parametrize("at_s", [-1.0, float("nan"), float("inf")])
def test_what_cannot_be_due_is_refused(at_s: float) -> None:
    with pytest.raises(ValueError, match="cannot schedule"):
        Engine[str]().schedule(at_s, "x")


def test_unlike_events_of_one_moment_are_never_compared() -> None:
    engine: Engine[object] = Engine()
    engine.schedule(1.0, object())
    engine.schedule(1.0, {"no": "order"})
    assert engine.run(1.0, lambda due: due) == 2
