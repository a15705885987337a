"""What more and fewer machines are worth, asked of the real planner."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from support.harness import OFFERS

from arylcloud.core.job import Constraints, InlineRate, JobSpec, Objective, ProfileRef, Work
from arylcloud.core.plan import Plan
from arylcloud.launcher.scaling import all_unless_dear, scaling_of
from arylcloud.planner.single import plan_job
from arylcloud.pricing.table import from_offers

HERE = OFFERS[0]
JOB = JobSpec(
    name="j",
    run="x",
    profile=ProfileRef(rates=(InlineRate(gpu="V100", count=1, rate=1.0),), unit="steps/s"),
    work=Work(amount=36_000, unit="steps"),
    nodes_min=1,
    nodes_max=4,
)
FAST = Objective(cost_weight=0.0, usd_per_hour_of_waiting=10.0)


def plan(spec: JobSpec) -> Plan:
    return plan_job(spec, from_offers(OFFERS), also=(HERE,), limit=50)


def test_the_cheap_run_on_few_and_the_hasty_on_many() -> None:
    cheap = scaling_of(JOB, HERE, (2,), plan, handover_market_s=10.0)
    assert cheap is not None
    assert cheap.offer_key == HERE.key
    assert set(cheap.loss) == {1, 2, 4}
    assert cheap.best == 1, "no job scales better than linearly"
    assert cheap.loss[1] < cheap.loss[2] < cheap.loss[4]
    hasty = scaling_of(replace(JOB, objective=FAST), HERE, (), plan, handover_market_s=10.0)
    assert hasty is not None
    assert hasty.best == 4
    hours = hasty.loss[1] / 10.0
    assert hours == pytest.approx(10.0, rel=0.5), "36,000 steps at one a second, boots and losses included"


def test_a_hand_over_costs_every_machine_and_everybodys_time() -> None:
    both = replace(JOB, objective=Objective(cost_weight=1.0, usd_per_hour_of_waiting=6.0))
    found = scaling_of(both, HERE, (), plan, handover_market_s=360.0)
    assert found is not None
    assert found.handover == pytest.approx(0.1 * (4 * (HERE.usd_per_hour or 0.0) + 6.0))
    assert 0 < found.boot < 0.5 * (HERE.usd_per_hour or 0.0), "minutes of one machine"


def test_less_work_makes_less_of_a_difference() -> None:
    gains = []
    for amount in (36_000, 360):
        job = replace(JOB, work=Work(amount=amount, unit="steps"), objective=FAST)
        found = scaling_of(job, HERE, (), plan, handover_market_s=10.0)
        assert found is not None
        gains.append(found.loss[1] - found.loss[4])
    assert gains[0] > 50 * gains[1] > 0


def test_a_size_that_misses_a_limit_is_as_good_as_none() -> None:
    job = replace(JOB, constraints=Constraints(budget_usd=20.0), objective=FAST)
    found = scaling_of(job, HERE, (2, 3), plan, handover_market_s=10.0)
    assert found is not None
    assert found.best == 1, "the fastest whose pessimistic cost is within the budget"
    assert [n for n, loss in found.loss.items() if math.isinf(loss)] == [2, 3, 4]
    hopeless = replace(JOB, constraints=Constraints(deadline_s=60.0))
    found = scaling_of(hopeless, HERE, (), plan, handover_market_s=10.0)
    assert found is not None
    assert found.best == 4, "too late in any case: as early as may be"


def test_what_nobody_can_estimate_is_not_invented() -> None:
    assert scaling_of(replace(JOB, profile=None), HERE, (), plan, handover_market_s=10.0) is None
    assert scaling_of(replace(JOB, work=None), HERE, (), plan, handover_market_s=10.0) is None


def test_for_a_deadline_all_machines_unless_they_make_the_work_dear() -> None:
    """Two of four machines do half of what four do, or (one batch for all) three fifths of it."""
    eight = replace(HERE, instance_type="p4d.24xlarge", gpu="A100", gpu_count=8)
    for unit, all_of_them in (("samples/s", True), ("steps/s", False)):
        rate = InlineRate(gpu="A100", count=8, rate=1.0)
        job = replace(
            JOB,
            profile=ProfileRef(rates=(rate,), unit=unit, batch=1.0),
            constraints=Constraints(deadline_s=100_000.0),
            nodes_min=2,
        )

        def there(spec: JobSpec) -> Plan:
            return plan_job(spec, from_offers([eight]), also=(eight,), limit=50)

        found = all_unless_dear(job, eight, (), there, handover_market_s=10.0, now=4)
        plain = scaling_of(job, eight, (), there, handover_market_s=10.0)
        assert found is not None
        assert plain is not None
        assert plain.best == 2
        assert (found.best == 4) is all_of_them
        assert (found != plain) is all_of_them
        if all_of_them:
            assert found.loss[2] / found.loss[4] == pytest.approx(2.0, rel=0.1), "hours"
            assert 0 < found.boot < 0.1
            assert found.in_hours
            brief = replace(job, work=Work(amount=3600.0, unit="steps"))
            few = all_unless_dear(brief, eight, (), there, handover_market_s=10.0, now=2)
            all_there = all_unless_dear(brief, eight, (), there, handover_market_s=10.0, now=4)
            assert few is not None
            assert all_there is not None
            assert (few.in_hours, all_there.in_hours) == (False, True), "two boots for an hour"
