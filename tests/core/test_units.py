import doctest
from datetime import date

import pytest

from arylcloud.core import units
from arylcloud.core.errors import UsageError


def test_doctests() -> None:
    assert doctest.testmod(units).failed == 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("36h", 129600),
        ("90m", 5400),
        ("1.5d", 129600),
        ("2h30m", 9000),
        ("45 min", 2700),
        ("1 day 2 h", 93600),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert units.parse_duration_s(text, what="deadline") == seconds


@pytest.mark.parametrize(
    "bad", [36, "36", 36.5, "-1h", "0h", "h", "", "3 parsecs", "1h junk", True, None, [1], "1e999h"]
)
def test_bad_durations_name_the_key(bad: object) -> None:
    with pytest.raises(UsageError, match="deadline") as found:
        units.parse_duration_s(bad, what="deadline")
    assert found.value.exit_code == 2


def test_a_date_is_no_time_from_submission() -> None:
    """What YAML makes of ``deadline: 2026-11-01``."""
    with pytest.raises(UsageError, match="deadline: 2026-11-01 is a date, not a time from submission"):
        units.parse_duration_s(date(2026, 11, 1), what="deadline")


def test_a_bare_number_is_asked_for_its_unit() -> None:
    with pytest.raises(UsageError, match="36 has no unit") as found:
        units.parse_duration_s(36, what="deadline")
    assert found.value.hint is not None
    assert "36h" in found.value.hint


@pytest.mark.parametrize(("text", "usd"), [("$500", 500), (500, 500), ("1,200.50", 1200.5), ("20 USD", 20)])
def test_money(text: object, usd: float) -> None:
    assert units.parse_usd(text, what="budget") == usd


@pytest.mark.parametrize("bad", [-5, "-5", "-$5", "$-5", 0, "free", "€5", float("nan"), float("inf"), True])
def test_bad_money(bad: object) -> None:
    with pytest.raises(UsageError, match="budget"):
        units.parse_usd(bad, what="budget")


def test_money_per_hour() -> None:
    assert units.parse_usd_per_hour("$12/h", what="cap") == 12
    assert units.parse_usd_per_hour("12 per hour", what="cap") == 12


@pytest.mark.parametrize(
    ("text", "gb"),
    [(500, 500), ("500", 500), ("500GB", 500), ("1.5 TB", 1500), ("1GiB", 1.073741824), ("200M", 0.2)],
)
def test_sizes(text: object, gb: float) -> None:
    assert units.parse_size_gb(text, what="size_gb") == pytest.approx(gb)


@pytest.mark.parametrize(
    ("text", "work"),
    [("40000 steps", (40000, "steps")), ("300B tokens", (3e11, "tokens")), ("1,000 step", (1000, "steps"))],
)
def test_work(text: str, work: tuple[float, str]) -> None:
    assert units.parse_work(text, what="work") == work


@pytest.mark.parametrize("bad", [40000, "40000", "many steps", "3 epochs", "-3 steps", "0 steps"])
def test_bad_work(bad: object) -> None:
    with pytest.raises(UsageError, match="work"):
        units.parse_work(bad, what="work")


@pytest.mark.parametrize("bad", [0, "0", "4..1", "0..2", "1.5", "many", "1..", None])
def test_bad_nodes(bad: object) -> None:
    with pytest.raises(UsageError, match="nodes"):
        units.parse_nodes(bad, what="nodes")


def test_nodes_and_fractions() -> None:
    assert units.parse_nodes(2, what="nodes") == (2, 2)
    assert units.parse_fraction("5%", what="min_saving") == units.parse_fraction(0.05, what="min_saving")
    with pytest.raises(UsageError, match="min_saving"):
        units.parse_fraction("120%", what="min_saving")
