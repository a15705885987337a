"""The journal's SQLite file: schema, migration, errors in words. Knows nothing of mailboxes.

WAL, so that ``status`` reads while a launcher writes. ``synchronous=FULL``: an intent that a power cut
takes back after its machine was asked for would be a machine that nobody knows; records are few, and
a few milliseconds each is the price of that promise.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from arylcloud.core.errors import ArylError, IntegrityError, LocalStateError
from arylcloud.core.events import Record
from arylcloud.core.tokens import new_journal_id

log = logging.getLogger(__name__)
BUSY_S: Final = 10.0

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE records (
  job_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  at_s REAL NOT NULL,
  writer TEXT NOT NULL,
  cause_id TEXT,
  kind TEXT NOT NULL,
  body BLOB NOT NULL,
  digest BLOB NOT NULL,
  mirrored INTEGER NOT NULL,
  PRIMARY KEY (job_id, seq)
) WITHOUT ROWID;
CREATE INDEX waiting ON records (job_id, seq) WHERE mirrored = 0;
CREATE TABLE set_aside (job_id TEXT NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL);
"""

MIGRATIONS: Final[dict[int, Callable[[sqlite3.Connection], None]]] = {}
"""From version v to v + 1, each in one transaction, after a copy of the file was made."""

VERSION: Final = 1


