"""Seeded faults of reconcile and executor: each must be found by the suite that is said to protect us.

A mutant is a small, plausible mistake, patched in. It is killed when its story fails with it;
and (``--full``) when the hostile world does, at fixed seeds, without knowing what to look for. The
unchanged product passes both (``test_world_scenarios``, ``test_world_stateful``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from support.hostile import HostileWorld
from support.scenarios import SCENARIOS

from arylcloud.core import events as ev
from arylcloud.core.errors import CloudError, ConflictError, IntegrityError
from arylcloud.core.phases import LeasePhase
from arylcloud.core.ports import EndCause, MachineSpec
from arylcloud.launcher import actions as act
from arylcloud.launcher import offers
from arylcloud.launcher.executor import Executor
from arylcloud.launcher.reconcile import facts, leases, lifecycle, slots
from arylcloud.launcher.reconcile.draft import Draft
from arylcloud.launcher.state import JobState, Lease

_create, _wind_down, _release = Executor._create, lifecycle.wind_down, facts._release
_acceptable, _open_epoch = offers.acceptable, Draft.open_epoch


def nothing(*_args: object) -> bool:
    return False


def launch_before_journaling(self: Executor, state: JobState, action: act.CreateLease) -> JobState:
    if action.lease_id not in state.leases:
        spec = MachineSpec(
            token=action.token,
            journal_id=state.journal_id,
            job_id=state.job_id,
            lease_id=action.lease_id,
            offer=action.offer,
            user_data="",
            until_s=action.until_s,
            max_usd_per_hour=None,
        )
        try:
            self.providers[action.offer.cloud].create(spec)
        except CloudError:
            return state
    return _create(self, state, action)


def released_without_terminate(self: Executor, state: JobState, action: act.EndLease) -> JobState:
    if state.leases[action.lease_id].phase is LeasePhase.ENDING:
        return state
    ending = ev.LeaseEnding(lease_id=action.lease_id, code=action.code, why=action.why)
    state = self.note(state, ending, strict=False)
    now_s = state.market_clock.market_s(self.clock.now_s())
    released = ev.LeaseReleased(lease_id=action.lease_id, ended_s=now_s, cause="terminated")
    return self.note(state, released, strict=False)


def interrupted_kept_running(d: Draft, lease: Lease, ended_s: float, cause: EndCause | None) -> None:
    if lease.phase is LeasePhase.ENDING:
        _release(d, lease, ended_s, cause)


def create_after_stop(d: Draft) -> None:
    slots.fill(d)
    _wind_down(d)


def suspect_is_replaced(d: Draft, lease: Lease) -> bool:
    if lease.phase is not LeasePhase.SUSPECT:
        return False
    d.end(lease, "lost", "silent")
    return True


def cooldown_ignored(
    ranking: object, bars: object, cooling: object, now_market_s: float, timing: act.Timing
) -> object:
    return _acceptable(ranking, bars, (), now_market_s, timing)  # type: ignore[arg-type]


def lag_ignored(d: Draft, lease: Lease) -> bool:
    return True


def landing_ignored(d: Draft, lease: Lease) -> float:
    return 0.0


def starts_from_zero(self: Draft, members: tuple[object, ...], reason: str) -> None:
    _open_epoch(self, members, reason)  # type: ignore[arg-type]
    opened = self.actions[-1]
    assert isinstance(opened, act.OpenEpoch)
    self.actions[-1] = act.OpenEpoch(
        number=opened.number,
        attempt=opened.attempt,
        members=opened.members,
        resume_from=None,
        resume_step=0,
        reason=opened.reason,
    )


Mutant = tuple[object, str, Callable[..., object], str]
"""Where it is put in, what it does, and the story that finds it."""
MUTANTS: dict[str, Mutant] = {
    "launch before journaling": (Executor, "_create", launch_before_journaling, "crash_before_the_intent"),
    "launch never times out": (leases, "_uncertain", nothing, "create_without_machine_is_given_up"),
    "boot never times out": (leases, "_booting", nothing, "never_booted_is_replaced"),
    "late-landing machine never swept": (
        leases,
        "sweep",
        nothing,
        "too_late_a_landing_is_swept_and_accounted",
    ),
    "released without terminate": (Executor, "_end", released_without_terminate, "plain_run"),
    "interrupted lease kept RUNNING": (
        facts,
        "_release",
        interrupted_kept_running,
        "case_1_only_the_lost_region_is_left",
    ),
    "the extra machine is kept": (slots, "trim", nothing, "migrate_refused_goes_on"),
    "create after stop": (lifecycle, "wind_down", create_after_stop, "case_28_stop_at_any_moment"),
    "suspect is replaced": (leases, "_lost", suspect_is_replaced, "case_2_silence_alone_replaces_nothing"),
    "cool-down ignored": (
        slots,
        "acceptable",
        cooldown_ignored,
        "case_1_first_try_after_a_loss_is_elsewhere",
    ),
    "intent not repeated after a crash": (
        slots,
        "repeat_intents",
        nothing,
        "crash_between_intent_and_create",
    ),
    "terminate not repeated": (leases, "finish_ending", nothing, "case_31_terminate_until_confirmed"),
    "absent from a lagging list is gone": (facts, "_absent", lag_ignored, "lists_lag_behind_creates"),
    "nothing lands late": (facts, "_landed_by_s", landing_ignored, "landing_while_it_is_given_up"),
    "a new epoch starts from zero": (Draft, "open_epoch", starts_from_zero, "stop_then_resume"),
}


FOUND = (AssertionError, IntegrityError, ConflictError)
"""What a fault must show itself by. (A TypeError would be a fault of the test.)"""


SEEDS = range(4)
"""Searches that begin anew: one that has gone into a corner does not come out of it."""
STORIES = 50
"""Of each search. All of them together take less than two minutes of one core; a mutant dies long before."""


def survives_the_world() -> None:
    for number in SEEDS:
        world = seed(number)(type("World", (HostileWorld,), {}))
        run_state_machine_as_test(
            world,
            settings=settings(
                max_examples=STORIES,
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                database=None,
                phases=(Phase.generate,),
                report_multiple_bugs=False,
            ),
        )


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_story_kills_the_mutant(name: str, tmp_path: Path) -> None:
    owner, attribute, wrong, story = MUTANTS[name]
    with mock.patch.object(owner, attribute, wrong), pytest.raises(FOUND):
        SCENARIOS[story](tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_the_hostile_world_kills_the_mutant(name: str) -> None:
    """Without being told what to look for."""
    owner, attribute, wrong, _story = MUTANTS[name]
    with mock.patch.object(owner, attribute, wrong), pytest.raises(FOUND):
        survives_the_world()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_product_itself_survives_the_same_searches() -> None:
    """Else a mutant's death there would prove nothing."""
    survives_the_world()
