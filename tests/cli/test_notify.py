"""``aryl: notify`` over real HTTP: what arrives, what a broken receiver does (nothing to the job), and
that its address, which is a secret, is nowhere but in its own object.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from e2e.market import job, quiet
from e2e.support import Home

from arylcloud.cli import notify
from arylcloud.cli.jobfile import NOTIFY_ENV, load_job, read_secrets
from arylcloud.cli.notify import checked, notifier, shown
from arylcloud.core.errors import ArylError, OtherCloudError, UsageError
from arylcloud.core.protocol import LAUNCHER_SECRETS_KEY

TOKEN = "T0K3N-that-nobody-may-read"


class _Receiver(BaseHTTPRequestHandler):
    bodies: list[dict[str, Any]]
    status = 200
    location: str | None = None

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).bodies.append(json.loads(body))
        self.send_response(type(self).status)
        if type(self).location is not None:
            self.send_header("Location", str(type(self).location))
        self.end_headers()

    def do_GET(self) -> None:
        type(self).bodies.append({"followed": self.path})
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def receiver() -> Iterator[tuple[str, type[_Receiver]]]:
    handler = type("Handler", (_Receiver,), {"bodies": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook/{TOKEN}", handler
    server.shutdown()
    server.server_close()
    thread.join()


def send_to(url: str) -> Callable[[str, str], str]:
    return notifier(shown(url), lambda: url, "job-1")


def test_one_json_document_per_topic(receiver: tuple[str, type[_Receiver]]) -> None:
    url, handler = receiver
    assert send_to(url)("ended", "job-1 succeeded") == "job-1 succeeded"
    assert handler.bodies == [
        {"schema_version": 1, "job_id": "job-1", "topic": "ended", "text": "job-1 succeeded"}
    ]


@pytest.mark.parametrize("status", [400, 500])
def test_a_receiver_that_fails_is_an_error_with_its_host_alone(
    receiver: tuple[str, type[_Receiver]], status: int
) -> None:
    url, handler = receiver
    handler.status = status
    with pytest.raises(OtherCloudError, match=rf"127\.0\.0\.1.*{status}") as caught:
        send_to(url)("ended", "text")
    assert TOKEN not in caught.value.message


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(receiver: tuple[str, type[_Receiver]], status: int) -> None:
    url, handler = receiver
    handler.status, handler.location = status, url.replace("hook", "latest/meta-data")
    with pytest.raises(OtherCloudError, match=f"{status}, and redirects are not followed"):
        send_to(url)("ended", "text")
    assert len(handler.bodies) == 1


@contextmanager
def strange(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that answers one connection as ``answer`` does."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/{TOKEN}"
        thread.join(10)


@pytest.mark.parametrize(
    "words",
    [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 abc\r\n\r\n",
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz"],
)  # fmt: skip
def test_what_is_no_http_is_an_error_of_ours(words: bytes) -> None:
    """``http.client``'s own exceptions (BadStatusLine, …) are neither OSError nor ValueError."""
    with strange(lambda c: c.sendall(words)) as url, pytest.raises(OtherCloudError) as caught:
        send_to(url)("ended", "text")
    assert TOKEN not in caught.value.message


def test_one_deadline_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes within the socket's own time-out, the whole never."""
    monkeypatch.setattr(notify, "DEADLINE_S", 0.3)
    released = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        for n in range(1000):
            if released.wait(0.05):
                return
            connection.sendall(b"X-%d: y\r\n" % n)

    with strange(drip) as url:
        before = time.monotonic()
        with pytest.raises(OtherCloudError, match="no answer within"):
            send_to(url)("ended", "text")
        took_s = time.monotonic() - before
        released.set()
    assert took_s < 40  # a thousand headers take 50


def test_nobody_listens() -> None:
    with pytest.raises(ArylError, match="notify"):
        send_to("http://127.0.0.1:9/hook")("ended", "text")


def test_no_address_sends_nothing() -> None:
    assert notifier(None, lambda: None, "job-1")("ended", "text") == "text"


def test_an_address_that_is_lost_is_said() -> None:
    with pytest.raises(OtherCloudError, match="not in the mailbox"):
        notifier("https://example.com/…", lambda: None, "job-1")("ended", "text")


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://example.com/x", "example.com/hook", "https://", "https:///path", "", "http://[::1",
     "http://h:99999/x", "http://h/a b", "http://h/\x07", "javascript:alert(1)", "HTTPS//x"],
)  # fmt: skip
def test_only_http(tmp_path: Path, url: str) -> None:
    with pytest.raises(UsageError, match="no http or https address"):
        checked(url, what="aryl.notify")
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps({"run": "true", "aryl": {"notify": url}}))
    with pytest.raises(UsageError, match=r"aryl\.notify"):
        load_job(path)


def test_a_spec_knows_the_host_alone(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    url = f"https://me:{TOKEN}@hooks.example.com:8443/{TOKEN}?t={TOKEN}"
    path.write_text(json.dumps({"run": "true", "aryl": {"notify": url}}))
    spec, secrets = load_job(path)
    assert spec.notify == "https://hooks.example.com:8443/…"
    assert TOKEN not in repr(spec)
    assert secrets == {NOTIFY_ENV: url}
    with pytest.raises(UsageError, match=NOTIFY_ENV):
        read_secrets(spec, {})
    with pytest.raises(UsageError, match="other"):
        read_secrets(spec, {NOTIFY_ENV: "https://other.example.com/x"})
    assert read_secrets(spec, {NOTIFY_ENV: url}) == secrets


def holding(folder: Path, *words: str) -> list[str]:
    """Names of the files under ``folder`` in which one of the words stands."""
    return [
        path.name
        for path in folder.rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and any(word.encode() in path.read_bytes() for word in words)
    ]


def test_the_address_lies_in_one_object_until_the_end(
    receiver: tuple[str, type[_Receiver]], new_home: Callable[..., Home]
) -> None:
    url, handler = receiver
    home = new_home(quiet())
    job_id = home.submit(job(steps=10, notify=url, top={"secrets": {"KEY": "hush-hush"}}))
    assert holding(home.path, TOKEN) == [LAUNCHER_SECRETS_KEY]
    assert holding(home.path, "hush-hush") == ["secrets.json"]
    home.serve_to_the_end(job_id)
    assert [body["topic"].partition(":")[0] for body in handler.bodies] == ["ended"]
    assert holding(home.path, TOKEN, "hush-hush") == []
    assert TOKEN not in json.dumps([str(record) for record in home.events(job_id)])
