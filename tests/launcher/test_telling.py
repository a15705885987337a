"""Why a command failed, in one line of what it printed last."""

from __future__ import annotations

import pytest

from arylcloud.launcher.telling import MOST, telling_line

PIP = """Collecting nosuch
ERROR: Could not find a version that satisfies the requirement nosuch (from versions: none)
ERROR: No matching distribution found for nosuch

[notice] A new release of pip is available: 24.0 -> 25.3
[notice] To update, run: pip install --upgrade pip
"""


@pytest.mark.parametrize(
    ("tail", "of_setup", "line"),
    [
        (PIP, True, "ERROR: No matching distribution found for nosuch"),
        (PIP, False, "ERROR: No matching distribution found for nosuch"),
        ("E: Unable to locate package x\ndone\n", True, "E: Unable to locate package x"),
        ("E: Unable to locate package x\ndone\n", False, "done"),
        (
            "ModuleNotFoundError: No module named 'x'\nWARNING: odd\n",
            False,
            "ModuleNotFoundError: No module named 'x'",
        ),
        ("no such package nosuch", True, "no such package nosuch"),
        ("[notice] alone\n", True, "[notice] alone"),
        ("", True, ""),
        ("\n \n", False, ""),
        ("x" * 999, True, "x" * MOST),
    ],
)
def test_the_line_that_tells(tail: str, of_setup: bool, line: str) -> None:
    assert telling_line(tail, of_setup=of_setup) == line
