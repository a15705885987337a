"""What does nothing and is paid for: reported once, and dealt with as asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from arylcloud.core import events as ev
from arylcloud.core.job import HungSpec, WhenHung
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.launcher.reconcile import hung
from tests.support.harness import OFFERS, Harness, spec

LEAST_S = 15.0
SILENT_S = 700.0
NOTIFY = "https://example.com/…"


def hanging(folder: Path, do: WhenHung, *, nodes: int = 1, at: int = 25) -> Harness:
    """A job that hangs in step 25: it makes one step a second, and its last checkpoint is that of step 20."""
    h = Harness(folder, spec=spec(nodes, hung=HungSpec(least_s=LEAST_S, do=do), notify=NOTIFY))
    h.agents.hangs_at = at
    h.until(JobPhase.RUNNING)
    return h


def until_stalled(h: Harness, within: int = 80) -> None:
    for _ in range(within):
        if stalls(h):
            return
        h.tick()
    raise AssertionError(f"nothing was found hung in {within} s")


def stalls(h: Harness) -> list[ev.StallSeen]:
    return [e for e in h.events if isinstance(e, ev.StallSeen)]


def told(h: Harness, topic: str) -> list[ev.Notified]:
    return [e for e in h.events if isinstance(e, ev.Notified) and e.topic.startswith(topic)]


def test_a_hang_is_reported_once_and_left_alone(tmp_path: Path) -> None:
    h = hanging(tmp_path, "report")
    h.tick(25)
    assert not stalls(h), "not before its time"
    until_stalled(h)
    h.tick(60)
    (stall,) = stalls(h)
    assert (stall.kind, stall.do, stall.epoch) == ("hung", "report", 1)
    assert stall.for_s >= LEAST_S
    assert "no progress for" in stall.text
    assert "since step 25" in stall.text
    assert len(told(h, "hung:")) == 1
    assert h.state.phase is JobPhase.RUNNING
    assert len(h.state.epochs) == 1


def test_slow_steps_are_no_hang(tmp_path: Path) -> None:
    """Twenty times what is usual: of a job that takes 10 s per step, more than three minutes."""
    h = hanging(tmp_path, "report", at=0)
    for step in range(1, 8):
        h.agents.hangs_at = step
        h.tick(10)
    h.tick(170)
    assert not stalls(h)
    until_stalled(h)
    assert [s.kind for s in stalls(h)] == ["hung"]


def test_started_again_from_its_last_checkpoint(tmp_path: Path) -> None:
    h = hanging(tmp_path, "restart", nodes=2)
    before = {lease.instance_id for lease in h.state.open_leases}
    until_stalled(h)
    h.until(JobPhase.RECOVERING)
    h.until(JobPhase.RUNNING)
    h.agents.hangs_at = None
    h.until(JobPhase.SUCCEEDED)
    h.check_ended()
    (stall,) = stalls(h)
    assert stall.do == "restart"
    members = [e for e in h.state.epochs if e.members]
    assert [e.resume_step for e in members] == [0, 20]
    assert set(h.world.born) == before, "on the same machines"


def test_not_for_ever_from_the_same_checkpoint(tmp_path: Path) -> None:
    """The first hang came after a checkpoint; three restarts from there then brought none."""
    h = hanging(tmp_path, "restart")
    h.until(JobPhase.FAILED, within=400)
    h.check_ended()
    assert h.state.phase_code == "hung"
    assert [s.do for s in stalls(h)] == ["restart"] * 4 + ["stop"]
    assert "3 times before from the same checkpoint" in h.state.phase_text


def test_stopped_with_what_it_has_saved(tmp_path: Path) -> None:
    h = hanging(tmp_path, "stop")
    h.until(JobPhase.FAILED, within=300)
    h.check_ended()
    assert h.state.phase_code == "hung"
    assert h.state.lineage is not None
    assert h.state.lineage.step == 20
    h.agents.hangs_at = None
    h.resume()
    h.until(JobPhase.SUCCEEDED, within=300)


def test_a_launcher_killed_at_any_point_of_a_restart_starts_it_again_once(tmp_path: Path) -> None:
    for at in range(1, 12, 5):
        folder = tmp_path / str(at)
        folder.mkdir()
        h = hanging(folder, "restart")
        h.tick(25 + int(LEAST_S) - 5)
        h.crash_in = at
        until_stalled(h)
        h.tick(6)
        h.agents.hangs_at = None
        h.until(JobPhase.SUCCEEDED)
        h.check_ended()
        assert len(stalls(h)) == 1
        assert len([e for e in h.state.epochs if e.members]) == 2


def test_one_rank_that_moves_is_waited_for(tmp_path: Path) -> None:
    """Its peers are silent while rank 1 validates, say: the gang is not hung."""
    h = hanging(tmp_path, "restart", nodes=2)
    h.tick(26)
    agent = h.agents.by_instance[h.running[1].instance_id]
    assert agent.pulse is not None
    for step in range(100, 100 + 3 * int(LEAST_S)):
        agent.pulse.stepped(step, h.clock.at_s)
        h.tick()
    assert not stalls(h)


def test_a_command_that_shows_no_steps_is_known_by_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hung, "IDLE_S", 60.0)
    h = hanging(tmp_path, "stop", at=0)
    h.tick(40)
    agent = h.agents.by_instance[h.running[0].instance_id]
    assert agent.pulse is not None
    agent.pulse.said(h.clock.at_s)
    h.tick(50)
    assert not stalls(h), "it has said something since"
    h.until(JobPhase.FAILED)
    assert [(s.kind, s.do) for s in stalls(h)] == [("idle", "stop")]


def silent_machine(folder: Path, do: WhenHung, **changes: object) -> Harness:
    hung = HungSpec(silent_s=SILENT_S, do=do)
    h = Harness(folder, spec=spec(hung=hung, notify=NOTIFY, **changes))
    h.agents.total_steps = 100_000
    h.until(JobPhase.RUNNING)
    h.tick(15)
    h.agents.silence(h.running[0].instance_id, 1e9)
    return h


def leap(h: Harness, seconds: int) -> None:
    """The launcher looks every ten seconds: nothing happens meanwhile."""
    for _ in range(seconds // 10):
        h.pass_time(9)
        h.tick()


def test_ten_minutes_of_silence_with_the_cloud_saying_running_cause_nothing(tmp_path: Path) -> None:
    """Then it is reported, once, and the machine is kept."""
    h = silent_machine(tmp_path, "report")
    leap(h, 600)
    (lease,) = h.state.open_leases
    assert lease.phase is LeasePhase.SUSPECT
    assert len(h.world.born) == 1
    assert not stalls(h)
    leap(h, 120)
    (stall,) = stalls(h)
    assert stall.kind == "frozen"
    assert "$1.0000/h" in stall.text
    assert len(told(h, "frozen:")) == 1
    leap(h, 200)
    assert len(stalls(h)) == 1
    assert [x.phase for x in h.state.open_leases] == [LeasePhase.SUSPECT]


def test_a_machine_that_freezes_inside_is_replaced_where_asked(tmp_path: Path) -> None:
    h = silent_machine(tmp_path, "restart")
    leap(h, 680)
    assert len(h.world.born) == 1
    leap(h, 30)
    first = next(iter(h.state.leases.values()))
    assert first.ending_code == "frozen"
    h.until(JobPhase.RUNNING)
    (now,) = h.state.open_leases
    assert now.lease_id != first.lease_id
    assert h.state.epochs[-1].resume_step >= 10
    h.check()


def test_stop_ends_a_job_whose_machine_is_frozen(tmp_path: Path) -> None:
    h = silent_machine(tmp_path, "stop")
    leap(h, 720)
    h.until(JobPhase.FAILED)
    h.check_ended()
    assert h.state.phase_code == "hung"
    assert not h.running


def test_never_paid_for_without_bound(tmp_path: Path) -> None:
    """``report`` only; but unheard for longer than ``unattended`` it should have ended itself."""
    h = silent_machine(tmp_path, "report", unattended_s=200.0)
    leap(h, 800)
    assert [x.phase for x in h.state.open_leases] == [LeasePhase.SUSPECT]
    leap(h, 100)
    first = next(iter(h.state.leases.values()))
    assert first.ending_code == "frozen"
    h.until(JobPhase.RUNNING)
    h.check()


def test_it_comes_back_in_time(tmp_path: Path) -> None:
    h = silent_machine(tmp_path, "restart")
    leap(h, 650)
    h.agents.by_instance[h.running[0].instance_id].silent_until_s = 0.0
    h.tick(100)
    assert [x.phase for x in h.state.open_leases] == [LeasePhase.READY]
    assert not stalls(h)
    assert len(h.world.born) == 1


def test_machines_in_waiting_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two is lost, and there is no other: the first is paid for and does nothing."""
    monkeypatch.setattr(hung, "IDLE_S", 90.0)
    h = Harness(tmp_path, spec=spec(2, notify=NOTIFY), ranking=OFFERS[:1])
    h.agents.total_steps = 100_000
    h.until(JobPhase.RUNNING)
    h.tick(15)
    h.world.full |= {offer.key for offer in h.ranking}
    h.world.interrupt(h.running[1].instance_id)
    h.tick(70)
    assert not stalls(h)
    h.tick(50)
    (stall,) = stalls(h)
    assert (stall.kind, stall.do) == ("idle", "report")
    assert "waited" in stall.text
    assert len(told(h, "idle:")) == 1
