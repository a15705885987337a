"""Laws of the planner over small markets made up by Hypothesis (style.md, property suite)."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.hints import relaxed

from arylcloud.core.codec import decode, encode
from arylcloud.core.errors import InfeasibleError
from arylcloud.core.job import Constraints, InlineRate, JobSpec, Objective, ProfileRef, Work
from arylcloud.core.offer import Market, Offer
from arylcloud.core.plan import Plan
from arylcloud.planner.single import plan_job
from arylcloud.planner.upkeep import Assumptions
from arylcloud.pricing.table import from_offers

PLACES = [("aws", "us-east-1", "use1-az1"), ("aws", "us-east-1", "use1-az2"),
          ("aws", "us-west-2", "usw2-az1"), ("gcp", "us-central1", "us-central1-a"),
          ("azure", "eastus", "1")]  # fmt: skip
TYPES = [("small", "V100", 1), ("big", "V100", 8), ("new", "A100", 1), ("newer", "A100", 8)]
RATES = tuple(InlineRate(gpu=g, count=n, rate=r) for g, n, r in
              [("V100", 1, 1.0), ("V100", 8, 6.5), ("A100", 1, 2.5), ("A100", 8, 18.0)])  # fmt: skip
FREE = Assumptions(disk_gb=0.0)
"""Prices scale only where everything that costs is a price."""


def offer(place: tuple[str, str, str], kind: tuple[str, str, int], market: Market, price: float) -> Offer:
    return Offer(
        cloud=place[0], region=place[1], zone=place[2], instance_type=kind[0], gpu=kind[1], gpu_count=kind[2],
        gpu_mem_gib=16.0, vcpus=8.0, mem_gib=61.0, market=market, usd_per_hour=price,
        as_of="2026-07-01", source="t",
    )  # fmt: skip


one_offer = st.builds(
    offer,
    st.sampled_from(PLACES),
    st.sampled_from(TYPES),
    st.sampled_from([Market.SPOT, Market.ON_DEMAND]),
    st.floats(0.05, 50).map(lambda x: round(x, 4)),
)
markets = st.lists(one_offer, min_size=1, max_size=12, unique_by=lambda o: o.key)
objectives = st.sampled_from(
    [
        Objective(),
        Objective(cost_weight=0.0, usd_per_hour_of_waiting=1.0),
        Objective(usd_per_hour_of_waiting=5.0),
    ]
)


CHEAP, UNLIMITED = Objective(), Constraints()


def job(objective: Objective = CHEAP, limits: Constraints = UNLIMITED, nodes: int = 1) -> JobSpec:
    return JobSpec(
        name="j", run="true", profile=ProfileRef(rates=RATES, unit="steps/s"),
        work=Work(amount=50_000, unit="steps"), objective=objective, constraints=limits, nodes_max=nodes,
    )  # fmt: skip


def value(plan: Plan) -> float:
    c, o = plan.chosen, plan.job.objective
    assert c.usd is not None
    assert c.hours is not None
    return o.cost_weight * c.usd.mean + o.usd_per_hour_of_waiting * c.hours.p50


def solve(offers: Sequence[Offer], spec: JobSpec) -> Plan | None:
    try:
        return plan_job(spec, from_offers(offers), assumptions=FREE)
    except InfeasibleError:
        return None


@given(market=markets, objective=objectives, nodes=st.integers(1, 3), data=st.data())
@settings(max_examples=40)
def test_the_order_of_offers_is_no_matter(
    market: list[Offer], objective: Objective, nodes: int, data: st.DataObject
) -> None:
    spec = job(objective, nodes=nodes)
    one, other = solve(market, spec), solve(data.draw(st.permutations(market)), spec)
    assert one is not None
    assert other is not None
    stamp = one.catalogue
    a, b = replace(one, rejected=()), replace(other, catalogue=stamp, rejected=())
    assert a == b


@given(market=markets, objective=objectives, extra=one_offer)
@settings(max_examples=40)
def test_one_more_offer_never_hurts(market: list[Offer], objective: Objective, extra: Offer) -> None:
    assume(extra.key not in {o.key for o in market})
    spec = job(objective)
    before, after = solve(market, spec), solve([*market, extra], spec)
    assert before is not None
    assert after is not None
    assert value(after) <= value(before) * (1 + 1e-12)


@given(market=markets, objective=objectives, factor=st.floats(1.001, 5), data=st.data())
@settings(max_examples=40)
def test_a_dominated_offer_never_helps(
    market: list[Offer], objective: Objective, factor: float, data: st.DataObject
) -> None:
    """The same machine in the same region at a higher price changes nothing."""
    twin = data.draw(st.sampled_from(market))
    worse = replace(twin, zone="elsewhere", usd_per_hour=(twin.usd_per_hour or 0) * factor)
    spec = job(objective)
    before, after = solve(market, spec), solve([*market, worse], spec)
    assert before is not None
    assert after is not None
    assert after.chosen == before.chosen


@given(market=markets, hours=st.floats(0.5, 40), tighter=st.floats(0.1, 1), budget=st.floats(1, 500))
@settings(max_examples=40)
def test_a_tighter_limit_never_helps(
    market: list[Offer], hours: float, tighter: float, budget: float
) -> None:
    loose = solve(market, job(limits=Constraints(deadline_s=hours * 3600, budget_usd=budget)))
    tight = solve(
        market, job(limits=Constraints(deadline_s=hours * 3600 * tighter, budget_usd=budget * tighter))
    )
    if tight is not None:
        assert loose is not None
        assert value(loose) <= value(tight) * (1 + 1e-12)
        assert tight.chosen.hours is not None
        assert tight.chosen.usd is not None
        assert tight.chosen.hours.p90 * 3600 <= hours * 3600 * tighter
        assert tight.chosen.usd.p90 <= budget * tighter


@given(
    market=markets,
    deadline=st.floats(0.5, 40),
    budget=st.floats(0.5, 300),
    runtime=st.none() | st.floats(0.5, 40),
    nodes=st.integers(1, 3),
)
@settings(max_examples=60)
def test_a_hint_that_is_followed_gives_a_plan(
    market: list[Offer], deadline: float, budget: float, runtime: float | None, nodes: int
) -> None:
    limits = Constraints(
        deadline_s=deadline * 3600,
        budget_usd=budget,
        max_runtime_s=None if runtime is None else runtime * 3600,
    )
    table = from_offers(market)
    try:
        plan_job(job(limits=limits, nodes=nodes), table, assumptions=FREE)
    except InfeasibleError as no:
        ways = relaxed(limits, str(no.hint))
        assert ways
        for changed in ways:
            assert plan_job(job(limits=changed, nodes=nodes), table, assumptions=FREE).chosen


@given(market=markets, c=st.floats(0.1, 20))
@settings(max_examples=40)
def test_prices_times_c_is_cost_times_c(market: list[Offer], c: float) -> None:
    one = solve(market, job())
    other = solve([replace(o, usd_per_hour=(o.usd_per_hour or 0) * c) for o in market], job())
    assert one is not None
    assert other is not None
    assert value(other) == pytest.approx(c * value(one), rel=1e-9)


@given(market=markets, objective=objectives, nodes=st.integers(1, 3))
@settings(max_examples=40)
def test_every_plan_holds_together(market: list[Offer], objective: Objective, nodes: int) -> None:
    plan = solve(market, job(objective, Constraints(deadline_s=48 * 3600.0), nodes))
    if plan is None:
        return
    assert plan.chosen == plan.candidates[0]
    assert plan.chosen.meets_deadline
    assert [c.rank for c in plan.candidates] == list(range(1, len(plan.candidates) + 1))
    scores = []
    for c in (*plan.candidates, *plan.frontier):
        assert c.usd is not None
        assert c.hours is not None
        u = c.usd
        assert u.compute + u.boot + u.egress + u.storage + u.lost_work == pytest.approx(u.mean, rel=1e-12)
        assert u.p50 <= u.p90 * (1 + 1e-9)
        assert c.hours.p50 <= c.hours.p90 * (1 + 1e-9)
        scores.append(objective.cost_weight * u.mean + objective.usd_per_hour_of_waiting * c.hours.p50)
    scores = [x for x, c in zip(scores, plan.candidates, strict=False) if c.meets_deadline]
    assert scores == sorted(scores)
    points = [(c.hours.p50, c.usd.mean) for c in plan.candidates if c.hours and c.usd]
    for c, (h, u_) in zip(plan.candidates, points, strict=True):
        beaten = any(x <= h and y <= u_ and (x < h or y < u_) for x, y in points)
        assert not (c.pareto and beaten)
    assert all(c.pareto for c in plan.frontier)
    assert all((c.why == f"first by {objective.name}") is (c == plan.chosen) for c in plan.frontier)
    assert decode(Plan, encode(plan)) == plan
