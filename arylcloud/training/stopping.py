"""Being asked to stop: by a signal, or by the cloud's notice."""

from __future__ import annotations

import atexit
import json
import signal
import time
from types import FrameType
from typing import Any

from arylcloud.training.environment import info


class _Asked:
    """Signals are the process's, so is this flag."""

    signal: int | None = None


def install(*signals: signal.Signals) -> None:
    """From now on ``signals`` (default SIGTERM and SIGUSR1) only set what ``should_stop`` tells; the
    script finishes its step, saves and exits 0. Main thread only (else ValueError, as
    ``signal.signal`` has it). Once the script is over they are ignored: an interpreter that closes puts
    every handler back, and a signal at that moment would make a failure of a script that ended well."""
    numbers = signals or (signal.SIGTERM, signal.SIGUSR1)
    for number in numbers:
        signal.signal(number, _note)
    atexit.register(_over, numbers)


def should_stop() -> bool:
    """Has somebody asked this process to stop: a signal since ``install``, or the cloud's notice?"""
    return _Asked.signal is not None or notice_seconds_left() is not None


def notice_seconds_left() -> float | None:
    """Seconds until the cloud takes this machine (0 = now); None = it has not said so."""
    path = info().notice_file
    if path is None:
        return None
    try:
        document: Any = json.loads(path.read_bytes())
        return max(0.0, float(document["at_s"]) - time.time())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0  # a notice that cannot be read is still a notice


def _note(number: int, _frame: FrameType | None) -> None:
    _Asked.signal = number


def _over(numbers: tuple[signal.Signals, ...]) -> None:
    for number in numbers:
        if signal.getsignal(number) is _note:  # else the script has put another in its place
            signal.signal(number, signal.SIG_IGN)
