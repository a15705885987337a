"""What the launcher cannot know, it does not assume: refusals that prove nothing, clouds that do not answer,
receivers of notices that do what they like."""

from __future__ import annotations

import http.client
from pathlib import Path

import pytest
from support.harness import OFFERS, TIMING, Crash, Harness, spec
from support.scenarios import finish

from arylcloud.core import events as ev
from arylcloud.core.phases import JobPhase, LeasePhase

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


def test_a_throttled_call_is_made_again_with_the_same_token(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.world.troubles.extend(["throttled", "throttled"])
    finish(h)
    assert h.world.creates == 3
    (lease,) = h.state.leases.values()
    assert lease.offer.key == OFFERS[0].key


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
