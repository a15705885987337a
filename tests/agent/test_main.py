"""The agent's command: what it does before there is an agent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from arylcloud.checkpoint.store import file_uri


def test_a_mailbox_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """A disk that is not mounted here, and not before the lease's end: an agent in an empty folder of its own
    would wait for nobody."""
    missing = tmp_path / "store" / "jobs" / "gpt-0a1b2c3d"
    names = {"ARYL_PREFIX_URI": file_uri(missing), "ARYL_JOB_ID": "gpt-0a1b2c3d", "ARYL_LEASE_ID": "lease-a"}
    names["ARYL_UNTIL_S"] = "1.0"
    done = subprocess.run(
        [sys.executable, "-m", "arylcloud.agent"],
        env={**os.environ, **names},
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 5
    (line,) = done.stderr.splitlines()
    assert "there is no object store at" in line
    assert not (tmp_path / "store").exists()
