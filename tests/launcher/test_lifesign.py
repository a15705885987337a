"""A launcher in one long call says that it is alive; one that hangs, stands or lost the job does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.harness import JOB, Harness, Mailbox
from support.slow_launcher import WRITER

from arylcloud.checkpoint.store import open_store
from arylcloud.core import events as ev
from arylcloud.core import protocol as mail
from arylcloud.core.clock import ManualClock
from arylcloud.core.codec import loads
from arylcloud.core.errors import IntegrityError, StoreError
from arylcloud.launcher import holder, lifesign
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.lifesign import LifeSign

BEAT = mail.LauncherBeat(launcher_id="l-1", host="here", pid=7, at_s=1000.0, hard_left_s=100.0)
TESTS = Path(__file__).parents[1]
PATIENCE_S = 120.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000.0)


@pytest.fixture
def store(clock: ManualClock) -> Mailbox:
    return Mailbox(clock)


@pytest.fixture
def sign(clock: ManualClock, store: Mailbox) -> LifeSign:
    return LifeSign(store=store, writer="l-1", clock=clock)


def said(store: Mailbox) -> mail.LauncherBeat | None:
    data = store.get(mail.LAUNCHER_KEY)
    return None if data is None else loads(mail.LauncherBeat, data, what="beat")


def record(store: Mailbox, seq: int, writer: str) -> None:
    told = ev.Notified(topic="t", ok=True, text="")
    data = ev.Record(job_id=JOB, seq=seq, at_s=0.0, writer=writer, cause_id=None, event=told).to_bytes()
    store.create(mail.journal_key(seq), data)


def test_it_beats_when_the_launcher_does_not(clock: ManualClock, store: Mailbox, sign: LifeSign) -> None:
    assert sign.look() is False, "a launcher that never beat has none to repeat"
    sign.told(BEAT, 3)
    clock.at_s += lifesign.AFTER_S - 0.1
    assert sign.look() is False, "the launcher's own is not old"
    clock.at_s += 0.1
    assert sign.look() is True
    found = said(store)
    assert found is not None
    assert (found.launcher_id, found.pid, found.at_s) == ("l-1", 7, 1010.0)
    assert found.hard_left_s == pytest.approx(90.0), "what is left of the limits goes on towards its end"
    assert sign.look() is False, "once for each span"
    clock.at_s += lifesign.AFTER_S
    assert sign.look() is True
    sign.told(BEAT, 3)
    clock.at_s += 1.0
    assert sign.look() is False
    clock.at_s += 99.5
    assert sign.look() is True
    assert said(store) is not None
    assert said(store).hard_left_s == 0.0  # type: ignore[union-attr]


def test_a_launcher_that_hangs_is_not_kept_alive(clock: ManualClock, sign: LifeSign) -> None:
    sign.told(BEAT, 1)
    beats = 0
    for _ in range(1000):
        clock.at_s += 1.0
        beats += sign.look()
        if clock.at_s == 1200.0:
            sign.moved()  # a gang is made machine by machine: each is a step
    assert clock.at_s == 2000.0
    last = 1200.0 + lifesign.STUCK_S
    assert beats == int((last - 1000.0) / lifesign.AFTER_S) - 1, "no beat from the bound on"


def test_nobody_beats_for_a_job_that_is_anothers(clock: ManualClock, store: Mailbox, sign: LifeSign) -> None:
    sign.told(BEAT, 3)
    record(store, 3, "l-1")  # ours, written since
    clock.at_s += lifesign.AFTER_S
    assert sign.look() is True
    record(store, 4, "l-2")
    before = store.get(mail.LAUNCHER_KEY)
    for _ in range(3):
        clock.at_s += lifesign.AFTER_S
        assert sign.look() is False
    assert store.get(mail.LAUNCHER_KEY) == before


def test_what_cannot_be_read_is_no_leave_to_beat(clock: ManualClock, store: Mailbox, sign: LifeSign) -> None:
    sign.told(BEAT, 3)
    clock.at_s += lifesign.AFTER_S
    store.fence_hidden = True
    with pytest.raises(StoreError):
        sign.look()
    store.fence_hidden = False
    store.create(mail.journal_key(3), b"{")
    clock.at_s += lifesign.AFTER_S
    with pytest.raises(IntegrityError):
        sign.look()
    assert said(store) is None


def test_the_launcher_tells_it_what_is_in_the_mailbox(tmp_path: Path) -> None:
    """Also while the mailbox lacks records: whoever takes the job over writes the first that it lacks."""
    h = Harness(tmp_path)
    sign = LifeSign(store=h.store, writer=h.launcher.executor.writer, clock=h.clock)
    h.launcher.sign, h.launcher.executor.moved = sign, sign.moved
    h.tick(3)
    h.clock.at_s += 3.0
    h.store.down = True
    h.launcher.executor.note(h.state, ev.Notified(topic="t", ok=True, text=""), strict=False)
    h.launcher._beat(h.state)
    h.store.down = False
    assert h.journal.unmirrored(JOB) == 1
    record(h.store, h.journal.head(JOB), "l-other")
    h.clock.at_s += lifesign.AFTER_S
    assert sign.look() is False


# ---------------------------------------------------------------- real processes


def wait_for(true: Callable[[], object], what: str) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < give_up_s, f"no {what}"
        time.sleep(0.005)


def stands(pid: int) -> bool:
    """Every thread of it."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return len(stats) > 1 and all(text.rpartition(")")[2].split()[0] == "T" for text in stats)


def test_another_launcher_sees_one_in_a_long_call(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "answer")
    said = tmp_path / "said"
    with said.open("wb") as stream:
        argv = [sys.executable, "-m", "support.slow_launcher", str(tmp_path)]
        child = subprocess.Popen(argv, cwd=TESTS, stderr=stream)
    try:
        wait_for(lambda: (tmp_path / "asked").exists() or child.poll() is not None, "call to the cloud")
        assert child.poll() is None, said.read_text()
        store = open_store((tmp_path / "jobs").as_uri())
        path = tmp_path / "jobs" / mail.LAUNCHER_KEY
        for _ in range(2):  # its one thread of work stands in the call all the while
            before = path.read_bytes()
            wait_for(lambda old=before: path.read_bytes() != old, "life sign")  # type: ignore[misc]
        found = holder.living(store)
        assert found is not None
        assert (found[0].launcher_id, found[0].pid) == (WRITER, child.pid)
        child.send_signal(signal.SIGSTOP)
        wait_for(lambda: stands(child.pid), "standstill")
        then_s = time.time() - holder.FRESH_S - 1
        os.utime(path, (then_s, then_s))  # time passes
        assert holder.living(store) is None
        with Journal(tmp_path / "another.db") as theirs:
            holder.take_over(theirs, JOB, store, writer="l-2", wall_s=time.time)
        child.send_signal(signal.SIGCONT)
        wait_for((tmp_path / "lost").exists, "look at the fence")
        last = path.read_bytes()
        (tmp_path / "answer").write_bytes(b"nothing")
        assert child.wait(PATIENCE_S) == 6, said.read_text()
        assert path.read_bytes() == last, "it has not beaten for a job that was another's"
    finally:
        child.kill()
        child.wait()
