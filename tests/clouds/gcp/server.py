"""HTTP of the emulated Google Cloud: projects, routes, permissions, faults, pages, filters, errors."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from clouds.broken import broken
from clouds.gcp.project import Doc, Fault, Project
from clouds.served import Cut, carry_out

ROOT = "https://www.googleapis.com/compute/v1"
"""What links begin with, whatever the address that was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    project: Project
    method: str
    """``instances.insert``."""
    query: dict[str, str]
    body: Doc
    zone: str = ""
    region: str = ""
    name: str = ""
    user: str = "someone@example.com"


class Refused(Exception):
    def __init__(self, reason: str, message: str, status: int = 400) -> None:
        super().__init__(reason)
        self.reason, self.message, self.status = reason, message, status


Handler = Callable[[Asked], Doc]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    verb: str
    path: re.Pattern[str]
    method: str
    permission: str
    handler: Handler


@dataclass(slots=True)
class Answer:
    status: int = 200
    body: bytes = b""
    kind: str = "application/json; charset=UTF-8"
    headers: dict[str, str] = field(default_factory=dict)


def route(verb: str, path: str, method: str, permission: str, handler: Handler) -> Route:
    """``{z}``, ``{r}``, ``{n}`` in the path: zone, region, name."""
    pattern = path
    for short, group in (("{z}", "zone"), ("{r}", "region"), ("{n}", "name")):
        pattern = pattern.replace(short, f"(?P<{group}>[^/]+)")
    return Route(verb=verb, path=re.compile(pattern), method=method, permission=permission, handler=handler)


