"""Deadline policies on single moments: what they answer, and what they never do."""

from __future__ import annotations

import numpy as np
import pytest

from arylcloud.core.errors import UsageError
from arylcloud.planner.deadline import effective_price as ep
from arylcloud.planner.deadline.lives import Lives
from arylcloud.planner.deadline.registry import POLICIES, SHOWN, deadline_policy
from arylcloud.planner.deadline.sightings import Sightings
from arylcloud.planner.deadline.view import NONE, PROBE, START, STAY, SWITCH, Market, View

MARKET = Market(
    region=np.array([0, 0, 1]), egress_usd=np.array([[0.0, 0.1], [0.1, 0.0]]), startup_h=0.2, tick_h=1 / 6
)


def view(
    *,
    left_h: float = 60.0,
    work_h: float = 48.0,
    machine: int = NONE,
    spot: tuple[float, ...] = (1.0, 1.2, 0.9),
    elapsed_h: float = 0.0,
    boot_h: float = 0.0,
    seen: Sightings | None = None,
    spent: bool = False,
) -> View:
    return View(
        market=MARKET,
        elapsed_h=np.array([elapsed_h]),
        left_h=np.array([left_h]),
        work_h=np.array([work_h]),
        total_h=np.array([max(48.0, work_h)]),
        machine=np.array([machine]),
        boot_h=np.array([boot_h]),
        coming=np.array([NONE]),
        coming_boot_h=np.zeros(1),
        at=np.array([0 if machine == NONE else MARKET.region_of[machine]]),
        spent=np.array([spent]),
        spot_usd=np.array([spot]),
        on_demand_usd=np.array([[3.0, 3.0]]),
        seen=seen or Sightings.none(1, 3),
        lives=Lives.none(1, 3),
    )


def answer(name: str, of: View) -> tuple[int, int]:
    choice = deadline_policy(name).decide(of)
    return int(choice.action[0]), int(choice.target[0])


@pytest.mark.parametrize("name", [n for n, p in POLICIES.items() if not p.free_sight and n != "on_demand"])
def test_with_time_the_cheapest_zone_is_asked_first(name: str) -> None:
    assert answer(name, view()) == (START, 2)


@pytest.mark.parametrize("name", list(POLICIES))
def test_without_slack_on_demand_at_once(name: str) -> None:
    action, target = answer(name, view(left_h=48.39))
    assert action == START
    assert target >= MARKET.zones


@pytest.mark.parametrize("name", list(POLICIES))
@pytest.mark.parametrize("machine", [0, 3])
def test_a_booting_machine_is_left_alone(name: str, machine: int) -> None:
    assert answer(name, view(machine=machine, boot_h=0.1))[0] in (STAY, PROBE)


def test_on_demand_stays_in_its_region() -> None:
    assert answer("on_demand", view()) == (START, 3)


def test_uniform_progress_goes_back_when_ahead() -> None:
    behind = view(machine=3, elapsed_h=10.0, left_h=50.0, work_h=40.0)  # 8 h done, 8 are due
    assert answer("uniform_progress_any_zone", behind)[0] == STAY
    ahead = view(machine=3, elapsed_h=10.0, left_h=50.0, work_h=39.5)
    assert answer("uniform_progress_any_zone", ahead) == (SWITCH, 2)


def test_the_price_of_slack_falls_with_slack_and_the_effective_price_with_it() -> None:
    found = [ep.values(view(left_h=left)) for left in (48.6, 50.0, 52.0, 60.0, 90.0)]
    prices = [float(v.slack_usd[0]) for v in found]
    assert prices == sorted(prices, reverse=True)
    assert prices[0] > 3.0
    assert prices[-1] < 1e-3
    assert found[0].effective_usd[0, 0] > found[-1].effective_usd[0, 0] > 1.0
    assert found[0].slack_usd[0] <= 20 * 3.0


def test_the_default_moves_to_a_cheaper_zone_only_where_that_pays() -> None:
    here = Sightings.none(1, 3)
    here.note(np.array([0]), np.array([0]), np.array([0.0]), np.array([True]))
    assert answer("default", view(machine=0, spot=(1.0, 1.2, 0.98), seen=here))[0] == STAY
    assert answer("default", view(machine=0, spot=(2.0, 2.2, 0.9), seen=here)) == (START, 2)
    assert (
        answer("default", view(machine=0, spot=(2.0, 2.2, 0.9), seen=here, work_h=0.2, left_h=20.0))[0]
        == STAY
    )


def test_a_zone_just_seen_down_is_not_asked_again_at_this_look() -> None:
    seen = Sightings.none(1, 3)
    seen.note(np.array([0]), np.array([2]), np.array([5.0]), np.array([False]))
    for name in ("greedy", "default"):
        assert answer(name, view(elapsed_h=5.0, left_h=60.0, seen=seen)) == (START, 0)


def test_no_attempt_when_the_look_is_spent() -> None:
    assert answer("greedy", view(spent=True))[0] == STAY
    action, target = answer("default", view(spent=True, left_h=49.0))  # slack is dear: no waiting
    assert (action, target >= 3) == (START, True)