class Database:
    def __init__(
        self,
        path: Path,
        *,
        version: int = VERSION,
        migrations: dict[int, Callable[[sqlite3.Connection], None]] | None = None,
    ) -> None:
        self.path = path
        self._lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise LocalStateError(f"cannot make {path.parent}: {error.strerror or error}") from error
        self._was_there = path.exists()
        with self._errors():
            self._connection = sqlite3.connect(
                path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
        # a command that ends by an error closes nothing itself; Python 3.13 says so of each
        weakref.finalize(self, self._connection.close)
        try:
            with self._errors():
                self._open(version, MIGRATIONS if migrations is None else migrations)
        except ArylError:
            self._connection.close()
            raise

    def _open(self, version: int, migrations: dict[int, Callable[[sqlite3.Connection], None]]) -> None:
        run = self._connection.execute
        self._write_ahead()
        run("PRAGMA synchronous = FULL")
        problem = run("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise IntegrityError(f"{self.path} is damaged: {problem}", hint=_DAMAGED)
        found = self._user_version()
        if found == 0:
            with self._transaction():
                # a second process may have made the schema since: look again, under the lock
                if self._user_version() == 0:
                    self._refuse_emptied()
                    for statement in _SCHEMA.split(";"):
                        run(statement)
                    run("INSERT INTO meta VALUES ('journal_id', ?)", (new_journal_id(),))
                    run(f"PRAGMA user_version = {version}")
        elif found > version:
            raise IntegrityError(
                f"{self.path} has schema version {found}, this arylcloud knows {version}",
                hint="a newer arylcloud wrote it: upgrade this one",
            )
        elif found < version:
            self._migrate(found, version, migrations)
        row = run("SELECT value FROM meta WHERE key = 'journal_id'").fetchone()
        if row is None:
            raise IntegrityError(f"{self.path} has lost its journal id", hint=_DAMAGED)
        self.journal_id = str(row[0])
        there = run("SELECT 1 FROM sqlite_master WHERE name = 'waiting'").fetchone()
        self._by_index = "" if there is None else "INDEXED BY waiting"  # older files have none
        self._mark()

    def _write_ahead(self) -> None:
        """SQLite does not wait for its lock here: two who make the file at once would fail one of them."""
        give_up_s = time.monotonic() + BUSY_S
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > give_up_s:
                    raise
            time.sleep(0.01)

    @property
    def _marker(self) -> Path:
        """Beside the file: that it has had records once, and under which id."""
        return self.path.with_name(f"{self.path.name}.id")

    def _refuse_emptied(self) -> None:
        """A file without a schema is a new one, or was emptied: by a full disk, a sync program, a person.
        (One that is not there at all was taken away: that is somebody's decision.)"""
        if self._was_there and self._marker.exists():
            known = self._marker.read_text(errors="replace").strip()[:40]
            raise IntegrityError(f"{self.path} is empty, and was the journal {known}", hint=_DAMAGED)

    def _mark(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self._marker.read_text(errors="replace").strip() == self.journal_id:
                return
        part = self._marker.with_name(self._marker.name + ".part")
        try:
            part.write_text(self.journal_id + "\n")
            part.replace(self._marker)
        except OSError as error:  # a read-only home can still be looked at
            log.debug("%s cannot be written: %s", self._marker, error)

    def _user_version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def _migrate(
        self, found: int, version: int, migrations: dict[int, Callable[[sqlite3.Connection], None]]
    ) -> None:
        """A copy first (``journal.db.v1.bak``), then one transaction: the old file or the new one."""
        copy = self.path.with_name(f"{self.path.name}.v{found}.bak")
        if not copy.exists():
            half = copy.with_name(copy.name + ".part")
            half.unlink(missing_ok=True)
            self._connection.execute("VACUUM INTO ?", (str(half),))
            half.rename(copy)
        with self._transaction():
            for step in range(self._user_version(), version):
                migrations[step](self._connection)
            self._connection.execute(f"PRAGMA user_version = {version}")

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    # ------------------------------------------------------------ reading

    def jobs(self) -> tuple[str, ...]:
        with self._lock, self._errors():
            rows = self._connection.execute(
                "SELECT job_id FROM records WHERE seq = 1 ORDER BY at_s, job_id"
            ).fetchall()
        return tuple(str(job_id) for (job_id,) in rows)

    def head(self, job_id: str) -> int:
        with self._lock, self._errors():
            row = self._connection.execute(
                "SELECT max(seq) FROM records WHERE job_id = ?", (job_id,)
            ).fetchone()
        return int(row[0] or 0)

    def rows(self, job_id: str, after: int) -> list[tuple[int, object, object]]:
        """(seq, body, digest): as they stand in the file, whatever they are."""
        with self._lock, self._errors():
            return self._connection.execute(
                "SELECT seq, body, digest FROM records WHERE job_id = ? AND seq > ? ORDER BY seq",
                (job_id, after),
            ).fetchall()

    def unmirrored(self, job_id: str) -> list[tuple[int, bytes]]:
        """Asked for at each look, and with each record: by an index (SQLite would rather read them all)."""
        with self._lock, self._errors():
            return self._connection.execute(
                f"SELECT seq, body FROM records {self._by_index} "  # noqa: S608
                "WHERE job_id = ? AND mirrored = 0 ORDER BY seq",
                (job_id,),
            ).fetchall()

    # ------------------------------------------------------------ writing

    def insert(self, record: Record, *, mirrored: bool) -> bool:
        return self.insert_all([record], mirrored=mirrored)

    def insert_all(self, records: Sequence[Record], *, mirrored: bool = True) -> bool:
        """All or none. False: one of the numbers is taken (by another process on this file)."""
        rows = []
        for record in records:
            body = record.to_bytes()
            rows.append(
                (
                    record.job_id,
                    record.seq,
                    record.at_s,
                    record.writer,
                    record.cause_id,
                    type(record.event).__name__,
                    body,
                    hashlib.sha256(body).digest(),
                    int(mirrored),
                )
            )
        with self._lock, self._errors():
            try:
                with self._transaction():
                    self._connection.executemany(
                        "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows
                    )
            except sqlite3.IntegrityError:
                return False
        return True

    def mark_mirrored(self, job_id: str, seq: int) -> None:
        with self._lock, self._errors(), self._transaction():
            self._connection.execute(
                "UPDATE records SET mirrored = 1 WHERE job_id = ? AND seq = ?", (job_id, seq)
            )

    def set_aside(self, job_id: str, seq: int) -> None:
        """Move the records from ``seq`` on out of the history, keeping them."""
        with self._lock, self._errors(), self._transaction():
            where = "WHERE job_id = ? AND seq >= ?"
            self._connection.execute(
                f"INSERT INTO set_aside SELECT job_id, seq, body FROM records {where}",  # noqa: S608
                (job_id, seq),
            )
            self._connection.execute(f"DELETE FROM records {where}", (job_id, seq))  # noqa: S608

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # a full disk may have rolled back already
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _translated(self.path, error) from error
        except OSError as error:
            raise LocalStateError(f"cannot use {self.path}: {error.strerror or error}") from error


_DAMAGED = "keep the file; each job's prefix holds the same records: `arylcloud adopt URI` in a new home"
_WORDS: Final = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk reports an error",
    sqlite3.SQLITE_PERM: "permission is denied",
    sqlite3.SQLITE_BUSY: f"another process has kept it locked for {BUSY_S:.0f} s",
    sqlite3.SQLITE_LOCKED: "another process keeps it locked",
}


def _translated(path: Path, error: sqlite3.Error) -> ArylError:
    code = getattr(error, "sqlite_errorcode", None)
    words = None if code is None else _WORDS.get(code & 0xFF)
    if words is not None:
        return LocalStateError(f"cannot use the journal {path}: {words}")
    return IntegrityError(f"{path} is damaged: {error}", hint=_DAMAGED)
