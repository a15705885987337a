"""Crash points: the places where a launcher may die between two facts.

The executor passes one before and after every journal write and every effect. Tests set
``ARYLCLOUD_CRASH_AT=n`` (the n-th point kills the process with SIGKILL, as the kernel or a power
cut would) or hand in a probe of their own; otherwise a point costs one function call.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

Probe = Callable[[str], None]


def no_probe(_point: str) -> None:
    return None


def from_environment() -> Probe:
    wanted = os.environ.get("ARYLCLOUD_CRASH_AT")
    if not wanted:
        return no_probe
    count = 0

    def probe(_point: str) -> None:
        nonlocal count
        count += 1
        if count == int(wanted):
            os.kill(os.getpid(), signal.SIGKILL)

    return probe
