"""What the launcher cannot know, it does not assume: refusals that prove nothing, clouds that do not answer,
receivers of notices that do what they like."""

from __future__ import annotations

import http.client
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.harness import JOB, OFFERS, TIMING, Crash, Harness, spec
from support.scenarios import finish

from arylcloud.checkpoint.store import LocalStoreError, StoreAccessError
from arylcloud.core import events as ev
from arylcloud.core.errors import (
    AccessError,
    ArylError,
    LocalStateError,
    OtherCloudError,
    QuotaError,
    StoreError,
    ThrottledError,
)
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.launcher import actions as act
from arylcloud.launcher.executor import Boot

RUNNING = JobPhase.RUNNING


def die_once(h: Harness, where: str) -> None:
    """The launcher dies the next time that it comes to ``where``."""

    def probe(at: str) -> None:
        if at == where:
            h.launcher.executor.probe = h._probe
            raise Crash

    h.launcher.executor.probe = probe


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("trouble", ["throttled", "access", "capacity", "quota", "lost_call"])
def test_a_refused_repeat_says_nothing_about_the_first_call(tmp_path: Path, trouble: str) -> None:
    """The first call has made a machine, and its launcher died; lists fail, and so does the repeat."""
    h = Harness(tmp_path)
    h.world.lists_fail = True
    die_once(h, "after create")
    h.tick()
    assert len(h.world.alive) == 1
    h.world.refuse_known_tokens = True
    h.world.troubles.append(trouble)  # type: ignore[arg-type]
    h.tick(2)
    (lease,) = h.state.leases.values()
    assert lease.phase is LeasePhase.INTENDED, "refused: as if nothing had been created"
    assert lease.uncertain
    h.world.lists_fail = False
    finish(h)
    assert len(h.world.born) == 1, "it is found by its tag, and used"


