"""How a job may end by itself, and what the user is told: exit codes, reasons, the cost line."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from e2e.market import job, quiet, wheel
from e2e.support import Home
from e2e.truth import settled

NewHome = Callable[..., Home]


@pytest.mark.parametrize(
    ("run", "own_code"),
    [
        ("echo about to fail; exit 1", 1),
        ("echo about to fail; exit 7", 7),
        ("echo about to fail; kill -9 $$", 137),
        ("echo about to fail; kill -TERM $$", 143),
    ],
)
def test_a_command_that_fails_is_the_users_failure(new_home: NewHome, run: str, own_code: int) -> None:
    home = new_home(quiet())
    done = home.launch(job(run=run), code=100)
    (job_id,) = home.jobs()
    report = home.report(job_id)
    assert report["exit_code"] == own_code
    assert report["attempts"] == 1, "a failure of the user's is not tried again"
    state = settled(home, job_id, phase="failed")
    assert state.phase_code == "user_command"
    # field case 76: code and last words in the default output, without any flag
    assert f"exit code {own_code}" in done.err
    assert "about to fail" in done.err
    assert "cost $" in done.err
    assert done.out == ""


def test_exit_0_is_the_end(new_home: NewHome) -> None:
    home = new_home(quiet())
    done = home.launch(job(steps=30), code=0)
    (job_id,) = home.jobs()
    settled(home, job_id)
    report = home.report(job_id)
    assert (report["exit_code"], report["final_step"], report["attempts"]) == (0, 30, 1)
    plan = report["plan"]
    assert 0 < plan["usd"]["p50"] <= plan["usd"]["p90"], "what was confirmed is journaled with the job"
    assert 0 < plan["hours"]["p50"] <= plan["hours"]["p90"]
    assert "cost $" in done.err


def test_a_failing_setup_ends_the_job_with_its_reason(new_home: NewHome) -> None:
    home = new_home(quiet())
    broken = job(top={"setup": "echo pip: no such package nosuch; exit 9"})
    done = home.launch(broken, code=100)
    (job_id,) = home.jobs()
    state = settled(home, job_id, phase="failed")
    assert state.phase_code == "setup"
    assert home.report(job_id)["exit_code"] == 9
    assert "setup failed with exit code 9" in done.err
    assert "no such package nosuch" in done.err
    assert len(state.leases) == 1, "one machine: the same setup fails on every other one, too"
    assert "no such package nosuch" in home.cli("logs", "--provision", code=0).out
    assert "setup failed with exit code 9" in home.cli("status", job_id, code=0).out
    assert "setup failed with exit code 9" in home.cli("report", job_id, code=0).out


def test_a_child_that_dies_of_a_signal_is_the_users_failure(new_home: NewHome) -> None:
    """The shell lives and gives 128 + n: as a program that is killed for want of memory."""
    home = new_home(quiet())
    home.launch(
        job(run="python3 -c 'import os, signal; os.kill(os.getpid(), signal.SIGKILL)'; exit $?"), code=100
    )
    (job_id,) = home.jobs()
    assert settled(home, job_id, phase="failed").phase_code == "user_command"
    assert home.report(job_id)["exit_code"] == 137


def test_a_stopped_job_says_so_and_can_be_resumed(new_home: NewHome) -> None:
    home = new_home(quiet())
    job_id = home.launch(job(steps=120, step_s=0.03, hold=100), "-d").out.strip()
    home.cli("stop", job_id, code=0)
    home.go()
    assert settled(home, job_id, phase="stopped").phase_code == "stop_requested"
    done = home.cli("resume", job_id, code=0)
    settled(home, job_id)
    assert "cost $" in done.err
    assert home.cli("resume", job_id).code == 2, "a finished job is not resumed"


def test_a_launcher_that_cannot_work_is_said_and_not_waited_for(new_home: NewHome) -> None:
    """It dies at its start: nobody is told that the job runs, and the reason is its last words."""
    home = new_home(quiet())
    job_id = home.submit(job())
    (home.prefix(job_id) / "job.json").unlink()
    for detach in ([], ["-d"]):
        done = home.start("resume", job_id, *detach, fork_launcher=True)
        assert done.wait() == 7, done.err
        error, hint = done.err.splitlines()[-2:]
        assert "has died at once" in error
        assert "holds no job.json" in error
        assert f"arylcloud resume {job_id}" in hint
        assert "runs in the background" not in done.err
        assert "Traceback" not in done.err
        assert done.out == ""


def test_what_failed_goes_on_with_mended_files(new_home: NewHome, tmp_path: Path) -> None:
    home = new_home(quiet())
    code = tmp_path / "code"
    code.mkdir()
    (code / "main.py").write_text("raise SystemExit('a slip')")
    home.launch(job(run="python3 main.py", top={"workdir": str(code)}), code=100)
    (job_id,) = home.jobs()
    (code / "main.py").write_text("print('mended')")
    newer = home.cli("resume", job_id, "-y", code=100)
    assert f"`--workdir {code}` sends those" in " ".join(newer.err.split())
    home.cli("resume", job_id, "-y", "--workdir", str(code), code=0)
    assert home.state(job_id).phase.value == "succeeded"
    assert "mended" in home.cli("logs", job_id, code=0).out


LOOKS = """
import json, os, sys
import aryl_probe, numpy
told = {"probe": aryl_probe.__file__, "numpy": numpy.VERSION}
told |= {"prefix": sys.prefix, "home": os.environ["HOME"]}
print("found " + json.dumps(told), flush=True)
"""


def test_what_setup_installs_is_the_machines_and_goes_with_it(new_home: NewHome, tmp_path: Path) -> None:
    """Also another release of what arylcloud itself imports: that stays as it is where arylcloud runs."""
    home = new_home(quiet())
    wheels = " ".join(
        shlex.quote(str(wheel(tmp_path, *of))) for of in (("aryl_probe", "1.0"), ("numpy", "99.0"))
    )
    setup = f"pip install -q --disable-pip-version-check --no-index {wheels}"
    home.launch(job(run=f"python3 -c {shlex.quote(LOOKS)}", top={"setup": setup}))
    (job_id,) = home.jobs()
    logs = home.cli("logs", job_id, code=0).out
    told = json.loads(next(line.partition("found ")[2] for line in logs.splitlines() if "found {" in line))
    assert told["numpy"] == "99.0"
    assert told["prefix"] == f"{told['home']}/.venv"
    assert told["probe"].startswith(told["prefix"])
    assert not Path(told["home"]).exists(), "the machine's folder is gone, and all of it"
    look = "import numpy, importlib.util as u; print(numpy.__version__, u.find_spec('aryl_probe'))"
    ours = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout
    assert ours.split() == [version("numpy"), "None"]
