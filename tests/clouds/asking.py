"""What the tests of all three clouds ask with: the command line, the example, a machine that is wanted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from arylcloud.core.offer import Offer
from arylcloud.core.ports import MachineSpec

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
PATIENCE_S = 280.0
_NUMBERS = count(1)


def arylcloud(home: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "arylcloud", *args],
        env={**os.environ, "ARYLCLOUD_HOME": str(home), **environ},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


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
