"""Each cloud's metadata protocol, against small servers that speak it over HTTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from agent.conftest import WAIT_S, Job, spec, wait_for
from arylcloud.agent.metadata import Warned
from arylcloud.agent.notice import Watcher
from arylcloud.agent.notice_azure import Azure, preemptions
from arylcloud.agent.notice_ec2 import Ec2
from arylcloud.agent.notice_gce import Gce
from arylcloud.core.clock import SystemClock
from arylcloud.core.protocol import Notice

LONG = "exec python3 train.py 100000 5 0.01"


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.changed = threading.Condition()
        self.asked: list[str] = []
        self.preempted = "FALSE"
        self.holds = True
        self.broken = 0
        """So many answers are HTTP 503."""
        self.events: list[dict[str, object]] = []
        self.started: list[str] = []
        self.rebalance = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def say(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def fails(self) -> bool:
        self.server.asked.append(f"{self.command} {self.path}")
        if self.server.broken:
            self.server.broken -= 1
            self.say(503, b"")
            return True
        return False

    def log_message(self, format: str, *args: object) -> None:
        return


class GceHandler(Handler):
    """ETags are of the value; a question with the current one is held until it changes."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if self.headers.get("Metadata-Flavor") != "Google":
            return self.say(403, b"Missing Metadata-Flavor:Google header.")
        if self.fails():
            return None
        if parts.path != "/computeMetadata/v1/instance/preempted":
            return self.say(404, b"")
        asked = {key: values[0] for key, values in parse_qs(parts.query).items()}
        server = self.server
        with server.changed:
            if server.holds and asked.get("wait_for_change") == "true":
                server.changed.wait_for(
                    lambda: server.broken or asked["last_etag"] != etag(server.preempted),
                    float(asked["timeout_sec"]),
                )
            value = server.preempted
        return self.say(200, value.encode(), ETag=etag(value))


def etag(value: str) -> str:
    return f"{hash(value) & 0xFFFFFFFF:x}/+="


class AzureHandler(Handler):
    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if self.headers.get("Metadata") != "true":
            return self.say(400, b"")
        if self.fails():
            return None
        if parts.path == "/metadata/instance/compute/name":
            return self.say(200, b"aryl-VM-1")
        assert parts.path == "/metadata/scheduledevents"
        assert parse_qs(parts.query)["api-version"] == ["2020-07-01"]
        document = {"DocumentIncarnation": len(self.server.events), "Events": self.server.events}
        return self.say(200, json.dumps(document).encode())

    def do_POST(self) -> None:
        assert self.headers.get("Metadata") == "true"
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.fails():
            return
        self.server.started += [one["EventId"] for one in asked["StartRequests"]]
        self.say(200, b"{}")


class Ec2Handler(Handler):
    def do_PUT(self) -> None:
        self.say(200, b"token")

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.path.endswith("rebalance") and self.server.rebalance:
            self.say(200, b'{"noticeTime": "2026-11-30T12:00:00Z"}')
        elif self.path.endswith("instance-action") and self.server.preempted == "TRUE":
            self.say(200, b'{"action": "terminate", "time": "2026-11-30T12:02:00Z"}')
        else:
            self.say(404, b"")


@pytest.fixture
def served() -> Iterator[object]:
    servers: list[Server] = []

    def serve(handler: type[BaseHTTPRequestHandler]) -> Server:
        server = Server(handler)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        servers.append(server)
        return server

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def preempt(**changes: object) -> dict[str, object]:
    return {
        "EventId": "e-1",
        "EventType": "Preempt",
        "ResourceType": "VirtualMachine",
        "Resources": ["aryl-vm-1"],
        "EventStatus": "Scheduled",
        "NotBefore": formatdate(2_000_000_030.0, usegmt=True),
        "EventSource": "Platform",
        **changes,
    }


# ---------------------------------------------------------------- Compute Engine


def test_gce_is_seen_as_it_happens(served) -> None:  # type: ignore[no-untyped-def]
    server = served(GceHandler)
    source = Gce(server.url, SystemClock())
    assert source.ask() is None
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(source.ask()))
    thread.start()
    wait_for(lambda: len(server.asked) == 2, why="the question that is held")
    assert not found  # it waits with the service
    with server.changed:
        server.preempted = "TRUE"
        server.changed.notify_all()
    thread.join(WAIT_S)
    (notice,) = found
    assert isinstance(notice, Notice)
    assert notice.at_s == notice.seen_s + 30.0
    assert "last_etag=" in server.asked[1]


def test_gce_after_an_error_the_value_is_read_at_once(served) -> None:  # type: ignore[no-untyped-def]
    server = served(GceHandler)
    source = Gce(server.url, SystemClock(), 120.0)
    assert source.ask() is None
    server.broken = 1
    with pytest.raises(OSError, match="503"):
        source.ask()
    server.preempted = "TRUE"
    notice = source.ask()
    assert isinstance(notice, Notice)
    assert notice.at_s == notice.seen_s + 120.0  # as the machine was made
    assert "wait_for_change" not in server.asked[-1]


def test_gce_that_holds_nothing_is_polled(served) -> None:  # type: ignore[no-untyped-def]
    server = served(GceHandler)
    server.holds = False
    source = Gce(server.url, SystemClock())
    assert [source.ask() for _ in range(3)] == [None] * 3
    server.preempted = "true\n"
    assert isinstance(source.ask(), Notice)
    server.preempted = "<html>"
    with pytest.raises(ValueError, match="neither TRUE nor FALSE"):
        source.ask()


