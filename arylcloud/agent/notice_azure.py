"""Notices of Azure: Scheduled Events of the instance metadata service.

``GET /metadata/scheduledevents?api-version=2020-07-01`` with ``Metadata: true`` answers
``{"DocumentIncarnation": 2, "Events": [{"EventId", "EventType": "Preempt", "EventStatus": "Scheduled",
"Resources": ["vm-name"], "NotBefore": "Mon, 30 Nov 2026 12:00:30 GMT", …}]}``; ``NotBefore`` is empty once
it has started. Events of other machines of a set stand there, too: only what names this one counts. The
first question ever switches the service on, and may take two minutes.

``POST`` of ``{"StartRequests": [{"EventId": …}]}`` says that the event may start now. It only brings the end
nearer, so it is sent once everything is handed over: the bill then ends without a launcher, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from typing import Any

from arylcloud.agent.metadata import Service, refusal
from arylcloud.core.clock import Clock
from arylcloud.core.protocol import Notice

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
LEAD_S = 30.0
"""What Azure gives at least."""
FIRST_S = 150.0
_HEADERS = {"Metadata": "true"}


class Azure:
    def __init__(self, url: str, clock: Clock, lead_s: float | None = None) -> None:
        self._service = Service(url)
        self._clock = clock
        self._lead_s = LEAD_S if lead_s is None else lead_s
        self._name: str | None = None
        self._answered = False
        self._event_id: str | None = None

    def ask(self) -> Notice | None:
        if self._name is None:
            status, body = self._service.call("GET", NAME, _HEADERS)
            if status != 200 or not body.strip():
                raise OSError(f"the metadata service does not say this machine's name: HTTP {status}")
            self._name = body.decode("utf-8", errors="replace").strip()
        timeout_s = None if self._answered else FIRST_S
        answer = self._service.answer("GET", EVENTS, _HEADERS, timeout_s=timeout_s)
        if answer.status != 200:
            raise refusal(answer)
        self._answered = True
        now_s = self._clock.now_s()
        found = [
            (at_s, event_id) for event_id, at_s in preemptions(answer.body, self._name, now_s, self._lead_s)
        ]
        if not found:
            return None
        at_s, self._event_id = min(found)
        return Notice(action="terminate", at_s=at_s, seen_s=now_s)

    def acknowledge(self) -> None:
        if self._event_id is None:
            return
        body = json.dumps({"StartRequests": [{"EventId": self._event_id}]}).encode()
        headers = {**_HEADERS, "Content-Type": "application/json"}
        answer = self._service.answer("POST", EVENTS, headers, body)
        if answer.status != 200:
            raise refusal(answer)


def preemptions(body: bytes, name: str, now_s: float, lead_s: float = LEAD_S) -> list[tuple[str, float]]:
    """(event, wall seconds at which it may start) of each that takes the machine called ``name``. A moment
    that cannot be read is the usual one. Raises ValueError for what is no such document."""
    document: Any = json.loads(body)
    events = document.get("Events") if isinstance(document, dict) else None
    if not isinstance(events, list):
        raise ValueError("the metadata service answers without Events")  # noqa: TRY004 - of its document
    found = []
    for event in events:
        if not isinstance(event, dict) or event.get("EventType") != "Preempt":
            continue
        if not _names(event.get("Resources"), name):
            continue
        started = event.get("EventStatus") == "Started"
        at_s = now_s if started else _moment_s(event.get("NotBefore"), now_s + lead_s)
        found.append((str(event.get("EventId", "")), at_s))
    return found


def _names(resources: object, name: str) -> bool:
    """Azure's names differ in nothing but case from place to place."""
    return isinstance(resources, Iterable) and name.lower() in {str(one).lower() for one in resources}


def _moment_s(text: object, otherwise_s: float) -> float:
    try:
        return parsedate_to_datetime(str(text)).timestamp()
    except (ValueError, TypeError):
        return otherwise_s
