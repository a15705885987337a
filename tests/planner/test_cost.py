"""The expected-cost kernel against its definition, a simulation, and the scalar interval."""

import doctest
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arylcloud.core.cadence import daly_interval_s
from arylcloud.planner import cost, migrate, rank
from arylcloud.planner.cost import CostInputs, expected

positive = st.floats(1e-3, 1e6)


def inputs(n: int = 1, **changes: Any) -> CostInputs:
    values: dict[str, Any] = {
        "usd_per_hour": 2.0, "nodes": 1.0, "work_s": 36000.0, "work_adverse_s": 40000.0,
        "hazard_per_hour": 0.1, "hazard_adverse_per_hour": 0.3, "boot_s": 300.0,
        "data_egress_usd": 0.0, "save_egress_usd": 0.0,
        "restore_egress_usd": 0.0, "storage_usd_per_hour": 0.01,
    }  # fmt: skip
    scalars: dict[str, Any] = {"save_s": 10.0, "restore_s": 5.0, "interval_s": None}
    scalars |= {k: changes.pop(k) for k in list(changes) if k in scalars}
    values |= changes
    return CostInputs(
        **{k: np.broadcast_to(np.asarray(v, float), (n,)).copy() for k, v in values.items()}, **scalars
    )


def parts(run: cost.Expected) -> np.ndarray:
    return run.compute_usd + run.boot_usd + run.egress_usd + run.storage_usd + run.lost_work_usd


def test_doctests() -> None:
    for module in (cost, rank, migrate):
        assert doctest.testmod(module).failed == 0


@given(save_s=positive, mtbf_s=positive)
def test_one_formula_for_the_interval(save_s: float, mtbf_s: float) -> None:
    many = cost.daly_interval_s(save_s, np.array([mtbf_s, math.inf]))
    assert many[0] == pytest.approx(daly_interval_s(save_s, mtbf_s), rel=1e-12)
    assert math.isinf(many[1])


def test_without_losses_it_is_price_times_time() -> None:
    run = expected(inputs(hazard_per_hour=0.0, storage_usd_per_hour=0.0, nodes=4.0))
    assert run.hours[0] == pytest.approx(10 + 300 / 3600)
    assert run.usd_mean[0] == pytest.approx(4 * 2.0 * (10 + 300 / 3600))
    assert run.lost_work_usd[0] == 0
    assert run.losses[0] == 0
    assert run.hours_p50[0] == run.hours[0]


def test_every_machine_is_billed_for_a_minute_at_least() -> None:
    short = inputs(
        hazard_per_hour=0.0, hazard_adverse_per_hour=0.0, boot_s=1.0, work_s=9.0, work_adverse_s=9.0,
        nodes=3.0, usd_per_hour=6.0, storage_usd_per_hour=0.0,
    )  # fmt: skip
    run = expected(short)
    assert run.hours[0] * 3600 == pytest.approx(10.0)
    assert run.usd_mean[0] == run.usd_p50[0] == pytest.approx(3 * 6.0 / 60)
    assert parts(run)[0] == pytest.approx(run.usd_mean[0])
    long = expected(inputs(hazard_per_hour=0.0, work_s=3600.0, storage_usd_per_hour=0.0))
    assert long.usd_mean[0] == pytest.approx(2.0 * 3900 / 3600)


def test_against_a_simulation_of_single_losses() -> None:
    """Segments of τ + δ against exponential lives, boots that may be lost too: 20,000 runs, no formula."""
    given_ = inputs(hazard_per_hour=0.5, save_s=60.0, boot_s=600.0, restore_s=30.0)
    run = expected(given_)
    tau = float(run.interval_s[0])
    rng = np.random.default_rng(7)
    seconds = np.zeros(20_000)
    losses = np.zeros(20_000)
    mean_life = 3600 / 0.5
    count = 36000 / tau

    def stretch(length: float) -> None:
        """Everybody gets through ``length`` without a loss; a loss in it costs a boot and starts it again."""
        pending = np.arange(seconds.size)
        while pending.size:
            life = rng.exponential(mean_life, pending.size)
            lost = life < length
            seconds[pending] += np.where(lost, life, length)
            losses[pending[lost]] += 1
            boot(pending[lost], 630.0)
            pending = pending[lost]

    def boot(who: np.ndarray, length: float) -> None:
        while who.size:
            life = rng.exponential(mean_life, who.size)
            lost = life < length
            seconds[who] += np.where(lost, life, length)
            who = who[lost]

    boot(np.arange(seconds.size), 600.0)
    for _ in range(int(count)):
        stretch(tau + 60.0)
    # the last, incomplete segment is in proportion in the model
    model = run.hours[0] - (count - int(count)) / count * (run.hours[0] - 600 / 3600)
    assert seconds.mean() / 3600 == pytest.approx(model, rel=0.01)
    assert losses.mean() == pytest.approx(run.losses[0] * int(count) / count, rel=0.03)


def test_lost_work_is_half_an_interval_each_where_losses_are_rare() -> None:
    run = expected(inputs(hazard_per_hour=0.001, work_s=3.6e6))
    each_s = run.lost_work_usd[0] / 2.0 * 3600 / run.losses[0]
    assert each_s == pytest.approx((run.interval_s[0] + 10) / 2, rel=0.01)


