"""The agent when the world or the agent itself misbehaves: the user's command goes on."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest
from support.away import away

from arylcloud.agent import decide, notice_ec2
from arylcloud.agent.boot import unpack_workdir
from arylcloud.agent.config import Config, from_environment
from arylcloud.agent.lifeline import Lifeline
from arylcloud.agent.loop import Agent
from arylcloud.core.clock import ManualClock, SystemClock
from arylcloud.core.errors import IntegrityError, UsageError
from arylcloud.core.protocol import Notice, epoch_key

from .conftest import WAIT_S, Job, alive, spec, wait_for


def test_an_outage_of_the_store_ends_nothing_and_loses_nothing(job: Job) -> None:
    job.submit(spec("for i in $(seq 1 60); do echo line $i; sleep 0.05; done; exit 3"))
    machine = job.machine()
    job.open_epoch("lease-a")
    wait_for(lambda: "line 5\n" in job.log("e000001-r00"))
    with away(job.folder / "store" / "jobs" / "job-1"):
        time.sleep(2.0)
        assert machine.process is not None
        assert machine.process.poll() is None
    beat = machine.phase("exited")
    assert beat.exit_code == 3
    assert job.log("e000001-r00") == "".join(f"line {n}\n" for n in range(1, 61))
    end = job.end(1)
    assert end is not None
    assert end.exit_code == 3


def test_an_outage_while_booting_is_waited_for(job: Job) -> None:
    job.submit(spec("exit 4"))
    prefix = job.folder / "store" / "jobs" / "job-1"
    later = prefix.with_name("later")
    prefix.rename(later)
    prefix.mkdir()  # the store is there, and as if empty
    machine = job.machine()
    wait_for(lambda: machine.beat())
    for path in later.iterdir():
        path.rename(prefix / path.name)
    job.open_epoch("lease-a")
    assert machine.phase("exited").exit_code == 4


def test_an_error_of_our_own_ends_no_command(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field case 20."""
    job.submit(spec("sleep 1.5; echo through; exit 6"))
    home = tmp_path / "home"
    home.mkdir()
    config = Config(
        prefix_uri=job.store.uri,
        job_id=job.job_id,
        lease_id="lease-a",
        journal_id="journal",
        until_s=None,
        home=home,
        environ=dict(os.environ),
        metadata="none",
    )
    agent = Agent(config, job.store, clock=SystemClock())
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        job.open_epoch("lease-a")
        wait_for(lambda: agent.state.run is not None and agent.state.run.stage is decide.Stage.RUNNING)
        real = decide.step

        def broken(*_: object) -> None:
            raise ZeroDivisionError("a bug of ours")

        monkeypatch.setattr(decide, "step", broken)
        wait_for(lambda: agent._errors > 3)
        monkeypatch.setattr(decide, "step", real)
        end = wait_for(lambda: job.end(1))
        assert (end.exit_code, end.tail) == (6, "through\n")
        agent.shipper.flush()
        assert "a bug of ours" in job.log("boot-lease-a")
    finally:
        agent.shutdown = "the test is over"
        thread.join(WAIT_S)
    assert not thread.is_alive()


def test_an_unreadable_epoch_is_passed_over(job: Job) -> None:
    job.submit(spec("exit 2"))
    machine = job.machine()
    job.store.create(epoch_key(1), b'{"half": ')
    wait_for(lambda: "epoch-000001.json" in job.log("boot-lease-a"))
    job.epoch = 1
    job.open_epoch("lease-a")
    machine.phase("exited")
    end = job.end(2)
    assert end is not None
    assert end.exit_code == 2


def test_a_damaged_workdir_is_never_used(job: Job) -> None:
    job.submit(spec("exit 0"))
    key = next(info.key for info in job.store.list("workdir-"))
    job.store.put(key, (job.store.get(key) or b"") + b"x")
    beat = job.machine().phase("broken")
    assert "digest" in (beat.message or "")
    assert job.ends() == []  # nobody's command has failed


