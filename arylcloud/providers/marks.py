"""What every resource of ours is marked with, whatever its cloud calls that: tags, labels."""

from __future__ import annotations

import hashlib
import math
from typing import Final

JOURNAL: Final = "arylcloud-journal"
JOB: Final = "arylcloud-job"
LEASE: Final = "arylcloud-lease"
UNTIL: Final = "arylcloud-until"
TOKEN: Final = "arylcloud-token"  # noqa: S105 - a tag's name


def moment(text: str | None) -> float | None:
    """Wall seconds; None for what somebody has written over.

    >>> moment("1796027131.5"), moment("nan"), moment("soon"), moment(None)
    (1796027131.5, None, None, None)
    """
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def name_of_job(journal_id: str, job_id: str) -> str:
    """Of what is made for one job: another one for every journal, readable in a console."""
    return f"aryl-{hashlib.sha256(f'{journal_id}|{job_id}'.encode()).hexdigest()[:8]}-{job_id}"
