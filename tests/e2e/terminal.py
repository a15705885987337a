"""A command on a terminal of its own: what a user types, and what stands on the screen.

The terminal is a pty of 80 columns; Ctrl-C is the character, so that the kernel sends the signal to
whatever is in the foreground, as it does for a user.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import struct
import termios
import time

from e2e.support import WAIT_S, Child, Home

CTRL_C = b"\x03"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\r")


class Terminal:
    """``home.start(*args)`` on a pty: input and standard error always, standard output unless
    ``out_to_tty`` is False (it is then in ``child.out``, as with `> file`)."""

    def __init__(
        self,
        home: Home,
        *args: str,
        columns: int = 80,
        out_to_tty: bool = True,
        env: dict[str, str | None] | None = None,
    ) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.text = ""
        """All that it has ever shown, without escape sequences."""
        self.raw = b""
        name = os.ttyname(slave)
        wanted: dict[str, str | None] = {"NO_COLOR": None, "COLUMNS": None, "TERM": "xterm-256color"}
        self.child: Child = home.start(*args, env={**wanted, **(env or {})}, tty=name, out_to_tty=out_to_tty)
        self._slave = slave  # kept open: a reader of the master gets no error when the command ends

    def see(self, text: str, timeout_s: float = WAIT_S) -> None:
        """Until ``text`` has been shown. Raises AssertionError with the screen."""
        give_up_s = time.monotonic() + timeout_s
        while text not in self.text:
            self.read()
            if text in self.text:
                return
            assert self.child.running, f"it ended without showing {text!r}:\n{self.text}"
            assert time.monotonic() < give_up_s, f"{text!r} was not shown:\n{self.text}"

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def forget(self) -> None:
        """What has been shown so far."""
        self.raw, self.text = b"", ""

    def read(self, wait_s: float = 0.05) -> None:
        ready, _, _ = select.select([self._master], [], [], wait_s)
        if ready:
            self.raw += os.read(self._master, 1 << 16)
            self.text = _CONTROL.sub("", self.raw.decode(errors="replace"))

    def wait(self, timeout_s: float = WAIT_S) -> int:
        """Its exit code; what it shows meanwhile is read, or it would wait for us."""
        give_up_s = time.monotonic() + timeout_s
        while self.child.running:
            self.read()
            assert time.monotonic() < give_up_s, f"it does not end:\n{self.text}"
        while True:
            before = len(self.raw)
            self.read(0.0)
            if len(self.raw) == before:
                return self.child.wait()

    def hang_up(self) -> None:
        """Close the window: the kernel sends SIGHUP."""
        os.close(self._slave)
        os.close(self._master)
        self._master = self._slave = -1

    def close(self) -> None:
        for opened in (self._master, self._slave):
            if opened >= 0:
                with contextlib.suppress(OSError):
                    os.close(opened)
