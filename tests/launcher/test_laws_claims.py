"""One launcher per job: the claim on a file within a home, the beat in the mailbox between homes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from support.harness import JOB, Harness, Mailbox, fast

from arylcloud.core import events as ev
from arylcloud.core import protocol as mail
from arylcloud.core.clock import ManualClock
from arylcloud.core.codec import dumps
from arylcloud.core.errors import ConflictError, LocalStateError
from arylcloud.core.phases import JobPhase
from arylcloud.launcher import claims, holder
from arylcloud.launcher.journal import Journal

FILE = f"{JOB}.lock"


# ---------------------------------------------------------------- within a home


def test_a_claim_is_held_and_goes_with_its_block(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "locks"
    assert claims.claimed(folder, JOB) is False, "there is not even a folder"
    with claims.claim(folder, JOB):
        assert claims.claimed(folder, JOB) is True
        assert json.loads((folder / FILE).read_bytes()) == {"pid": os.getpid(), "host": socket.gethostname()}
        with pytest.raises(ConflictError) as caught, claims.claim(folder, JOB):
            pass
        assert f"process {os.getpid()} on {socket.gethostname()}" in caught.value.message
        with claims.claim(folder, "another-0a1b2c3d"):
            pass
    assert claims.claimed(folder, JOB) is False
    (folder / FILE).write_text("a longer text than that of whoever comes next, left behind" * 9)
    with claims.claim(folder, JOB):
        assert json.loads((folder / FILE).read_bytes())["pid"] == os.getpid()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"pid": 1}'])
def test_a_holder_that_has_not_written_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with (tmp_path / FILE).open("rb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(ConflictError, match="a process that has not yet written its name"):
            claims.claim(tmp_path, JOB).__enter__()


def test_who_only_looks_keeps_nobody_out_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look holds the file for a moment: a claim waits for it, and not for ever."""
    tmp_path.joinpath(FILE).touch()
    looking = tmp_path.joinpath(FILE).open("rb")
    fcntl.flock(looking, fcntl.LOCK_SH)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 20:
            looking.close()

    monkeypatch.setattr(claims.time, "sleep", sleep)
    with claims.claim(tmp_path, JOB):
        assert waits == [0.01] * 20, "a fifth of a second in all"
    held = tmp_path.joinpath(FILE).open("rb")
    fcntl.flock(held, fcntl.LOCK_SH)
    with held, pytest.raises(ConflictError), claims.claim(tmp_path, JOB):
        pass


def test_a_lock_that_cannot_be_had_at_all_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalStateError, match="cannot open a lock"), claims.claim(tmp_path / "file", JOB):
        pass

    def full(_value: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(claims.json, "dumps", full)
    with pytest.raises(LocalStateError, match=r"cannot write .*No space left"), claims.claim(tmp_path, JOB):
        pass


# ---------------------------------------------------------------- between homes


def beat(store: Mailbox) -> None:
    said = mail.LauncherBeat(launcher_id="l-7", host="far", pid=77, at_s=1e9)
    store.put(mail.LAUNCHER_KEY, dumps(said))


@pytest.mark.parametrize(("age_s", "alive"), [(0.0, True), (29.9, True), (30.0, False), (1e6, False)])
def test_who_has_beaten_lately_is_alive(age_s: float, alive: bool) -> None:
    clock = ManualClock(1000.0)
    store = Mailbox(clock)
    assert holder.living(store) is None, "nobody ever"
    beat(store)
    clock.at_s += age_s
    found = holder.living(store)
    assert (found is not None) is alive
    if found is not None:
        assert (found[0].launcher_id, found[1]) == ("l-7", pytest.approx(age_s))


def test_nobody_starts_beside_another_home(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    beat(h.store)
    for home, refused in (("another", True), ("", False), ("mine", False)):
        started = ev.LauncherStarted(launcher_id="l-7", host="far", pid=77, home=home)
        state = replace(h.state, launcher=started)
        if refused:
            with pytest.raises(ConflictError) as caught:
                holder.refuse_beside_another(h.store, state, "mine")
            assert "launcher l-7 (pid 77 on far)" in caught.value.message
            assert "--force" in (caught.value.hint or "")
        else:
            holder.refuse_beside_another(h.store, state, "mine")
    holder.refuse_beside_another(h.store, replace(h.state, launcher=None), "mine")
    h.clock.at_s += 60.0
    holder.refuse_beside_another(h.store, replace(state, launcher=replace(started, home="another")), "mine")


class Racing(Mailbox):
    """Whoever holds the job writes its next record just before we do, so many times."""

    rivals = 0

    def create(self, key: str, data: bytes) -> bool:
        if self.rivals and key.startswith(mail.JOURNAL_PREFIX):
            self.rivals -= 1
            seq = int(key[len(mail.JOURNAL_PREFIX) :].split(".")[0])
            event = ev.Notified(topic=f"{seq}", ok=True, text="")
            theirs = ev.Record(job_id=JOB, seq=seq, at_s=0.0, writer="l-7", cause_id=None, event=event)
            super().create(key, theirs.to_bytes())
        return super().create(key, data)


def adopt(h: Harness, folder: Path, rivals: int) -> Journal:
    store = Racing(h.clock)
    store._objects = h.store._objects
    store.rivals = rivals
    journal = fast(Journal(folder / "journal.db"))
    holder.take_over(journal, JOB, store, writer="l-8", wall_s=lambda: 5000.0)
    return journal


@pytest.mark.parametrize("rivals", [0, 4])
def test_a_takeover_writes_the_next_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rivals: int
) -> None:
    monkeypatch.setattr(holder, "TRIES", 5)
    h = Harness(tmp_path)
    head = h.journal.head(JOB)
    with adopt(h, tmp_path / "elsewhere", rivals) as other:
        assert other.head(JOB) == head + rivals + 1
        last = other.records(JOB)[-1]
        assert (last.writer, last.cause_id) == ("l-8", "adopt")
        event = last.event
        assert isinstance(event, ev.LauncherStarted)
        assert (event.adopted, event.home, event.pid) == (True, other.journal_id, os.getpid())
        assert h.store.get(mail.journal_key(last.seq)) == last.to_bytes(), "the fence"


def test_a_launcher_that_is_always_quicker_keeps_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder, "TRIES", 5)
    with pytest.raises(ConflictError):
        adopt(Harness(tmp_path), tmp_path / "elsewhere", 5)


def test_a_job_that_has_ended_is_copied_only(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    h.request("stop")
    h.until(JobPhase.STOPPED)
    head = h.journal.head(JOB)
    with adopt(h, tmp_path / "elsewhere", 0) as other:
        assert other.head(JOB) == head


def test_what_waited_here_for_a_mailbox_is_set_aside(tmp_path: Path) -> None:
    h = Harness(tmp_path)
    with fast(Journal(tmp_path / "elsewhere" / "journal.db")) as other:
        other.catch_up(JOB, h.store)
        mine = ev.Notified(topic="mine", ok=True, text="")
        other.append(JOB, 1.0, "l-8", mine, None, mirror=None, strict=False)
        h.tick()
        holder.take_over(other, JOB, h.store, writer="l-8", wall_s=lambda: 5000.0)
        events = [record.event for record in other.records(JOB)]
        assert mine not in events
        assert isinstance(events[-1], ev.LauncherStarted)
