"""Which checkpoints count as complete, and that only those are committed."""

from __future__ import annotations

import errno
import gc
import os
import time
from pathlib import Path

import pytest

from arylcloud.agent.inotify import Renames
from arylcloud.agent.saved import STALE_S
from arylcloud.agent.sync import CheckpointSync, complete, keep_only
from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.checkpoint.restore import list_manifests, read_manifest
from arylcloud.checkpoint.store import StoreAccessError, map_error
from arylcloud.core.clock import SystemClock
from arylcloud.core.errors import StoreError

from .conftest import WAIT_S, wait_for


def write(folder: Path, step: int, *, how: str) -> Path:
    final = folder / f"step-{step}"
    first = folder / f".tmp-{step}" if how == "rename" else final
    first.mkdir()
    (first / "w").write_text(str(step))
    if how == "rename":
        first.rename(final)
    elif how == "mark":
        (final / "_COMPLETE").touch()
    return final


def names(found: list) -> list[str]:  # type: ignore[type-arg]
    return [saved.path.name for saved in found]


def watching(folder: Path) -> Renames:
    renames = Renames(folder)
    wait_for(lambda: renames.names() == frozenset() and renames.watching, why="no watch is left on this host")
    return renames


def test_renamed_and_marked_ones_are_complete_others_never(tmp_path: Path) -> None:
    renames = watching(tmp_path)
    # written and renamed within one tick of the file system's clock: only the kernel can tell
    for step in range(1, 21):
        write(tmp_path, step, how="rename")
    write(tmp_path, 21, how="mark")
    write(tmp_path, 22, how="in place")
    (tmp_path / "step-x").mkdir()
    (tmp_path / "step-23").write_text("a file")
    (tmp_path / "step-24").symlink_to(tmp_path / "step-1")
    assert names(complete(tmp_path, renames.names())) == [f"step-{n}" for n in range(1, 22)]
    renames.close()


def test_a_name_created_anew_is_no_longer_a_renamed_one(tmp_path: Path) -> None:
    renames = watching(tmp_path)
    final = write(tmp_path, 1, how="rename")
    (final / "w").unlink()
    final.rmdir()
    write(tmp_path, 1, how="in place")
    assert names(complete(tmp_path, renames.names())) == []
    renames.close()


def test_a_watch_is_given_back_when_nobody_asks_any_more(tmp_path: Path) -> None:
    """A host has 128 of them for all processes of a user: kept ones would blind every agent after us."""
    renames = watching(tmp_path)
    held = Path(f"/proc/self/fd/{renames._fd}")
    assert "inotify" in str(held.readlink())
    del renames
    gc.collect()
    assert not held.is_symlink() or "inotify" not in str(held.readlink())


def test_where_no_watch_is_left_it_is_asked_for_anew_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        @staticmethod
        def inotify_init1(_: int) -> int:
            return -1

    said: list[str] = []
    with monkeypatch.context() as full:
        full.setattr("ctypes.CDLL", lambda *_args, **_options: Full)
        found = CheckpointSync(
            MemoryStore(), tmp_path, job_id="j", lease_id="l", clock=SystemClock(), log=said.append
        )
        found.begin(1)
        missed = tmp_path / "step-1"
        missed.mkdir()
        os.utime(missed, (time.time() - 2 * STALE_S,) * 2)
        full.setattr("arylcloud.agent.sync.complete", lambda *_: [])  # as if its ctime told nothing
        assert found._turn()
        assert "max_user_instances" in said[0]
    wait_for(lambda: found.saved() is not None and found._renames.watching)
    write(tmp_path, 2, how="rename")
    assert found._turn()
    assert found.status.committed_step == 2


def test_a_rename_long_ago_is_seen_by_its_times(tmp_path: Path) -> None:
    final = write(tmp_path, 3, how="in place")
    os.utime(final, (time.time() - 5, time.time() - 5))
    final.rename(tmp_path / "step-4")
    assert names(complete(tmp_path)) == ["step-4"]


