"""HTTP of the emulated Azure, TLS included: who asks, which subscription, faults, pages, operations.

What the resource types do is in ``resources`` and ``machines``; this module knows of no type.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from clouds.azure.subscription import Doc, Fault, Subscription, fresh_id
from clouds.broken import broken
from clouds.served import Cut, carry_out

TENANT = "00000000-0000-0000-0000-00000000aaaa"
SECRET = "emulated"
_BESIDE = re.compile(r"/providers/Microsoft\.(Storage/|ManagedIdentity/|Authorization/roleDefinitions)", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    sub: Subscription
    principal: str

    @property
    def parts(self) -> list[str]:
        return self.path.strip("/").split("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    kind: str = "application/json; charset=utf-8"


class Refused(Exception):
    def __init__(self, code: str, message: str = "", status: int = 400) -> None:
        super().__init__(code)
        self.code, self.message, self.status = code, message or code, status

    def reply(self, headers: dict[str, str] | None = None) -> Reply:
        body = {"error": {"code": self.code, "message": self.message}}
        return Reply(status=self.status, body=body, headers=headers or {})


Handler = Callable[[Asked, re.Match[str]], Reply]


def no_identities(asked: Asked) -> Reply | None:
    """A subscription without any."""
    lists = ("/userAssignedIdentities", "/storageAccounts", "/roleDefinitions")
    listed = asked.method == "GET" and asked.path.endswith(lists)
    return Reply(body={"value": []}) if listed else None


class Arm:
    """Subscriptions, tokens, routes."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self.lock = threading.RLock()
        self.routes: list[tuple[str, re.Pattern[str], str, Handler]] = []
        self.open: Callable[[str, str, dict[str, str]], Reply | None] = lambda method, path, query: None
        """Of paths that need no token."""
        self.before: Callable[[Subscription], None] = lambda sub: None
        self.beside: Callable[[Asked], Reply | None] = no_identities
        """Of types that this emulator does not have: stores and identities (``clouds/stores/blob``)."""
        self._tls = tls
        self._tokens: dict[str, tuple[str, str, float]] = {}

    # ------------------------------------------------------------ tokens

    def token(self, principal: str, claims: dict[str, str], lasts_s: float) -> str:
        ends_s = time.time() + lasts_s
        told = {"oid": principal, "tid": TENANT, "exp": int(ends_s), **claims}
        middle = base64.urlsafe_b64encode(json.dumps(told).encode()).decode().rstrip("=")
        text = f"e30.{middle}.{fresh_id()}"
        self._tokens[text] = (principal, claims.get("xms_mirid", ""), ends_s)
        return text

    def who(self, headers: dict[str, str]) -> tuple[str, str]:
        """(principal, machine's id or ""). Raises Refused."""
        known = self._tokens.get(headers.get("authorization", "").removeprefix("Bearer "))
        if known is None:
            raise Refused("InvalidAuthenticationToken", "The access token is invalid.", 401)
        if known[2] < time.time():
            raise Refused("ExpiredAuthenticationToken", "The access token expiry UTC time is earlier", 401)
        return known[0], known[1]

    # ------------------------------------------------------------ one call

    def route(self, method: str, pattern: str, kind: str, handler: Handler) -> None:
        """``{name}`` in a pattern is one part of the path; paths are compared without case. ``kind``: what
        faults and tests call it by, after the method."""
        text = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern)
        self.routes.append((method, re.compile(text, re.IGNORECASE), kind, handler))

    def answer(
        self, method: str, path: str, query: dict[str, str], headers: dict[str, str], raw: bytes
    ) -> Reply:
        found = self.open(method, path, query) if not path.lower().startswith("/subscriptions/") else None
        if found is not None:
            return found
        try:
            principal, machine = self.who(headers)
            body = json.loads(raw) if raw else None
            sub = self._subscription(path, query, body)
            asked = Asked(
                method=method,
                path=path,
                query=query,
                headers=headers,
                body=body,
                sub=sub,
                principal=principal,
            )
            with self.lock:
                self.before(sub)
                return self._routed(asked, machine)
        except Refused as refused:
            return refused.reply()

    def _subscription(self, path: str, query: dict[str, str], body: Any) -> Subscription:
        named = path.strip("/").split("/")[1].lower()
        if named == "microsoft.resourcegraph":  # of the tenant; the body says whose
            (named,) = body["subscriptions"]
        sub = self.subscriptions.get(named)
        if sub is None:
            text = f"The subscription '{named}' could not be found."
            raise Refused("SubscriptionNotFound", text, 404)
        if "api-version" not in query:
            raise Refused("MissingApiVersionParameter", "The api-version query parameter is required")
        return sub

    def _routed(self, asked: Asked, machine: str) -> Reply:
        others = asked.principal == asked.sub.client and _BESIDE.search(asked.path)
        if others and (reply := self.beside(asked)) is not None:
            return reply
        for method, pattern, kind, handler in self.routes:
            match = pattern.fullmatch(asked.path)
            if match is None or method != asked.method:
                continue
            operation = f"{method} {kind}"
            asked.sub.calls.append(operation)
            self._allowed(asked, machine, operation)
            return self._with_faults(asked, operation, partial(handler, asked, match))
        raise Refused("ResourceNotFound", f"{asked.method} {asked.path}", 404)

    def _allowed(self, asked: Asked, machine: str, operation: str) -> None:
        sub = asked.sub
        if asked.principal == sub.client:
            if operation in sub.denied:
                raise Refused(
                    "AuthorizationFailed",
                    f"The client '{sub.client}' with object id '{sub.client}' does not have authorization to "
                    f"perform action '{operation}' over scope '{asked.path}'",
                    403,
                )
            return
        given = [scope for scope, principal in sub.roles.values() if principal == asked.principal]
        if not any(asked.path.lower().startswith(scope.lower()) for scope in given):
            raise Refused(
                "AuthorizationFailed", f"the machine {machine} may not {operation} {asked.path}", 403
            )

    def _with_faults(self, asked: Asked, operation: str, act: Callable[[], Reply]) -> Reply:
        fault = next((f for f in asked.sub.faults if f.operation == operation and f.times), None)
        if fault is None or fault.effect == "inside":  # of the latter the operation itself takes care
            return act()
        if carry_out(fault, act, self.lock):
            return Reply(status=fault.status, body=b"<html><body>Bad Gateway", kind="text/html")
        after = {} if fault.retry_after_s is None else {"Retry-After": f"{fault.retry_after_s:g}"}
        return Refused(fault.code, fault.message, fault.status).reply(after)

    def inside(self, sub: Subscription, operation: str) -> Fault | None:
        """A scripted failure of the operation that begins now."""
        for fault in sub.faults:
            if fault.operation == operation and fault.effect == "inside" and fault.times:
                fault.times -= 1
                return fault
        return None

    # ------------------------------------------------------------ what types share

    def paged(self, asked: Asked, items: list[Doc]) -> Reply:
        skip, size = int(asked.query.get("$skiptoken", 0)), asked.sub.page or len(items) or 1
        body: Doc = {"value": items[skip : skip + size]}
        if skip + size < len(items):
            kept = "&".join(f"{k}={quote(v)}" for k, v in asked.query.items() if k != "$skiptoken")
            body["nextLink"] = f"{self.url}{asked.path}?{kept}&$skiptoken={skip + size}"
        return Reply(body=body)

    def begun(self, asked: Asked, region: str, status: int, body: Any, operation: Doc) -> Reply:
        """An answer to something that goes on: where to ask how it goes."""
        number = fresh_id()
        asked.sub.operations[number] = operation
        here = f"/subscriptions/{asked.sub.id}/providers/Microsoft.Compute/locations/{region}"
        where = f"{self.url}{here}/operations/{number}?api-version=2024-07-01"
        headers = {"Azure-AsyncOperation": where, "Location": f"{where}&monitor=true", "Retry-After": "1"}
        return Reply(status=status, body=body, headers=headers)

    # ------------------------------------------------------------ the server

    @property
    def url(self) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._http.server_address[1]}"

    def start(self) -> None:
        self._http = _Server(self, self._tls)
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, arm: Arm, tls: ssl.SSLContext | None) -> None:
        self.arm = arm
        super().__init__(("127.0.0.1", 0), _Handler)
        if tls is not None:  # the handshake is each connection's own affair
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        form = "form-urlencoded" in self.headers.get("Content-Type", "")
        text = raw.decode() if form else parts.query
        query = {key: values[-1] for key, values in parse_qs(text, keep_blank_values=True).items()}
        headers = {key.lower(): value for key, value in self.headers.items()}
        try:
            reply = self.server.arm.answer(self.command, parts.path, query, headers, b"" if form else raw)
        except Cut:
            self.close_connection = True
            self.connection.close()
            return
        except Exception as error:  # noqa: BLE001 - of the emulator itself
            reply = Refused("EmulatorBroken", broken(error), 500).reply()
        body = (
            reply.body
            if isinstance(reply.body, bytes)
            else b""
            if reply.body is None
            else json.dumps(reply.body).encode()
        )
        self.send_response(reply.status)
        if reply.status != 204:
            self.send_header("Content-Type", reply.kind)
            self.send_header("Content-Length", str(len(body)))
        self.send_header("x-ms-request-id", fresh_id())
        for key, value in reply.headers.items():
            self.send_header(key, value)
        self.end_headers()
        if reply.status != 204 and self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass
