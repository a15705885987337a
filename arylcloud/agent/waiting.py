"""How often a machine that waits looks into the store: often while something is about to come, then seldom.

Every look at a bucket is paid for, and a job may wait for hours: for capacity, for its launcher.
"""

from __future__ import annotations

from typing import Final

HASTE_S: Final = 120.0
"""Nothing has come for so long: what the job waits for now is something else."""


def pause_s(usual_s: float, still_s: float, *, most_s: float, haste_s: float = HASTE_S) -> float:
    """Seconds to the next look, where nothing has come for ``still_s``: ``usual_s`` for as long as
    ``haste_s``, after that longer in proportion, at most ``most_s``.

    >>> [pause_s(1.0, still_s, most_s=10.0) for still_s in (0.0, 120.0, 240.0, 3600.0)]
    [1.0, 1.0, 2.0, 10.0]
    """
    return max(usual_s, min(most_s, usual_s * still_s / haste_s))