def test_keep_only(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write(tmp_path, step, how="rename")
    (tmp_path / "notes").write_text("the user's own")
    assert keep_only(tmp_path, "step-2") == ["step-1", "step-3"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes", "step-2"]
    assert keep_only(tmp_path, None) == ["step-2"]


def test_keep_only_cut_off_half_way_leaves_no_half_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2):
        write(tmp_path, step, how="mark")

    def half(path: Path, *_: object, **__: object) -> None:
        (Path(path) / "w").unlink()
        raise OSError("the machine is gone")

    with monkeypatch.context() as cut:
        cut.setattr("shutil.rmtree", half)
        with pytest.raises(OSError, match="gone"):
            keep_only(tmp_path, "step-2")
    assert names(complete(tmp_path)) == ["step-2"]
    write(tmp_path, 1, how="mark")  # written anew: its name is free, and what lay there is out of the way
    assert keep_only(tmp_path, "step-2") == ["step-1"]
    assert [p.name for p in tmp_path.iterdir()] == ["step-2"]


class Outage(MemoryStore):
    away = False
    error: StoreError = StoreError("away")

    def put(self, key: str, data: bytes) -> None:
        if self.away:
            raise self.error
        super().put(key, data)


@pytest.fixture
def sync(tmp_path: Path):  # type: ignore[no-untyped-def]
    store = Outage()
    said: list[str] = []
    found = CheckpointSync(
        store, tmp_path / "ck", job_id="j", lease_id="l", clock=SystemClock(), log=said.append
    )
    found.start()
    yield found, store, tmp_path / "ck", said
    found.stop()
    found.join(WAIT_S)


@pytest.mark.parametrize(
    "error",
    [
        StoreError("away"),
        map_error(OSError(errno.EROFS, ""), "away"),
        map_error(OSError(errno.ENOSPC, ""), "away"),
        StoreAccessError("away: the credentials have expired"),
    ],
    ids=["no answer", "read-only", "full", "expired"],
)
def test_an_outage_is_outlasted_and_the_newest_wins(sync, error: StoreError) -> None:  # type: ignore[no-untyped-def]
    """Of whatever kind: what is wrong with the store is not taken for a fault of the checkpoint."""
    found, store, folder, _ = sync
    store.error = error
    found.begin(7)
    store.away = True
    for step in (1, 2, 3):
        write(folder, step, how="rename")
    wait_for(lambda: found.status.problem)
    assert "away" in found.status.problem
    found.finish(7, commits=True)
    time.sleep(0.3)
    assert found.status.saved_epoch == 0  # field case 69: not while anything waits
    store.away = False
    wait_for(lambda: found.status.saved_epoch == 7)
    manifests = [read_manifest(store, key) for key in list_manifests(store)]
    assert manifests[-1].step == 3
    assert [m.number for m in manifests] == list(range(1, len(manifests) + 1))
    assert found.status.problem is None


def test_what_cannot_be_committed_is_said_and_passed_over(sync) -> None:  # type: ignore[no-untyped-def]
    found, _store, folder, _ = sync
    found.begin(1)
    bad = folder / ".tmp"
    bad.mkdir(parents=True)
    os.mkfifo(bad / "pipe")
    os.utime(bad, (1, 1))  # its times tell of the rename, should this host have no watch left
    bad.rename(folder / "step-9")
    wait_for(lambda: found.status.problem)
    assert "step-9" in found.status.problem
    assert "pipe" in found.status.problem
    write(folder, 10, how="rename")
    wait_for(lambda: found.status.committed_step == 10)
    found.finish(1, commits=True)
    wait_for(lambda: found.status.saved_epoch == 1)


def test_a_torn_checkpoint_is_never_committed(sync) -> None:  # type: ignore[no-untyped-def]
    found, store, folder, _ = sync
    found.begin(1)
    write(folder, 1, how="rename")
    write(folder, 2, how="in place")
    found.finish(1, commits=True)
    wait_for(lambda: found.status.saved_epoch == 1)
    assert found.status.committed_step == 1
    assert len(list_manifests(store)) == 1


def test_ranks_that_do_not_commit_are_saved_at_once(sync) -> None:  # type: ignore[no-untyped-def]
    found, store, folder, _ = sync
    write(folder, 1, how="rename")
    found.finish(3, commits=False)
    assert found.status.saved_epoch == 3
    assert list_manifests(store) == ()
