"""Ctrl-C, and a terminal that is closed, at every moment of ``launch``: nothing unknown is left.

Either there is no job, or it is in the journal and can be gone on with, or stopped.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable

import pytest

from e2e.market import job, quiet
from e2e.support import Home, wait_for
from e2e.terminal import CTRL_C, Terminal
from e2e.truth import settled

NewHome = Callable[..., Home]
LONG = job(steps=250, step_s=0.02, hold=100)
QUESTION = "[w]atch on?"


def launch(home: Home, *flags: str) -> Terminal:
    return Terminal(home, "launch", str(home.job_file(LONG)), "--infra", "local", *flags)


def newest(home: Home) -> str:
    return home.jobs()[-1]


def no_job(home: Home) -> None:
    assert home.jobs() == ()
    assert not [r for r in home.cloud_records() if r["kind"] == "launch"]


def goes_on(home: Home) -> None:
    """The viewer has left; a launcher is at work and brings the job to its end."""
    (job_id,) = home.jobs()
    home.go()
    wait_for(lambda: home.state(job_id).phase.ended, "the job's end")
    settled(home, job_id)


def test_at_the_question_nothing_has_begun(new_home: NewHome) -> None:
    home = new_home(quiet())
    terminal = launch(home)
    terminal.see("Launch on spot")
    terminal.type(CTRL_C)
    assert terminal.wait() == 130
    no_job(home)
    assert "Traceback" not in terminal.text


def test_no_is_no(new_home: NewHome) -> None:
    home = new_home(quiet())
    terminal = launch(home)
    terminal.see("Launch on spot")
    terminal.type(b"n\n")
    assert terminal.wait() == 103
    no_job(home)


def test_detached_the_job_goes_on(new_home: NewHome) -> None:
    home = new_home(quiet())
    terminal = launch(home, "-y")
    terminal.see("first heartbeat")
    terminal.type(CTRL_C)
    terminal.see(QUESTION)
    terminal.type(b"d\n")
    assert terminal.wait() == 130
    assert f"detached: {newest(home)} goes on" in terminal.text
    assert "error:" not in terminal.text
    assert f"`arylcloud stop {newest(home)}`" in " ".join(terminal.text.split())
    goes_on(home)


def test_a_second_ctrl_c_detaches(new_home: NewHome) -> None:
    home = new_home(quiet())
    terminal = launch(home, "-y")
    terminal.see("asking for")
    terminal.type(CTRL_C)
    terminal.see(QUESTION)
    terminal.type(CTRL_C)
    assert terminal.wait() == 130
    assert "Traceback" not in terminal.text
    goes_on(home)


def test_stop_saves_and_releases(new_home: NewHome) -> None:
    home = new_home(quiet())
    terminal = launch(home, "-y")
    terminal.see("training at step")
    terminal.type(CTRL_C)
    terminal.see(QUESTION)
    terminal.type(b"s\n")
    assert terminal.wait() == 103
    state = settled(home, newest(home), phase="stopped")
    assert state.checkpoints, "no final checkpoint"
    assert "cost $" in terminal.text


def test_watch_on_watches_on(new_home: NewHome) -> None:
    home = new_home(quiet())
    terminal = launch(home, "-y")
    terminal.see("first heartbeat")
    for step in (150, 200):
        terminal.type(CTRL_C)
        terminal.see(QUESTION)
        terminal.forget()
        terminal.type(b"w\n")
        home.go(step)
        terminal.see("committed")  # it watches
    home.go()
    assert terminal.wait() == 0
    settled(home, newest(home))


def test_an_answer_that_is_none_is_asked_again(new_home: NewHome) -> None:
    home = new_home(quiet())
    path = str(home.job_file(job(steps=50_000, step_s=0.02)))  # it must outlive the conversation
    terminal = Terminal(home, "launch", path, "--infra", "local", "-y")
    terminal.see("first heartbeat")
    terminal.type(CTRL_C)
    for answer in (b"yes\n", b"sure\n", b"x\n"):
        terminal.see(QUESTION)
        terminal.forget()
        terminal.type(answer)
        terminal.see(f"'{answer.decode().strip()}' is none of them")
    terminal.see(QUESTION)
    assert not home.state(newest(home)).phase.ended
    terminal.type(b"Stop\n")
    assert terminal.wait() == 103
    settled(home, newest(home), phase="stopped")


def test_without_a_terminal_it_detaches(new_home: NewHome) -> None:
    home = new_home(quiet())
    child = home.start("launch", str(home.job_file(LONG)), "--infra", "local", "-y", "--json")
    wait_for(lambda: (home.state_dir / "journal.db").exists() and home.jobs(), "submission")
    child.send(signal.SIGINT)
    assert child.wait() == 130
    assert json.loads(child.out)["error"]["kind"] == "interrupted"
    goes_on(home)


@pytest.mark.parametrize(
    "number",
    [signal.SIGHUP, *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGTERM, signal.SIGKILL))],
)
def test_the_viewers_end_is_not_the_jobs(new_home: NewHome, number: signal.Signals) -> None:
    home = new_home(quiet())
    terminal = launch(home, "-y")
    terminal.see("asking for")
    if number is signal.SIGHUP:
        terminal.hang_up()
        terminal.child.wait()
    else:
        os.kill(terminal.child.pid, number)
        assert terminal.wait() == (130 if number is signal.SIGTERM else -9)
    goes_on(home)


def any_moment(home: Home, delay_s: float) -> None:
    """Ctrl-C ``delay_s`` after the start, wherever that is; then d at whatever question comes."""
    terminal = launch(home, "-y")
    end_s = time.monotonic() + delay_s
    while time.monotonic() < end_s and terminal.child.running:
        terminal.read(0.01)
    terminal.type(CTRL_C)
    while terminal.child.running:
        terminal.read(0.05)
        if QUESTION in terminal.text:
            terminal.type(b"d\n")
            break
    code = terminal.wait()
    assert "Traceback" not in terminal.text, terminal.text
    assert code in (0, 130), terminal.text
    jobs = home.jobs() if (home.state_dir / "journal.db").exists() else ()
    if not jobs:
        no_job(home)
        return
    state = home.state(jobs[0])
    assert not state.phase.ended
    home.cli("resume", jobs[0], "-d", code=0)  # a launcher is at work, or gets to work
    goes_on(home)


@pytest.mark.parametrize("seed", [1, 2])
def test_at_any_moment(new_home: NewHome, seed: int) -> None:
    any_moment(new_home(quiet()), random.Random(seed).uniform(0.0, 2.5))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_at_any_moment_thoroughly(new_home: NewHome, seed: int) -> None:
    any_moment(new_home(quiet()), random.Random(seed).uniform(0.0, 5.0))
