"""HTTP with the machine's own metadata service, and what the protocols of notices have in common."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from arylcloud.core.protocol import Notice

TOKEN_TTL_S = 21600


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """The cloud thinks it likelier than usual that it will take the machine: no moment, no promise."""

    seen_s: float
    """Wall seconds."""


class Source(Protocol):
    """One cloud's way of telling."""

    def ask(self) -> Notice | Warned | None:
        """One question; it may take as long as the service holds it. Raises OSError or HTTPException when
        nobody answers; ValueError for nonsense."""
        ...

    def acknowledge(self) -> None:
        """All is handed over: the cloud need not wait any longer. Raises as ``ask`` does."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    body: bytes
    etag: str | None


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
        answer = self.answer(method, path, headers, body)
        return answer.status, answer.body

    def answer(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Answer:
        """``timeout_s``: for a question that the service may hold for longer than usual."""
        import http.client  # in the watcher's own thread: it is a tenth of the agent's start

        wait_s = self._timeout_s if timeout_s is None else timeout_s
        connection = http.client.HTTPConnection(self._host, self._port, timeout=wait_s)
        with contextlib.closing(connection):
            connection.request(method, self._path + path, body=body, headers=headers)
            answer = connection.getresponse()
            return Answer(status=answer.status, body=answer.read(65536), etag=answer.getheader("ETag"))


def token_of(service: Service) -> str:
    """IMDSv2's session token. Raises OSError."""
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S)}
    status, body = service.call("PUT", "/latest/api/token", ttl)
    if status != 200:
        raise OSError(f"the metadata service refuses a token: HTTP {status}")
    return body.decode("ascii")


def refusal(answer: Answer) -> OSError:
    return OSError(f"the metadata service answers HTTP {answer.status}")
