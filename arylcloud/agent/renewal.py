"""Telling the machine's cloud how long its lease lasts now, where a cloud enforces it from outside.

The local cloud ends a machine by force some time after the ``until`` that ``create`` named: a machine
whose agent is dead must not live for ever. A machine that is attended, or still saving, says so:
``PUT /latest/arylcloud/until`` at its own metadata service, wall seconds as text, with an IMDSv2 token.
The renewed moment is what the cloud lists, so that ``gc`` elsewhere sees that the lease goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from arylcloud.agent.metadata import Service, token_of
from arylcloud.core.clock import Clock

PATH = "/latest/arylcloud/until"
LOOK_S = 1.0


def due(told_s: float, wanted_s: float, now_s: float) -> bool:
    """Whether the difference matters: a twentieth of what is left, so that a lease that is renewed all
    the time is told seldom, and exactly when it comes to its end.

    >>> [due(43200.0, 43200.0 + more_s, 0.0) for more_s in (60.0, 3000.0)]
    [False, True]
    >>> due(43200.0, 43260.0, 43190.0)
    True
    """
    left_s = min(told_s, wanted_s) - now_s
    return abs(wanted_s - told_s) > max(1.0, left_s / 20)


class Renewal(threading.Thread):
    def __init__(
        self,
        url: str,
        *,
        told_s: float | None,
        clock: Clock,
        log: Callable[[str], None],
        look_s: float = LOOK_S,
    ) -> None:
        """``told_s``: what the cloud knows from the machine's creation."""
        super().__init__(name="renewal", daemon=True)
        self._service = Service(url)
        self._told_s = told_s
        self._clock = clock
        self._log = log
        self._look_s = look_s
        self._wanted_s = told_s
        self._said = ""
        self._halt = threading.Event()

    def want(self, until_s: float | None) -> None:
        """From the deciding thread, at every turn. None = no limit is known: nothing is told."""
        self._wanted_s = until_s

    def stop(self) -> None:
        self._halt.set()

    def run(self) -> None:
        while not self._halt.is_set():
            try:
                if not self._turn():
                    return
                self._said = ""
            except Exception as error:  # noqa: BLE001 - tried again: silence would end the machine
                text = f"the cloud does not hear how long this machine's lease lasts: {error}"
                if text != self._said:
                    self._log(text)
                self._said = text
            self._halt.wait(self._look_s)

    def _turn(self) -> bool:
        """False: this cloud has no such thing."""
        wanted_s, told_s = self._wanted_s, self._told_s
        if wanted_s is None or (told_s is not None and not due(told_s, wanted_s, self._clock.now_s())):
            return True
        token = token_of(self._service)
        status, _ = self._service.call(
            "PUT", PATH, {"X-aws-ec2-metadata-token": token}, repr(float(wanted_s)).encode()
        )
        if status in (404, 405):
            return False
        if status != 200:
            raise OSError(f"the metadata service answers HTTP {status}")
        self._told_s = wanted_s
        return True
