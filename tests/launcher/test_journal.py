"""The journal against its mirror, other launchers, full disks, and every way to lose its end."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.harness import Mailbox, fast

from arylcloud.core import events as ev
from arylcloud.core.clock import ManualClock
from arylcloud.core.errors import ConflictError, IntegrityError, LocalStateError, StoreError
from arylcloud.core.job import JobSpec
from arylcloud.core.phases import JobPhase
from arylcloud.core.protocol import journal_key
from arylcloud.launcher.fold import replay
from arylcloud.launcher.journal import Journal
from arylcloud.launcher.journal_db import Database

JOB = "digits-0a1b2c3d"
SUBMITTED = ev.JobSubmitted(
    spec=JobSpec(name="digits", run="python train.py"),
    prefix_uri="memory://x",
    journal_id="j",
    market_origin_s=0.0,
    market_scale=1.0,
)


def phase(code: str) -> ev.JobPhaseChanged:
    return ev.JobPhaseChanged(phase=JobPhase.WAITING, code=code, text=code)


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox(ManualClock())


@pytest.fixture
def journal(tmp_path: Path, mailbox: Mailbox) -> Iterator[Journal]:
    with fast(Journal(tmp_path / "journal.db")) as journal:
        write(journal, mailbox, SUBMITTED)
        yield journal


def write(
    journal: Journal, mirror: Mailbox | None, event: ev.Event, writer: str = "l-1", *, strict: bool = True
) -> ev.Record:
    return journal.append(JOB, float(journal.head(JOB)), writer, event, None, mirror=mirror, strict=strict)


def mirrored(mailbox: Mailbox) -> list[ev.Record]:
    return [ev.Record.from_bytes(mailbox.get(i.key) or b"") for i in mailbox.list("journal/")]


def test_records_come_back_as_written(journal: Journal, mailbox: Mailbox) -> None:
    second = write(journal, mailbox, phase("a"))
    assert second.seq == 2
    assert journal.jobs() == (JOB,)
    assert [r.seq for r in journal.records(JOB)] == [1, 2]
    assert journal.records(JOB, after=1) == (second,)
    assert mirrored(mailbox) == list(journal.records(JOB))
    assert journal.records("unknown") == ()
    assert journal.head("unknown") == 0


def test_the_journal_id_lasts(journal: Journal) -> None:
    with Journal(journal.path) as again:
        assert again.journal_id == journal.journal_id
    assert len(journal.journal_id) == 16


def test_strict_writes_nothing_before_the_mailbox_has_it(journal: Journal, mailbox: Mailbox) -> None:
    mailbox.down = True
    with pytest.raises(StoreError):
        write(journal, mailbox, phase("a"))
    mailbox.down = False
    assert [r.seq for r in mirrored(mailbox)] == [1]
    journal.flush(JOB, mailbox)
    assert mirrored(mailbox) == list(journal.records(JOB))


def test_what_cannot_wait_is_mirrored_later_and_in_order(journal: Journal, mailbox: Mailbox) -> None:
    mailbox.down = True
    for code in "abc":
        write(journal, mailbox, phase(code), strict=False)
    assert journal.unmirrored(JOB) == 3
    mailbox.down = False
    write(journal, mailbox, phase("d"))
    assert journal.unmirrored(JOB) == 0
    assert mirrored(mailbox) == list(journal.records(JOB))


def test_a_file_without_the_index_of_what_waits_is_read_as_it_is(
    journal: Journal, mailbox: Mailbox, tmp_path: Path
) -> None:
    """Files of before have none."""
    write(journal, None, phase("a"), strict=False)
    with contextlib.closing(sqlite3.connect(journal.path)) as file:
        file.execute("DROP INDEX waiting")
    with fast(Journal(journal.path)) as older:
        assert older.unmirrored(JOB) == 1
        assert older.flush(JOB, mailbox) == 1
        assert older.unmirrored(JOB) == 0


def test_a_lost_answer_is_no_conflict_with_ourselves(journal: Journal, mailbox: Mailbox) -> None:
    mailbox.lose_answers = 1
    with pytest.raises(StoreError):
        write(journal, mailbox, phase("a"))
    write(journal, mailbox, phase("b"))
    assert mirrored(mailbox) == list(journal.records(JOB))
    assert [r.seq for r in mirrored(mailbox)] == [1, 2, 3]


def test_a_crash_between_mailbox_and_file_is_caught_up(
    journal: Journal, mailbox: Mailbox, tmp_path: Path
) -> None:
    lost = ev.Record(job_id=JOB, seq=2, at_s=5.0, writer="l-1", cause_id=None, event=phase("a"))
    mailbox.create(journal_key(2), lost.to_bytes())
    assert journal.catch_up(JOB, mailbox) == 1
    assert journal.records(JOB, after=1) == (lost,)
    assert journal.catch_up(JOB, mailbox) == 0


def test_our_own_record_of_that_crash_is_taken_as_it_is(journal: Journal, mailbox: Mailbox) -> None:
    first = ev.Record(job_id=JOB, seq=2, at_s=5.0, writer="l-1", cause_id=None, event=phase("a"))
    mailbox.create(journal_key(2), first.to_bytes())
    assert write(journal, mailbox, phase("a")) == first
    second = ev.Record(job_id=JOB, seq=3, at_s=5.0, writer="l-1", cause_id=None, event=phase("b"))
    mailbox.create(journal_key(3), second.to_bytes())
    with pytest.raises(StoreError, match="landed late"):
        write(journal, mailbox, phase("c"))
    assert journal.records(JOB, after=2) == (second,)


def test_adopt_from_an_empty_home(journal: Journal, mailbox: Mailbox, tmp_path: Path) -> None:
    for code in "abcd":
        write(journal, mailbox, phase(code))
    with fast(Journal(tmp_path / "elsewhere" / "journal.db")) as other:
        assert other.catch_up(JOB, mailbox) == 5
        assert other.records(JOB) == journal.records(JOB)
        assert other.journal_id != journal.journal_id


def test_two_launchers_cannot_both_be_right(journal: Journal, mailbox: Mailbox, tmp_path: Path) -> None:
    with fast(Journal(tmp_path / "elsewhere" / "journal.db")) as other:
        other.catch_up(JOB, mailbox)
        write(other, mailbox, phase("theirs"), "l-2")
        with pytest.raises(ConflictError, match="another launcher") as caught:
            write(journal, mailbox, phase("ours"))
        assert caught.value.exit_code == 6
        assert [r.event for r in mirrored(mailbox)][1:] == [phase("theirs")]
        assert journal.head(JOB) == 1, "the loser has written nothing"


def test_what_waited_too_long_is_a_conflict_until_taken_over(
    journal: Journal, mailbox: Mailbox, tmp_path: Path
) -> None:
    mailbox.down = True
    write(journal, mailbox, phase("ours"), strict=False)
    write(journal, mailbox, phase("ours too"), strict=False)
    mailbox.down = False
    with fast(Journal(tmp_path / "elsewhere" / "journal.db")) as other:
        other.catch_up(JOB, mailbox)
        for code in ("x", "y", "z"):
            write(other, mailbox, phase(code), "l-2")
    for attempt in (
        lambda: journal.flush(JOB, mailbox),
        lambda: journal.catch_up(JOB, mailbox),
        lambda: write(journal, mailbox, phase("more")),
    ):
        with pytest.raises(ConflictError):
            attempt()
    assert journal.catch_up(JOB, mailbox, take_over=True) == 3
    assert mirrored(mailbox) == list(journal.records(JOB))
    kept = journal._db._connection.execute("SELECT seq FROM set_aside ORDER BY seq").fetchall()
    assert kept == [(2,), (3,)], "ours are set aside, not lost"


def test_a_gap_or_a_loss_in_the_mailbox_is_an_error(
    journal: Journal, mailbox: Mailbox, tmp_path: Path
) -> None:
    for code in "abc":
        write(journal, mailbox, phase(code))
    mailbox.delete([journal_key(3)])
    with fast(Journal(tmp_path / "b.db")) as other, pytest.raises(IntegrityError, match="lacks"):
        other.catch_up(JOB, mailbox)
    mailbox.delete([journal_key(4)])
    with pytest.raises(IntegrityError, match="lost"):
        journal.catch_up(JOB, mailbox)
    mailbox.create(journal_key(3), b"{}")
    with fast(Journal(tmp_path / "c.db")) as other, pytest.raises(IntegrityError):
        other.catch_up(JOB, mailbox)


def test_a_flipped_byte_is_never_a_history(journal: Journal, mailbox: Mailbox) -> None:
    write(journal, mailbox, phase("aaaa"))
    journal._db._connection.execute(
        "UPDATE records SET body = CAST(replace(body, 'aaaa', 'aaab') AS BLOB) WHERE seq = 2"
    )
    with pytest.raises(IntegrityError, match="damaged"):
        journal.records(JOB)


# ---------------------------------------------------------------- truncation


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes, list[ev.Record]]:
    """A file and its write-ahead log as a power cut would leave them, and what they hold."""
    folder = tmp_path_factory.mktemp("written")
    journal = Journal(folder / "journal.db")
    journal._db._connection.execute("PRAGMA wal_autocheckpoint = 0")
    mailbox = Mailbox(ManualClock())
    write(journal, mailbox, SUBMITTED)
    for n in range(12):
        write(journal, mailbox, phase(f"first half {n}" + "x" * 200))
    journal._db._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for n in range(12):
        write(journal, mailbox, phase(f"second half {n}" + "y" * 200))
    main = (folder / "journal.db").read_bytes()
    wal = (folder / "journal.db-wal").read_bytes()
    records = list(journal.records(JOB))
    journal.close()
    assert len(wal) > 20_000
    return main, wal, records


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_cut_anywhere_it_is_a_prefix_or_a_clear_error(
    written: tuple[bytes, bytes, list[ev.Record]], tmp_path: Path, data: st.DataObject
) -> None:
    main, wal, records = written
    which = data.draw(st.sampled_from(["main", "wal", "main alone"]))
    folder = tmp_path / "cut"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if which == "wal":
        wal = wal[: data.draw(st.integers(0, len(wal)))]
    else:
        main = main[: data.draw(st.integers(0, len(main)))]
    (folder / "journal.db").write_bytes(main)
    if which != "main alone":
        (folder / "journal.db-wal").write_bytes(wal)
    try:
        with Journal(folder / "journal.db") as journal:
            found = list(journal.records(JOB))
    except IntegrityError:
        assert which != "wal", "a cut log is what a crash leaves: it must load"
        return
    assert found == records[: len(found)]


@given(cut=st.integers(0, 40), codes=st.lists(st.text(min_size=1, max_size=5), max_size=40))
def test_replay_of_snapshot_and_tail_is_replay_of_all(cut: int, codes: list[str]) -> None:
    events: list[ev.Event] = [SUBMITTED, *(phase(code) for code in codes)]
    records = [
        ev.Record(job_id=JOB, seq=n, at_s=float(n), writer="l", cause_id=None, event=event)
        for n, event in enumerate(events, start=1)
    ]
    cut = max(1, min(cut, len(records)))
    assert replay(records[cut:], replay(records[:cut])) == replay(records)


# ---------------------------------------------------------------- bad folders, other processes


def test_a_full_disk_is_one_line_and_loses_nothing(journal: Journal, mailbox: Mailbox) -> None:
    connection = journal._db._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        for _ in range(100):
            write(journal, mailbox, phase("x" * 500))

    with pytest.raises(LocalStateError, match="the disk is full") as caught:
        fill()
    assert "\n" not in caught.value.message
    assert caught.value.hint
    connection.execute("PRAGMA max_page_count = 100000")
    head = journal.head(JOB)
    journal.catch_up(JOB, mailbox)
    assert journal.head(JOB) == head + 1, "what only the mailbox had is back"
    assert mirrored(mailbox) == list(journal.records(JOB))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_one_line(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.raises(LocalStateError, match="cannot"):
            Journal(home / "state" / "journal.db")
    finally:
        home.chmod(stat.S_IRWXU)


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("not a folder")
    with pytest.raises(LocalStateError, match="cannot make"):
        Journal(tmp_path / "state" / "journal.db")
    (tmp_path / "journal.db").mkdir()
    with pytest.raises(LocalStateError, match="cannot be opened"):
        Journal(tmp_path / "journal.db")


def test_not_a_database(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"this is a letter to my aunt" * 100)
    with pytest.raises(IntegrityError, match="damaged"):
        Journal(tmp_path / "journal.db")


def test_many_may_make_it_at_once(tmp_path: Path) -> None:
    """Two commands on a new home: SQLite does not wait for the lock under which a file becomes one."""
    for number in range(60):
        path, ready = tmp_path / f"{number}.db", threading.Barrier(6)

        def made(_: int, path: Path = path, ready: threading.Barrier = ready) -> str:
            ready.wait()
            with Journal(path) as journal:
                return journal.journal_id

        with ThreadPoolExecutor(6) as pool:
            assert len(set(pool.map(made, range(6)))) == 1


def test_a_newer_schema_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    Journal(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(IntegrityError, match="schema version 99") as caught:
        Journal(path)
    assert "upgrade" in (caught.value.hint or "")


def test_migration_keeps_a_copy(tmp_path: Path, mailbox: Mailbox) -> None:
    path = tmp_path / "journal.db"
    with Journal(path) as journal:
        write(journal, mailbox, SUBMITTED)

    def step(c: sqlite3.Connection) -> None:
        c.execute("ALTER TABLE records ADD COLUMN extra TEXT")

    database = Database(path, version=2, migrations={1: step})
    assert database.head(JOB) == 1
    database.close()
    backup = tmp_path / "journal.db.v1.bak"
    with Journal(backup) as old:
        assert old.head(JOB) == 1


def test_a_migration_that_fails_leaves_the_old_file(tmp_path: Path, mailbox: Mailbox) -> None:
    path = tmp_path / "journal.db"
    with Journal(path) as journal:
        write(journal, mailbox, SUBMITTED)

    def step(c: sqlite3.Connection) -> None:
        c.execute("ALTER TABLE records ADD COLUMN extra TEXT")
        c.execute("SELECT * FROM nowhere")

    with pytest.raises(IntegrityError):
        Database(path, version=2, migrations={1: step})
    with Journal(path) as journal:
        assert journal.head(JOB) == 1


def test_one_launcher_per_job_and_home(journal: Journal, tmp_path: Path) -> None:
    assert not journal.claimed(JOB)
    with journal.claim(JOB):
        assert journal.claimed(JOB)
        code = (
            "import sys\n"
            "from pathlib import Path\n"
            "from arylcloud.core.errors import ConflictError\n"
            "from arylcloud.launcher.journal import Journal\n"
            f"journal = Journal(Path({str(journal.path)!r}))\n"
            "try:\n"
            f"    with journal.claim({JOB!r}): print('claimed')\n"
            "except ConflictError as error:\n"
            "    print(error.message); sys.exit(error.exit_code)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 6, done.stderr
        assert f"process {os.getpid()} on" in done.stdout
    assert not journal.claimed(JOB)
    with journal.claim(JOB):
        pass


def test_a_reader_sees_what_a_writer_writes(journal: Journal, mailbox: Mailbox) -> None:
    with Journal(journal.path) as reader:
        write(journal, mailbox, phase("a"))
        assert reader.head(JOB) == 2


def test_two_writers_on_one_file_are_a_conflict(journal: Journal, mailbox: Mailbox) -> None:
    with Journal(journal.path) as other:
        other._db.head = lambda job_id: 1  # type: ignore[method-assign] # it looked before we wrote
        write(journal, None, phase("a"), strict=False)
        with pytest.raises(ConflictError):
            write(other, None, phase("b"), strict=False)


# ---------------------------------------------------------------- emptied


def emptied(path: Path) -> Path:
    """As a sync program, or a copy onto a full disk, leaves it."""
    for rest in path.parent.glob(f"{path.name}-*"):
        rest.unlink()
    path.write_bytes(b"")
    return path


def test_an_emptied_journal_is_not_taken_for_a_new_one(journal: Journal) -> None:
    known = journal.journal_id
    journal.close()
    for _ in range(2):
        with pytest.raises(IntegrityError, match=f"is empty, and was the journal {known}") as caught:
            Journal(emptied(journal.path))
        assert caught.value.exit_code == 7
        assert "arylcloud adopt" in (caught.value.hint or "")


def test_an_empty_file_that_never_was_a_journal_becomes_one(tmp_path: Path) -> None:
    """As a first launch leaves it that is killed before its first write."""
    (tmp_path / "journal.db").write_bytes(b"")
    with Journal(tmp_path / "journal.db") as first:
        known = first.journal_id
    with Journal(tmp_path / "journal.db") as again:
        assert again.journal_id == known


def test_a_journal_that_was_taken_away_is_followed_by_a_new_one(journal: Journal) -> None:
    """It is what our own hint says: move it away, and adopt."""
    known = journal.journal_id
    journal.close()
    for path in journal.path.parent.glob("journal.db*"):
        if path.suffix != ".id":
            path.unlink()
    with Journal(journal.path) as new:
        assert new.journal_id != known
    with pytest.raises(IntegrityError, match="was the journal"):
        Journal(emptied(journal.path))


# ---------------------------------------------------------------- many records


def test_a_long_history_is_read_side_by_side(
    journal: Journal, mailbox: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`adopt` of a job of some weeks: one answer after the other would take minutes."""
    for number in range(100):
        write(journal, mailbox, phase(f"p{number}"))
    together, met = threading.Barrier(4), []
    get = Mailbox.get

    def slow(self: Mailbox, key: str) -> bytes | None:
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(10.0)  # the first four are answered only once all of them have been asked for
            met.append(key)
        return get(self, key)

    monkeypatch.setattr(Mailbox, "get", slow)
    with fast(Journal(tmp_path / "elsewhere" / "journal.db")) as other:
        assert other.catch_up(JOB, mailbox) == 101
        assert len(met) >= 4
        monkeypatch.setattr(Mailbox, "get", get)
        assert other.records(JOB) == journal.records(JOB)
