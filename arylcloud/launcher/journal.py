"""The journal: every fact about every job of this home, in order, before it has an effect.

Two copies, one rule: **local ⊆ mirror**. A record is first created in the job's mailbox (put-if-absent
at its number: the fence between launchers) and then committed here. A crash between the two leaves it
in the mailbox only, where :meth:`Journal.catch_up` finds it. The exception is named ``strict=False``:
what must not wait for a mailbox (ending a machine) is committed here first and mirrored in order later.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from arylcloud.core.errors import ConflictError, IntegrityError, StoreError
from arylcloud.core.events import Event, Record
from arylcloud.core.ports import ObjectStore
from arylcloud.core.protocol import JOURNAL_PREFIX, journal_key
from arylcloud.launcher import claims
from arylcloud.launcher.fold import replay
from arylcloud.launcher.journal_db import Database
from arylcloud.launcher.probe import Probe, no_probe
from arylcloud.launcher.state import JobState

READERS: Final = 16
"""Objects that are read at once where many are wanted."""


class Journal:
    """All jobs of one ``ARYLCLOUD_HOME``. Safe for many readers and, per job, one writer.

    Every method may raise LocalStateError (full, read-only, locked) or IntegrityError (damaged).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.probe: Probe = no_probe
        """Passed between the two copies of a record: the one place where a crash finds them apart."""
        self._db = Database(path)

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def journal_id(self) -> str:
        """Random, made with the file, never changed: every machine of ours carries it."""
        return self._db.journal_id

    def jobs(self) -> tuple[str, ...]:
        """Ids of all jobs, oldest first."""
        return self._db.jobs()

    def head(self, job_id: str) -> int:
        """``seq`` of the newest record; 0 = the job is not known here."""
        return self._db.head(job_id)

    def records(self, job_id: str, after: int = 0) -> tuple[Record, ...]:
        """Records with ``seq > after``, in order, each checked: digest, number, no gap."""
        found = []
        for expected, (seq, body, digest) in enumerate(self._db.rows(job_id, after), start=after + 1):
            what = f"record {seq} of {job_id}"
            if seq != expected:
                raise IntegrityError(f"journal {self.path} lacks record {expected} of {job_id}", hint=_ADOPT)
            if not isinstance(body, bytes) or hashlib.sha256(body).digest() != digest:
                raise IntegrityError(f"{what} in {self.path} is damaged: its digest differs", hint=_ADOPT)
            found.append(_checked(body, job_id, seq, what))
        return tuple(found)

    def state(self, job_id: str) -> JobState:
        return replay(self.records(job_id))

    def append(
        self,
        job_id: str,
        at_s: float,
        writer: str,
        event: Event,
        cause_id: str | None = None,
        *,
        mirror: ObjectStore | None,
        strict: bool = True,
    ) -> Record:
        """Write the next record: mailbox first, then here. Returns it as it stands in the journal.

        ``strict``: returns only once the mailbox has it; what earlier calls left behind is mirrored
        first. StoreError: the mailbox does not answer, and the effect that the record announces must
        not be had. The record may have landed all the same, and is then part of our history, too:
        read ``records(job_id, after=…)`` again before the next decision, and :meth:`flush` before the
        effect of a record that is there already. (A job's first record is an exception: nothing of
        it stays.) Not strict: a mailbox that cannot be reached does not stop the local commit.
        ``mirror=None``: local only, as if the mailbox were away.

        Raises ConflictError if another launcher has written this number.
        """
        if mirror is None:
            if strict:
                raise StoreError(f"journal of {job_id}: no mailbox to mirror record into")
        elif strict:
            self.flush(job_id, mirror)
        else:
            with contextlib.suppress(StoreError):  # the mailbox is away: it stays to be flushed
                self.flush(job_id, mirror)
        seq = self._db.head(job_id) + 1
        record = Record(job_id=job_id, seq=seq, at_s=at_s, writer=writer, cause_id=cause_id, event=event)
        mirrored = False
        if mirror is not None and not self._db.unmirrored(job_id):
            try:
                record = self._mirror(mirror, record)
                mirrored = True
            except _LandedLate:
                raise
            except StoreError:
                if strict:
                    # it may have landed: if it is not in our history too, the next record of ours
                    # would take its number and be a conflict with ourselves
                    if seq > 1 and not self._db.insert(record, mirrored=False):
                        raise _conflict(job_id, seq, "another process with this home") from None
                    raise
        if mirrored:
            self.probe(f"mirrored, not committed {type(event).__name__}")
        if not self._db.insert(record, mirrored=mirrored):
            raise _conflict(job_id, seq, "another process with this home")
        return record

    def check_fence(self, job_id: str, mirror: ObjectStore, writer: str) -> None:
        """One small read: is the next record still ours to write? Raises ConflictError if another
        launcher has written it (it has taken the job over), StoreError if that cannot be known."""
        waiting = self._db.unmirrored(job_id)
        seq, ours = waiting[0] if waiting else (self._db.head(job_id) + 1, None)
        data = mirror.get(journal_key(seq))
        if data is None or data == ours:
            return
        found = _checked(data, job_id, seq, f"{mirror.uri}/{journal_key(seq)}")
        if found.writer != writer:
            raise _conflict(job_id, seq, f"launcher {found.writer}")

    def _mirror(self, mirror: ObjectStore, record: Record) -> Record:
        """Create the record's object; an object that is there already is ours, or a conflict."""
        data = record.to_bytes()
        key = journal_key(record.seq)
        if mirror.create(key, data):
            return record
        existing = mirror.get(key)
        if existing == data:
            return record
        if existing is None:
            raise StoreError(f"{mirror.uri}: {key} exists and cannot be read")
        found = _checked(existing, record.job_id, record.seq, f"{mirror.uri}/{key}")
        if found.writer != record.writer:
            raise _conflict(record.job_id, record.seq, f"launcher {found.writer}")
        if (found.event, found.cause_id) == (record.event, record.cause_id):
            return found  # our own, whose answer was lost: written at its first moment
        # our own too, but the world has moved on since: it happened, so it is taken, and the
        # caller must think again with it
        if not self._db.insert(found, mirrored=True):
            raise _conflict(record.job_id, record.seq, "another process with this home")
        raise _LandedLate(f"journal of {record.job_id}: record {record.seq} had landed late; read it again")

    def flush(self, job_id: str, mirror: ObjectStore) -> int:
        """Mirror, in order, what was committed while the mailbox was away. Returns how many.
        Raises StoreError (the rest stays to be flushed), ConflictError."""
        rows = self._db.unmirrored(job_id)
        for seq, body in rows:
            key = journal_key(seq)
            if not mirror.create(key, body) and (existing := mirror.get(key)) != body:
                if existing is None:
                    raise StoreError(f"{mirror.uri}: {key} exists and cannot be read")
                found = _checked(existing, job_id, seq, f"{mirror.uri}/{key}")
                raise _conflict(job_id, seq, f"launcher {found.writer}")
            self._db.mark_mirrored(job_id, seq)
        return len(rows)

    def unmirrored(self, job_id: str) -> int:
        """How many records wait for :meth:`flush`."""
        return len(self._db.unmirrored(job_id))

    def catch_up(self, job_id: str, mirror: ObjectStore, *, take_over: bool = False) -> int:
        """Import what the mailbox has and this file lacks. Returns how many records came.

        For a start after a crash, and for ``adopt`` from an empty home. Records that wait here to be
        mirrored and whose numbers another launcher has used meanwhile are a ConflictError; with
        ``take_over`` (``adopt``) the mailbox is right, and ours are set aside (kept, not replayed).
        Raises StoreError, IntegrityError (a gap, a foreign record, a mailbox that lost records).
        """
        waiting = dict(self._db.unmirrored(job_id))
        for seq, body in waiting.items():
            existing = mirror.get(journal_key(seq))
            if existing is None:
                break  # from here on the mailbox knows nothing: flush will bring ours
            if existing == body:
                self._db.mark_mirrored(job_id, seq)
                continue
            found = _checked(existing, job_id, seq, f"{mirror.uri}/{journal_key(seq)}")
            if not take_over:
                raise _conflict(job_id, seq, f"launcher {found.writer}")
            self._db.set_aside(job_id, seq)
            break
        head = self._db.head(job_id)
        if head and not self._db.unmirrored(job_id):
            self._same_history(job_id, head, mirror)
        imported: list[Record] = []
        keys = [info.key for info in mirror.list(JOURNAL_PREFIX, after=journal_key(head))]
        for seq, (key, data) in enumerate(zip(keys, _read_all(mirror, keys), strict=True), start=head + 1):
            if key != journal_key(seq):
                raise IntegrityError(f"{mirror.uri} lacks {journal_key(seq)}, but has {key}")
            if data is None:
                raise StoreError(f"{mirror.uri}: {key} is listed and cannot be read")
            imported.append(_checked(data, job_id, seq, f"{mirror.uri}/{key}"))
        if imported and self._db.unmirrored(job_id):
            raise _conflict(job_id, imported[0].seq, f"launcher {imported[0].writer}")
        if not self._db.insert_all(imported):
            raise _conflict(job_id, head + 1, "another process with this home")
        return len(imported)

    def _same_history(self, job_id: str, head: int, mirror: ObjectStore) -> None:
        """The mailbox holds our newest record, byte for byte; else one of the two is of another job."""
        theirs = mirror.get(journal_key(head))
        ours = self.records(job_id, after=head - 1)[0].to_bytes()
        if theirs is None:
            raise IntegrityError(f"{mirror.uri} has lost {journal_key(head)}, which this journal has")
        if theirs != ours:
            found = _checked(theirs, job_id, head, f"{mirror.uri}/{journal_key(head)}")
            raise _conflict(job_id, head, f"launcher {found.writer}")

    def claim(self, job_id: str) -> contextlib.AbstractContextManager[None]:
        """Be the one launcher of ``job_id`` on this home while the block runs (``launcher/claims``).
        Raises ConflictError that names the holder."""
        return claims.claim(self.path.parent / "locks", job_id)

    def claimed(self, job_id: str) -> bool:
        """Whether some process holds the claim now (for ``status``)."""
        return claims.claimed(self.path.parent / "locks", job_id)


def _read_all(mirror: ObjectStore, keys: Sequence[str]) -> Iterator[bytes | None]:
    """In order. A job of some weeks has thousands of records, and a store answers in tens of milliseconds:
    they are asked for side by side."""
    if len(keys) < 2 * READERS:
        yield from map(mirror.get, keys)
        return
    with ThreadPoolExecutor(READERS, thread_name_prefix="journal") as pool:
        yield from pool.map(mirror.get, keys)


class _LandedLate(StoreError):
    """An earlier write of ours turned up under this number, and is part of the history now."""


_ADOPT = "the job's prefix holds the same records: move the file away and `arylcloud adopt URI`"


def _checked(data: bytes, job_id: str, seq: int, what: str) -> Record:
    record = Record.from_bytes(data, what=what)
    if record.job_id != job_id or record.seq != seq:
        raise IntegrityError(f"{what} is record {record.seq} of {record.job_id}, not {seq} of {job_id}")
    return record


def _conflict(job_id: str, seq: int, who: str) -> ConflictError:
    return ConflictError(
        f"another launcher holds {job_id}: record {seq} was written by {who}",
        hint="one launcher per job: stop the other, or leave the job to it; `arylcloud adopt` takes over",
    )
