"""Choosing, moving and staying: to the cent on prices small enough to reckon by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from arylcloud.core.offer import Market, Offer
from arylcloud.core.plan import Candidate, Quantiles, Usd
from arylcloud.planner.migrate import HANDOVER_S, Move, consider
from arylcloud.pricing.tariffs import load_tariffs
from arylcloud.simulation.dynamic.moving import Moving, considered, free_moves, priced_moves
from arylcloud.simulation.dynamic.replay import DAY_S, Objective, chosen, replay
from arylcloud.simulation.dynamic.series import Rental, price_series

T0 = 1.6e9
START = np.array([T0])
H = 3600.0


def rental(name: str, region: str = "us-east-1", cloud: str = "aws") -> Rental:
    return Rental(
        cloud=cloud, region=region, zone="", instance_type=name, gpu="V100", gpu_count=1, market=Market.SPOT
    )


A, B, C = rental("a"), rental("b"), rental("c", "us-west-2")
RISING = price_series({A: [(T0, 1.0), (T0 + DAY_S, 4.0)], B: [(T0, 2.0)]})
SAME = np.array([1.0, 1.0])
THREE_DAYS = 3 * DAY_S


def moving(
    boot_s: float = 0.0, handover_s: float = 0.0, egress: float = 0.0, min_saving: float = 0.0
) -> Moving:
    fee = np.full((2, 2), egress)
    np.fill_diagonal(fee, 0.0)
    return Moving(boot_s=boot_s, handover_s=handover_s, egress_usd=fee, min_saving=min_saving)


def test_chosen_once_the_job_pays_what_comes() -> None:
    runs = replay(RISING, SAME, THREE_DAYS, START, every_s=None)
    assert runs.usd[0] == pytest.approx(24 * 1.0 + 48 * 4.0)
    assert runs.hours[0] == pytest.approx(72.0)
    assert runs.moves[0] == 0


def test_chosen_daily_it_leaves_the_place_that_became_dear() -> None:
    runs = replay(RISING, SAME, THREE_DAYS, START, moving=free_moves(2))
    assert runs.usd[0] == pytest.approx(24 * 1.0 + 48 * 2.0)
    assert (runs.moves[0], runs.first[0], runs.last[0]) == (1, 0, 1)


def test_a_move_costs_its_boot_its_hand_over_and_its_bytes() -> None:
    runs = replay(RISING, SAME, THREE_DAYS, START, moving=moving(600.0, 120.0, 1.5))
    # the old works through the boot, nothing works in the hand-over: b works 48 h − 600 s
    after = 48 * H - 600.0
    old = 24 * 1.0 + 720.0 / H * 4.0
    new = (720.0 + after) / H * 2.0
    assert runs.usd[0] == pytest.approx(old + new + 1.5)
    assert runs.hours[0] == pytest.approx(72.0 + 120.0 / H)
    assert runs.move_usd[0] == pytest.approx(600 / H * 2.0 + 120 / H * 6.0 + 1.5)


@pytest.mark.parametrize(("egress", "moves"), [(76.7, 1), (76.9, 0)])
def test_a_move_must_save_a_quarter_more_than_it_costs(egress: float, moves: int) -> None:
    # 48 h from $4 to $2: saves $96, so that a move may cost $76.8
    runs = replay(RISING, SAME, THREE_DAYS, START, moving=moving(egress=egress))
    assert runs.moves[0] == moves


def test_small_savings_are_left_alone() -> None:
    assert replay(RISING, SAME, THREE_DAYS, START, moving=moving(min_saving=0.49)).moves[0] == 1
    assert replay(RISING, SAME, THREE_DAYS, START, moving=moving(min_saving=0.51)).moves[0] == 0


def test_where_a_tariff_is_not_known_nothing_moves() -> None:
    assert replay(RISING, SAME, THREE_DAYS, START, moving=moving(egress=np.nan)).moves[0] == 0


def test_money_time_and_both() -> None:
    series = price_series({A: [(T0, 1.0)], B: [(T0, 3.0)]})
    rate = np.array([1.0, 2.0])
    for objective, best in (
        (Objective(), 0),
        (Objective(fastest=True), 1),
        (Objective(usd_per_hour_of_time=0.9), 0),
        (Objective(usd_per_hour_of_time=1.1), 1),
    ):
        assert chosen(series, rate, START, objective)[0] == best
    assert replay(series, rate, DAY_S, START, objective=Objective(fastest=True)).hours[0] == 12.0


def test_the_cheapest_of_the_fastest() -> None:
    series = price_series({A: [(T0, 3.0)], B: [(T0, 2.0)]})
    assert chosen(series, SAME, START, Objective(fastest=True))[0] == 1


def test_who_wants_speed_moves_for_money_but_to_nothing_slower() -> None:
    series = price_series({A: [(T0, 3.0), (T0 + DAY_S, 9.0)], B: [(T0, 1.0)], C: [(T0, 4.0)]})
    rate, fast = np.array([2.0, 1.0, 2.0]), Objective(fastest=True)
    runs = replay(series, rate, 6 * DAY_S, START, moving=free_moves(3), objective=fast)
    assert (series.rentals[runs.last[0]], runs.hours[0]) == (C, pytest.approx(72.0))
    assert runs.usd[0] == pytest.approx(24 * 3.0 + 48 * 4.0)


def test_the_fastest_is_one_that_has_a_price() -> None:
    late = price_series({A: [(T0 + DAY_S, 1.0)], B: [(T0, 9.0)]})
    assert chosen(late, np.array([5.0, 1.0]), START, Objective(fastest=True))[0] == 1


def test_what_cannot_run_the_job_or_has_no_price_yet_is_not_chosen() -> None:
    assert chosen(RISING, np.array([0.0, 1.0]), START, Objective())[0] == 1
    late = price_series({A: [(T0 + 1, 1.0)], B: [(T0, 9.0)]})
    assert chosen(late, SAME, START, Objective())[0] == 1
    with pytest.raises(ValueError, match="no rental"):
        chosen(late, np.array([1.0, 0.0]), START, Objective())


def test_many_starts_are_each_alone() -> None:
    rng = np.random.default_rng(5)
    steps = {
        rental(f"r{i}"): [(T0 + k * H * 7, float(rng.uniform(1, 3))) for k in range(60)] for i in range(6)
    }
    series, rate = price_series(steps), rng.uniform(1, 3, 6)
    how = {"moving": priced_moves(series.rentals, load_tariffs(), gb=1.0), "guarded": True}
    starts = T0 + DAY_S * np.arange(9)
    together = replay(series, rate, 8 * DAY_S, starts, **how)
    assert together.moves.sum() > 0
    for i, start in enumerate(starts):
        alone = replay(series, rate, 8 * DAY_S, np.array([start]), **how)
        assert (alone.usd[0], alone.moves[0]) == (together.usd[i], together.moves[i])


# A dear day at home: the launcher's rule flees to a faster, dearer place and works much of the job off there,
# while whoever stays does little while it is dear and the rest at the old price.
SPIKE = price_series({A: [(T0, 1.0), (T0 + DAY_S, 1.7), (T0 + 2 * DAY_S, 1.0)], B: [(T0, 4.0)]})
SPEEDS = np.array([1.0, 3.0])


def test_the_launchers_rule_can_end_dearer_and_the_guard_does_not() -> None:
    work = 6 * DAY_S
    static = replay(SPIKE, SPEEDS, work, START, every_s=None)
    plain = replay(SPIKE, SPEEDS, work, START, moving=moving())
    guarded = replay(SPIKE, SPEEDS, work, START, moving=moving(), guarded=True)
    assert static.usd[0] == pytest.approx(24 * 1.0 + 24 * 1.7 + 96 * 1.0)
    assert plain.usd[0] == pytest.approx(24 * 1.0 + 24 * 4.0 + 48 * 1.0)
    assert plain.usd[0] > static.usd[0]
    assert (guarded.usd[0], guarded.moves[0]) == (static.usd[0], 0)


def test_the_guard_lets_go_where_going_is_safe() -> None:
    runs = replay(RISING, SAME, THREE_DAYS, START, moving=moving(600.0, 120.0, 0.1), guarded=True)
    assert runs.moves[0] == 1


def as_candidate(one: Rental, price: float, rest_h: float, boot_s: float) -> Candidate:
    offer = Offer(
        cloud=one.cloud, region=one.region, zone=one.zone or None, instance_type=one.instance_type,
        gpu=one.gpu, gpu_count=1, gpu_mem_gib=16.0, vcpus=8.0, mem_gib=61.0, market=one.market,
        usd_per_hour=price, as_of=None, source="s",
    )  # fmt: skip
    boot, compute = price * boot_s / H, price * rest_h
    usd = Usd(
        p50=compute, p90=compute, mean=compute + boot, compute=compute, boot=boot, egress=0.0, storage=0.0,
        lost_work=0.0,
    )  # fmt: skip
    return Candidate(
        rank=1, offer=offer, nodes=1, throughput=1.0, throughput_unit="steps/s", throughput_source="user",
        throughput_rel_error=0.0, hours=Quantiles(p50=rest_h, p90=rest_h), usd=usd,
        interruptions_per_hour=0.0, hazard_source="t", meets_deadline=None, meets_budget=None, pareto=False,
        why="",
    )  # fmt: skip


def test_the_rule_is_the_launchers() -> None:
    rng = np.random.default_rng(11)
    regions = [("aws", "us-east-1"), ("aws", "eu-west-1"), ("azure", "eastus"), ("gcp", "us-central1")]
    rentals = [rental(f"t{i}", region, cloud) for i, (cloud, region) in enumerate(regions * 2)]
    tariffs, seen = load_tariffs(), {True: 0, False: 0}
    for _ in range(300):
        gb = float(rng.choice([1.0, 20.0, 100.0]))
        costs = replace(priced_moves(rentals, tariffs, gb=gb), min_saving=float(rng.choice([0.0, 0.05, 0.3])))
        price, rest_h = rng.uniform(0.5, 1.5, 8), rng.uniform(5.0, 15.0, 8)
        here = int(rng.integers(8))
        to, usd, goes = considered(costs, np.array([here]), price[:, None], rest_h[:, None])
        offers = [
            as_candidate(one, float(p), float(h), costs.boot_s)
            for one, p, h in zip(rentals, price, rest_h, strict=True)
        ]
        launcher = consider(
            offers[here], offers, min_saving=costs.min_saving, checkpoint_gb=gb, handover_s=HANDOVER_S,
            tariffs=tariffs,
        )  # fmt: skip
        assert bool(goes[0]) == isinstance(launcher, Move)
        seen[bool(goes[0])] += 1
        if isinstance(launcher, Move):
            assert launcher.to.key == rentals[int(to[0])].key
            assert launcher.move_usd == pytest.approx(float(usd[0]))
    assert min(seen.values()) > 30
