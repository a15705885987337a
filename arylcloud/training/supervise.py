"""A process between the agent and a command, so that nothing of the command outlives either.

Not for scripts: it lies here because a warm interpreter (``zygote.py``) keeps what it forks by these rules.
Run as a script, with the standard library only: ``python -I -S supervise.py ARGV…``. Standard input
is the agent's end of a pipe: each line is the number of a signal for every process of the command's
group; its end means that the agent is gone. The exit code is the command's, as a shell gives it
(128 + n for signal n).

* The agent dies (SIGKILL too): the pipe ends, every descendant is killed at once.
* The command ends by itself: what it left in the background is asked to stop, then killed.
* It was signalled: every process of its group may take its time (a shell dies of SIGTERM at once
  while the training under it is still saving); the agent says when the time is up (signal 9).

On Linux this process is a *subreaper*: descendants that made themselves daemons come back to it and
are found; elsewhere only the process group is known.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LEFTOVER_GRACE_S = 1.0
_ASKED_TO_QUIT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def prctl(option: int, value: int) -> bool:
    """True where Linux does it; False elsewhere."""
    if not sys.platform.startswith("linux"):
        return False
    libc: Any = ctypes.CDLL(None, use_errno=True)
    return int(libc.prctl(option, value, 0, 0, 0)) == 0


def descendants(root: int) -> list[int]:
    """Every living descendant, from /proc; empty where there is none to read."""
    children: dict[int, list[int]] = {}
    proc = Path("/proc")
    if not proc.is_dir():
        return []
    for name in os.listdir(proc):  # noqa: PTH208 - names only, many times over
        if not name.isdigit():
            continue
        try:
            stat = (proc / name / "stat").read_text(errors="replace")
        except OSError:
            continue  # it has just ended
        children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(name))
    found: list[int] = []
    todo = [root]
    while todo:
        for pid in children.get(todo.pop(), ()):
            found.append(pid)
            todo.append(pid)
    return found


def send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _exec(argv: list[str]) -> NoReturn:
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (*_ASKED_TO_QUIT, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.execvp(argv[0], argv)  # noqa: S606 - the very point
    except OSError as error:
        os.write(2, f"arylcloud: cannot run {argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


class Supervisor:
    """``command`` is what the forked child becomes. It leaves by an exec, by ``os._exit``, or by an exception
    that the caller of this constructor catches: in the child, then."""

    def __init__(self, command: Callable[[], None]) -> None:
        self.code: int | None = None
        """As a shell gives it."""
        self.signal: int | None = None
        """Which one has ended it; None = it has ended by itself, or is not over."""
        self.asked = False
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        for number in _ASKED_TO_QUIT:
            signal.signal(number, signal.SIG_IGN)
        self.woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self.woken, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.pid = os.fork()
        if self.pid == 0:
            signal.set_wakeup_fd(-1)
            os.close(self.woken)
            os.close(wake)
            command()

    def run(self) -> int:
        """Until nothing of the command is left. Returns its exit code."""
        stop_leftovers_s: float | None = None
        listening = True
        while self._reap():
            timeout: float | None = None
            if self.code is not None and not (self.asked and self._group_lives()):
                # the command is over; what is left is what it forgot
                if stop_leftovers_s is None:
                    stop_leftovers_s = LEFTOVER_GRACE_S
                    self._each(signal.SIGTERM)
                elif stop_leftovers_s <= 0:
                    self._each(signal.SIGKILL)
                timeout = 0.05
                stop_leftovers_s -= timeout
            elif self.code is not None:
                timeout = 0.1  # a group's last zombie may be reaped by somebody else
            ready = select.select([self.woken, 0] if listening else [self.woken], [], [], timeout)[0]
            if self.woken in ready:
                os.read(self.woken, 4096)
            if 0 in ready:
                listening = self._listen()
        return 137 if self.code is None else self.code

    def _listen(self) -> bool:
        words = os.read(0, 4096)
        if not words:
            self._kill_all()
            return False
        for word in words.split():
            self.asked = True
            number = int(word)
            if number == signal.SIGKILL:
                self._kill_all()
            else:
                self._group(number)
        return True

    def _reap(self) -> bool:
        """Collect what has ended; False when nothing is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.pid:
                code = os.waitstatus_to_exitcode(status)
                self.code = 128 - code if code < 0 else code
                self.signal = -code if code < 0 else None

    def _group(self, number: int) -> bool:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _group_lives(self) -> bool:
        return self._group(0)

    def _each(self, number: int) -> None:
        self._group(number)
        for pid in descendants(os.getpid()):
            send(pid, number)

    def _kill_all(self) -> None:
        """Twice: a process may fork between the look and the blow."""
        self._each(signal.SIGKILL)
        self._each(signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(Supervisor(lambda: _exec(sys.argv[1:])).run())
