"""Dollars so far, for screens; the arithmetic is ``launcher/ledger.py``'s."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arylcloud.launcher.state import JobState


def spent(state: JobState) -> float | None:
    from arylcloud.launcher.spent import spent_usd

    return spent_usd(state, time.time())
