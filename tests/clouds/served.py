"""What all emulators share: a server of this machine, and faults that a test has scripted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, Self


class Cut(Exception):
    """The connection breaks before the answer."""


class Fault(Protocol):
    times: int
    effect: str
    late_s: float


def carry_out(fault: Fault, act: Callable[[], object], lock: Any) -> bool:
    """What a fault does before its answer; True: a proxy gives that. Raises Cut."""
    fault.times -= 1
    if fault.effect in ("done", "cut"):
        act()
    if fault.effect == "late":

        def later() -> None:
            with lock:
                act()

        threading.Timer(fault.late_s, later).start()
    if fault.effect == "cut":
        raise Cut
    return fault.effect == "html"


class Served:
    """``with`` it: a server that answers with ``handler()``."""

    _server: Any

    def handler(self) -> type[BaseHTTPRequestHandler]:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"


def handler_of(
    answer: Callable[[str, str, dict[str, str], bytes], tuple[int, dict[str, str], bytes]],
) -> type[BaseHTTPRequestHandler]:
    """``answer(method, path, headers, body)`` → status, headers, body."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {key.lower(): value for key, value in self.headers.items()}
            status, told, data = answer(self.command, self.path, headers, body)
            self.send_response(status)
            for key, value in told.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD" and status != 204:
                self.wfile.write(data)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
