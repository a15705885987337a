"""Notices of EC2, over IMDSv2.

``PUT /latest/api/token`` gives a token. ``GET /latest/meta-data/spot/instance-action`` is 404 until the cloud
gives notice, then ``{"action": "terminate" | "stop" | "hibernate", "time": "2026-05-01T12:00:00Z"}``.
``GET /latest/meta-data/events/recommendations/rebalance`` is 404 until EC2 thinks an interruption likelier
than usual, then ``{"noticeTime": "2026-05-01T11:40:00Z"}``: a warning, which often comes to nothing.
"""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from typing import Literal

from arylcloud.agent.metadata import Answer, Service, Warned, refusal, token_of
from arylcloud.core.clock import Clock
from arylcloud.core.protocol import Notice

ACTION = "/latest/meta-data/spot/instance-action"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
LEAD_S = 120.0
"""A notice without a time that can be read: what EC2 gives at best."""
REBALANCE_EVERY_S = 10.0


class Ec2:
    def __init__(self, url: str, clock: Clock, lead_s: float | None = None) -> None:
        self._service = Service(url)
        self._clock = clock
        self._lead_s = LEAD_S if lead_s is None else lead_s
        self._token: str | None = None
        self._looked_s = float("-inf")

    def ask(self) -> Notice | Warned | None:
        answer = self._get(ACTION)
        if answer.status == 200:
            return parse(answer.body, self._clock.now_s(), self._lead_s)
        if answer.status != 404:
            raise refusal(answer)
        read_s = self._clock.monotonic_s()
        if read_s - self._looked_s >= REBALANCE_EVERY_S:
            self._looked_s = read_s
            if self._get(REBALANCE).status == 200:
                return Warned(seen_s=self._clock.now_s())
        return None

    def acknowledge(self) -> None:
        """EC2 has no such thing."""

    def _get(self, path: str) -> Answer:
        if self._token is None:
            self._token = token_of(self._service)
        answer = self._service.answer("GET", path, {"X-aws-ec2-metadata-token": self._token})
        if answer.status == 401:  # expired
            self._token = None
            raise OSError("the metadata service wants a new token")
        return answer


def parse(body: bytes, now_s: float, lead_s: float = LEAD_S) -> Notice:
    """A 200 is a notice, however odd its body: what cannot be read is taken as the usual case."""
    action: Literal["terminate", "stop", "hibernate"] = "terminate"
    at_s = now_s + lead_s
    with contextlib.suppress(ValueError, AttributeError, TypeError, LookupError):
        document = json.loads(body)
        said = document.get("action")
        if said in ("stop", "hibernate"):
            action = said
        if action == "hibernate":  # begins at once, without the two minutes
            at_s = now_s
        moment = datetime.fromisoformat(str(document["time"]))
        at_s = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    return Notice(action=action, at_s=at_s, seen_s=now_s)
