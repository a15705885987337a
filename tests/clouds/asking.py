"""What the tests of all three clouds ask with: the command line, the example, a machine that is wanted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from e2e.support import Child, Warm

from arylcloud.core.offer import Offer
from arylcloud.core.ports import MachineSpec
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.state import JobState

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
PATIENCE_S = 280.0
_NUMBERS = count(1)
SDKS = {
    "AWS_ACCESS_KEY_ID": ("botocore.session",),
    "ARYLCLOUD_GCP__PROJECT": ("google.cloud.compute_v1",),
    "AZURE_SUBSCRIPTION_ID": ("azure.identity", "azure.mgmt.compute", "azure.mgmt.network"),
}
"""What a command will load, by a variable that says so."""


def arylcloud(home: Path, *args: str, cold: bool = False, **environ: str) -> subprocess.CompletedProcess[str]:
    """A command to its end. ``cold``: in a Python of its own, as always where a PYTHONPATH is given."""
    if cold or "PYTHONPATH" in environ:
        return subprocess.run(
            [sys.executable, "-m", "arylcloud", *args],
            env={**os.environ, "ARYLCLOUD_HOME": str(home), **environ},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    child = begin(home, *args, **environ)
    code = child.wait(PATIENCE_S)
    return subprocess.CompletedProcess(args, code, child.out, child.err)


def begin(home: Path, *args: str, **environ: str) -> Child:
    """A command that is not waited for. It runs in a fork of a process that has loaded the SDKs, and so does
    a launcher that it leaves in the background."""
    number, folder = next(_NUMBERS), warm().folder
    said = {**os.environ, "ARYLCLOUD_HOME": str(home), **environ}
    return warm().run(
        {
            "argv": list(args),
            "env": said,
            "cwd": str(Path.cwd()),
            "folder": str(home),
            "stdout": str(folder / f"{number}.out"),
            "stderr": str(folder / f"{number}.err"),
            "fork_launcher": True,
            "modules": [name for sign, names in SDKS.items() if said.get(sign) for name in names],
        }
    )


def state(home: Path) -> JobState | None:
    """What is known of the only job of this home."""
    path = home / "state" / "journal.db"
    if not path.exists():
        return None
    with Journal(path) as journal:
        jobs = journal.jobs()
        return journal.state(jobs[0]) if jobs else None


def first_checkpoint(home: Path) -> bool:
    found = state(home)
    return found is not None and bool(found.checkpoints)


@cache
def warm() -> Warm:
    """One for each test process, begun when it is first needed; conftest.py ends it."""
    return Warm()


def spec(wanted: Offer, **changes: Any) -> MachineSpec:
    """With a token of its own."""
    number = next(_NUMBERS)
    base = MachineSpec(
        token=f"aryl-test-{number}",
        journal_id="journal-1",
        job_id="job-1",
        lease_id=f"job-1-n0-a{number}",
        offer=wanted,
        user_data="exec sleep 600\n",
        until_s=time.time() + 3600,
        max_usd_per_hour=None,
    )
    return replace(base, **changes)
