"""Interruption notices from the machine's own metadata service, whatever its cloud's protocol.

Adding a protocol = a module with a ``Source`` and a line in ``PROTOCOLS``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from arylcloud.agent.metadata import Source, Warned
from arylcloud.agent.notice_azure import Azure
from arylcloud.agent.notice_ec2 import Ec2
from arylcloud.agent.notice_file import NoticeFile
from arylcloud.agent.notice_gce import Gce
from arylcloud.core.clock import Clock
from arylcloud.core.protocol import Notice

PROTOCOLS: dict[str, Callable[[str, Clock, float | None], Source] | None] = {
    "ec2": Ec2,
    "gce": Gce,
    "azure": Azure,
    "file": NoticeFile,
    "none": None,
}
"""(endpoint, clock, seconds from notice to end where the machine was made with other than the usual)."""
TRIES = 3


class Watcher(threading.Thread):
    """Asks until there is a notice, then waits to acknowledge it. ``on_notice`` and ``on_warning`` are each
    called once at most, from this thread."""

    def __init__(
        self,
        source: Source,
        *,
        poll_s: float,
        on_notice: Callable[[Notice], None],
        on_warning: Callable[[Warned], None],
        on_error: Callable[[str], None],
    ) -> None:
        super().__init__(name="notice", daemon=True)
        self._source = source
        self._poll_s = poll_s
        self._on_notice = on_notice
        self._on_warning = on_warning
        self._on_error = on_error
        self._halt = threading.Event()
        self._handed_over = threading.Event()
        self._warned = False
        self._said = ""

    def run(self) -> None:
        while not self._halt.is_set():
            match self._asked():
                case Notice() as notice:
                    self._on_notice(notice)
                    self._acknowledge()
                    return
                case Warned() as warning if not self._warned:
                    self._warned = True
                    self._on_warning(warning)
            self._halt.wait(self._poll_s)

    def _asked(self) -> Notice | Warned | None:
        try:
            return self._source.ask()
        except Exception as error:  # noqa: BLE001 - a watcher that dies would be silence for ever
            text = f"no answer about interruptions: {error}"
            if text != self._said:  # once: a machine without the service would say it for ever
                self._on_error(text)
            self._said = text
            return None

    def handed_over(self) -> None:
        """Everything is saved and said: the cloud may go on."""
        self._handed_over.set()

    def _acknowledge(self) -> None:
        self._handed_over.wait()
        for last in (*[False] * (TRIES - 1), True):
            if self._halt.is_set():
                return
            try:
                self._source.acknowledge()
                return
            except Exception as error:  # noqa: BLE001 - the machine ends all the same, a little later
                if last:
                    self._on_error(f"the notice could not be acknowledged: {error}")
            self._halt.wait(self._poll_s)

    def stop(self) -> None:
        self._halt.set()
        self._handed_over.set()