@given(
    hazard=st.floats(0, 50), nodes=st.integers(1, 64), work=st.floats(1, 1e7), price=st.floats(0.01, 500),
    save=st.floats(0.01, 3600), boot=st.floats(0, 7200), data=st.floats(0, 1000),
    interval=st.none() | st.floats(1, 1e5),
)  # fmt: skip
def test_parts_sum_to_the_mean_and_nothing_is_negative(
    hazard: float,
    nodes: int,
    work: float,
    price: float,
    save: float,
    boot: float,
    data: float,
    interval: float | None,
) -> None:
    given_ = inputs(
        hazard_per_hour=hazard, hazard_adverse_per_hour=3 * hazard, nodes=nodes, work_s=work,
        work_adverse_s=1.5 * work,
        usd_per_hour=price, save_s=save, boot_s=boot, data_egress_usd=data, interval_s=interval,
    )  # fmt: skip
    for run in (expected(given_), expected(given_, adverse=True)):
        assert parts(run)[0] == pytest.approx(run.usd_mean[0], rel=1e-12)
        for name in run.__slots__:
            value = getattr(run, name)[0]
            assert value >= 0
            assert not math.isnan(value)
    central, adverse = expected(given_), expected(given_, adverse=True)
    assert adverse.hours[0] >= central.hours[0] * (1 - 1e-9)
    assert adverse.usd_mean[0] >= central.usd_mean[0] * (1 - 1e-9)


@given(a=st.floats(0, 5), b=st.floats(0, 5))
def test_more_hazard_never_helps(a: float, b: float) -> None:
    low, high = sorted((a, b))
    run = expected(inputs(2, hazard_per_hour=np.array([low, high])))
    assert run.hours[1] >= run.hours[0] * (1 - 1e-9)
    assert run.usd_mean[1] >= run.usd_mean[0] * (1 - 1e-9)


@given(hazard=st.floats(0.001, 2), work=st.floats(1e4, 1e6), save=st.floats(1, 120))
def test_dalys_interval_is_within_a_percent_of_the_best(hazard: float, work: float, save: float) -> None:
    """The cadence and the cost are two formulas; the one must nearly minimise the other."""
    daly = expected(inputs(hazard_per_hour=hazard, work_s=work, save_s=save, boot_s=0.0, restore_s=0.0))
    grid = [
        expected(
            inputs(
                hazard_per_hour=hazard,
                work_s=work,
                save_s=save,
                boot_s=0.0,
                restore_s=0.0,
                interval_s=float(tau),
            )
        ).hours[0]
        for tau in np.geomspace(daly.interval_s[0] / 8, daly.interval_s[0] * 8, 61)
    ]
    # a run shorter than the interval is one segment that is saved once: the grid may cut it more cleverly
    assert daly.hours[0] <= min(grid) * 1.01 + save / 3600


def test_median_of_losses() -> None:
    means = np.array([0.0, 0.5, 0.7, 1.0, 2.0, 10.0, 100.0])
    assert cost.poisson_median(means).tolist() == [0, 0, 1, 1, 2, 10, 100]


@given(st.integers(0, 2**32 - 1))
def test_totals_are_the_kernel_row_by_row(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = inputs(5, hazard_per_hour=rng.uniform(0, 1, 5), nodes=rng.integers(1, 9, 5), data_egress_usd=3.0)
    group = rng.integers(0, 5, 40)
    price = rng.uniform(0.1, 30, 40)
    rows = groups.take(group)
    import dataclasses

    priced = dataclasses.replace(rows, usd_per_hour=price)
    usual, worse = expected(priced), expected(priced, adverse=True)
    typical = cost.central(groups, group, price)
    np.testing.assert_allclose(typical.usd, usual.usd_mean, rtol=1e-12)
    np.testing.assert_allclose(typical.hours, usual.hours_p50, rtol=1e-12)
    bad = cost.pessimistic(groups, typical)
    np.testing.assert_allclose(bad.run_hours, worse.run_hours, rtol=1e-12)
    assert (bad.usd >= np.maximum(worse.usd_mean, usual.usd_p50) * (1 - 1e-12)).all()
    assert (bad.hours >= np.maximum(worse.hours, usual.hours_p50) * (1 - 1e-12)).all()


def test_the_pessimistic_figures_are_never_below_the_typical_ones() -> None:
    """A median of whole losses may lie above a mean that is hardly worse."""
    groups = inputs(
        1, work_s=3600.0 * 20, hazard_per_hour=1.7 / 20, hazard_adverse_per_hour=1.7 / 20, boot_s=7200.0
    )
    group, price = np.zeros(1, dtype=np.int64), groups.usd_per_hour
    typical = cost.central(groups, group, price)
    usual, same = expected(groups), expected(groups, adverse=True)
    assert usual.hours_p50[0] > same.hours[0]  # what is clamped
    bad = cost.pessimistic(groups, typical)
    assert bad.hours[0] == usual.hours_p50[0]
    assert bad.usd[0] >= usual.usd_p50[0] * (1 - 1e-12)


def test_without_recovery_there_is_nothing_to_come_back_to() -> None:
    import dataclasses

    risky = inputs(1, work_s=36_000.0, hazard_per_hour=0.1, hazard_adverse_per_hour=0.3)
    once = expected(dataclasses.replace(risky, recovers=False))
    assert (once.losses[0], once.lost_work_usd[0]) == (0, 0)
    assert once.hours[0] == once.hours_p50[0] < expected(risky).hours[0]
    assert once.survival[0] == pytest.approx(np.exp(-0.1 * risky.nodes[0] * once.hours[0]))
    assert (
        expected(dataclasses.replace(risky, recovers=False), adverse=True).survival[0] < once.survival[0] ** 2
    )
    assert expected(risky).survival[0] == 1
