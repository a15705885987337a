"""Asking again: what passes by itself is waited for, as long as the cloud says and makes sense.

For calls that only read. ``create`` is never repeated by an adapter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TypeVar

from arylcloud.core.clock import Clock, SystemClock
from arylcloud.core.errors import CloudError
from arylcloud.core.live import Meter

T = TypeVar("T")


class Passing(Exception):
    """Raised by a call that may do better later."""

    def __init__(self, error: CloudError, retry_after_s: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        """What to say where patience ends."""
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Exponential backoff with jitter; a cloud's own Retry-After goes before it."""

    clock: Clock = field(default_factory=SystemClock)
    random: random.Random = field(default_factory=random.Random)
    tries: int = 6
    first_s: float = 0.5
    longest_s: float = 60.0
    """Of one wait. A Retry-After beyond it ends the patience: somebody waits at a terminal."""

    def call(self, ask: Callable[[], T], meter: Meter) -> T:
        """``ask()``; the error of the last try where none of ``tries`` did better."""
        for number in range(self.tries):
            try:
                return ask()
            except Passing as passing:
                wait_s = self._wait_s(number, passing.retry_after_s)
                if number + 1 == self.tries or wait_s > self.longest_s:
                    raise passing.error from passing
                meter.count(waited=1)
                self.clock.sleep(wait_s)
        raise AssertionError("tries is at least 1")

    def _wait_s(self, number: int, retry_after_s: float | None) -> float:
        """Between half and the whole of the backoff, so that many askers do not come back at once; after a
        Retry-After never sooner than that, and up to a tenth (or half a second) later."""
        if retry_after_s is not None:
            return retry_after_s + self.random.random() * max(0.1 * retry_after_s, 0.1)
        longest = min(self.first_s * 2.0**number, self.longest_s)
        return float(longest * (0.5 + 0.5 * self.random.random()))


def retry_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Of a ``Retry-After`` header: seconds, or a date; None where there is none, or it says nothing.

    >>> retry_after_s({"Retry-After": "7"}, 0.0), retry_after_s({}, 0.0)
    (7.0, None)
    >>> retry_after_s({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 15.0)
    45.0
    """
    text = next((value for name, value in headers.items() if name.lower() == "retry-after"), "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_s)
    except (ValueError, TypeError):
        return None
