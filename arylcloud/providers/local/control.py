"""The local cloud's HTTP API on 127.0.0.1: JSON in, JSON out, one secret bearer token.

    POST /v1/<op>   {…}  →  200 {…}  |  4xx/5xx {"error": {"kind", "code", "message"}}

``op``: health, create, list, terminate, quote, price_history, offers. Scripted faults of the market
file are injected here, between the cloud and whoever asks it.
"""

from __future__ import annotations

import hmac
import json
import logging
import threading
from collections import Counter
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast

from arylcloud.core.clock import Clock
from arylcloud.core.codec import decode, encode
from arylcloud.core.errors import (
    AccessError,
    ArylError,
    CapacityError,
    IntegrityError,
    OtherCloudError,
    QuotaError,
    ThrottledError,
    UsageError,
)
from arylcloud.core.offer import Offer
from arylcloud.core.ports import MachineSpec
from arylcloud.providers.local.book import Book
from arylcloud.providers.local.cloud import Cloud
from arylcloud.providers.local.market import Fault
from arylcloud.providers.local.wire import API

MAX_BODY: Final = 1 << 20
log = logging.getLogger("arylcloud.local")

_STATUS: Final[dict[type[ArylError], HTTPStatus]] = {
    AccessError: HTTPStatus.FORBIDDEN,
    CapacityError: HTTPStatus.CONFLICT,
    QuotaError: HTTPStatus.CONFLICT,
    ThrottledError: HTTPStatus.TOO_MANY_REQUESTS,
    IntegrityError: HTTPStatus.BAD_REQUEST,
    UsageError: HTTPStatus.BAD_REQUEST,
}
_BEFORE: Final[dict[str, tuple[type[ArylError], str]]] = {
    "throttle": (ThrottledError, "RequestLimitExceeded"),
    "capacity": (CapacityError, "InsufficientInstanceCapacity"),
    "quota": (QuotaError, "VcpuLimitExceeded"),
    "access": (AccessError, "UnauthorizedOperation"),
    "other": (OtherCloudError, "Unexpected"),
}


class ControlServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, cloud: Cloud, book: Book, secret: str, clock: Clock) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cloud = cloud
        self.book = book
        self.secret = secret
        self.clock = clock
        self.last_request_s = clock.monotonic_s()
        self._calls: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._in_flight = 0

    def verify_request(self, _request: Any, client_address: Any) -> bool:
        return str(client_address[0]).startswith("127.")

    def touch(self, change: int) -> None:
        with self._lock:
            self._in_flight += change
            self.last_request_s = self.clock.monotonic_s()

    def idle_s(self) -> float:
        """Seconds since the last request ended; 0 while one runs."""
        with self._lock:
            return 0.0 if self._in_flight else self.clock.monotonic_s() - self.last_request_s

    def faults(self, op: str) -> list[Fault]:
        with self._lock:
            call = self._calls[op]
            self._calls[op] += 1
        return [fault for fault in self.book.market.faults if fault.op == op and fault.hits(call)]

    def perform(self, op: str, body: dict[str, Any], faults: list[Fault]) -> dict[str, Any]:
        """Raises an ArylError that tells what the cloud says no to."""
        for fault in faults:
            if fault.kind == "delay":
                self.clock.sleep(fault.seconds)
            elif fault.kind in _BEFORE:
                cls, code = _BEFORE[fault.kind]
                raise cls(f"scripted fault: {fault.kind}", code=code)
        answer = self._perform(
            op, body, max((f.seconds for f in faults if f.kind == "list_lag"), default=0.0)
        )
        for fault in faults:
            if fault.kind == "error_after":
                raise OtherCloudError("scripted fault: done, and an error all the same", code="InternalError")
        return answer

    def _perform(self, op: str, body: dict[str, Any], lag_s: float) -> dict[str, Any]:
        cloud = self.cloud
        match op:
            case "health":
                market, clock = self.book.market, self.book.market_clock
                return {
                    "api": API,
                    **self.book.market_id,
                    "origin_s": clock.origin_s,
                    "scale": clock.scale,
                    "boot_s": market.boot_s,
                    "notice_s": market.notice_s,
                    "minimum_s": market.minimum_s,
                }
            case "create":
                spec = decode(MachineSpec, body.get("spec"), where="spec")
                return {"machine": encode(cloud.create(spec, _text(body, "python")))}
            case "list":
                journal_id = body.get("journal_id")
                found = cloud.list_machines(
                    None if journal_id is None else _text(body, "journal_id"), lag_s=lag_s
                )
                return {"machines": encode(found)}
            case "terminate":
                cloud.terminate(_text(body, "instance_id"))
                return {}
            case "quote":
                return {"offer": encode(cloud.quote(decode(Offer, body.get("offer"), where="offer")))}
            case "price_history":
                offer = decode(Offer, body.get("offer"), where="offer")
                window = [decode(float, body.get(key), where=key) for key in ("from_s", "to_s")]
                return {"points": encode(cloud.price_history(offer, window[0], window[1]))}
            case "offers":
                return {"offers": encode(cloud.offers())}
        raise UsageError(f"there is no operation {op!r}", code="InvalidAction")


def _text(body: dict[str, Any], key: str) -> str:
    return decode(str, body.get(key), where=key)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60.0

    @property
    def control(self) -> ControlServer:
        return cast(ControlServer, self.server)

    def do_POST(self) -> None:
        self.close_connection = True  # one call per connection: a restart never meets a stale one
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.control.secret}".encode()):
            error = AccessError("the token does not fit", code="AuthFailure")
            return self._send(HTTPStatus.UNAUTHORIZED, _error(error))
        self.control.touch(+1)
        try:
            return self._serve()
        finally:
            self.control.touch(-1)

    def _serve(self) -> None:
        op = self.path.removeprefix("/v1/")
        faults = self.control.faults(op)
        try:
            answer = self.control.perform(op, self._body(), faults)
            status = HTTPStatus.OK
        except ArylError as error:
            status = next(
                (s for cls, s in _STATUS.items() if isinstance(error, cls)), HTTPStatus.INTERNAL_SERVER_ERROR
            )
            answer = _error(error)
        except Exception:
            log.exception("%s failed", op)
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            answer = _error(
                OtherCloudError("the local cloud failed; its daemon.log says how", code="Internal")
            )
        for fault in faults:
            if fault.kind == "hang_after":
                self.control.clock.sleep(fault.seconds)
                return None  # the connection closes without a word
        return self._send(status, answer)

    def _body(self) -> dict[str, Any]:
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            raise UsageError(f"a request may have {MAX_BODY} bytes", code="RequestTooLarge")
        try:
            body = json.loads(self.rfile.read(length))
        except ValueError as error:
            raise UsageError(f"the request is not JSON: {error}", code="InvalidRequest") from error
        if not isinstance(body, dict):
            raise UsageError("the request must be an object", code="InvalidRequest")
        return body

    def _send(self, status: HTTPStatus, document: dict[str, Any]) -> None:
        data = json.dumps({"schema_version": API, **document}, allow_nan=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        log.debug("%s", format % args)


def _error(error: ArylError) -> dict[str, Any]:
    return {"error": {"kind": error.kind, "code": error.code, "message": error.message}}
