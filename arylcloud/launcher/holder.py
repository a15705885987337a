"""Who holds a job now: asked before anybody takes it over, goes on with it from another home, or clears away
what it needs."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from arylcloud.checkpoint import storetime
from arylcloud.core import protocol as mail
from arylcloud.core.codec import loads
from arylcloud.core.errors import ConflictError
from arylcloud.core.events import LauncherStarted, Record
from arylcloud.core.ports import ObjectStore
from arylcloud.launcher.fold import replay
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.journaltime import journal_now_s
from arylcloud.launcher.state import JobState

FRESH_S = 30.0
"""A launcher that has beaten within this time is alive."""
TRIES = 50
"""Of a takeover, against a launcher that is quicker."""


def living(store: ObjectStore) -> tuple[mail.LauncherBeat, float] | None:
    """The beat of the launcher at work, and its age in seconds; None if none was heard lately.

    The age is the store's: its clock wrote both moments, so that nobody's own clock counts. Writes one empty
    object (``mail.CLOCK_KEY``). Raises StoreError."""
    data = store.get(mail.LAUNCHER_KEY)
    if data is None:
        return None
    beat = loads(mail.LauncherBeat, data, what=mail.LAUNCHER_KEY)
    age_s = storetime.age_s(store, mail.LAUNCHER_KEY)
    return (beat, age_s) if age_s is not None and age_s < FRESH_S else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Who has a job, as its mailbox tells: a home's own records of it may have ended long ago."""

    state: JobState
    """The newest: with what other homes have written since."""
    at_work: tuple[mail.LauncherBeat, float] | None
    """The launcher that was heard lately, wherever it runs, and how many seconds ago."""
    elsewhere: bool
    """Whether the home that took the job last is another one."""


def holding(store: ObjectStore, state: JobState, journal_id: str) -> Holding:
    """The one answer to "is this job somebody else's now?". ``state``: as the home ``journal_id`` knows it.
    Nothing but ``living``'s empty object is written. Raises StoreError, IntegrityError."""
    after = mail.journal_key(state.seq)
    found = (store.get(info.key) for info in store.list(mail.JOURNAL_PREFIX, after=after))
    newest = replay((Record.from_bytes(data) for data in found if data is not None), state)
    home = "" if newest.launcher is None else newest.launcher.home
    return Holding(state=newest, at_work=living(store), elsewhere=home not in ("", journal_id))


def refuse_beside_another(store: ObjectStore, state: JobState, journal_id: str) -> None:
    """Raises ConflictError if a launcher of another home holds the job and is alive. (Of this home: the
    caller has the claim, so there is none.) Raises StoreError, IntegrityError."""
    found = holding(store, state, journal_id)
    if found.elsewhere and found.at_work is not None:
        beat, age_s = found.at_work
        raise ConflictError(
            f"launcher {beat.launcher_id} (pid {beat.pid} on {beat.host}) of another home runs "
            f"{state.job_id}; it was heard {age_s:.0f} s ago",
            hint=f"`arylcloud adopt {state.prefix_uri} --force` takes the job over",
        )


def take_over(
    journal: Journal, job_id: str, store: ObjectStore, *, writer: str, wall_s: Callable[[], float]
) -> None:
    """Copy the job's journal and write its next record, which fences whoever wrote the last one. One
    that is alive may be quicker a few times; once it has lost, it ends itself. The caller has the claim.
    Raises ConflictError, StoreError."""
    event = LauncherStarted(
        launcher_id=writer, host=socket.gethostname(), pid=os.getpid(), adopted=True, home=journal.journal_id
    )
    for left in reversed(range(TRIES)):
        journal.catch_up(job_id, store, take_over=True)
        if journal.state(job_id).phase.ended:
            return
        try:
            at_s = journal_now_s(journal, job_id, store, wall_s())
            journal.append(job_id, at_s, writer, event, cause_id="adopt", mirror=store)
            return
        except ConflictError:
            if not left:
                raise
