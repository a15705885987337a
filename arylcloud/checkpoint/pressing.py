"""What to send when the machine is about to be taken: two rules, pure, on measured rates.

Bytes here are those of whole checkpoints, seconds what they took with what was skipped as unchanged: the
next one is taken to be like the last.
"""

from __future__ import annotations

HOPE = 2.0
"""An upload is given up beforehand only if it would be too slow at this many times the best rate that
was measured: to try costs a little time, not to try costs the work since the last commit."""


def hopeless(size: int, *, left_s: float, best_bytes_per_s: float | None) -> bool:
    """Can ``size`` bytes not be sent in ``left_s``, whatever happens? Unknown rate = it may.

    >>> hopeless(10**9, left_s=4.0, best_bytes_per_s=1e8), hopeless(10**9, left_s=6.0, best_bytes_per_s=1e8)
    (True, False)
    """
    return best_bytes_per_s is not None and size > HOPE * best_bytes_per_s * left_s


def switch(rest: int, newest: int, *, left_s: float, bytes_per_s: float | None) -> bool:
    """Leave the checkpoint of which ``rest`` bytes are still to be sent, for the newest of ``newest``?
    Only where there is time for the newest, and not for both. Where there is time for neither, or the
    rate is not known, what has been begun is the likelier to be finished.

    >>> [switch(50, 100, left_s=left_s, bytes_per_s=10.0) for left_s in (20.0, 12.0, 8.0)]
    [False, True, False]
    """
    if bytes_per_s is None:
        return False
    able = bytes_per_s * left_s
    return newest <= able < rest + newest
