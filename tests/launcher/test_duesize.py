"""The deadline policy of an elastic job: all machines that it may have, or those that are to be had."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from arylcloud.core import events as ev
from arylcloud.core.job import Constraints, InlineRate, JobSpec, ProfileRef, Work
from arylcloud.core.offer import Market, Offer
from arylcloud.core.phases import JobPhase
from arylcloud.launcher.duepolicy import policy_of
from arylcloud.launcher.duesize import takes_all
from arylcloud.launcher.reconcile.slots import HELD
from arylcloud.launcher.sightings import looks
from arylcloud.planner.scaling import step
from arylcloud.simulation.duegang import paced
from tests.launcher.test_duepolicy import PLACES as SINGLE
from tests.launcher.test_duepolicy import Due

PLACES = tuple(
    replace(o, instance_type="p4d.24xlarge", gpu="A100", gpu_count=8, gpu_mem_gib=40.0) for o in SINGLE
)
ALONE = step("A100", (8, 1), (8, 4)).factor
JOB = JobSpec(
    name="digits",
    run="x",
    profile=ProfileRef(
        rates=(InlineRate(gpu="A100", count=8, rate=1.0 / ALONE),), unit="samples/s", batch=1.0
    ),
    work=Work(amount=400.0, unit="steps"),
    constraints=Constraints(deadline_s=1400.0),
    nodes_min=2,
    nodes_max=4,
    on_node_loss="shrink",
)
"""400 s of work of four machines, 780 s of two."""
PACE = {n: step("A100", (8, 1), (8, n)).factor / ALONE for n in (2, 3, 4)}
HERE = PLACES[0].key


def due(folder: Path, places: tuple[Offer, ...] = PLACES, **changes: object) -> Due:
    h = Due(folder, spec=replace(JOB, **changes), places=places)  # type: ignore[arg-type]
    h.agents = paced(h.agents, PACE)
    h.agents.total_steps = 400
    return h


def lose(h: Due, count: int) -> None:
    """The youngest go, and there is no more room where they were."""
    there = h.world.alive
    h.world.room[there[0].spec.offer.key] = len(there) - count
    for machine in there[len(there) - count :]:
        h.world.interrupt(machine.instance_id)


def at_work(h: Due) -> int:
    return len(next(e for e in reversed(h.state.epochs) if e.members).members)


def to_the_end(h: Due, within_s: float = 3000.0) -> None:
    until_s = h.clock.at_s + within_s
    while not h.state.phase.ended and h.clock.at_s < until_s:
        h.pass_time(7)
        h.tick()
    assert h.state.phase is JobPhase.SUCCEEDED, h.state.phase_text
    assert h.state.phase_code == "finished", h.state.phase_text
    h.check_ended()


def test_whom_it_is_for(tmp_path: Path) -> None:
    state = due(tmp_path).state
    assert takes_all(state)
    assert policy_of(JOB) is not None
    for other in (
        {"policy": "off"},
        {"constraints": Constraints()},
        {"constraints": Constraints(deadline_s=1400.0, budget_usd=9.0)},
        {"market": "spot"},
        {"on_node_loss": "replace"},
        {"recovery": "none"},
        {"profile": None},
        {"work": Work(amount=1.0, unit="hours")},
    ):
        spec = replace(JOB, **other)  # type: ignore[arg-type]
        assert policy_of(spec) is None, other
        assert not takes_all(replace(state, spec=spec)), other
    assert not takes_all(replace(state, queued=True))
    fixed = replace(JOB, nodes_min=4)
    assert policy_of(fixed) is not None
    assert not takes_all(replace(state, spec=fixed))


def test_a_loss_of_some_is_no_loss_of_the_zone(tmp_path: Path) -> None:
    h = due(tmp_path)
    h.until(JobPhase.RUNNING)
    h.tick(30)
    lose(h, 2)
    h.tick(40)
    assert at_work(h) == 2
    assert any(x.refusal is not None for x in h.state.leases.values()), "others were asked for"
    assert all(look.up for look in looks(h.state, h.clock.at_s) if look.key == HERE)
    assert not h.of(ev.MigrationStarted), "half of it works as cheaply as all of it"
    lose(h, 1)
    lost_s = h.clock.at_s
    h.tick(5)
    down = [look.at_s for look in looks(h.state, h.clock.at_s) if look.key == HERE and not look.up]
    assert down[0] == pytest.approx(lost_s)
    assert any(said.due is not None for said in h.said[-5:])


def test_too_few_are_none_it_waits_and_then_begins_with_all_of_them_on_demand(tmp_path: Path) -> None:
    h = due(tmp_path)
    h.until(JobPhase.RUNNING)
    h.tick(30)
    h.world.full = h.spot()
    lose(h, 3)
    h.until(JobPhase.WAITING, within=60)
    assert h.state.phase_code == HELD
    until_s = h.state.phase_until_s
    assert until_s is not None
    h.tick(40)
    assert not h.world.alive, "nothing is paid for while it waits"
    while not h.world.alive and h.clock.at_s < until_s + 200.0:
        h.pass_time(9)
        h.tick()
    assert h.clock.at_s <= until_s + 25.0
    h.until(JobPhase.RUNNING)
    assert [m.spec.offer.market for m in h.world.alive] == [Market.ON_DEMAND] * 4
    h.check()


def test_half_of_a_gang_is_too_slow_for_the_deadline_in_the_end(tmp_path: Path) -> None:
    """Two of four go on until a loss could not be made good any more; then all four, on demand, while the
    two still work."""
    h = due(tmp_path, constraints=Constraints(deadline_s=620.0))
    h.until(JobPhase.RUNNING)
    h.tick(20)
    h.world.full = h.spot()
    lose(h, 2)
    while not h.of(ev.MigrationStarted) and h.clock.at_s < 1700.0:
        h.pass_time(5)
        h.tick()
    (moved,) = h.of(ev.MigrationStarted)
    assert moved.to.market is Market.ON_DEMAND
    assert moved.nodes == 4
    assert at_work(h) == 2
    to_the_end(h)


def test_a_move_goes_on_with_what_is_to_be_had(tmp_path: Path) -> None:
    """From on demand, where it had to begin, to a zone that has three of four."""
    h = due(tmp_path, work=Work(amount=1500.0, unit="steps"), constraints=Constraints(deadline_s=1720.0))
    h.agents.total_steps = 1500
    h.world.full = h.spot()
    h.until(JobPhase.RUNNING)
    assert {m.spec.offer.market for m in h.world.alive} == {Market.ON_DEMAND}
    h.world.full, h.world.room = {HERE}, {o.key: 3 for o in PLACES[:3]}
    while not h.state.migrations_done and h.clock.at_s < 1400.0:
        h.pass_time(4)
        h.tick()
    h.tick(20)
    assert at_work(h) == 3
    assert {m.spec.offer.market for m in h.world.alive} == {Market.SPOT}
    assert h.state.size == 4
    h.check()


@pytest.mark.parametrize("room", [2, 4])
def test_a_working_gang_is_not_moved_to_fewer_machines(tmp_path: Path, room: int) -> None:
    """By its user, to a zone that has two of four, or all."""
    h = due(tmp_path, work=Work(amount=2000.0, unit="steps"), constraints=Constraints(deadline_s=9000.0))
    h.agents.total_steps = 2000
    h.until(JobPhase.RUNNING)
    h.tick(30)
    assert at_work(h) == 4
    to = next(o.key for o in PLACES if o.market is Market.SPOT and o.key != HERE)
    h.world.room = {to: room}
    h.request("migrate", to=to)
    for _ in range(40):
        h.tick(5)
    assert at_work(h) == 4
    assert {m.spec.offer.key for m in h.world.alive} == ({to} if room == 4 else {HERE})
    h.check()


@pytest.mark.parametrize("pinned", [False, True])
def test_it_grows_to_all_unless_its_user_says_otherwise(tmp_path: Path, pinned: bool) -> None:
    h = due(tmp_path, work=Work(amount=2000.0, unit="steps"), constraints=Constraints(deadline_s=9000.0))
    h.agents.total_steps = 2000
    h.until(JobPhase.RUNNING)
    h.request("scale", nodes=3 if pinned else 2)
    h.tick(30)
    if not pinned:
        h.request("scale", nodes="auto")
    for _ in range(25):
        h.pass_time(4)
        h.tick()
    assert at_work(h) == (3 if pinned else 4)
    said = [x.why for x in h.of(ev.SizeChosen)]
    assert any("for its deadline" in why for why in said) is not pinned
    assert h.said[-1].by_policy
    h.check()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_hostile(tmp_path: Path, seed: int) -> None:
    """Machines that come and go one by one, notices, lost answers, crashes: no wait beyond the latest safe
    start, nothing paid for beside it, none left."""
    rng, beside = np.random.default_rng(seed), 0
    short = {"work": Work(amount=120.0, unit="steps"), "constraints": Constraints(deadline_s=900.0)}
    h = due(tmp_path, **short)
    h.agents.total_steps = 120
    while not h.state.phase.ended:
        for key in sorted(h.spot()):
            if rng.random() < 0.05:
                h.world.room[key] = int(rng.integers(0, 5))
        for machine in h.world.alive:
            if machine.spec.offer.market is Market.SPOT and rng.random() < 0.01:
                if rng.random() < 0.5:
                    h.world.interrupt(machine.instance_id)
                else:
                    h.world.notice(machine.instance_id, 20.0)
        if rng.random() < 0.02:
            h.world.troubles.append(
                ("lost_answer", "lost_call", "throttled", "capacity_and_lands")[rng.integers(4)]
            )
        if rng.random() < 0.02:
            h.crash_in = int(rng.integers(1, 8))
        h.tick()
        h.check()
        state = h.state
        if state.phase is JobPhase.WAITING and state.phase_code == HELD:
            assert state.phase_until_s is not None
            assert h.clock.at_s <= state.phase_until_s + 60.0
            beside = beside + 1 if h.world.alive else 0
            assert beside <= 45, "a machine is paid for while it waits for spot"
        assert h.clock.at_s < 1000.0 + 2 * 900.0
    h.crash_in = None
    assert h.state.phase is JobPhase.SUCCEEDED, h.state.phase_text
    h.tick(40)
    h.pass_time(60)
    h.check_ended()
