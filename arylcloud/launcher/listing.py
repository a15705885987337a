"""Clouds' lists, asked side by side and waited for not too long: one cloud that hangs, or says 429 without
end, must not keep a launcher from its mailbox and from the machines of the others.

A call that is still under way is not made again. Its answer, once it comes, is taken as long as it is about
the leases that there are: lists conclude from what they do not show.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from arylcloud.core.clock import Clock

T = TypeVar("T")

WAIT_S: Final = 10.0
"""Real seconds that one look waits for all lists together. Below what other launchers take as a sign of life
(``holder.FRESH_S``), and what a fence may be old (``fence.FRESH_S``) is looked at again after it."""
LATE_S: Final = 50.0
"""An answer to a call that began longer ago says too little about now: below ``Timing.list_lag_s``."""


@dataclass(slots=True, kw_only=True)
class Ask(Generic[T]):
    """One cloud's list. ``stamp``: what it is read against; with another one it is another question."""

    call: Callable[[], T]
    stamp: Hashable


@dataclass(slots=True)
class _UnderWay(Generic[T]):
    stamp: Hashable
    began_s: float
    done: threading.Event = field(default_factory=threading.Event)
    answers: list[T] = field(default_factory=list)
    """One, once it has been answered."""
    error: Exception | None = None


@dataclass(slots=True)
class Lists(Generic[T]):
    """Of one observer. Threads are daemons: a call that never returns does not keep the process."""

    clock: Clock
    wait_s: float = WAIT_S
    _under_way: dict[str, _UnderWay[T]] = field(default_factory=dict)

    def waiting(self, name: str) -> bool:
        """Whether a call is under way: its answer is wanted, whatever the pace."""
        return name in self._under_way

    def ask(self, asks: Mapping[str, Ask[T]]) -> dict[str, T | Exception]:
        """By name: the answer, or what the call raised. Missing: no answer in time, or only one that is about
        other leases than these (the call is then made again at the next look)."""
        for name, ask in asks.items():
            if name not in self._under_way:
                self._under_way[name] = self._begin(name, ask)
        give_up_s = self.clock.monotonic_s() + self.wait_s
        found: dict[str, T | Exception] = {}
        for name, ask in asks.items():
            one = self._under_way[name]
            if not one.done.wait(max(0.0, give_up_s - self.clock.monotonic_s())):
                continue
            del self._under_way[name]
            if one.error is not None:
                found[name] = one.error
            elif one.stamp == ask.stamp and self.clock.monotonic_s() - one.began_s <= LATE_S:
                found[name] = one.answers[0]
        return found

    def _begin(self, name: str, ask: Ask[T]) -> _UnderWay[T]:
        one: _UnderWay[T] = _UnderWay(stamp=ask.stamp, began_s=self.clock.monotonic_s())

        def run() -> None:
            try:
                one.answers.append(ask.call())
            except Exception as error:  # noqa: BLE001 - handed to whoever asked
                one.error = error
            finally:
                one.done.set()

        threading.Thread(target=run, name=f"list-{name}", daemon=True).start()
        return one