def _member(name: str, kind: bytes = tarfile.REGTYPE, to: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, to, mode
    info.size = 1 if kind == tarfile.REGTYPE else 0
    return info


def _archive(*members: tarfile.TarInfo) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for info in members:
            archive.addfile(info, io.BytesIO(b"x" * info.size))
    return data.getvalue()


@pytest.fixture(params=["as it is", "3.11.2"])
def any_python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian 12 has a tarfile that judges nothing, and knows of no filter."""
    if request.param == "3.11.2":
        monkeypatch.setattr("arylcloud.agent.boot._FILTER", {})


@pytest.mark.usefixtures("any_python")
@pytest.mark.parametrize(
    "members",
    [
        [_member("../outside")],
        [_member("a/../../outside")],
        [_member("/tmp/outside")],
        [_member("a", tarfile.SYMTYPE, "..")],
        [_member("a", tarfile.SYMTYPE, "/etc")],
        [_member("a", tarfile.SYMTYPE, "b"), _member("a/outside")],
        [_member("b", tarfile.SYMTYPE, "."), _member("b/c", tarfile.SYMTYPE, "..")],
        [_member("a", tarfile.LNKTYPE, "../../outside")],
        [  # the way back out of a link is not where its name says
            _member("a", tarfile.DIRTYPE),
            _member("p/q/r/l", tarfile.SYMTYPE, "../../../a"),
            _member("s", tarfile.SYMTYPE, "p/q/r/l/../../.."),
            _member("h", tarfile.LNKTYPE, "s/victim"),
            _member("h"),
        ],
        [_member("a", tarfile.CHRTYPE)],
        [_member("a", tarfile.FIFOTYPE)],
    ],
)
def test_an_archive_cannot_leave_its_folder(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    with pytest.raises(IntegrityError, match="the workdir holds the unsafe name"):
        unpack_workdir(_archive(*members), tmp_path / "inner" / "workdir")
    assert not list(tmp_path.rglob("outside"))
    assert not (tmp_path / "inner" / "workdir").exists()


@pytest.mark.usefixtures("any_python")
def test_a_link_to_nothing_is_a_bad_archive(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="the workdir cannot be unpacked"):
        unpack_workdir(_archive(_member("a", tarfile.LNKTYPE, "b")), tmp_path / "workdir")


@pytest.mark.usefixtures("any_python")
@pytest.mark.filterwarnings("ignore:Python 3.14 will")  # to a newer one without a filter
def test_what_a_workdir_may_hold_is_unpacked(tmp_path: Path) -> None:
    workdir = unpacked = tmp_path / "workdir"
    members = [
        _member("deep", tarfile.DIRTYPE, mode=0o700),
        _member("deep/run.sh", mode=0o4777),
        _member("deep/link", tarfile.SYMTYPE, "../data"),
        _member("data"),
        _member("same", tarfile.LNKTYPE, "data"),
    ]
    unpack_workdir(_archive(*members), workdir)
    assert (unpacked / "deep" / "run.sh").stat().st_mode & 0o7777 == 0o755
    assert (unpacked / "deep" / "link").read_text() == (unpacked / "same").read_text() == "x"


@pytest.mark.parametrize(
    ("body", "action", "at_s"),
    [
        (b'{"action": "terminate", "time": "2026-05-01T12:00:00Z"}', "terminate", 1777636800.0),
        (b'{"action": "stop", "time": "2026-05-01T12:00:00Z"}', "stop", 1777636800.0),
        (b'{"action": "hibernate"}', "hibernate", 1000.0),
        (b'{"action": "terminate"}', "terminate", 1120.0),
        (b'{"action": "something new", "time": "soon"}', "terminate", 1120.0),
        (b"<html>", "terminate", 1120.0),
        (b"[]", "terminate", 1120.0),
    ],
)
def test_every_answer_to_the_question_is_a_notice(body: bytes, action: str, at_s: float) -> None:
    found = notice_ec2.parse(body, 1000.0)
    assert (found.action, found.at_s, found.seen_s) == (action, at_s, 1000.0)


@pytest.mark.parametrize("told", [["-1"], ["3600", "-1"]])
def test_the_timer_ends_an_agent_that_hangs(told: list[str]) -> None:
    code = (
        "import os, sys, time\n"
        "from arylcloud.agent.lifeline import Lifeline\n"
        "from arylcloud.core.clock import SystemClock\n"
        "line = Lifeline(clock=SystemClock(), log=print)\n"
        "for seconds in sys.argv[1:]: line.keep(time.time() + float(seconds)); time.sleep(0.3)\n"
        "time.sleep(600)\n"
    )
    agent = subprocess.Popen([sys.executable, "-c", code, *told])
    try:
        assert agent.wait(WAIT_S) == -9
    finally:
        agent.kill()
        agent.wait()


def test_a_timer_that_has_died_is_replaced_and_told_again() -> None:
    said: list[str] = []
    clock = ManualClock(time.time())
    line = Lifeline(clock=clock, log=said.append)
    off_s = clock.now_s() + 3600
    try:
        line.keep(off_s)
        first = line.pid
        assert first is not None
        line.keep(off_s)
        assert line.pid == first
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: not alive(first))
        line.keep(off_s)  # not at once: where no timer can live, trying does not fill the log
        assert line.pid is None
        clock.at_s += 6
        line.keep(off_s)  # the same moment as before: the new one has not heard of it
        assert line.pid not in (None, first)
        assert len(said) == 1
    finally:
        line.close()
    assert line.pid is None


def test_the_timer_goes_with_its_agent(job: Job) -> None:
    job.submit(spec("sleep 60"))
    machine = job.machine()
    machine.phase("ready")
    assert machine.process is not None
    children = Path(f"/proc/{machine.process.pid}/task/{machine.process.pid}/children").read_text().split()
    timers = [int(pid) for pid in children if b"watchdog.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(timers) == 1
    machine.kill()
    wait_for(lambda: not alive(timers[0]))


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_clock_that_is_set_ends_no_lease_and_keeps_none(job: Job, tmp_path: Path, step_s: float) -> None:
    job.submit(spec("sleep 60"))
    clock = ManualClock(time.time())
    config = Config(
        prefix_uri=job.store.uri,
        job_id=job.job_id,
        lease_id="lease-a",
        journal_id="journal",
        until_s=clock.now_s() + 600,
        home=tmp_path / "home",
        environ=dict(os.environ),
        metadata="none",
    )
    (tmp_path / "home").mkdir()
    agent = Agent(config, job.store, clock=clock)
    try:
        agent.turn()
        clock.step(step_s)
        for _ in range(58):
            clock.at_s += 10
            agent.turn()
            assert agent.state.ending is None, "its lease has not run out"
        for _ in range(4):
            clock.at_s += 10
            agent.turn()
        assert agent.state.ending is not None, "its lease has run out"
        assert agent._error is None
    finally:
        agent._close()


@pytest.mark.parametrize("step_s", [-3600.0, 0.0, 3600.0])
def test_a_notice_is_by_the_wall_and_its_grace_is_not(job: Job, tmp_path: Path, step_s: float) -> None:
    """The cloud's moment is by the clock as it is now, right or wrong before; after it, seconds count."""
    clock = ManualClock(time.time())
    config = Config(
        prefix_uri=job.store.uri,
        job_id=job.job_id,
        lease_id="lease-a",
        journal_id="journal",
        until_s=None,
        home=tmp_path / "home",
        environ=dict(os.environ),
        metadata="none",
    )
    (tmp_path / "home").mkdir()
    agent = Agent(config, job.store, clock=clock)
    try:
        clock.step(step_s)
        now_s = clock.now_s()
        agent._on_notice(Notice(action="terminate", at_s=now_s + 120, seen_s=now_s))
        clock.at_s += 5
        clock.step(-step_s)
        inputs = agent._inputs(agent.boot.state, agent.steady.now_s())
        assert inputs.notice is not None
        assert inputs.notice.at_s - agent.steady.now_s() == pytest.approx(115, abs=0.5)
        assert agent.notice is not None
        assert agent.notice.at_s == now_s + 120, "documents have the cloud's own moment"
    finally:
        agent._close()


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
def test_the_timer_does_not_go_by_the_wall(ahead_s: float) -> None:
    """Told by a clock that is an hour wrong, it ends a machine after the seconds that were meant."""
    code = (
        "import sys, time\n"
        "from arylcloud.agent.lifeline import Lifeline\n"
        "from arylcloud.core.clock import ManualClock\n"
        "line = Lifeline(clock=ManualClock(time.time() + float(sys.argv[1])), log=print)\n"
        "line.keep(line._clock.now_s() + 1.0); time.sleep(600)\n"
    )
    began_s = time.monotonic()
    agent = subprocess.Popen([sys.executable, "-c", code, str(ahead_s)])
    try:
        assert agent.wait(WAIT_S) == -9
        assert time.monotonic() - began_s >= 1.0
    finally:
        agent.kill()
        agent.wait()


def test_config_names_what_is_missing_or_wrong(tmp_path: Path) -> None:
    good = {"ARYL_PREFIX_URI": "file:///x", "ARYL_JOB_ID": "j", "ARYL_LEASE_ID": "l"}
    assert from_environment(good, tmp_path).metadata_url == "http://169.254.169.254"
    for name in good:
        with pytest.raises(UsageError, match=name):
            from_environment({k: v for k, v in good.items() if k != name}, tmp_path)
    with pytest.raises(UsageError, match="ARYL_UNTIL_S"):
        from_environment({**good, "ARYL_UNTIL_S": "tomorrow"}, tmp_path)


def test_the_agent_needs_nothing_heavy() -> None:
    """It starts in the machine's own Python: standard library and obstore only."""
    code = (
        "import sys, json, arylcloud.agent.main\n"
        "print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules} - sys.stdlib_module_names)))"
    )
    root = str(Path(__file__).resolve().parents[2])
    answer = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": root, "PATH": os.environ["PATH"]},
    )
    assert json.loads(answer.stdout) == ["__main__", "arylcloud"]