# ---------------------------------------------------------------- Azure


def test_azure_means_this_machine(served) -> None:  # type: ignore[no-untyped-def]
    server = served(AzureHandler)
    source = Azure(server.url, SystemClock())
    assert source.ask() is None
    server.events = [preempt(Resources=["another"]), preempt(EventType="Reboot"), preempt(Resources=None)]
    assert source.ask() is None
    server.events.append(preempt(EventId="e-2"))
    notice = source.ask()
    assert isinstance(notice, Notice)
    assert (notice.action, notice.at_s) == ("terminate", 2_000_000_030.0)
    assert server.started == []
    source.acknowledge()
    assert server.started == ["e-2"]


@pytest.mark.parametrize(
    ("event", "at_s"),
    [
        (preempt(), 2_000_000_030.0),
        (preempt(EventStatus="Started", NotBefore=""), 1000.0),
        (preempt(NotBefore=""), 1030.0),
        (preempt(NotBefore="soon"), 1030.0),
        (preempt(NotBefore=None), 1030.0),
    ],
)
def test_azure_moments(event: dict[str, object], at_s: float) -> None:
    assert preemptions(json.dumps({"Events": [event]}).encode(), "aryl-VM-1", 1000.0) == [("e-1", at_s)]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"<html>", b'{"Events": 3}'])
def test_azure_nonsense_is_no_answer(body: bytes) -> None:
    with pytest.raises(ValueError):
        preemptions(body, "vm", 0.0)


def test_azure_without_a_name_there_is_no_answer(served) -> None:  # type: ignore[no-untyped-def]
    server = served(AzureHandler)
    server.broken = 1
    source = Azure(server.url, SystemClock())
    with pytest.raises(OSError, match="name"):
        source.ask()
    assert source.ask() is None


# ---------------------------------------------------------------- EC2


def test_ec2_warns_before_it_gives_notice(served) -> None:  # type: ignore[no-untyped-def]
    server = served(Ec2Handler)
    source = Ec2(server.url, SystemClock())
    assert source.ask() is None
    server.rebalance = True
    source = Ec2(server.url, SystemClock())  # the warning is looked for less often
    assert isinstance(source.ask(), Warned)
    server.preempted = "TRUE"
    assert isinstance(source.ask(), Notice)


# ---------------------------------------------------------------- the watcher


class Scripted:
    """A source with an answer for each question; exceptions are raised."""

    def __init__(self, *answers: object, refuses: int = 0) -> None:
        self.answers = list(answers)
        self.refuses = refuses
        self.acknowledged = 0

    def ask(self) -> Notice | Warned | None:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    def acknowledge(self) -> None:
        self.acknowledged += 1
        if self.acknowledged <= self.refuses:
            raise OSError("not now")


@pytest.mark.parametrize(("refuses", "tries", "said"), [(0, 1, 0), (1, 2, 0), (9, 3, 1)])
def test_it_acknowledges_when_all_is_handed_over(refuses: int, tries: int, said: int) -> None:
    notice = Notice(action="terminate", at_s=1.0, seen_s=0.0)
    source = Scripted(OSError("no"), Warned(seen_s=0.0), Warned(seen_s=1.0), notice, refuses=refuses)
    found: list[object] = []
    errors: list[str] = []
    watcher = Watcher(
        source, poll_s=0.001, on_notice=found.append, on_warning=found.append, on_error=errors.append
    )
    watcher.start()
    wait_for(lambda: len(found) == 2)
    assert found == [Warned(seen_s=0.0), notice]  # each once
    assert source.acknowledged == 0
    watcher.handed_over()
    watcher.join(WAIT_S)
    assert source.acknowledged == tries
    assert len(errors) == 1 + said


# ---------------------------------------------------------------- a whole agent


def test_an_agent_on_azure_hands_over_then_lets_go(job: Job, served) -> None:  # type: ignore[no-untyped-def]
    server = served(AzureHandler)
    job.submit(spec(LONG))
    machine = job.machine(ARYL_METADATA="azure", ARYL_METADATA_URL=server.url, ARYL_METADATA_POLL_S="0.1")
    job.open_epoch("lease-a")
    machine.until(lambda b: b.committed_step)
    server.events = [preempt(NotBefore=formatdate(time.time() + 30, usegmt=True))]
    wait_for(lambda: server.started, why="the acknowledgement")
    beat = machine.beat()
    assert beat is not None
    assert (beat.phase, beat.drained_epoch) == ("drained", 1)  # first it is told to whoever reads the mailbox
    assert job.end(1) is not None


def test_a_warning_makes_the_training_save_and_go_on(job: Job, served) -> None:  # type: ignore[no-untyped-def]
    server = served(Ec2Handler)
    script = (
        "import sys, time\n"
        "import arylcloud.training as aryl\n"
        "for step in range(1, 10**6):\n"
        "    time.sleep(0.01)\n"
        "    if aryl.should_checkpoint():\n"
        "        with aryl.save(step) as folder:\n"
        "            (folder / 'w').write_text(str(step))\n"
    )
    job.submit(spec("exec python3 learn.py"), files={"learn.py": script})
    server.rebalance = True
    machine = job.machine(ARYL_METADATA="ec2", ARYL_METADATA_URL=server.url, ARYL_METADATA_POLL_S="0.1")
    job.open_epoch("lease-a")
    beat = machine.until(lambda b: b.committed_step)
    assert beat.at_risk_s is not None
    assert (beat.notice, beat.phase) == (None, "running")
    assert len(job.manifests()) == 1  # the next one when it is due
