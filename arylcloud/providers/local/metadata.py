"""EC2's instance metadata, version 2: the part of it that spot machines live by.

    PUT /latest/api/token   X-aws-ec2-metadata-token-ttl-seconds: 1..21600   → a token
    GET /latest/meta-data/spot/instance-action   X-aws-ec2-metadata-token: …
        404 until there is a notice, then {"action":"terminate","time":"2026-11-30T12:00:00Z"}

    PUT /latest/arylcloud/until   X-aws-ec2-metadata-token: …   body: wall seconds, as text
        ours, not EC2's: the machine's lease lasts until then (``agent/renewal.py``)

Without a valid token every GET is 401, as where version 1 is switched off. Each machine has a
listener of its own (its address, or on systems with one loopback address its port), so a machine
sees nobody's data but its own. Tokens are signed, not stored: they outlive the daemon.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import math
import secrets
import selectors
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Final

from arylcloud.core.clock import Clock
from arylcloud.core.errors import LocalStateError, OtherCloudError
from arylcloud.core.offer import Market as MarketKind
from arylcloud.providers.local.machines import Instance

TTL_HEADER: Final = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN_HEADER: Final = "X-aws-ec2-metadata-token"  # noqa: S105 - a header's name
MAX_TTL_S: Final = 21600
UNTIL_PATH: Final = "/latest/arylcloud/until"
_ROOT: Final = "/latest/meta-data"


class Tokens:
    """Signed session tokens: bound to one machine, valid for the seconds that were asked for."""

    def __init__(self, key: bytes, clock: Clock) -> None:
        self._key = key
        self._clock = clock

    def issue(self, instance_id: str, ttl_s: int) -> str:
        body = f"{self._clock.now_s() + ttl_s:.3f}.{secrets.token_hex(4)}"
        return f"{body}.{self._sign(instance_id, body)}"

    def valid(self, instance_id: str, token: str) -> bool:
        body, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(instance_id, body).encode()):
            return False
        return self._clock.now_s() < float(body.rpartition(".")[0])

    def _sign(self, instance_id: str, body: str) -> str:
        return hmac.new(self._key, f"{instance_id}|{body}".encode(), hashlib.sha256).hexdigest()


def document(instance: Instance, path: str) -> str | None:
    """What ``GET path`` answers with; None = 404."""
    zone = instance.zone or instance.region
    if path == f"{_ROOT}/spot/instance-action":
        acts_at_s = instance.notice_acts_wall_s
        if instance.market != MarketKind.SPOT.value or acts_at_s is None:
            return None
        # whole seconds, as EC2 writes them, and never later than the truth
        at = datetime.fromtimestamp(int(acts_at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return json.dumps({"action": "terminate", "time": at}, separators=(",", ":"))
    plain = {
        "instance-id": instance.instance_id,
        "instance-type": instance.instance_type,
        "instance-life-cycle": instance.market.replace("_", "-"),
        "local-ipv4": instance.address,
        "placement/region": instance.region,
        "placement/availability-zone": zone,
        "placement/availability-zone-id": zone,
    }
    return plain.get(path.removeprefix(f"{_ROOT}/"))


class MetadataService:
    """Listeners of all machines, served by one thread and a short-lived one per connection."""

    def __init__(
        self,
        *,
        lookup: Callable[[str], Instance | None],
        renew: Callable[[str, float], None],
        tokens: Tokens,
        own_addresses: bool,
    ) -> None:
        """``renew(instance_id, until_s)`` raises LocalStateError when it cannot be written down."""
        self.lookup = lookup
        self.renew = renew
        self.tokens = tokens
        self.handler: Callable[..., object] = _Handler
        """Of one call: ``(connection, peer, service, instance_id)``."""
        self._own_addresses = own_addresses
        self._listeners: dict[str, socket.socket] = {}
        self._lock = threading.Lock()
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="metadata", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def bind(self, instance_id: str, address: str | None, port: int | None) -> tuple[str, int]:
        """Listen for one machine; without an address, choose one. Raises OtherCloudError."""
        wanted = [(address, port or 0)] if address is not None else self._candidates()
        last: OSError | None = None
        for host, number in wanted:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((host, number))
                listener.listen(16)
            except OSError as error:
                listener.close()
                last = error
                continue
            listener.setblocking(False)
            self.adopt(instance_id, listener)
            return host, listener.getsockname()[1]
        raise OtherCloudError(f"no loopback address could be bound: {last}", code="InsufficientAddresses")

    def adopt(self, instance_id: str, listener: socket.socket) -> None:
        """Serve one machine on this socket, which listens already and does not block."""
        with self._lock:
            old = self._listeners.get(instance_id)
            self._listeners[instance_id] = listener
        if old is not None:
            old.close()

    def _candidates(self) -> list[tuple[str, int]]:
        """Random addresses of 127.64.0.0/10 (systems use the low ones), 127.0.0.1 where none can be had."""
        random = secrets.SystemRandom()
        own = [
            (f"127.{random.randrange(64, 128)}.{random.randrange(256)}.{random.randrange(1, 255)}", 0)
            for _ in range(8)
        ]
        return [*own, ("127.0.0.1", 0)] if self._own_addresses else [("127.0.0.1", 0)]

    def unbind(self, instance_id: str) -> None:
        with self._lock:
            listener = self._listeners.pop(instance_id, None)
        if listener is not None:
            listener.close()

    def close(self) -> None:
        self._closing = True
        self._thread.join()
        for instance_id in list(self._listeners):
            self.unbind(instance_id)

    def _serve(self) -> None:
        while not self._closing:
            with self._lock:
                listeners = {i: s for i, s in self._listeners.items() if s.fileno() >= 0}
            with selectors.DefaultSelector() as selector:
                # a machine may have been unbound since: its closed socket cannot be registered
                for instance_id, listener in listeners.items():
                    with contextlib.suppress(ValueError, OSError, KeyError):
                        selector.register(listener, selectors.EVENT_READ, instance_id)
                for key, _ in selector.select(timeout=0.1):
                    self._accept(key.fileobj, key.data)

    def _accept(self, listener: object, instance_id: str) -> None:
        assert isinstance(listener, socket.socket)
        try:
            connection, peer = listener.accept()
        except OSError:  # the caller has gone, or the machine has
            return
        connection.setblocking(True)
        threading.Thread(
            target=self._handle, args=(connection, peer, instance_id), name="metadata-call", daemon=True
        ).start()

    def _handle(self, connection: socket.socket, peer: tuple[str, int], instance_id: str) -> None:
        """Whoever asks may hang up at any moment: machines are killed."""
        with connection, contextlib.suppress(OSError):
            self.handler(connection, peer, self, instance_id)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "EC2ws"
    sys_version = ""
    timeout = 5.0

    def __init__(
        self, connection: socket.socket, peer: tuple[str, int], service: MetadataService, instance_id: str
    ) -> None:
        self.service = service
        self.instance_id = instance_id
        super().__init__(connection, peer, service)  # type: ignore[arg-type]  # it only keeps the last one

    def do_PUT(self) -> None:
        if self.path == UNTIL_PATH:
            return self._renew()
        if self.path != "/latest/api/token":
            return self._answer(HTTPStatus.NOT_FOUND)
        if self.headers.get("X-Forwarded-For") is not None:  # EC2's guard against open proxies
            return self._answer(HTTPStatus.FORBIDDEN)
        text = self.headers.get(TTL_HEADER, "")
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_TTL_S):
            return self._answer(HTTPStatus.BAD_REQUEST)
        return self._answer(
            HTTPStatus.OK, self.service.tokens.issue(self.instance_id, int(text)), {TTL_HEADER: text}
        )

    def _renew(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        text = self.rfile.read(min(length, 64)).decode("ascii", errors="replace") if length <= 64 else ""
        self.close_connection = True
        if not self.service.tokens.valid(self.instance_id, self.headers.get(TOKEN_HEADER, "")):
            return self._answer(HTTPStatus.UNAUTHORIZED, read=False)
        try:
            until_s = float(text)
        except ValueError:
            until_s = math.nan
        if not math.isfinite(until_s):
            return self._answer(HTTPStatus.BAD_REQUEST, read=False)
        try:
            self.service.renew(self.instance_id, until_s)
        except LocalStateError:
            return self._answer(HTTPStatus.SERVICE_UNAVAILABLE, read=False)
        return self._answer(HTTPStatus.OK, read=False)

    def do_GET(self) -> None:
        token = self.headers.get(TOKEN_HEADER, "")
        if not self.service.tokens.valid(self.instance_id, token):
            return self._answer(HTTPStatus.UNAUTHORIZED)
        instance = self.service.lookup(self.instance_id)
        body = None if instance is None else document(instance, self.path)
        return self._answer(HTTPStatus.NOT_FOUND) if body is None else self._answer(HTTPStatus.OK, body)

    def _answer(
        self, status: HTTPStatus, body: str = "", headers: dict[str, str] | None = None, *, read: bool = True
    ) -> None:
        data = body.encode() if body or status is HTTPStatus.OK else f"{status} {status.phrase}\n".encode()
        length = int(self.headers.get("Content-Length") or 0)
        if length and read:  # what a PUT carries is of no interest, but must not be read as the next request
            self.rfile.read(min(length, 65536))
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Polls every few seconds are no news."""
