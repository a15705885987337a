"""What the three servers share: HTTP, gzip for those who ask, throttles, and a count of what was served."""

from __future__ import annotations

import gzip
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    """Of the address, or of a form in the body."""
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    status: int = 200
    body: bytes = b""
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    rows: int = 0
    """Raw price rows in it."""


@dataclass(slots=True)
class Faults:
    """What goes wrong. Changed while the server runs."""

    throttle_every: int = 0
    """Each so many calls one is refused with the cloud's own throttle; 0 = never."""
    retry_after_s: float | None = None
    down: set[str] = field(default_factory=set)
    """Regions that answer with 503 only."""
    broken: bool = False
    """Every answer is half a document."""


class Emulator(ABC):
    """One cloud's price API on a port of this machine."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.served: Counter[str] = Counter()
        """By operation; ``rows`` counts raw price rows, ``throttled`` refusals."""
        self.asked: list[Request] = []
        self._lock = threading.Lock()
        self._http: ThreadingHTTPServer | None = None

    @abstractmethod
    def answer(self, request: Request) -> Response:
        """As the cloud would, or with 503 where ``faults`` says so."""

    @abstractmethod
    def throttle(self, request: Request) -> Response:
        """The cloud's own way to refuse one call too many."""

    @abstractmethod
    def held_rows(self) -> int:
        """Raw price rows behind the API, whether asked for or not."""

    @property
    def url(self) -> str:
        assert self._http is not None
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def handle(self, request: Request) -> Response:
        with self._lock:
            self.asked.append(request)
            self.served["calls"] += 1
            every = self.faults.throttle_every
            refused = bool(every) and self.served["calls"] % every == 0
            self.served["throttled"] += refused
        response = self.throttle(request) if refused else self.answer(request)
        with self._lock:
            self.served["rows"] += response.rows
        return response

    def __enter__(self) -> Emulator:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.handle, self.faults))
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._http is not None
        self._http.shutdown()
        self._http.server_close()


def _handler(handle: Callable[[Request], Response], faults: Faults) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            address = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            text = (
                body.decode() if "form-urlencoded" in self.headers.get("Content-Type", "") else address.query
            )
            query = {key: values[-1] for key, values in parse_qs(text, keep_blank_values=True).items()}
            headers = {key.lower(): value for key, value in self.headers.items()}
            request = Request(method=self.command, path=address.path, query=query, headers=headers, body=body)
            response = handle(request)
            out = response.body[: len(response.body) // 2] if faults.broken else response.body
            extra = dict(response.headers)
            if "gzip" in headers.get("accept-encoding", "") and len(out) > 500:
                out = gzip.compress(out, 1)
                extra["Content-Encoding"] = "gzip"
            self.send_response(response.status)
            self.send_header("Content-Type", response.kind)
            self.send_header("Content-Length", str(len(out)))
            for key, value in extra.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(out)

        do_GET = do_POST = _serve  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
