"""Laws of the pure part: at rest once all is well, repeatable, and where it may ask for machines."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.first import initial_actions
from support.harness import JOB, OFFERS, TIMING, Harness, offer, spec

from arylcloud.core import errors
from arylcloud.core.events import OfferBarred
from arylcloud.core.offer import Market, Offer
from arylcloud.core.phases import JobPhase
from arylcloud.launcher import actions as act
from arylcloud.launcher.offers import acceptable, bar_for, barred, covers, family, why_none
from arylcloud.launcher.reconcile import reconcile


def look(h: Harness) -> tuple[act.Observed, act.Desired]:
    observed = h.launcher.observer.observe(h.state)
    return observed, h._desire(h.state, observed, h.clock.at_s)


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_converged_world_asks_for_nothing(tmp_path: Path, nodes: int) -> None:
    h = Harness(tmp_path, spec=spec(nodes))
    h.until(JobPhase.RUNNING)
    h.tick(5)
    for _ in range(3):
        observed, desired = look(h)
        assert reconcile(h.state, observed, desired, h.clock.at_s) == ()
    h.until(JobPhase.SUCCEEDED)
    observed, desired = look(h)
    assert reconcile(h.state, observed, desired, h.clock.at_s) == ()


def test_a_wait_is_at_rest_too(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.world.full = {o.key for o in OFFERS}
    h.until(JobPhase.WAITING)
    observed, desired = look(h)
    assert reconcile(h.state, observed, desired, h.clock.at_s) == ()


def test_it_is_a_function(tmp_path: Path) -> None:
    """Same arguments, same actions; the arguments are as before."""
    h = Harness(tmp_path, spec=spec(2))
    for second in range(70):
        if second == 15:
            h.world.notice(h.running[0].instance_id, 10)
        if second == 40:
            h.request("migrate", to="aws/eu-west-1")
        h.pass_time()
        observed, desired = look(h)
        before = deepcopy((h.state, observed, desired))
        first = reconcile(h.state, observed, desired, h.clock.at_s)
        assert reconcile(h.state, observed, desired, h.clock.at_s) == first
        assert (h.state, observed, desired) == before
        h.launch_once()


def test_the_notes_of_a_pass_fold_to_what_it_decided(tmp_path: Path) -> None:
    """Half of a pass carried out, the rest lost in a crash: the next pass brings the rest."""
    h = Harness(tmp_path, spec=spec(2))
    for _ in range(60):
        h.pass_time()
        observed, desired = look(h)
        actions = reconcile(h.state, observed, desired, h.clock.at_s)
        for action in actions[: max(1, len(actions) // 2)]:
            h.state = h.launcher.executor.run_one(h.state, action)
        if h.state.phase is JobPhase.RUNNING:
            break
    assert h.state.phase is JobPhase.RUNNING
    h.check()


def test_initial_actions_are_the_first_choice(tmp_path: Path) -> None:
    h = Harness(tmp_path, spec=spec(2))
    _, desired = look(h)
    creates = [a for a in initial_actions(h.state, desired, h.clock.at_s) if isinstance(a, act.CreateLease)]
    assert [(c.offer.key, c.index) for c in creates] == [(OFFERS[0].key, 0), (OFFERS[0].key, 1)]
    assert len({c.token for c in creates}) == 2


def test_nothing_is_concluded_of_a_cloud_that_did_not_answer(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.until(JobPhase.RUNNING)
    h.tick(20)
    observed, desired = look(h)
    empty = replace(observed, machines=(), listed=frozenset())
    assert reconcile(h.state, empty, desired, h.clock.at_s) == ()


def test_a_machine_that_beats_is_not_gone_though_a_list_lacks_it(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.until(JobPhase.RUNNING)
    h.tick(20)
    observed, desired = look(h)
    assert reconcile(h.state, replace(observed, machines=()), desired, h.clock.at_s) == ()


def test_until_is_the_earlier_of_unattended_and_budget(tmp_path: Path) -> None:
    from arylcloud.core.job import Constraints
    from arylcloud.launcher.limits import END_S, SAVE_S  # of the budget, the end is kept back

    for budget, spent, expected_s in (
        (None, None, 43200.0),
        (4.0, 1.0, 3 * 3600.0 - (SAVE_S + END_S)),
        (400.0, 0.0, 43200.0),
    ):
        h = Harness(tmp_path / f"{budget}", spec=spec(constraints=Constraints(budget_usd=budget)))
        h.spent_usd = spent
        _, desired = look(h)
        (create,) = (
            a for a in initial_actions(h.state, desired, h.clock.at_s) if isinstance(a, act.CreateLease)
        )
        assert create.until_s - h.clock.at_s == pytest.approx(expected_s)


# ---------------------------------------------------------------- offers

places = st.builds(
    offer,
    region=st.sampled_from(["us-east-1", "us-east-2", "us-west-2", "eu-west-1"]),
    zone=st.sampled_from(["a", "b"]),
    usd=st.floats(0.5, 5.0),
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    ranking=st.lists(places, max_size=8),
    barred_at=st.lists(st.tuples(places, st.floats(0, 200)), max_size=4),
    cooling=st.lists(
        st.tuples(st.floats(0, 200), st.sampled_from(["aws/us-east-1", "aws/us-west-2", "aws/eu-west-1"])),
        max_size=3,
    ),
    now=st.floats(0, 200),
)
def test_case_1_never_first_in_a_cooling_region(
    ranking: list[Offer],
    barred_at: list[tuple[Offer, float]],
    cooling: list[tuple[float, str]],
    now: float,
) -> None:
    bars = [OfferBarred(scope=o.key, until_s=until, code="capacity", why="") for o, until in barred_at]
    found = acceptable(ranking, bars, cooling, now, TIMING)
    free = [o for o in ranking if not any(b.scope == o.key and now < b.until_s for b in bars)]
    cool = {region for at, region in cooling if now < at + TIMING.region_cooldown_market_s}
    calm = [o for o in free if f"{o.cloud}/{o.region}" not in cool]
    assert list(found) == (calm or free), "in order of rank, cooling regions only where nothing else is left"
    assert bool(found) == bool(free), "a cool-down alone never stops a job"


def test_scopes() -> None:
    o = offer()
    assert covers(o.key, o)
    for scope in ("aws", "aws/us-east-1", "aws/us-east-1/us-east-1-a", "aws/us-east-1:p3.*:spot"):
        assert covers(scope, o), scope
    for scope in ("aws/us-east", "gcp", "aws/us-east-1:p4d.*", "aws/us-east-1:p3.*:on_demand", "us-east-1"):
        assert not covers(scope, o), scope
    whole_region = replace(o, zone=None)
    assert covers("aws/us-east-1", whole_region)
    assert not covers("aws/us-east-1/us-east-1-a", whole_region)


def test_families() -> None:
    p4d = replace(offer(), instance_type="p4d.24xlarge")
    assert family(p4d) == family(replace(p4d, instance_type="p6-b200.48xlarge")) == "p*"
    assert {family(replace(p4d, instance_type=t)) for t in ("g5.xlarge", "gr6.4xlarge", "vt1.3xlarge")} == {
        "[gv]*"
    }
    assert covers("aws:[gv]*", replace(p4d, instance_type="g4dn.xlarge"))
    assert not covers("aws:[gv]*", p4d)
    assert family(replace(offer(), cloud="gcp", instance_type="a2-highgpu-8g")) == "a2-highgpu-*"
    azure = replace(offer(), cloud="azure", instance_type="Standard_NC24ads_A100_v4")
    assert covers(f"aws:{family(replace(azure, cloud='azure'))}", replace(azure, cloud="aws"))
    assert family(azure) == "Standard_NC*ads_A100_v4"


def all_kinds() -> set[str]:
    found, todo = set(), [errors.ArylError]
    while todo:
        cls = todo.pop()
        found.add(cls.kind)
        todo.extend(cls.__subclasses__())
    return found


@pytest.mark.parametrize("kind", sorted(all_kinds()))
def test_what_each_error_bars(kind: str) -> None:
    """Each bar covers the offer that was refused; quota spares the other market and family."""
    o = offer()
    bar = bar_for(kind, o, 100.0, TIMING)
    if kind in ("usage", "missing_extra", "infeasible", "local_state", "store"):
        assert bar is None
        return
    assert bar is not None
    assert bar.code == kind
    assert barred(o, [bar], 100.0) is bar
    assert barred(o, [bar], bar.until_s) is None
    other_market = replace(o, market=Market.ON_DEMAND)
    if kind == "quota":
        assert barred(offer(zone="b"), [bar], 100.0) is bar
        assert barred(other_market, [bar], 100.0) is None
        assert bar.until_s == 100.0 + TIMING.quota_bar_market_s
    elif kind == "throttled":
        assert barred(offer(zone="b"), [bar], 100.0) is bar
    elif kind == "access":  # of the whole account; another cloud may do
        assert barred(offer("us-west-2"), [bar], 100.0) is bar
        assert barred(replace(o, cloud="gcp"), [bar], 100.0) is None
        return
    else:
        assert barred(offer(zone="b"), [bar], 100.0) is None
        assert bar.until_s == 100.0 + TIMING.capacity_bar_market_s
    assert barred(offer("us-west-2"), [bar], 100.0) is None


def test_a_wait_says_what_stands_in_the_way() -> None:
    bars = [bar_for("capacity", o, 0.0, TIMING) for o in OFFERS[:3]] + [
        bar_for("quota", OFFERS[3], 0.0, TIMING)
    ]
    code, text = why_none(OFFERS, [b for b in bars if b is not None], 1.0)
    assert code == "capacity"
    assert "capacity 3, quota 1" in text
    assert why_none((), [], 1.0)[0] == "no_offer"


def test_the_journal_names_causes(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.until(JobPhase.RUNNING)
    h.tick(12)
    h.world.interrupt(h.running[0].instance_id)
    h.until(JobPhase.SUCCEEDED)
    caused = {type(r.event).__name__: r.cause_id for r in h.journal.records(JOB) if r.cause_id}
    assert caused["LeaseReleased"].startswith("list of aws")
    assert caused["CheckpointCommitted"].startswith("manifest ")
    assert caused["CommandEnded"].startswith("end e")
