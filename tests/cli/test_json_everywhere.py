"""Field case 81: with ``--json``, standard output is one JSON document, whatever the command, whatever
becomes of it, on a terminal too; all else goes to standard error.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.market import job, quiet
from e2e.support import Home, Warm

from arylcloud.cli.registry import COMMANDS

JOB = "JOB"  # stands for the id of a job that has ended
URI = "URI"
FILE = "FILE"
TRACE = "TRACE"
POOL = ("--capacity", "t4=2", "--costs", "t4=.3")
LOCAL = ("--infra", "local")
SUCCESSES: dict[str, list[list[str]]] = {
    "init": [["new.yaml", "--run", "true", "-y"]],
    "prices": [["--gpu", "T4", "--limit", "3"], ["doctor"]],
    "profile": [["list"], ["show", "mpt-125m"], ["estimate", "mpt-125m", "--gpu", "A100", "--gpus", "8"]],
    "plan": [[FILE], [FILE, "-o", "plan.json"], [FILE, FILE, *POOL, "-o", "many.json"]],
    "simulate": [["--trace", TRACE, "--capacity", "v100=4", "--policy", "fifo_perf"]],
    "backtest": [["--invent", "1", "--work-h", "6", "--deadline-h", "9", "--starts", "2"]],
    "launch": [[FILE, *LOCAL, "--dryrun"], [FILE, *LOCAL, "-y"], [FILE, *LOCAL, "-y", "-d"]],
    "status": [[], [JOB]],
    "logs": [[JOB], [JOB, "--provision"]],
    "events": [[JOB], [JOB, "--all"]],
    "stop": [[JOB]],
    "report": [[JOB], [JOB, "--html", "page.html"]],
    "check": [[*LOCAL]],
    "gc": [["--dryrun"], []],
    "pool": [["list"]],
}  # fmt: skip
"""Arguments with which a command succeeds in a home that holds an ended job."""
FAILURES: dict[str, list[list[str]]] = {
    "init": [["--nosuch"], ["/proc/nosuch/x.yaml", "--run", "true", "-y"]],
    "prices": [["--gpu", "nosuch"], ["--nosuch"]],
    "profile": [["show", "nosuch"], ["estimate", "nosuch", "--gpu", "A100", "--gpus", "8"],
                ["measure", "nosuch.yaml"], ["import", "nosuch.json"], ["check", "--data", "nosuch"]],
    "plan": [[], ["nosuch.yaml"], [FILE, "--budget", "-1"], [FILE, "--gpus", "X9:1"], ["--policy", "sia"],
             [FILE, FILE, *POOL, "--deadline", "0.001s"], [FILE, "--policy", "x"], [FILE, FILE, "-n", "x"]],
    "launch": [["nosuch.yaml"], ["nosuch.json"], [FILE, "--infra", "local"], [FILE, "--infra", "mars", "-y"]],
    "check": [[], ["nosuch.yaml"], ["--infra", "nosuch"]],
    "serve": [["--job", JOB, "--nosuch"], ["--nosuch"]],
    "status": [["nosuch"]],
    "logs": [["nosuch"], [JOB, "-f"]],
    "events": [["nosuch"]],
    "exec": [["nosuch", "--", "ls"], []],
    "migrate": [["nosuch"], [JOB]],
    "scale": [["nosuch", "2"], [JOB, "2"]],
    "stop": [["nosuch"]],
    "resume": [["nosuch"], [JOB]],
    "adopt": [["nosuch"], ["file:///nosuch/jobs/x-1"]],
    "report": [["nosuch"], [JOB, "--html", "/proc/nosuch/x.html"]],
    "gc": [["--infra", "nosuch"]],
    "pool": [["remove", "nosuch"], ["loan"], ["reclaim"], ["tend", "--signal", "false", "--once"],
             ["add", "m", "--host", "localhost", "--usd-per-hour", "0"]],
    "simulate": [[], ["--policy", "nosuch", "--capacity", "v100=1"],
                 ["--trace", "nosuch.csv", "--capacity", "v100=4", "--policy", "fifo_perf"]],
    "backtest": [[], ["--trace", "nosuch.csv", "--work-h", "6", "--deadline-h", "9"],
                 [FILE, "--invent", "1"]],
}  # fmt: skip
"""Arguments with which it does not."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home with one finished job."""
    warm = Warm()
    with Home(tmp_path_factory.mktemp("json"), quiet(), warm=warm) as made:
        made.serve_to_the_end(made.submit(job(steps=10)))
        # under a name of its own: whatever is submitted later is written over the other
        (made.market_file.parent / "ten-steps.yaml").write_bytes(
            (made.market_file.parent / "job.yaml").read_bytes()
        )
        trace = made.market_file.parent / "trace.csv"
        trace.write_text("job_id,submit_s,duration_s,num_gpus\na,0,600,1\nb,60,600,2\n")
        yield made
    warm.close()


def command(home: Home, name: str, args: list[str]) -> list[str]:
    job_id = home.jobs()[0]
    folder = home.market_file.parent
    real = {
        JOB: job_id,
        URI: home.state(job_id).prefix_uri,
        FILE: str(folder / "ten-steps.yaml"),
        TRACE: str(folder / "trace.csv"),
    }
    before = ["--json"] if name == "exec" else []
    return [name, *before, *(real.get(arg, arg) for arg in args), *([] if before else ["--json"])]


