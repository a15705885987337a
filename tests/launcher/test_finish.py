"""A launcher's last work: the mailbox gets the journal's end first, however long it is away."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.harness import JOB, Harness

from arylcloud.core import events as ev
from arylcloud.core import protocol as mail
from arylcloud.core.clock import ManualClock
from arylcloud.core.phases import JobPhase
from arylcloud.launcher import loop

ENDED = ev.JobPhaseChanged(phase=JobPhase.STOPPED, code="stop_requested", text="stopped")


def ended_while_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away_s: float) -> Harness:
    """The mailbox was away when the job's last record was written, and stays so for ``away_s``."""
    h = Harness(tmp_path)
    for key in (mail.SECRETS_KEY, mail.LAUNCHER_SECRETS_KEY, mail.LAUNCHER_KEY):
        h.store.put(key, b"{}")
    h.store.down = True
    h.state = h.launcher.executor.note(h.state, ENDED, strict=False)
    back_s = h.clock.at_s + away_s
    sleep = ManualClock.sleep

    def asleep(clock: ManualClock, seconds: float) -> None:
        sleep(clock, seconds)
        h.store.down = clock.at_s < back_s

    monkeypatch.setattr(ManualClock, "sleep", asleep)
    return h


def left(h: Harness) -> list[str]:
    h.store.down = False
    keys = (mail.SECRETS_KEY, mail.LAUNCHER_SECRETS_KEY, mail.LAUNCHER_KEY)
    return [key for key in keys if h.store.get(key) is not None]


def test_the_end_reaches_the_mailbox_once_it_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h = ended_while_away(tmp_path, monkeypatch, away_s=loop.FINISH_S / 2)
    assert h.journal.unmirrored(JOB) == 1
    h.launcher._finish(h.state)
    assert h.journal.unmirrored(JOB) == 0
    assert h.store.get(mail.journal_key(h.state.seq)) is not None, "nobody will run it again"
    assert left(h) == []


def test_it_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h = ended_while_away(tmp_path, monkeypatch, away_s=1e9)
    began_s = h.clock.at_s
    h.launcher._finish(h.state)
    assert loop.FINISH_S <= h.clock.at_s - began_s < loop.FINISH_S + 60
    assert h.journal.unmirrored(JOB) == 1
