"""What becomes of a command whose output cannot be written: the kernel's own full disk, ``/dev/full``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from arylcloud.cli.output import print_error
from arylcloud.core.errors import Interrupted

NOWHERE = Path("/dev/full")
pytestmark = pytest.mark.skipif(not NOWHERE.exists(), reason="there is no /dev/full here")


def arylcloud(*args: str, stdout: int | None = None, stderr: int | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "arylcloud", *args],
        stdout=stdout or subprocess.PIPE,
        stderr=stderr or subprocess.PIPE,
        env=dict(os.environ), text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout or "", done.stderr or ""


@pytest.mark.parametrize("args", [("--version",), ("status", "--json"), ("prices", "--json"), ("--help",)])
def test_an_output_that_cannot_be_written_is_an_error_of_one_line(args: tuple[str, ...]) -> None:
    """Short (it is still in a buffer when the command ends) or long."""
    with NOWHERE.open("wb") as full:
        code, _, err = arylcloud(*args, stdout=full.fileno())
    assert code == 2
    lines = err.splitlines()
    assert lines[0].startswith("error: ")
    assert "No space left" in lines[0]
    assert len(lines) == 1 or lines[1].startswith("hint: ")
    assert "Traceback" not in err


def test_what_cannot_be_said_changes_no_exit_code() -> None:
    for args, expected in ((("status", "--json"), 0), (("logs", "no-such-job"), 102), (("plan",), 2)):
        with NOWHERE.open("wb") as full:
            code, _, _ = arylcloud(*args, stderr=full.fileno())
        assert code == expected


def test_what_the_user_chose_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(Interrupted("detached: j goes on", hint="`x` ends it", chosen=True), as_json=False)
    assert capsys.readouterr().err == "detached: j goes on\nhint: `x` ends it\n"
    print_error(Interrupted("interrupted"), as_json=False)
    assert capsys.readouterr().err == "error: interrupted\n"