class GcpServer:
    """``before``: called before every request, and by a clock."""

    def __init__(self) -> None:
        self.projects: dict[str, Project] = {}
        self.routes: list[Route] = []
        self.lock = threading.RLock()
        self.before: Callable[[Project], None] = lambda project: None
        self.raw: Callable[[str, dict[str, str], Project], bytes | None] = lambda path, query, project: None
        self._server: ThreadingHTTPServer | None = None
        self._closing = threading.Event()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def open(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        threading.Thread(target=self._clock, name="gcp-clock", daemon=True).start()

    def close(self) -> None:
        self._closing.set()
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def _clock(self) -> None:
        while not self._closing.wait(0.05):
            with self.lock:
                for project in list(self.projects.values())[:2]:  # newest first: the others' tests are over
                    self.before(project)

    # ------------------------------------------------------------ one request

    def answer(self, verb: str, address: str, body: bytes, headers: dict[str, str]) -> Answer:
        parts = urlsplit(address)
        query = dict(parse_qsl(parts.query))
        try:
            with self.lock:
                return self._routed(verb, unquote(parts.path), query, body, headers)
        except Refused as refused:
            return refusal(refused)
        except Cut:
            raise
        except Exception as error:  # noqa: BLE001 - of the emulator itself
            return refusal(Refused("emulatorBroken", broken(error), 500))

    def _routed(
        self, verb: str, path: str, query: dict[str, str], body: bytes, headers: dict[str, str]
    ) -> Answer:
        found = re.match(r"(?:/compute)?/v1/projects/([^/:]+)(.*)", path)
        name, rest = (found[1], found[2]) if found else (headers.get("x-project", ""), path)
        project = self.projects.get(name)
        if not found:  # prices are the same for all; tests keep one book per server
            for one in self.projects.values():
                if (data := self.raw(path, query, one)) is not None:
                    one.calls.append("skus.list")
                    return Answer(body=data)
            raise Refused("notFound", f"no such path: {path}", 404)
        if project is None and "/global/images/" in rest:  # other people's images
            project = next(iter(self.projects.values()))
            rest = f"/images/{name}{rest}"
        if project is None:
            raise Refused("notFound", f"The resource 'projects/{name}' was not found", 404)
        self.before(project)
        for one in self.routes:
            match = one.path.fullmatch(rest)
            if match is not None and one.verb == verb:
                asked = Asked(
                    project=project,
                    method=one.method,
                    query=query,
                    body=json.loads(body or b"{}"),
                    user=project.accounts.get(
                        headers.get("authorization", "").removeprefix("Bearer "), "someone@example.com"
                    ),
                    **match.groupdict(),
                )
                return self._faulty(one, asked)
        raise Refused("notFound", f"no such path: {verb} {path}", 404)

    def _faulty(self, one: Route, asked: Asked) -> Answer:
        project = asked.project
        project.calls.append(one.method)
        if one.permission in project.denied:
            raise Refused(
                "forbidden", f"Required '{one.permission}' permission for 'projects/{project.id}'", 403
            )

        def act() -> Answer:
            return Answer(body=json.dumps(one.handler(asked)).encode())

        fault = next((f for f in project.faults if f.method == one.method and f.times), None)
        if fault is None or fault.effect == "operation":  # the latter is the handler's own affair
            return act()
        if carry_out(fault, act, self.lock):
            return Answer(status=fault.status, body=b"<html><body>Bad Gateway", kind="text/html")
        answer = refusal(Refused(fault.code, fault.message, fault.status))
        if fault.retry_after_s is not None:
            answer.headers["Retry-After"] = f"{fault.retry_after_s:g}"
        return answer


def operation_fault(asked: Asked) -> Fault | None:
    """The next scripted error inside the operation of this call."""
    faults = asked.project.faults
    found = next(
        (f for f in faults if f.method == asked.method and f.times and f.effect == "operation"), None
    )
    if found is not None:
        found.times -= 1
    return found


def refusal(refused: Refused) -> Answer:
    errors = [{"message": refused.message, "domain": "global", "reason": refused.reason}]
    body = {"error": {"code": refused.status, "message": refused.message, "errors": errors}}
    return Answer(status=refused.status, body=json.dumps(body).encode())


# ------------------------------------------------------------ lists


def matches(text: str, doc: Doc) -> bool:
    """One clause of Compute Engine's filters: ``a = "b"``, ``a=b``, ``a eq "regex"``, ``labels.a:*``."""
    if not text:
        return True
    found = re.fullmatch(r'([\w.-]+)\s*(=|:|\beq\b)\s*"?(.*?)"?', text)
    if found is None:
        raise Refused("invalid", f"Invalid value for field 'filter': '{text}'.")
    value: Any = doc
    for part in found[1].split(".", 1):
        value = value.get(part) if isinstance(value, dict) else None
    if found[2] == ":" and found[3] == "*":
        return value is not None
    if found[2] == "eq":
        return value is not None and re.fullmatch(found[3], str(value)) is not None
    return value is not None and str(value) == found[3]


def paged(asked: Asked, items: list[Any]) -> tuple[list[Any], Doc]:
    """(this page's, what the answer says of the next one)."""
    size = min(int(asked.query.get("maxResults", 500)), 500)
    size = min(size, asked.project.page) if asked.project.page else size
    start = int(asked.query.get("pageToken", "0"))
    rest = {"nextPageToken": str(start + size)} if start + size < len(items) else {}
    return items[start : start + size], rest


def listed(asked: Asked, kind: str, items: list[Doc]) -> Doc:
    found = [one for one in items if matches(asked.query.get("filter", ""), one)]
    page, rest = paged(asked, found)
    return {"kind": f"compute#{kind}List", "items": page, **rest}


def aggregated(asked: Asked, kind: str, key: str, items: list[tuple[str, Doc]]) -> Doc:
    """``items``: (``zones/z``, what is there)."""
    found = [one for one in items if matches(asked.query.get("filter", ""), one[1])]
    page, rest = paged(asked, found)
    scopes: Doc = {"zones/nowhere-a": {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "none"}}}
    for scope, one in page:
        scopes.setdefault(scope, {key: []})[key].append(one)
    return {"kind": f"compute#{kind}AggregatedList", "items": scopes, **rest}


def rfc3339(wall_s: float) -> str:
    """With Compute Engine's own offset."""
    then = time.gmtime(wall_s - 8 * 3600)
    return time.strftime("%Y-%m-%dT%H:%M:%S", then) + f".{int(wall_s * 1000) % 1000:03d}-08:00"


def _handler(server: GcpServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {key.lower(): value for key, value in self.headers.items()}
            try:
                answer = server.answer(self.command, self.path, body, headers)
            except Cut:
                self.close_connection = True
                return
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.body)))
            for key, value in answer.headers.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = do_DELETE = do_PATCH = _serve  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
