"""A machine's processes: starting them exactly once, knowing them again, ending every one of them.

The first process is a shell that leads a session of its own and waits at a gate; it runs the user
data only after the daemon, having its process id on disk, has opened the gate. So a daemon that dies
at any moment leaves either a machine that it knows or a shell that ends by itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arylcloud.core.clock import Clock

ENV_INSTANCE: Final = "ARYLCLOUD_LOCAL_INSTANCE"
USER_DATA: Final = ".user-data"
LINUX: Final[bool] = sys.platform == "linux"
_STARTED: Final = ".started"
_EXIT: Final = ".exit"

# $1 = user data, $2 = started mark, $3 = exit mark
_FIRST: Final = """\
read -r gate && [ "$gate" = open ] || exit 125
: > "$2"
sh "$1" </dev/null
code=$?
echo "$code" > "$3.part" && mv "$3.part" "$3"
exit "$code"
"""


@dataclass(slots=True)
class Gate:
    """A first process that waits. ``open`` lets it run; dropping it without ends it."""

    child: subprocess.Popen[bytes]
    leader: Leader

    def open(self) -> None:
        assert self.child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at the gate: the next look will tell
            self.child.stdin.write(b"open\n")
            self.child.stdin.flush()
            self.child.stdin.close()


def prepare(
    folder: Path,
    console: Path,
    environ: Mapping[str, str],
    wrap: Callable[[list[str]], list[str]] = lambda argv: argv,
) -> Gate:
    """Start the first process of the machine whose directory is ``folder``. ``wrap``: its command line as it
    is run; it must end in an exec of what it was given. Raises OSError."""
    with console.open("ab") as output:
        child = subprocess.Popen(
            wrap(["/bin/sh", "-c", _FIRST, "init", USER_DATA, _STARTED, _EXIT]),
            cwd=folder,
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Gate(child=child, leader=Leader(pid=child.pid, identity=identify(child.pid) or ""))


def was_started(folder: Path) -> bool:
    """The gate was passed: the machine has run, whatever has become of it."""
    return (folder / _STARTED).exists()


def self_ended_wall_s(folder: Path) -> float | None:
    """Wall seconds at which the user data came to its end by itself; None = it did not."""
    try:
        return (folder / _EXIT).stat().st_mtime
    except OSError:
        return None


def identify(pid: int) -> str | None:
    """Something that only this process with this number has (its start, and the host's), or None.

    A process that has ended and waits to be reaped is none any more."""
    if LINUX:
        fields = _stat(pid)
        return None if fields is None or fields[0] in "ZX" else f"{_boot_id()}:{fields[19]}"
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return None if not answer or answer.startswith("Z") else answer.partition(" ")[2].strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The first process of a machine, as it was when it started."""

    pid: int
    identity: str

    @property
    def alive(self) -> bool:
        return identify(self.pid) == self.identity

    @property
    def names_session(self) -> bool:
        """Its number still stands for this machine's session: not used again, the host not rebooted."""
        if LINUX:
            if self.identity.partition(":")[0] != _boot_id():
                return False
            fields = _stat(self.pid)
            return fields is None or fields[19] == self.identity.partition(":")[2]
        return identify(self.pid) in (None, self.identity)


def end_all(
    instance_id: str, leader: Leader | None, clock: Clock, *, grace_s: float, patience_s: float = 10.0
) -> bool:
    """End every process of the machine: SIGTERM and ``grace_s`` to react (0 = none), then SIGKILL
    until none is left. True = none is left; False = some could not be ended in ``patience_s``.

    Its processes are the leader's group and session and, on Linux, whatever carries the machine's
    id in its environment, so that a child with a session of its own does not get away.
    """
    if grace_s > 0:
        for pid in members(instance_id, leader):
            _signal(pid, signal.SIGTERM)
        give_up_s = clock.monotonic_s() + grace_s
        while clock.monotonic_s() < give_up_s and members(instance_id, leader):
            clock.sleep(0.02)
    give_up_s, looks = clock.monotonic_s() + patience_s, 0
    while looks < 2:  # one may be in the middle of an exec, with nothing of the machine's to be seen on it
        found = members(instance_id, leader)
        looks = 0 if found else looks + 1
        for pid in found:
            _signal(pid, signal.SIGKILL)
        if found and clock.monotonic_s() > give_up_s:
            return False
        clock.sleep(0.01)
    return True


def members(instance_id: str, leader: Leader | None) -> list[int]:
    """Process ids of the machine that run at present."""
    session = str(leader.pid) if leader is not None and leader.names_session else None
    if not LINUX:
        return [] if session is None else _members_by_ps(int(session))
    mark = f"{ENV_INSTANCE}={instance_id}".encode()
    own = os.getpid()
    found: list[int] = []
    for entry in os.listdir("/proc"):  # noqa: PTH208 - thousands of Path objects per look are not free
        if not entry.isdigit() or int(entry) == own:
            continue
        fields = _stat(int(entry))
        if fields is None or fields[0] in "ZX":
            continue
        if session in (fields[2], fields[3]) or mark in _environ(int(entry)):
            found.append(int(entry))
    return found


def _members_by_ps(leader: int) -> list[int]:
    rows = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,pgid=,stat="], capture_output=True, text=True, check=False
    ).stdout
    table = [row.split(None, 3) for row in rows.splitlines()]
    found = {leader}
    grew = True
    while grew:
        more = {
            int(pid)
            for pid, parent, group, state in table
            if not state.startswith("Z") and (int(group) in found or int(parent) in found)
        }
        grew = not more <= found
        found |= more
    running = {int(pid) for pid, _, _, state in table if not state.startswith("Z")}
    return sorted(found & running)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _stat(pid: int) -> list[str] | None:
    """/proc/PID/stat from the third field (state) on: [0] state, [2] group, [3] session, [19] start."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
