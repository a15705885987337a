"""What time it is for a job: its journal's own time, which goes on from launcher to launcher.

Every moment in a journal is compared with others of it: how long a create may still land, how long a machine
has been silent, how long a region cools. A launcher's :class:`~arylcloud.core.clock.SlewedClock` keeps those
differences true while it lives; the next launcher may run on another machine, or on this one after its clock
was set. It goes on from the newest record, by as much as the *object store's* clock says has passed since:
the one clock that all of them share.
"""

from __future__ import annotations

from typing import Final

from arylcloud.checkpoint.storetime import store_now_s
from arylcloud.core.clock import SLEW
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import JOURNAL_PREFIX, journal_key
from arylcloud.launcher.journal import Journal

LOOK_BACK: Final = 50
"""Records that are looked at: one of them at least was mirrored when it was written, not after an outage."""
LATE_S: Final = 5.0
"""That one may have been so long on its way to the store."""


def journal_now_s(journal: Journal, job_id: str, store: ObjectStore, wall_s: float) -> float:
    """The time to go on with: ``wall_s``, wherever that can be true, else the nearest moment that can.

    A record written at ``at`` whose object is ``age`` old by the store's clock says that it is now at least
    ``at + age`` (2 % less: what a slewed clock may have lost; it may have come late, too). Never before the
    newest record. A store whose own clock was set back says nothing. Raises StoreError.
    """
    after = max(0, journal.head(job_id) - LOOK_BACK)
    written = {journal_key(r.seq): r.at_s for r in journal.records(job_id, after=after)}
    if not written:
        return wall_s
    now_s = store_now_s(store)
    ages = {
        info.key: max(0.0, now_s - info.modified_s)
        for info in store.list(JOURNAL_PREFIX, after=journal_key(after))
    }
    newest_s = max(written.values())
    known = [(at_s + (1 - SLEW) * ages[key], at_s, ages[key]) for key, at_s in written.items() if key in ages]
    if not known:
        return max(wall_s, newest_s)
    least_s, at_s, age_s = max(known)
    least_s = max(least_s, newest_s)
    most_s = max(least_s, at_s + (1 + SLEW) * age_s + LATE_S)
    return min(max(wall_s, least_s), most_s)
