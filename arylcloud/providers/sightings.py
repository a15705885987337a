"""What has been seen of machines whose cloud forgets them: GCE and Azure delete a machine, and all is gone.

The port promises ended machines for ten minutes, with moment and cause, and that a token never makes a second
machine. So an adapter writes down which machines it has seen, which ends it has asked for, and which ends it
has found out: one line of JSON each, in one file of the home, shared by all its threads and processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Container, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final

from arylcloud.core.codec import decode, encode
from arylcloud.core.errors import IntegrityError
from arylcloud.core.ports import EndCause, Machine, MachineState

log = logging.getLogger(__name__)
SHOWN_S: Final = 3600.0
"""An ended machine is listed for so long."""
KEPT_S: Final = 7 * 86400.0
"""Its token is remembered for so long, and longer while the file is small."""
LARGE_BYTES: Final = 2_000_000


class Sightings:
    """``path``: also a way to find it, asked once it is needed (and what that raises, everything here does);
    None = for the life of this object only. One file for each account: of another's machines nothing can be
    concluded from what this one lists. A file that cannot be written is said once, and the
    rest stays in memory: a machine that exists has to be seen all the same."""

    def __init__(self, path: Path | Callable[[], Path] | None) -> None:
        self._find = path if callable(path) else None
        self._path = None if callable(path) else path
        self._lock = threading.RLock()
        self._read_to = 0
        self._inode = 0
        self._machines: dict[str, Machine] = {}
        self._asked_s: dict[str, float] = {}
        self._turned: dict[str, tuple[str, float]] = {}
        self._complained = False

    # ------------------------------------------------------------ what is told

    def saw(self, machine: Machine) -> None:
        """It exists. Cheap for one that is known. Of one name in two zones the later launch is the machine:
        the first zone had no room for it, and its failed order was seen meanwhile."""
        with self._lock:
            self._catch_up()
            known = self._machines.get(machine.instance_id)
            if known is None or _moved(known, machine):
                self._tell({"machine": encode(replace(machine, usd_per_hour=None))})
            elif known.state is not MachineState.GONE and known.zone == machine.zone:
                self._machines[machine.instance_id] = machine

    def asked_end(self, instance_id: str) -> None:
        """We have asked for its end: what follows is of our own doing."""
        with self._lock:
            self._catch_up()
            if instance_id in self._machines and instance_id not in self._asked_s:
                self._tell({"asked": instance_id, "at_s": time.time()})

    def turned_to(self, token: str, zone: str) -> None:
        """Of an offer without a zone: that machine is asked for there now. Told before it is asked for."""
        with self._lock:
            self._catch_up()
            if self.turned(token) != zone:
                self._tell({"turned": token, "zone": zone, "at_s": time.time()})

    def end(
        self, instance_id: str, ended_s: float, cause: EndCause, *, zone: str | None = None
    ) -> Machine | None:
        """It is no more: in that zone, where one is named. What was found out first stays; None for a machine
        that was never seen."""
        with self._lock:
            self._catch_up()
            known = self._machines.get(instance_id)
            if known is not None and known.state is not MachineState.GONE and zone in (None, known.zone):
                at_s = max(ended_s, known.launched_s)
                where = {} if zone is None else {"zone": zone}
                self._tell({"ended": instance_id, "at_s": at_s, "cause": cause.value, **where})
            return self._machines.get(instance_id)

    # ------------------------------------------------------------ what is known

    def asked_s(self, instance_id: str) -> float | None:
        """Wall seconds at which we asked for its end first."""
        with self._lock:
            self._catch_up()
            return self._asked_s.get(instance_id)

    def turned(self, token: str) -> str | None:
        """The zone in which it was asked for last; None = nobody has told of any."""
        with self._lock:
            self._catch_up()
            return self._turned[token][0] if token in self._turned else None

    def of_token(self, token: str) -> Machine | None:
        with self._lock:
            self._catch_up()
            return next((m for m in self._machines.values() if m.token == token), None)

    def known(self) -> list[Machine]:
        """All of them."""
        with self._lock:
            self._catch_up()
            return list(self._machines.values())

    def live(self) -> list[Machine]:
        """Those whose end is not known."""
        with self._lock:
            self._catch_up()
            return [m for m in self._machines.values() if m.state is not MachineState.GONE]

    def unlisted(self, listed: Container[str], journal_id: str | None) -> list[Machine]:
        """Those of the journal (None: of any) that a list by its marks should have, and ``listed`` (instance
        ids) has not: a list that lags, an end, or somebody has taken our marks off a machine that runs."""
        return [
            one
            for one in self.live()
            if one.instance_id not in listed and journal_id in (None, one.journal_id)
        ]

    def ended(self) -> list[Machine]:
        """Those that ended within the hour."""
        since_s = time.time() - SHOWN_S
        with self._lock:
            self._catch_up()
            return [m for m in self._machines.values() if m.ended_s is not None and m.ended_s >= since_s]

    # ------------------------------------------------------------ the file

    def _apply(self, record: dict[str, Any]) -> None:
        if "machine" in record:
            machine = decode(Machine, record["machine"], where="machine")
            there = self._machines.setdefault(machine.instance_id, machine)
            if _moved(there, machine):
                self._machines[machine.instance_id] = machine
                self._asked_s.pop(machine.instance_id, None)
        elif "turned" in record:
            at_s = float(record.get("at_s", time.time()))
            self._turned[str(record["turned"])] = (str(record["zone"]), at_s)
        elif "asked" in record:
            self._asked_s.setdefault(str(record["asked"]), float(record["at_s"]))
        elif "ended" in record:
            known = self._machines.get(str(record["ended"]))
            elsewhere = known is not None and record.get("zone") not in (None, known.zone)
            if known is not None and known.state is not MachineState.GONE and not elsewhere:
                self._machines[known.instance_id] = replace(
                    known,
                    state=MachineState.GONE,
                    ended_s=float(record["at_s"]),
                    end_cause=EndCause(record["cause"]),
                )

    def _tell(self, record: dict[str, Any]) -> None:
        """Under the file's lock what others wrote comes first, so that the first word stays for all."""
        try:
            with self._file() as file:
                if file is not None:
                    self._read(file)
                    file.write(_apart(file) + _line(record))
                    file.flush()
                    self._read_to = file.tell()
        except OSError as error:
            if not self._complained:
                self._complained = True
                log.warning("%s cannot be written: %s", self._path, error.strerror or error)
        self._apply(record)

    def _catch_up(self) -> None:
        """Read what other processes have written since."""
        if self._find is not None:
            self._path, self._find = self._find(), None
        if self._path is None:
            return
        try:
            there = self._path.stat()
        except OSError:
            return
        if (there.st_ino, there.st_size) == (self._inode, self._read_to):
            return
        with contextlib.suppress(OSError), self._file() as file:
            if file is not None:
                first = self._read_to == 0
                self._read(file)
                if first and there.st_size > LARGE_BYTES:
                    self._compact(self._path)

    @contextlib.contextmanager
    def _file(self) -> Iterator[BinaryIO | None]:
        if self._path is None:
            yield None
            return
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        while True:
            with self._path.open("a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(file.fileno()), self._path.stat()):
                        yield file
                        return
            # somebody has tidied it up while we waited: that was the old one

    def _read(self, file: BinaryIO) -> None:
        size, inode = file.seek(0, os.SEEK_END), os.fstat(file.fileno()).st_ino
        same = inode == self._inode and self._read_to <= size
        file.seek(self._read_to if same else 0)  # another: somebody has tidied it up
        for line in filter(None, file.read().splitlines()):
            try:
                self._apply(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError, IntegrityError) as error:
                log.warning("%s: a line that says nothing: %s", self._path, error)
        self._read_to, self._inode = file.tell(), inode

    def _compact(self, path: Path) -> None:
        """A new file in the place of the old one, under the old one's lock: it is whole at every moment."""
        old_s = time.time() - KEPT_S
        for machine in list(self._machines.values()):
            if machine.ended_s is not None and machine.ended_s < old_s:
                del self._machines[machine.instance_id]
                self._asked_s.pop(machine.instance_id, None)
        records: list[dict[str, Any]] = []
        for machine in self._machines.values():
            seen = replace(
                machine, state=MachineState.RUNNING, ended_s=None, end_cause=None, usd_per_hour=None
            )
            records.append({"machine": encode(seen)})
            if machine.ended_s is not None and machine.end_cause is not None:
                end = {"at_s": machine.ended_s, "cause": machine.end_cause.value}
                records.append({"ended": machine.instance_id, **end})
        records += [{"asked": i, "at_s": at_s} for i, at_s in self._asked_s.items()]
        self._turned = {token: told for token, told in self._turned.items() if told[1] >= old_s}
        records += [{"turned": t, "zone": zone, "at_s": at_s} for t, (zone, at_s) in self._turned.items()]
        half = path.with_suffix(".half")
        with half.open("wb") as file:
            os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            file.write(b"".join(_line(record) for record in records))
            file.flush()
            os.fsync(file.fileno())
            read_to, inode = file.tell(), os.fstat(file.fileno()).st_ino
        half.replace(path)
        self._read_to, self._inode = read_to, inode


def _moved(known: Machine, seen: Machine) -> bool:
    return known.zone != seen.zone and seen.launched_s > known.launched_s


def _apart(file: BinaryIO) -> bytes:
    """What has to come before a new line: the last one may have been cut off (a full disk, a power cut)."""
    if file.seek(0, os.SEEK_END) == 0:
        return b""
    file.seek(-1, os.SEEK_END)
    return b"" if file.read(1) == b"\n" else b"\n"


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
