"""The server of warm interpreters (``training/zygote.py``), while some command of this machine wants one.

It is the agent's child, under a supervisor like every command: when the agent dies, it dies, and with it all
that it has forked. It outlives epochs: that is what it is for.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import arylcloud
from arylcloud.agent.config import PRIVATE
from arylcloud.agent.process import Command
from arylcloud.agent.shipper import one_line
from arylcloud.training.warm import WANTED

LOOK_S = 0.1
REAP_S = 5.0
AGAIN_S = 1.0
"""At most one server is started in this time: one that cannot live must not fill the log."""


class Warmth(threading.Thread):
    """``folder``: what ``ARYL_WARM_DIR`` names."""

    def __init__(self, folder: Path, *, environ: Mapping[str, str], log: Callable[[str], None]) -> None:
        """Makes ``folder``; raises OSError."""
        super().__init__(name="warmth", daemon=True)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._env = {k: v for k, v in environ.items() if k not in PRIVATE}
        self._env["PYTHONPATH"] = str(Path(arylcloud.__file__).resolve().parents[1])
        self._log = log
        self._server: Command | None = None
        self._halt = threading.Event()

    def run(self) -> None:
        pause_s = LOOK_S
        while not self._halt.wait(pause_s):
            try:
                pause_s = AGAIN_S if self.look() else LOOK_S
            except OSError as error:  # commands start cold
                self._log(f"no warm interpreter can be kept: {one_line(error)}")
                pause_s = 30.0

    def look(self) -> bool:
        """Start a server where one is wanted and none lives; whether it was. Raises OSError."""
        wanted = self._folder / WANTED
        if self._server is not None and self._server.poll() is not None:
            self._server = None
        if self._server is not None or not wanted.exists():
            return False
        wanted.unlink()
        self._server = Command(
            [sys.executable, "-S", "-m", "arylcloud.training.zygote", str(self._folder)],
            cwd=self._folder,
            env=self._env,
            output=lambda data: self._log(data.decode(errors="replace")),
        )
        return True

    def stop(self) -> None:
        """Returns when nothing of it runs (or cannot be ended in time)."""
        self._halt.set()
        self.join(REAP_S)
        if self._server is not None:
            self._server.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(REAP_S)
