"""Entry point of a machine: ``python3 -m arylcloud.agent``, started by the boot stub,
which ends the machine when this returns."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from arylcloud.agent.config import from_environment
from arylcloud.agent.loop import Agent
from arylcloud.agent.opening import open_prefix
from arylcloud.core.clock import SystemClock
from arylcloud.core.errors import ArylError


def main() -> int:
    try:
        config = from_environment(os.environ, Path.cwd())
        store, lent = open_prefix(config)
        agent = Agent(config, store, clock=SystemClock())
    except (ArylError, OSError) as error:
        sys.stderr.write(f"arylcloud: {error}\n")
        return error.exit_code if isinstance(error, ArylError) else 2

    def shut_down(number: int, _frame: FrameType | None) -> None:
        agent.shutdown = f"the machine is being shut down ({signal.Signals(number).name})"

    def loan_ends(why: str) -> None:
        agent.shutdown = why

    if lent is not None:
        lent.on_end = loan_ends
        lent.renew_from(store)
    signal.signal(signal.SIGTERM, shut_down)
    signal.signal(signal.SIGINT, shut_down)
    threading.excepthook = lambda args: sys.stderr.write(f"arylcloud: thread ended: {args.exc_value!r}\n")
    agent.run()
    return 0
