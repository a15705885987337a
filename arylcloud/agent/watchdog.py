"""The dead-man's timer that an agent which hangs cannot stop: a small process beside it.

Run as a script: ``python -I -S watchdog.py AGENT_PID``. Each line of standard input says in how
many seconds the machine must be off, whatever happens; a later line replaces it; the end of
input means that the agent is gone, and this process with it. At that second the agent is killed: its
commands go with it (``training/supervise.py``), and the boot stub ends the machine.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Never set, and goes on while the machine is suspended: it has not stopped costing then."""


def watch(agent: int) -> None:
    until_s = float("inf")
    waiting = b""
    while True:
        left_s = until_s - time.clock_gettime(STEADY)
        if left_s <= 0:
            break
        if select.select([0], [], [], min(left_s, 5.0))[0]:
            data = os.read(0, 4096)
            if not data:
                return
            *lines, waiting = (waiting + data).split(b"\n")
            if lines:
                until_s = time.clock_gettime(STEADY) + float(lines[-1])
    if os.getppid() != agent:
        return
    os.write(2, b"arylcloud: the lease is over and the agent has not ended the machine\n")
    os.kill(agent, signal.SIGKILL)


if __name__ == "__main__":
    watch(int(sys.argv[1]))