def one_document(text: str) -> dict[str, Any]:
    found, end = json.JSONDecoder().raw_decode(text)
    assert text[end:].strip() == "", f"more than one document: {text[end : end + 200]!r}"
    assert text.startswith("{"), "something stands before it"
    assert "\x1b" not in text
    assert isinstance(found, dict)
    assert next(iter(found)) == "schema_version"
    return found


def test_no_command_is_left_out() -> None:
    assert set(FAILURES) == set(COMMANDS)
    # `serve` runs until it is stopped; `exec`, `migrate`, `scale`, `resume`, `adopt` need a job that runs:
    # below
    assert set(COMMANDS) - set(SUCCESSES) == {"serve", "exec", "migrate", "scale", "resume", "adopt"}


@pytest.mark.parametrize(
    ("name", "args"), [(name, args) for name, cases in SUCCESSES.items() for args in cases]
)
def test_success(home: Home, name: str, args: list[str]) -> None:
    done = home.cli(*command(home, name, args), code=0)
    assert "error" not in one_document(done.out)


def test_success_of_a_pool_with_a_machine(home: Home) -> None:
    """One after the other: each needs what the one before it has done."""
    for args in (
        ["add", "m", "--host", "localhost", "--usd-per-hour", "1", "--folder", "own"],
        ["reclaim", "m"],
        ["loan", "m"],
        ["tend", "--signal", "echo 0", "--once"],
        ["remove", "m"],
    ):
        assert "error" not in one_document(home.cli("pool", *args, "--json", code=0).out)


@pytest.mark.parametrize(
    ("name", "args"), [(name, args) for name, cases in FAILURES.items() for args in cases]
)
def test_failure(home: Home, name: str, args: list[str]) -> None:
    done = home.cli(*command(home, name, args))
    assert done.code not in (0, 1), done.err
    error = one_document(done.out)["error"]
    assert set(error) == {"kind", "code", "message", "hint", "cause_id"}
    assert error["message"] in done.err
    assert "Traceback" not in done.err


def test_commands_on_a_running_job(home: Home) -> None:
    """serve, exec, migrate, stop, resume, adopt: with a job that runs."""
    job_id = home.submit(job(steps=4000, hold=100))
    viewer = home.start("serve", "--job", job_id, "--json")
    status = home.cli("status", "--json", code=0)
    while not home.state(job_id).trainings:
        assert viewer.running, viewer.err
    one_document(status.out)
    found = one_document(home.cli("exec", "--json", job_id, "--", "echo", "hello", code=0).out)
    assert found["output"] == "hello\n"
    assert one_document(home.cli("exec", "--json", job_id, "--", "false", code=100).out)["exit_code"] == 1
    moved = home.cli("migrate", job_id, "--to", "local/nowhere", "--json")
    assert moved.code != 0
    assert "error" in one_document(moved.out)
    one_document(home.cli("migrate", job_id, "-d", "--json", code=0).out)
    fixed = home.cli("scale", job_id, "2", "--json", code=2)
    assert "throughout" in one_document(fixed.out)["error"]["message"]
    uri = home.state(job_id).prefix_uri
    assert one_document(home.cli("adopt", uri, "--json", code=6).out)["error"]["kind"] == "conflict"
    one_document(home.cli("stop", job_id, "--json", code=0).out)
    assert viewer.wait() == 0
    assert one_document(viewer.out)["phase"] == "stopped"
    one_document(home.cli("resume", job_id, "-d", "--json", code=0).out)
    one_document(home.cli("stop", job_id, "-d", "--json", code=0).out)
    home.cli("stop", job_id, code=0)


def on_a_terminal(home: Home, args: list[str], **env: str) -> str:
    """What it writes to a standard output that is a terminal; standard error is a pipe."""
    master, slave = os.openpty()
    wanted = home.env(NO_COLOR=None, COLUMNS="40", TERM="xterm-256color", **env)
    process = subprocess.Popen(
        [sys.executable, "-m", "arylcloud", *args],
        env=wanted, cwd=home.market_file.parent, stdin=slave, stdout=slave, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(slave)
    data = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # Linux: the other side is closed
            break
        if not part:
            break
        data += part
    os.close(master)
    assert process.stderr is not None
    process.stderr.read()
    process.stderr.close()
    process.wait()
    return data.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("env", [{"FORCE_COLOR": "1"}, {"CLICOLOR_FORCE": "1", "PY_COLORS": "1"}])
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("status", []),
        ("report", [JOB]),
        ("plan", [FILE]),
        ("plan", ["nosuch.yaml"]),
        ("prices", ["--nosuch"]),
    ],
)
def test_on_a_terminal_that_wants_colour(home: Home, name: str, args: list[str], env: dict[str, str]) -> None:
    one_document(on_a_terminal(home, command(home, name, args), **env))


def test_launch_on_a_terminal(home: Home) -> None:
    """The whole run, with a terminal and forced colour: no bar, no event, no question on stdout."""
    found = one_document(
        on_a_terminal(home, command(home, "launch", [FILE, "--infra", "local", "-y"]), FORCE_COLOR="1")
    )
    assert found["phase"] == "succeeded"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_it(home: Home, name: str) -> None:
    """Also each command of a group: the help names the flag."""
    shown = home.cli(name, "--help", code=0).out
    listed = re.findall(r"^\W*([a-z]+)\s{2,}", shown.partition("Commands")[2], re.MULTILINE)
    for sub in listed:
        assert "--json" in home.cli(name, sub, "--help", code=0).out, f"{name} {sub}"
    assert listed or "--json" in shown
