"""Interruption notices from the machine's own metadata service, by protocol.

EC2's spot protocol over IMDSv2: ``PUT /latest/api/token`` gives a token, then
``GET /latest/meta-data/spot/instance-action`` is 404 until the cloud gives notice, then
``{"action": "terminate" | "stop" | "hibernate", "time": "2026-05-01T12:00:00Z"}``.
Adding a protocol = a function ``(url, clock) -> ask`` and a line in ``PROTOCOLS``.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import urlsplit

from arylcloud.core.clock import Clock
from arylcloud.core.protocol import Notice

Ask = Callable[[], Notice | None]
"""One question. Raises OSError or HTTPException when nobody answers; ValueError for nonsense."""

TOKEN_TTL_S = 21600
UNKNOWN_TIME_S = 120.0
"""A notice without a time that can be read: what EC2 gives at best."""


class Service:
    """HTTP without a proxy: metadata is of this machine, whatever ``http_proxy`` says."""

    def __init__(self, url: str, timeout_s: float = 2.0) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._path = parts.path.rstrip("/")
        self._timeout_s = timeout_s

    def call(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None = None
    ) -> tuple[int, bytes]:
        import http.client  # in the watcher's own thread: it is a tenth of the agent's start

        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        with contextlib.closing(connection):
            connection.request(method, self._path + path, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(65536)


def token_of(service: Service) -> str:
    """IMDSv2's session token. Raises OSError."""
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S)}
    status, body = service.call("PUT", "/latest/api/token", ttl)
    if status != 200:
        raise OSError(f"the metadata service refuses a token: HTTP {status}")
    return body.decode("ascii")


def ec2(url: str, clock: Clock) -> Ask:
    service = Service(url)
    token: str | None = None

    def ask() -> Notice | None:
        nonlocal token
        if token is None:
            token = token_of(service)
        status, body = service.call(
            "GET", "/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token}
        )
        if status == 401:  # expired
            token = None
            raise OSError("the metadata service wants a new token")
        if status == 404:
            return None
        if status != 200:
            raise OSError(f"the metadata service answers HTTP {status}")
        return parse_ec2(body, clock.now_s())

    return ask


def parse_ec2(body: bytes, now_s: float) -> Notice:
    """A 200 is a notice, however odd its body: what cannot be read is taken as the usual case."""
    action: Literal["terminate", "stop", "hibernate"] = "terminate"
    at_s = now_s + UNKNOWN_TIME_S
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


PROTOCOLS: dict[str, Callable[[str, Clock], Ask] | None] = {"ec2": ec2, "none": None}


class Watcher(threading.Thread):
    """Asks until there is a notice. ``on_notice`` is called once, from this thread."""

    def __init__(
        self,
        ask: Ask,
        *,
        poll_s: float,
        on_notice: Callable[[Notice], None],
        on_error: Callable[[str], None],
    ) -> None:
        super().__init__(name="notice", daemon=True)
        self._ask = ask
        self._poll_s = poll_s
        self._on_notice = on_notice
        self._on_error = on_error
        self._halt = threading.Event()

    def run(self) -> None:
        said = ""
        while not self._halt.is_set():
            try:
                notice = self._ask()
            except Exception as error:  # noqa: BLE001 - a watcher that dies would be silence for ever
                notice, text = None, f"no answer about interruptions: {error}"
                if text != said:  # once: a machine without the service would say it for ever
                    self._on_error(text)
                said = text
            if notice is not None:
                self._on_notice(notice)
                return
            self._halt.wait(self._poll_s)

    def stop(self) -> None:
        self._halt.set()
