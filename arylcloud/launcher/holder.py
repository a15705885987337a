"""Who holds a job now: asked before anybody takes it over, or goes on with it from another home."""

from __future__ import annotations

from arylcloud.checkpoint import storetime
from arylcloud.core import protocol as mail
from arylcloud.core.codec import loads
from arylcloud.core.errors import ConflictError
from arylcloud.core.ports import ObjectStore
from arylcloud.launcher.state import JobState

FRESH_S = 30.0
"""A launcher that has beaten within this time is alive."""


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


def refuse_beside_another(store: ObjectStore, state: JobState, journal_id: str) -> None:
    """Raises ConflictError if a launcher of another home holds the job and is alive. (Of this home: the
    caller has the claim, so there is none.) Raises StoreError."""
    holder = state.launcher
    if holder is None or holder.home in ("", journal_id):
        return
    found = living(store)
    if found is not None:
        beat, age_s = found
        raise ConflictError(
            f"launcher {beat.launcher_id} (pid {beat.pid} on {beat.host}) of another home runs "
            f"{state.job_id}; it was heard {age_s:.0f} s ago",
            hint=f"`arylcloud adopt {state.prefix_uri} --force` takes the job over",
        )
