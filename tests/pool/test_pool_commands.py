"""``arylcloud pool``: what its user sees and what follows from it; by real processes on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from e2e.conftest import new_home, warm
from e2e.market import job, quiet
from e2e.support import Home, wait_for

from arylcloud.core.phases import JobPhase

__all__ = ["new_home", "warm"]

NewHome = Callable[..., Home]


def pool(home: Home, *names: str, group: str = "own") -> None:
    for n, name in enumerate(names):
        home.cli(
            *("pool", "add", name, "--host", "localhost", "--gpu", "T4", "--gpus", "1"),
            *("--usd-per-hour", "0.30", "--group", group, "--address", f"127.0.9.{n + 1}"),
            *("--folder", str(home.path.parent / "own")),
            code=0,
        )  # fmt: skip


def machines(home: Home) -> dict[str, dict[str, object]]:
    return {m["name"]: m for m in home.cli("pool", "list", "--json", code=0).json["machines"]}


def on_pool(home: Home, **changes: object) -> str:
    spec = job(**changes)  # type: ignore[arg-type]
    done = home.cli("launch", str(home.job_file(spec)), "--infra", "pool", "-y", "-d", "--json", code=0)
    return str(done.json["job_id"])


def test_entered_lent_and_taken_out(new_home: NewHome) -> None:
    home = new_home(quiet())
    assert "no machines" in home.cli("pool", "list", code=0).err
    pool(home, "a", "b")
    assert "already" in home.cli("pool", "add", "a", "--host", "x", "--usd-per-hour", "1", code=2).err
    assert {name: m["lent"] for name, m in machines(home).items()} == {"a": True, "b": True}
    home.cli("pool", "reclaim", "b", code=0)
    shown = home.cli("pool", "list", code=0)
    assert shown.out.splitlines()[1].split()[:1] + shown.out.splitlines()[1].split()[-1:] == ["a", "free"]
    assert shown.out.splitlines()[2].rstrip().endswith("not lent")
    assert "2 machines: 1 lent, 0 at work" in shown.err
    home.cli("pool", "loan", "--all", code=0)
    assert machines(home)["b"]["lent"]
    home.cli("pool", "remove", "b", code=0)
    assert list(machines(home)) == ["a"]
    typo = home.cli("pool", "loan", "c", code=2)
    assert "no machine called 'c'" in typo.err
    assert "it has a" in typo.err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--host", "localhost", "--usd-per-hour", "0"], "what an hour of it is worth"),
        (["--host", "-oProxyCommand=x", "--usd-per-hour", "1"], "is no host"),
        (["--host", "localhost", "--usd-per-hour", "1", "--gpu", "T4"], "go together"),
        (["--host", "localhost", "--usd-per-hour", "1", "--group", "../x"], "cannot be a group"),
    ],
)
def test_what_cannot_be_entered(new_home: NewHome, args: list[str], says: str) -> None:
    home = new_home(quiet())
    done = home.cli("pool", "add", "a", *args, code=2)
    assert says in done.err
    assert machines(home) == {}


def test_a_machine_that_does_not_answer_is_not_entered(new_home: NewHome) -> None:
    home = new_home(quiet())
    done = home.cli(
        *("pool", "add", "a", "--host", "nobody@192.0.2.1", "--usd-per-hour", "1"),
        env={"ARYLCLOUD_POOL__TIMEOUT_S": "1"},
    )
    assert done.code == 5
    assert "a (nobody@192.0.2.1)" in done.err or "did not answer" in done.err or "ssh cannot" in done.err
    assert machines(home) == {}


def test_a_job_for_an_empty_pool(new_home: NewHome) -> None:
    home = new_home(quiet())
    done = home.cli("launch", str(home.job_file(job())), "--infra", "pool", "-y", "-d", code=2)
    assert "the pool has no machines" in done.err
    assert "arylcloud pool add" in done.err


def test_a_machine_is_taken_back_and_its_job_goes_on_with_another(new_home: NewHome) -> None:
    home = new_home(quiet())
    pool(home, "a", "b")
    job_id = on_pool(home, steps=200, step_s=0.02, save_every=1000, hold=150)
    wait_for(lambda: home.steps_log.exists() and len(home.steps_log.read_text().splitlines()) > 9, "steps")
    (first,) = [name for name, m in machines(home).items() if m["job_id"] == job_id]
    refused = home.cli("pool", "remove", first, code=6)
    assert f"{job_id} has {first}" in refused.err
    home.cli("pool", "reclaim", "--number", "2", "--within", "100s", code=0)  # the idle one, and this one
    wait_for(lambda: machines(home)[first]["job_id"] is None, "the end of its lease")
    home.cli("pool", "loan", "b" if first == "a" else "a", code=0)
    home.go()
    wait_for(lambda: home.state(job_id).phase.ended, "the end")
    state = home.state(job_id)
    assert state.phase is JobPhase.SUCCEEDED, state.phase_text
    assert not state.open_leases
    assert state.interruptions == 1
    steps = [line.split()[3] for line in home.steps_log.read_text().splitlines()]
    assert [int(x) for x in steps if x.isdigit()] == list(range(1, 201)), "no step is lost, none repeated"
    report = home.report(job_id)
    assert 0 < report["usd"]["compute"] < 0.1
    assert {m["job_id"] for m in machines(home).values()} == {None}
    assert home.cli("gc", "--infra", "pool", "--json", code=0).json["found"] == []


# ---------------------------------------------------------------- tend


@pytest.fixture
def told() -> Iterator[list[bytes]]:
    """``[answer, address]``: what the owner's service says, over HTTP."""
    found = [b"0", b""]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(found[0])

        def log_message(self, *_: object) -> None:
            """Not on the test's own stderr."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    found[1] = f"http://127.0.0.1:{server.server_port}/load".encode()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_the_owner_needs_comes_back(new_home: NewHome, told: list[bytes]) -> None:
    home = new_home(quiet())
    pool(home, "a", "b", "c")

    def tend(answer: bytes, *flags: str) -> dict[str, object]:
        told[0] = answer
        done = home.cli("pool", "tend", "--signal", told[1].decode(), "--once", "--json", *flags, code=0)
        (only,) = done.json["rounds"]
        assert isinstance(only, dict)
        return only

    found = tend(b"1.5", "--headroom", "0%")
    assert found["reclaim"] == ["a", "b"]
    assert (found["before"]["lent"], found["after"]["lent"]) == (3, 1)  # type: ignore[index]
    assert tend(b"1.5", "--headroom", "0%")["reclaim"] == []
    assert tend(json.dumps({"machines": 0}).encode())["lend"] == ["a", "b"]


def test_a_signal_that_tells_nothing_changes_nothing(new_home: NewHome, tmp_path: Path) -> None:
    home = new_home(quiet())
    pool(home, "a")
    for signal, says in (("echo many", "no number"), ("exit 3", "ended with 3"), ("echo -1", "-1 machines")):
        done = home.cli("pool", "tend", "--signal", signal, "--once", code=5)
        assert says in done.err
    assert machines(home)["a"]["lent"]