def test_in_need_a_hopeless_zone_is_not_asked_from_idle() -> None:
    """A refusal would cost slack; from on demand asking is free. With slack to spare it is asked."""
    seen = Sightings.none(1, 3)
    for zone in range(3):
        for hour in (5.0, 6.0):
            seen.note(np.array([0]), np.array([zone]), np.array([hour]), np.array([False]))
    tight = view(elapsed_h=6.17, left_h=50.0, work_h=48.0, seen=seen)
    assert float(ep.values(tight).slack_usd[0]) > 3.0
    action, target = answer("default", tight)
    assert (action, target >= MARKET.zones) == (START, True)
    action, target = answer("default", view(elapsed_h=6.17, left_h=90.0, work_h=48.0, seen=seen))
    assert (action, target < MARKET.zones) == (START, True)


@pytest.mark.parametrize(
    ("slack_min", "refused_before", "asks"),
    [
        (29.0, False, True),
        (27.0, False, False),  # one refusal, and on demand there would be no way back to spot
        (25.0, False, True),  # there is none: nothing to lose until 24 minutes, where the guard ends it
        (25.0, True, True),
        (29.0, True, False),
    ],
)
def test_from_idle_the_last_step_of_slack_is_seen(slack_min: float, refused_before: bool, asks: bool) -> None:
    seen = Sightings.none(1, 3)
    for zone in range(3):
        for hour in (4.0, 5.0):
            if refused_before:
                seen.note(np.array([0]), np.array([zone]), np.array([hour]), np.array([False]))
    now = view(elapsed_h=6.17, left_h=48.0 + slack_min / 60, work_h=48.0, seen=seen)
    action, target = answer("default", now)
    assert (action, target < MARKET.zones) == (START, asks)


@pytest.mark.parametrize("slack_min", [24.1, 25.9])
def test_who_cannot_wait_leaves_no_zone_for_waiting(slack_min: float) -> None:
    """The last step of slack: the zones here are gone, one behind egress is up; else on demand to the end."""
    from dataclasses import replace

    seen = Sightings.none(1, 3)
    for hour in (6.0, 6.17):
        for zone in (0, 1):
            seen.note(np.array([0]), np.array([zone]), np.array([hour]), np.array([False]))
        seen.note(np.array([0]), np.array([2]), np.array([hour - 0.5]), np.array([True]))
    seen.note(np.array([0]), np.array([2]), np.array([6.17]), np.array([True]))
    now = view(elapsed_h=6.17, left_h=20.0 + slack_min / 60, work_h=20.0, seen=seen)
    market = replace(MARKET, egress_usd=MARKET.egress_usd / 0.1 * 0.3)
    choice = deadline_policy("default").decide(replace(now, market=market))
    assert (choice.action[0], choice.target[0]) == (START, 2)


def test_dear_egress_is_weighed_against_waiting() -> None:
    """The checkpoint is in region 0, whose two zones went a moment ago; zone 2 is in region 1."""
    from dataclasses import replace

    seen = Sightings.none(1, 3)
    for zone in (0, 1):
        seen.note(np.array([0]), np.array([zone]), np.array([5.9]), np.array([True]))
        seen.note(np.array([0]), np.array([zone]), np.array([6.0]), np.array([False]))
    for usd, left_h, expected in ((0.01, 90.0, START), (4.0, 90.0, STAY), (4.0, 49.0, START)):
        now = view(elapsed_h=6.0, left_h=left_h, seen=seen)
        market = replace(MARKET, egress_usd=MARKET.egress_usd / 0.1 * usd)
        choice = deadline_policy("default").decide(replace(now, market=market))
        assert choice.action[0] == expected, (usd, left_h)


def test_chances_fall_with_refusals_and_come_back_with_time() -> None:
    seen = Sightings.none(1, 3)
    fresh = ep.chances(view())[0]
    seen.note(np.array([0]), np.array([0]), np.array([1.0]), np.array([False]))
    now, later = (ep.chances(view(elapsed_h=t, seen=seen))[0] for t in (1.1, 5.0))
    assert now[0] < later[0] < fresh[0]
    assert now[1] < fresh[1]  # refused next door a moment ago
    assert later[1] == fresh[1]
    seen.note(np.array([0]), np.array([2]), np.array([5.0]), np.array([True]))
    assert ep.chances(view(elapsed_h=5.5, seen=seen))[0, 2] > fresh[2]


def test_normal_tail() -> None:
    from statistics import NormalDist

    x = np.linspace(-6, 6, 101)
    exact = [1 - NormalDist().cdf(v) for v in x]
    assert ep._above(x) == pytest.approx(exact, abs=1e-7)


def test_registry() -> None:
    assert set(SHOWN) <= set(POLICIES)
    assert all(name == policy.name and policy.about for name, policy in POLICIES.items())
    with pytest.raises(UsageError, match="no deadline policy"):
        deadline_policy("nosuch")
