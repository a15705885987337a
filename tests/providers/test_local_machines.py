"""Machines as processes: what they find, how they end, and that nothing of them stays."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from providers.contract import gone, of, wait_for
from providers.localcloud import LocalCloud, a_market, an_offer, local_cloud

from arylcloud.core.clock import SystemClock
from arylcloud.core.errors import OtherCloudError
from arylcloud.core.ports import EndCause, Machine, MachineState
from arylcloud.providers.local import processes
from arylcloud.providers.local.adapter import LocalProvider


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[LocalCloud]:
    with local_cloud(tmp_path, a_market(an_offer(), boot_s=0.05)) as found:
        yield found


def running(cloud: LocalCloud, adapter: LocalProvider, user_data: str, word: str = "up") -> Machine:
    """A machine whose user data has written ``word``."""
    machine = adapter.create(cloud.spec(cloud.offer(), user_data))
    wait_for(lambda: word in cloud.console(machine), f"{word!r} on the console")
    return machine


def test_what_a_machine_finds(cloud: LocalCloud) -> None:
    os.environ["ARYL_TEST_SECRET"] = "must not be seen"
    try:
        machine = cloud.connect().create(
            cloud.spec(
                cloud.offer(), 'env; pwd; command -v python3; command -v python; python3 -c "print(6 * 7)"\n'
            )
        )
        gone(cloud.connect(), machine)
    finally:
        del os.environ["ARYL_TEST_SECRET"]
    lines = cloud.console(machine).splitlines()
    names = {line.partition("=")[0] for line in lines if "=" in line}
    assert names - {"PWD", "OLDPWD", "SHLVL", "_"} == {
        "HOME",
        "PATH",
        "VIRTUAL_ENV",
        "LANG",
        "ARYL_METADATA_URL",
        "ARYLCLOUD_LOCAL_INSTANCE",
    }
    assert f"HOME={cloud.home(machine)}" in lines
    assert str(cloud.home(machine)) in lines
    assert "42" in lines
    own = f"{cloud.home(machine)}/.venv"
    assert f"VIRTUAL_ENV={own}" in lines
    assert f"{own}/bin/python3" in lines
    assert f"{own}/bin/python" in lines
    assert "must not" not in cloud.console(machine)


def test_nothing_survives_terminate(cloud: LocalCloud) -> None:
    adapter = cloud.connect()
    machine = running(
        cloud,
        adapter,
        "trap '' TERM\n"
        "setsid sh -c \"trap '' TERM; setsid sleep 601 & setsid nohup sleep 602 & wait\" &\n"
        "(sleep 603 &)\n"
        "env -i sleep 604 &\n"  # no mark in its environment: found by its session
        "sleep 0.2; echo up; sleep 605\n",
    )
    leader = next(r for r in cloud.records if r["kind"] == "boot")
    members = processes.members(
        machine.instance_id, processes.Leader(pid=leader["pid"], identity=leader["identity"])
    )
    assert len(members) >= 6
    adapter.terminate(machine)
    end = gone(adapter, machine)
    assert end.end_cause is EndCause.TERMINATED
    assert [pid for pid in members if processes.identify(pid) is not None] == []
    assert not cloud.home(machine).exists()


def test_terminate_lets_the_machine_hear_it(tmp_path: Path) -> None:
    with local_cloud(tmp_path, a_market(terminate_grace_s=60)) as cloud:
        check_heard(cloud)


def check_heard(cloud: LocalCloud) -> None:
    adapter = cloud.connect()
    machine = running(
        cloud, adapter, "trap 'echo heard; exit 0' TERM\necho up\nwhile :; do sleep 0.05; done\n"
    )
    adapter.terminate(machine)
    gone(adapter, machine)
    assert "heard" in cloud.console(machine)


def test_it_ends_itself(cloud: LocalCloud) -> None:
    adapter = cloud.connect()
    machine = adapter.create(cloud.spec(cloud.offer(), "setsid sleep 606 & exit 3\n"))
    end = gone(adapter, machine)
    assert end.end_cause is EndCause.SELF
    assert processes.members(machine.instance_id, None) == []


def test_its_end_while_no_daemon_looks_has_its_true_time(cloud: LocalCloud) -> None:
    adapter = cloud.connect()
    gate = cloud.state / "gate"
    machine = running(cloud, adapter, f"echo up; while [ ! -e {gate} ]; do sleep 0.05; done\n")
    cloud.kill()
    gate.touch()
    wait_for(lambda: processes.self_ended_wall_s(cloud.home(machine)), "the end")
    ended_wall_s = processes.self_ended_wall_s(cloud.home(machine))
    assert ended_wall_s is not None
    time.sleep(0.3)
    end = gone(adapter, machine)
    assert end.end_cause is EndCause.SELF
    assert end.ended_s == pytest.approx(ended_wall_s, abs=0.001)


def test_an_end_that_nobody_ordered_is_unknown(cloud: LocalCloud) -> None:
    adapter = cloud.connect()
    machine = running(cloud, adapter, "echo up; sleep 607\n")
    leader = next(r["pid"] for r in cloud.records if r["kind"] == "boot")
    os.killpg(leader, signal.SIGKILL)
    assert gone(adapter, machine).end_cause is EndCause.UNKNOWN


def test_until_is_a_hard_end(cloud: LocalCloud) -> None:
    adapter = cloud.connect()
    until_s = time.time() + 0.5
    machine = adapter.create(cloud.spec(cloud.offer(), until_s=until_s))
    end = gone(adapter, machine)
    assert end.end_cause is EndCause.SELF
    assert end.ended_s is not None
    assert end.ended_s >= until_s + 0.2  # the market's until_grace_s; market time is wall time here


def test_user_data_has_a_limit(cloud: LocalCloud) -> None:
    adapter = cloud.connect()
    with pytest.raises(OtherCloudError) as caught:
        adapter.create(cloud.spec(cloud.offer(), "#" * 16385))
    assert caught.value.code == "InvalidUserData"
    assert adapter.list_machines(journal_id=None) == ()


def test_boot_takes_its_time(tmp_path: Path) -> None:
    with local_cloud(tmp_path, a_market(boot_s=0.6)) as cloud:
        adapter = cloud.connect()
        machine = adapter.create(cloud.spec(cloud.offer(), "echo up; sleep 608\n"))
        assert machine.state is MachineState.PENDING
        wait_for(lambda: "up" in cloud.console(machine), "boot")
        boot = next(r for r in cloud.records if r["kind"] == "boot")
        launch = next(r for r in cloud.records if r["kind"] == "launch")
        assert boot["wall_s"] - launch["wall_s"] >= 0.6
        seen = of(adapter, machine.instance_id, "j")
        assert seen is not None
        assert seen.state is MachineState.RUNNING


def test_terminated_before_it_has_booted(tmp_path: Path) -> None:
    with local_cloud(tmp_path, a_market(boot_s=600)) as cloud:
        adapter = cloud.connect()
        machine = adapter.create(cloud.spec(cloud.offer(), "echo never\n"))
        adapter.terminate(machine)
        assert gone(adapter, machine).end_cause is EndCause.TERMINATED
        assert [r["kind"] for r in cloud.records if r["kind"] == "boot"] == []


def test_a_number_that_is_used_again_is_nobodys_leader() -> None:
    me = os.getpid()
    identity = processes.identify(me)
    assert identity is not None
    assert processes.Leader(pid=me, identity=identity).alive
    impostor = processes.Leader(pid=me, identity=identity + "1")
    assert not impostor.alive
    assert not impostor.names_session
    assert not processes.Leader(pid=me, identity="another-boot:1").names_session
    assert processes.members("i-none", impostor) == []


def test_one_that_is_not_seen_for_a_moment_does_not_get_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of an exec a process has no environment to be known by."""
    child = subprocess.Popen(["sleep", "617"])
    looks = iter([[], [child.pid], [], []])
    monkeypatch.setattr(processes, "members", lambda *_: next(looks))
    try:
        assert processes.end_all("i-none", None, SystemClock(), grace_s=0.0)
        assert child.wait(60) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()


def test_where_there_is_no_proc_the_tree_is_found_by_ps(tmp_path: Path) -> None:
    """What other systems use; it can be held against /proc here."""
    (tmp_path / processes.USER_DATA).write_text("sleep 614 & (sleep 615 &) \necho up; sleep 616\n")
    console = tmp_path / "console"
    gate = processes.prepare(tmp_path, console, {"PATH": os.environ["PATH"]})
    gate.open()
    try:
        wait_for(lambda: "up" in console.read_text(encoding="utf-8"), "the tree")
        wait_for(lambda: len(processes.members("i-none", gate.leader)) == 5, "five processes")
        by_ps = processes._members_by_ps(gate.leader.pid)
        assert sorted(by_ps) == sorted(processes.members("i-none", gate.leader))
    finally:
        assert processes.end_all("i-none", gate.leader, SystemClock(), grace_s=0.0)
        gate.child.wait()
