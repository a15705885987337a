"""The dead-man's timer that needs no agent: a small process beside it.

Run as a script: ``python -I -S watchdog.py FILE AGENT_PID [POWEROFF]``. FILE holds the wall second at
which the machine must be off, whatever happens; the agent moves it as the lease is renewed. At that
moment the agent is killed (its commands go with it, see supervise.py) and POWEROFF is run, a shell
command that ends the machine; where there is none, the end of the agent is the machine's end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

TICK_S = 1.0


def watch(file: Path, agent: int, poweroff: str | None) -> None:
    if sys.platform.startswith("linux"):
        libc: Any = ctypes.CDLL(None)
        libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG: gone with the agent
    while os.getppid() == agent:
        until_s = float("inf")
        with contextlib.suppress(OSError, ValueError):
            until_s = float(file.read_text())
        if time.time() >= until_s:
            print("arylcloud: the lease is over and the agent has not ended the machine", flush=True)  # noqa: T201
            if poweroff:
                os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", poweroff)  # noqa: S606
            os.kill(agent, signal.SIGKILL)
            return
        time.sleep(TICK_S)


if __name__ == "__main__":
    watch(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
