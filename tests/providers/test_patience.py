"""Asking again, and the plain web: what is waited for, how long, and what is never done."""

from __future__ import annotations

import doctest
import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType

import pytest

from arylcloud.core.clock import ManualClock
from arylcloud.core.errors import AccessError, OtherCloudError, ThrottledError, UsageError
from arylcloud.core.live import Meter
from arylcloud.providers import patience, web
from arylcloud.providers.azure import prices
from arylcloud.providers.gcp import skus
from arylcloud.providers.patience import Passing, Patience
from arylcloud.providers.web import Web, endpoint


class Waits(ManualClock):
    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        super().sleep(seconds)


def failing(times: int, after_s: float | None = None) -> Callable[[], str]:
    left = iter(range(times))

    def ask() -> str:
        if next(left, None) is not None:
            raise Passing(ThrottledError("slow down"), after_s)
        return "answer"

    return ask


def test_waits_double_and_are_spread() -> None:
    seen = []
    for seed in range(200):
        clock = Waits()
        meter = Meter()
        asker = Patience(clock=clock, random=random.Random(seed), first_s=1.0)
        assert asker.call(failing(5), meter) == "answer"
        assert meter.waited == 5
        seen.append(clock.slept)
    for number, waits in enumerate(zip(*seen, strict=True)):
        longest = 2.0**number
        assert longest / 2 <= min(waits) < 0.6 * longest
        assert 0.9 * longest < max(waits) <= longest


def test_the_cloud_s_own_word_goes_before_ours_and_has_an_end() -> None:
    clock = Waits()
    asker = Patience(clock=clock, random=random.Random(0))
    assert asker.call(failing(2, 7.0), Meter()) == "answer"
    assert all(7.0 <= seconds <= 7.7 for seconds in clock.slept)
    with pytest.raises(ThrottledError):
        asker.call(failing(1, 3600.0), Meter())  # nobody waits an hour at a terminal
    assert len(clock.slept) == 2


def test_the_last_error_is_told_and_no_wait_follows_it() -> None:
    clock = Waits()
    with pytest.raises(ThrottledError):
        Patience(clock=clock, tries=3).call(failing(99), Meter())
    assert len(clock.slept) == 2


def test_what_does_not_pass_is_not_repeated() -> None:
    asked = []

    def refused() -> None:
        asked.append(1)
        raise AccessError("no")

    with pytest.raises(AccessError):
        Patience(clock=Waits()).call(refused, Meter())
    assert len(asked) == 1


@contextmanager
def server(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}"
    finally:
        http.shutdown()
        http.server_close()


def reply(handler: BaseHTTPRequestHandler, status: int, document: object, **headers: str) -> None:
    body = json.dumps(document).encode()
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@pytest.mark.parametrize(
    ("status", "document", "expected", "asked"),
    [
        (401, {"error": {"message": "who are you"}}, AccessError, 1),
        (403, {"error": {"message": "no", "errors": [{"reason": "forbidden"}]}}, AccessError, 1),
        (403, {"error": {"message": "slow", "errors": [{"reason": "rateLimitExceeded"}]}}, ThrottledError, 3),
        (429, {"error": {"message": "slow"}}, ThrottledError, 3),
        (503, {"error": {"message": "later"}}, OtherCloudError, 3),
        (404, {"Error": {"Message": "what"}}, OtherCloudError, 1),
        (418, "tea", OtherCloudError, 1),
    ],
)
def test_statuses(status: int, document: object, expected: type[Exception], asked: int) -> None:
    seen = []
    with (
        server(lambda handler: (seen.append(handler.path), reply(handler, status, document))[1]) as url,
        pytest.raises(expected) as told,
    ):
        Web("azure", Patience(clock=Waits(), tries=3)).get_json(f"{url}/x", Meter())
    assert type(told.value) is expected
    assert told.value.code == str(status)
    assert len(seen) == asked
    assert "\n" not in str(told.value)


def test_a_redirect_is_not_followed_with_what_we_carry() -> None:
    stolen: list[str | None] = []
    with (
        server(lambda h: (stolen.append(h.headers["Authorization"]), reply(h, 200, {}))[1]) as thief,
        server(lambda h: reply(h, 302, {}, Location=f"{thief}/x")) as url,
        pytest.raises(OtherCloudError),
    ):
        Web("gcp", Patience(clock=Waits())).get_json(url, Meter(), {"Authorization": "Bearer secret"})
    assert stolen == []


def test_a_server_that_is_not_there_is_asked_again_and_named() -> None:
    with server(lambda h: None) as url:
        pass
    clock = Waits()
    with pytest.raises(OtherCloudError, match="cannot be reached"):
        Web("azure", Patience(clock=clock, tries=3)).get_json(url, Meter())
    assert len(clock.slept) == 2


@pytest.mark.parametrize(
    "url", ["http://prices.example.com", "ftp://localhost", "prices.azure.com", "file:///etc"]
)
def test_only_https_but_on_this_machine(url: str) -> None:
    with pytest.raises(UsageError):
        endpoint(url, "https://x", what="[azure] retail_prices")
    assert endpoint("http://127.0.0.1:80/", "https://x", what="y") == "http://127.0.0.1:80"
    assert endpoint("http://localhost:80", "https://x", what="y") == "http://localhost:80"


@pytest.mark.parametrize("module", [patience, web, skus, prices])
def test_docstring_examples(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert (result.attempted > 0, result.failed) == (True, 0)
