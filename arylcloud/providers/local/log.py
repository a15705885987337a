"""The cloud's own record of all that it did: append-only JSON lines, each on the disk before it counts.

Every record has ``seq`` (from 1, without gaps), ``wall_s``, ``market_s`` and ``kind``:

``opened``     the market (name, its text, digest), ``origin_s``, ``scale``: once, the first record
``daemon``     a daemon has started: ``pid``
``launch``     a machine exists and is billed from ``market_s`` on: ``instance`` (see ``machines.py``)
``boot``       its processes are about to run: ``instance_id``, ``pid``, ``identity``
``price``      ``offer`` costs ``usd_per_hour`` from ``from_s`` on (an exact moment of the market)
``notice``     ``instance_id`` will be taken at ``acts_at_s`` (wall)
``ending``     ``instance_id`` is being ended, for ``cause``
``end``        it has ended, and its bill at ``ended_s``: ``cause``
``struck``     the scripted interruption ``script`` was carried out on ``instance_id``, or on nobody (null)

``bill.py`` recomputes what everything cost from this file alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arylcloud.core.errors import IntegrityError, LocalStateError

Record = dict[str, Any]


def read(path: Path) -> tuple[list[Record], int]:
    """Records of the log and the length in bytes of their text. A last line without its end is what
    a crash leaves behind: it never counted. Anything else unreadable is an IntegrityError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    records: list[Record] = []
    good = data.rfind(b"\n") + 1
    for number, line in enumerate(data[:good].splitlines(), start=1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise IntegrityError(f"{path}, line {number}: {error}") from error
        if not isinstance(record, dict) or record.get("seq") != number:
            raise IntegrityError(f"{path}, line {number}: record {number} was expected")
        records.append(record)
    return records, good


class CloudLog:
    """The open log. One writer: the daemon that holds the lock. Not thread-safe by itself."""

    def __init__(self, path: Path) -> None:
        self._records, self._size = read(path)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.ftruncate(self._fd, self._size)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def append(self, kind: str, *, wall_s: float, market_s: float, **body: Any) -> Record:
        """Write one record and wait until the disk has it; then it is true. Raises LocalStateError
        (full disk), and then nothing is written."""
        record: Record = {
            "seq": len(self._records) + 1,
            "wall_s": wall_s,
            "market_s": market_s,
            "kind": kind,
            **body,
        }
        line = json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        try:
            written = os.write(self._fd, line)
            os.fsync(self._fd)
        except OSError as error:
            written, reason = -1, error.strerror or str(error)
        else:
            reason = "no space is left"
        if written != len(line):  # half a line must not become the beginning of the next one
            os.ftruncate(self._fd, self._size)
            raise LocalStateError(f"the local cloud's log cannot be written: {reason}")
        self._size += written
        self._records.append(record)
        return record

    def close(self) -> None:
        os.close(self._fd)
