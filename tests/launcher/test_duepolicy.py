"""The deadline policy of a live job: what it is shown of the journal, and what comes of its word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from arylcloud.cli.jobfile import load_job
from arylcloud.core import events as ev
from arylcloud.core.clock import ManualClock
from arylcloud.core.codec import decode, encode
from arylcloud.core.errors import UsageError
from arylcloud.core.job import Constraints, InlineRate, JobSpec, MigrateSpec, ProfileRef, Work
from arylcloud.core.offer import Market, Offer
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.plan import Plan
from arylcloud.launcher import actions as act
from arylcloud.launcher.desire import Desires
from arylcloud.launcher.duepolicy import policy_of
from arylcloud.launcher.dueview import due_of
from arylcloud.launcher.quotes import Quotes
from arylcloud.launcher.reconcile.slots import HELD
from arylcloud.launcher.sightings import looks, remembered
from arylcloud.launcher.state import JobState
from arylcloud.planner.deadline.registry import POLICIES
from arylcloud.planner.deadline.survival import cumulated
from arylcloud.planner.single import plan_job
from arylcloud.planner.upkeep import Assumptions
from arylcloud.pricing.table import from_offers
from tests.support.harness import OFFERS, TIMING, Harness, offer

DEMAND = replace(offer(zone="a", usd=4.0), market=Market.ON_DEMAND)
PLACES = (*OFFERS[:3], DEMAND)
JOB = JobSpec(
    name="digits",
    run="x",
    profile=ProfileRef(rates=(InlineRate(gpu="V100", count=1, rate=1.0),), unit="steps/s"),
    work=Work(amount=400.0, unit="steps"),
    constraints=Constraints(deadline_s=1400.0),
)
"""400 s of work."""


@dataclass
class Due(Harness):
    """With the real planner and policy behind the real ``desire``."""

    places: tuple[Offer, ...] = PLACES

    def __post_init__(self) -> None:
        self.desires: Desires | None = None
        self.said: list[act.Desired] = []
        super().__post_init__()

    def _desire(self, state: JobState, observed: act.Observed, now_s: float) -> act.Desired:
        if self.desires is None:
            self.desires = Desires(
                providers={"aws": self.world},
                plan=self._plan,
                timing=TIMING,
                quotes=Quotes({}, ManualClock()),
                refresh_s=300.0,
            )
        self.said.append(self.desires(state, observed, now_s))
        return self.said[-1]

    def _plan(self, job: JobSpec, *, quoted: Sequence[Offer], also: Sequence[Offer]) -> Plan:
        del quoted
        assumed = Assumptions(default_boot_s=10.0, boot_s={"aws": 10.0})
        return plan_job(job, from_offers(self.places), also=also, limit=50, assumptions=assumed)

    def restart(self) -> None:
        self.desires = None  # all that it knows lies in the journal and the mailbox
        super().restart()

    def spot(self) -> set[str]:
        return {o.key for o in self.places if o.market is Market.SPOT}


def due(folder: Path, **changes: object) -> Due:
    h = Due(folder, spec=replace(JOB, **changes))  # type: ignore[arg-type]
    h.agents.total_steps = 400
    return h


def lose(h: Due) -> None:
    """The machine goes, and with it all spot there is."""
    h.world.full = h.spot()
    for machine in h.world.alive:
        h.world.interrupt(machine.instance_id)


# ---------------------------------------------------------------- what it is shown


def test_a_life_a_refusal_and_a_loss_are_what_was_seen(tmp_path: Path) -> None:
    h = due(tmp_path)
    h.until(JobPhase.RUNNING)
    begun_s = h.world.alive[0].lands_at_s
    h.tick(100)
    lose(h)
    lost_s = h.clock.at_s
    h.tick(40)
    found = looks(h.state, h.clock.at_s)
    first = [look for look in found if look.key == OFFERS[0].key]
    assert [(look.at_s, look.up) for look in first[:3]] == [
        (begun_s, True),
        (lost_s, False),
        *[(look.at_s, False) for look in first[2:3]],
    ]
    refused = {x.offer.key for x in h.state.leases.values() if x.refusal is not None}
    assert refused
    assert {look.key for look in found if not look.up} == refused | {OFFERS[0].key}
    keys = [o.key for o in OFFERS[:3]]
    seen, lives = remembered(found, keys, h.state.submitted_at_s, with_lives=True)
    assert seen.deaths[0].tolist() == [1.0, 0.0, 0.0]
    assert not seen.up.any()
    lived_h = (lost_s - begun_s) / 3600.0
    assert seen.exposure[0, 0] == pytest.approx(
        float(cumulated(np.array([3.0 + lived_h / 2]))[0] - cumulated(np.array([3.0]))[0])
    )
    assert lives is not None
    assert lives.losses.sum() == 1.0


def test_a_machine_that_lives_is_seen_up_now_and_one_that_we_ended_is_no_loss(tmp_path: Path) -> None:
    h = due(tmp_path)
    h.until(JobPhase.RUNNING)
    h.tick(10)
    seen, _ = remembered(
        looks(h.state, h.clock.at_s), [OFFERS[0].key], h.state.submitted_at_s, with_lives=False
    )
    assert seen.up[0, 0]
    assert seen.last_h[0, 0] == pytest.approx((h.clock.at_s - h.state.submitted_at_s) / 3600.0)
    h.request("stop")
    h.until(JobPhase.STOPPED)
    seen, _ = remembered(
        looks(h.state, h.clock.at_s), [OFFERS[0].key], h.state.submitted_at_s, with_lives=False
    )
    assert seen.deaths.sum() == 0.0


def test_of_a_gang_capacity_is_there_while_all_its_machines_are(tmp_path: Path) -> None:
    h = due(tmp_path, nodes_min=2, nodes_max=2)
    h.world.room = {OFFERS[0].key: 1}
    h.until(JobPhase.RUNNING)
    half = [look.up for look in looks(h.state, h.clock.at_s) if look.key == OFFERS[0].key]
    assert half == [False], "one machine of two is none"
    assert any(look.up for look in looks(h.state, h.clock.at_s) if look.key != OFFERS[0].key)


def test_on_another_kind_it_does_not_forget_how_slow_the_first_was(tmp_path: Path) -> None:
    """Half as fast as its profile says on one kind: on another, that works as planned, there is no more time
    than before to go back to the first."""
    h = due(tmp_path)
    h.until(JobPhase.RUNNING)
    h.tick(5)
    (lease,) = h.state.open_leases
    (ran,) = h.state.trainings
    (epoch,) = h.state.epochs
    other = replace(DEMAND, instance_type="p3.other")
    twin = replace(lease, lease_id="other", offer=other)
    member = replace(epoch.members[0], lease_id="other")
    state = replace(
        h.state,
        spec=replace(JOB, work=Work(amount=40_000.0, unit="steps"), constraints=Constraints(deadline_s=2e5)),
        leases={lease.lease_id: replace(lease, phase=LeasePhase.RELEASED), "other": twin},
        epochs=(epoch, replace(epoch, number=2, members=(member,))),
        trainings=(
            replace(ran, stopped_at_s=ran.started_at_s + 1000.0, last_step=500),
            replace(ran, epoch=2, lease_id="other", stopped_at_s=ran.started_at_s + 1000.0, last_step=1000),
        ),
    )
    plan = plan_job(state.spec, from_offers((*PLACES, other)), also=(other,), limit=50)
    found = due_of(
        state,
        h.launcher.observer.observe(h.state),
        plan,
        h.clock.at_s,
        policy=POLICIES["default"],
        timing=TIMING,
        handover_s=1.0,
        seen=lambda _: True,
    )
    assert found is not None
    assert found.view.work_h[0] == pytest.approx(2 * 40_000 / 3600, rel=0.01)


# ---------------------------------------------------------------- what comes of it


def test_it_waits_for_spot_and_nothing_is_paid_for_until_the_latest_safe_start(tmp_path: Path) -> None:
    h = due(tmp_path)
    h.until(JobPhase.RUNNING)
    h.tick(60)
    lose(h)
    h.until(JobPhase.WAITING, within=60)
    assert h.state.phase_code == HELD
    until_s = h.state.phase_until_s
    assert until_s is not None
    assert "waits for spot" in h.state.phase_text
    assert "UTC at the latest" in h.state.phase_text
    left_s = h.state.submitted_at_s + 1400.0 - until_s
    assert 300.0 < left_s < 420.0, "the work that is left, and two starts"
    while not h.world.alive and h.clock.at_s < until_s + 200.0:
        assert not h.state.open_leases or h.state.phase is not JobPhase.WAITING
        h.pass_time(9)
        h.tick()
    assert h.clock.at_s <= until_s + 25.0
    assert h.world.alive[0].spec.offer.key == DEMAND.key
    while not h.state.phase.ended and h.clock.at_s < 2600.0:
        h.tick(5)
    assert h.state.phase_code == "finished", h.state.phase_text
    h.check_ended()


def test_it_goes_on_at_once_when_there_is_spot_again(tmp_path: Path) -> None:
    h = due(tmp_path)
    h.until(JobPhase.RUNNING)
    h.tick(50)
    lose(h)
    h.until(JobPhase.WAITING, within=60)
    h.world.full = h.spot() - {OFFERS[2].key}
    h.until(JobPhase.RUNNING, within=400)
    (lease,) = h.state.open_leases
    assert lease.offer.key == OFFERS[2].key
    assert "default policy" in lease.why


def test_without_slack_it_goes_on_demand_and_comes_back_to_no_spot_that_it_could_not_lose(
    tmp_path: Path,
) -> None:
    h = due(tmp_path, constraints=Constraints(deadline_s=500.0))
    h.until(JobPhase.RUNNING)
    h.tick(60)
    lose(h)
    while not h.state.phase.ended and h.clock.at_s < 1600.0:
        h.tick(10)
    assert h.state.phase_code == "finished", h.state.phase_text
    assert h.state.phase is JobPhase.SUCCEEDED


def test_off_and_unknown_work_leave_everything_as_it_was(tmp_path: Path) -> None:
    for number, changes in enumerate(
        ({"policy": "off"}, {"constraints": Constraints()}, {"nodes_max": 2}, {"recovery": "none"})
    ):
        assert policy_of(replace(JOB, **changes)) is None, changes  # type: ignore[arg-type]
        folder = tmp_path / str(number)
        folder.mkdir()
        h = due(folder, **changes)
        h.tick(20)
        assert all(said.due is None for said in h.said)


def test_a_policy_by_name_and_old_journals_without_one() -> None:
    found = policy_of(replace(JOB, policy="greedy"))
    assert found is not None
    assert found.name == "greedy"
    document = encode(JOB)
    del document["policy"]
    assert decode(JobSpec, document).policy is None
    changed = encode(ev.JobPhaseChanged(phase=JobPhase.WAITING, code="x", text="y"))
    del changed["until_s"]
    assert decode(ev.JobPhaseChanged, changed).until_s is None


def test_what_the_caps_forbid_is_not_in_the_policys_answer(tmp_path: Path) -> None:
    """Under a price cap that nothing on demand keeps there is no guard: the launcher's rules hold. What it
    leaves out is never asked for; with ``migrate: off`` nothing moves."""
    for number, (usd, forbidden) in enumerate(((1.15, {OFFERS[2].key, DEMAND.key}), (4.5, set[str]()))):
        folder = tmp_path / str(number)
        folder.mkdir()
        limits = replace(JOB.constraints, max_usd_per_hour=usd)
        h = due(folder, constraints=limits, migrate=MigrateSpec(auto=False))
        h.until(JobPhase.RUNNING)
        h.world.full = {OFFERS[0].key}
        for machine in h.world.alive:
            h.world.interrupt(machine.instance_id)
        h.tick(60)
        assert not {x.offer.key for x in h.state.leases.values()} & forbidden
        assert any(said.due is not None for said in h.said) == (DEMAND.key not in forbidden)
        assert not h.of(ev.MigrationStarted)


def test_the_job_file_names_it(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"

    def read(text: str) -> str | None:
        path.write_text(f"run: x\naryl: {{deadline: 2h, policy: {text}}}\n")
        return load_job(path, environ={})[0].policy

    assert [read("greedy"), read("off"), read("null")] == ["greedy", "off", None]
    for wrong in ("uniform_progress_free_sight", "optimum", "true"):
        with pytest.raises(UsageError, match="no policy for a job with a deadline"):
            read(wrong)


@pytest.mark.parametrize("seed", [1, 2])
def test_hostile(tmp_path: Path, seed: int) -> None:
    """Capacity that comes and goes, losses, notices, lost answers, crashes: nothing waits past the latest
    safe start, no machine is kept beside a wait, none is left."""
    rng, beside = np.random.default_rng(seed), 0
    short = {"work": Work(amount=120.0, unit="steps"), "constraints": Constraints(deadline_s=900.0)}
    h = due(tmp_path, nodes_min=seed, nodes_max=seed, **short)
    h.agents.total_steps = 120
    while not h.state.phase.ended:
        for key in h.spot():
            if rng.random() < 0.03:
                h.world.full ^= {key}
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
            assert beside <= 45, "a machine is paid for while it waits for spot"  # a drain, and its end
        assert h.clock.at_s < 1000.0 + 2 * 900.0
    h.crash_in = None
    assert h.state.phase is JobPhase.SUCCEEDED, h.state.phase_text
    h.tick(40)
    h.pass_time(60)
    h.check_ended()
