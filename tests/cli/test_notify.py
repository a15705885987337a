"""``aryl: notify`` over real HTTP: what arrives, and what a broken receiver does (nothing to the job)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from arylcloud.cli.notify import notifier
from arylcloud.core.errors import ArylError


class _Receiver(BaseHTTPRequestHandler):
    bodies: list[dict[str, Any]]
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).bodies.append(json.loads(body))
        self.send_response(type(self).status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def receiver() -> Iterator[tuple[str, type[_Receiver]]]:
    handler = type("Handler", (_Receiver,), {"bodies": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", handler
    server.shutdown()
    server.server_close()
    thread.join()


def test_one_json_document_per_topic(receiver: tuple[str, type[_Receiver]]) -> None:
    url, handler = receiver
    assert notifier(url, "job-1")("ended", "job-1 succeeded") == "job-1 succeeded"
    assert handler.bodies == [
        {"schema_version": 1, "job_id": "job-1", "topic": "ended", "text": "job-1 succeeded"}
    ]


def test_a_receiver_that_fails_is_an_error_of_ours_with_its_address(
    receiver: tuple[str, type[_Receiver]],
) -> None:
    url, handler = receiver
    handler.status = 500
    with pytest.raises(ArylError, match=r"127\.0\.0\.1.*500"):
        notifier(url, "job-1")("ended", "text")


def test_nobody_listens() -> None:
    with pytest.raises(ArylError, match="notify"):
        notifier("http://127.0.0.1:9/hook", "job-1")("ended", "text")


def test_no_address_sends_nothing() -> None:
    assert notifier(None, "job-1")("ended", "text") == "text"