def test_a_stop_waits_for_every_cloud_that_was_asked(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.world.lists_fail = True
    die_once(h, "after create")
    h.tick()
    h.world.troubles.append("throttled")
    h.tick(2)
    h.request("stop")
    h.tick(200)
    assert h.state.phase is JobPhase.STOPPING, "its machine runs, and nobody has looked"
    assert len(h.world.alive) == 1
    h.world.lists_fail = False
    finish(h, JobPhase.STOPPED)


def test_nothing_is_concluded_of_clouds_that_cannot_be_listed(tmp_path: Path) -> None:
    """Even where every lease was refused: a refusal is a word, a list is a fact."""
    h = Harness(tmp_path)
    h.world.full = {o.key for o in OFFERS}
    h.until(JobPhase.WAITING)
    h.world.lists_fail = True
    h.request("stop")
    h.tick(5)
    assert h.state.phase is JobPhase.STOPPING
    h.world.lists_fail = False
    finish(h, JobPhase.STOPPED)


def test_without_any_right_the_job_ends_although_nothing_can_be_listed(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.world.lists_fail = True
    h.world.troubles.append("access")
    h.tick(3)
    assert (h.state.phase, h.state.phase_code) == (JobPhase.FAILED, "access")


@pytest.mark.parametrize("ended_before_it_is_seen", [False, True])
def test_a_refused_machine_that_comes_all_the_same_is_billed_and_ended(
    tmp_path: Path, ended_before_it_is_seen: bool
) -> None:
    h = Harness(tmp_path)
    h.world.troubles.append("capacity_and_lands")
    h.world.landing_s = 6.0
    if ended_before_it_is_seen:
        h.world.list_lag_s = 4.0
        h.tick(8)
        h.world.interrupt("i-0001")
        h.world.list_lag_s = 0.0
    finish(h)
    late = h.world.born["i-0001"]
    lease = h.state.leases[late.spec.lease_id]
    assert (lease.phase, lease.ending_code) == (LeasePhase.RELEASED, "landed_late")
    assert lease.launched_s == late.lands_at_s
    assert lease.ended_s == late.ended_s
    assert lease.prices, "the ledger bills it"
    assert not any(m.lease_id == lease.lease_id for e in h.state.epochs for m in e.members)


@pytest.mark.parametrize("away_s", [0, 30])
@pytest.mark.parametrize("point", [2, 3, 4, 5, 6])
def test_a_launcher_that_dies_over_such_a_machine_leaves_it_to_the_next(
    tmp_path: Path, point: int, away_s: int
) -> None:
    """At any point of the pass that finds it: between two records, too."""
    h = Harness(tmp_path)
    h.world.troubles.append("capacity_and_lands")
    h.world.landing_s = 6.0
    while not (h.world.born and h.world.born["i-0001"].alive(h.clock.at_s + 1.0)):
        h.tick()
    late = h.world.born["i-0001"]
    h.crash_in = point
    h.tick(3)
    if away_s:
        h.world.interrupt("i-0001")
        h.pass_time(away_s)
    h.crash_in = None
    finish(h)
    lease = h.state.leases[late.spec.lease_id]
    assert (lease.phase, lease.ending_code) == (LeasePhase.RELEASED, "landed_late")
    assert lease.ended_s == late.ended_s


def test_a_throttled_call_is_made_again_with_the_same_token(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.world.troubles.extend(["throttled", "throttled"])
    finish(h)
    assert h.world.creates == 3
    (lease,) = h.state.leases.values()
    assert lease.offer.key == OFFERS[0].key


# ---------------------------------------------------------------- the fence


@pytest.mark.parametrize("case", ["boot timeout", "lost", "stop", "sweep"])
def test_without_a_look_at_the_fence_nothing_is_ended(tmp_path: Path, case: str) -> None:
    """The job has been adopted elsewhere while this laptop slept: what it thinks of the machines is old."""
    h = Harness(tmp_path)
    h.agents.total_steps = 200
    if case == "boot timeout":
        h.agents.duds = 1
        h.tick(3)
    else:
        h.until(RUNNING)
        h.tick(5)
    h.store.fence_hidden = True
    first = h.running[0]
    if case == "lost":
        h.agents.silence(first.instance_id, 100)
        h.world.lists_fail = True
    elif case == "stop":
        h.request("stop")
    elif case == "sweep":
        h.world.create(replace(first.spec, token="else", lease_id=f"{JOB}-n0-a9"))
    running, before = len(h.running), len(h.events)
    h.tick(100)
    assert len(h.running) == running, "ended, and perhaps another launcher's"
    assert not any(m.stopping_until_s for m in h.world.born.values())
    assert len(h.events) == before, "and nothing is journaled of a world that may be another's"
    h.store.fence_hidden = h.world.lists_fail = False
    if case == "sweep":
        h.tick(5)
        assert h.running == (first,)
    else:
        finish(h, JobPhase.STOPPED if case == "stop" else JobPhase.SUCCEEDED, within=400)


def test_an_end_that_is_journaled_is_finished_without_a_mailbox(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.until(RUNNING)
    h.world.ends_fail = True
    h.request("stop")
    h.tick(8)
    assert [x.phase for x in h.state.open_leases] == [LeasePhase.ENDING]
    h.store.down = True
    h.world.ends_fail = False
    h.tick(10)
    assert not h.running
    h.store.down = False
    finish(h, JobPhase.STOPPED)


def test_the_fence_is_read_once_in_a_tick(tmp_path: Path) -> None:
    h = Harness(tmp_path, spec=spec(3))
    h.until(RUNNING)
    for number in range(5):
        h.world.create(replace(h.running[0].spec, token=f"{number}", lease_id=f"{JOB}-n0-a9{number}"))
    looks: list[str] = []
    look = h.journal.check_fence
    h.journal.check_fence = lambda *a: (looks.append(a[0]), look(*a))[1]  # type: ignore[method-assign,func-returns-value]
    h.tick()
    assert len(looks) == 1
    h.tick(10)
    assert len(h.running) == 3


def test_a_look_that_has_grown_old_is_taken_again(tmp_path: Path) -> None:
    """Suspended in the middle of a tick: adopted meanwhile, and its mailbox is not there at first."""
    h = Harness(tmp_path)
    h.agents.duds = 1
    h.tick(int(TIMING.boot_timeout_s))
    desire = h.launcher.desire

    def sleep_here(*asked: Any) -> act.Desired:
        h.clock.at_s += 3600.0
        h.store.down = True
        return desire(*asked)

    h.launcher.desire = sleep_here
    h.launch_once()
    assert not any(m.stopping_until_s for m in h.world.born.values())


# ---------------------------------------------------------------- notices


class Strange(Exception):
    """Of a library of which nobody has heard."""


@pytest.mark.parametrize("error", [http.client.BadStatusLine("?"), Strange("boom"), ZeroDivisionError()])
def test_what_a_receiver_does_stops_nothing(tmp_path: Path, error: Exception) -> None:
    h = Harness(tmp_path, spec=spec(notify="https://example.org/hook"))

    def refuse(topic: str, text: str) -> str:
        raise error

    h.launcher.executor.notify = refuse
    h.until(RUNNING)
    h.tick(5)
    first = h.running[0].instance_id
    h.agents.silence(first, 10_000)
    h.tick(int(TIMING.silent_s) + 3)
    h.world.interrupt(first)
    finish(h)
    told = [(e.topic.split(":")[0], e.ok) for e in h.of(ev.Notified)]  # type: ignore[attr-defined]
    assert ("suspect", False) in told
    assert ("ended", False) in told
    assert len(told) == len(set(told)), "each once"


# ---------------------------------------------------------------- machines that are kept, and do not run


def test_a_machine_that_has_shut_itself_down_is_ended(tmp_path: Path) -> None:
    """Its cloud bills it on, and would never say that it is gone."""
    h = Harness(tmp_path)
    h.agents.total_steps = 60
    h.until(RUNNING)
    h.tick(5)
    first = h.running[0].instance_id
    h.world.shut_down(first)
    h.tick(2)
    assert h.world.born[first].ended_s is None, "while it is heard, nothing is concluded"
    h.agents.silence(first, 10_000)
    h.tick(int(TIMING.silent_s) + 8)
    assert h.world.born[first].ended_s is not None
    (ending,) = [e for e in h.of(ev.LeaseEnding) if e.code == "stopped"]  # type: ignore[attr-defined]
    assert "does not run" in ending.why
    finish(h, within=400)
    assert h.world.creates == 2


def test_a_machine_that_never_came_to_run_is_ended_at_once(tmp_path: Path) -> None:
    """Azure found no room for it, and said so too late for its create."""
    h = Harness(tmp_path)
    h.until(JobPhase.PROVISIONING)
    h.tick(1)
    (first,) = h.world.born
    h.world.shut_down(first)
    h.agents.silence(first, 10_000)
    h.tick(8)
    assert h.world.born[first].ended_s is not None
    finish(h, within=400)


# ---------------------------------------------------------------- what a machine is made with


def fail_boots(h: Harness, *errors: ArylError) -> list[float]:
    """The next machines cannot be given access to the store; when it was tried."""
    left, tried = list(errors), []

    def boot(_action: act.CreateLease) -> Boot:
        tried.append(h.clock.at_s)
        if left:
            raise left.pop(0)
        return Boot(user_data="stub")

    h.launcher.executor.boot = boot
    return tried


@pytest.mark.parametrize(
    "kind", [QuotaError, OtherCloudError, ThrottledError, StoreError, LocalStoreError, StoreAccessError]
)
def test_what_the_stores_cloud_says_bars_no_offer(tmp_path: Path, kind: type[ArylError]) -> None:
    """No role for the job, no answer of its bucket: the offer is as good as it was, and asked for with the
    same token once the store can be had; meanwhile what else is to be done in the tick is done."""
    h = Harness(tmp_path)
    tried = fail_boots(h, kind("too many roles"), kind("too many roles"))
    h.world.troubles.append("capacity")
    h.tick(2)
    assert h.world.creates == 0
    assert [x.phase for x in h.state.leases.values()] == [LeasePhase.INTENDED]
    assert not h.state.bars
    finish(h)
    first, second = h.state.leases.values()
    assert all(b - a >= TIMING.end_retry_s for a, b in pairwise(tried[:3]))
    assert first.phase is LeasePhase.REFUSED, "its first call: the cloud's word holds"
    assert {bar.code for bar in h.state.bars} == {"capacity"}
    assert second.offer.key == OFFERS[1].key


def test_credentials_that_expire_while_it_runs_fail_no_job(tmp_path: Path) -> None:
    """A machine is lost meanwhile: the account is asked again later, and the job goes on where it was."""
    h = Harness(tmp_path)
    h.until(RUNNING)
    h.tick(15)
    h.world.trouble_of = lambda _spec: "access"
    (machine,) = h.world.alive
    h.world.interrupt(machine.instance_id)
    h.until(JobPhase.WAITING, within=60)
    assert "access" in h.state.phase_text
    h.tick(3)
    assert h.state.phase is JobPhase.WAITING
    h.world.trouble_of = lambda _spec: "none"
    finish(h)
    assert max(e.resume_step for e in h.state.epochs) > 0


def test_a_home_that_is_full_ends_the_launcher_not_the_job(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    fail_boots(h, LocalStateError("the disk is full"))
    with pytest.raises(LocalStateError):
        h.tick(2)
    h.state = h.launcher.refold()
    assert [x.phase for x in h.state.leases.values()] == [LeasePhase.INTENDED]
    finish(h)


def test_a_store_that_gives_no_access_is_named(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    fail_boots(h, AccessError("iam:CreateRole is not allowed", hint="ask for it"))
    finish(h, JobPhase.FAILED)
    assert h.state.phase_code == "access"
    assert f"cannot be given access to {h.store.uri}: iam:CreateRole is not allowed" in h.state.phase_text
    assert h.world.creates == 0
