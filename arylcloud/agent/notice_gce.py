"""Notices of Compute Engine: ``GET /computeMetadata/v1/instance/preempted`` is FALSE, then TRUE.

With ``wait_for_change=true&last_etag=…&timeout_sec=…`` the service holds the question until the value is
another than the one with that ETag, so that the change is seen as it happens. The machine has 30 s
then, or the ``preemptionNoticeDuration`` that it was made with. Nobody waits for an acknowledgement.
"""

from __future__ import annotations

from urllib.parse import quote

from arylcloud.agent.metadata import Service, refusal
from arylcloud.core.clock import Clock
from arylcloud.core.protocol import Notice

PREEMPTED = "/computeMetadata/v1/instance/preempted"
LEAD_S = 30.0
HOLD_S = 60
"""One question is held no longer than this: proxies, and we, must see that the service lives."""
LATE_S = 10.0


class Gce:
    def __init__(self, url: str, clock: Clock, lead_s: float | None = None) -> None:
        self._service = Service(url)
        self._clock = clock
        self._lead_s = LEAD_S if lead_s is None else lead_s
        self._etag: str | None = None

    def ask(self) -> Notice | None:
        path, timeout_s = PREEMPTED, None
        if self._etag is not None:
            path += f"?wait_for_change=true&last_etag={quote(self._etag, safe='')}&timeout_sec={HOLD_S}"
            timeout_s = HOLD_S + LATE_S
        try:
            answer = self._service.answer("GET", path, {"Metadata-Flavor": "Google"}, timeout_s=timeout_s)
        except Exception:
            self._etag = None  # the next question is answered at once, whatever has happened meanwhile
            raise
        if answer.status != 200:
            self._etag = None
            raise refusal(answer)
        said = answer.body.decode("ascii", errors="replace").strip().upper()
        if said == "TRUE":
            now_s = self._clock.now_s()
            return Notice(action="terminate", at_s=now_s + self._lead_s, seen_s=now_s)
        self._etag = answer.etag
        if said != "FALSE":
            raise ValueError(f"the metadata service says {said[:40]!r}, neither TRUE nor FALSE")
        return None

    def acknowledge(self) -> None:
        """Compute Engine has no such thing."""
