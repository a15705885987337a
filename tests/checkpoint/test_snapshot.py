"""What is being sent is held: the training prunes and goes on, and only what changes is refused."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from arylcloud.agent.saved import Saved
from arylcloud.agent.sending import OvertakenError, Sender
from arylcloud.agent.sync import CheckpointSync
from arylcloud.checkpoint.chunks import read_span
from arylcloud.checkpoint.manifest import list_manifests, read_manifest
from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.checkpoint.restore import restore
from arylcloud.checkpoint.snapshot import take
from arylcloud.checkpoint.upload import Uploader
from arylcloud.core.clock import ManualClock, SystemClock
from arylcloud.core.errors import IntegrityError, UsageError
from arylcloud.core.ports import ObjectInfo
from arylcloud.core.protocol import CHUNKS_PREFIX


def checkpoint(folder: Path, step: int, content: str = "weights") -> Path:
    temporary = folder / f".tmp-{step}"
    (temporary / "deep").mkdir(parents=True)
    (temporary / "w").write_text(f"{content} {step}")
    (temporary / "deep" / "m").write_text("moments")
    final = folder / f"step-{step}"
    temporary.rename(final)
    return final


def test_it_holds_what_is_pruned(tmp_path: Path) -> None:
    origin = checkpoint(tmp_path, 1)
    snapshot = take(origin, tmp_path / ".held")
    store = MemoryStore()
    uploader = Uploader(store)
    shutil.rmtree(origin)
    files = uploader.send(snapshot.path, name="step-1", clock=SystemClock())
    snapshot.check()
    snapshot.drop()
    assert [file.path for file in files] == ["deep/m", "w"]
    assert list(tmp_path.iterdir()) == []
    assert uploader.missing(files) == set()


def test_half_of_it_pruned_is_no_change(tmp_path: Path) -> None:
    origin = checkpoint(tmp_path, 1)
    snapshot = take(origin, tmp_path / ".held")
    (origin / "w").unlink()
    snapshot.check()
    assert (snapshot.path / "w").read_text() == "weights 1"


@pytest.mark.parametrize("how", ["added", "replaced", "in place"])
def test_what_is_touched_after_it_was_finished_is_refused(tmp_path: Path, how: str) -> None:
    origin = checkpoint(tmp_path, 1)
    snapshot = take(origin, tmp_path / ".held")
    if how == "added":
        (origin / "late").write_text("x")
    elif how == "replaced":
        (origin / ".w").write_text("other")
        (origin / ".w").rename(origin / "w")
    else:
        with (origin / "w").open("r+") as file:
            file.write("W")
        os.utime(origin / "w", ns=(1, 1))
    with pytest.raises(IntegrityError, match="changed while"):
        snapshot.check()
    if how == "in place":  # the link shows it, too
        with pytest.raises(IntegrityError, match="changed while"):
            read_span(snapshot.files[-1], 0, snapshot.files[-1].size)


def test_a_successor_of_the_same_name_is_none_of_its_business(tmp_path: Path) -> None:
    origin = checkpoint(tmp_path, 1)
    snapshot = take(origin, tmp_path / ".held")
    origin.rename(tmp_path / ".old")
    checkpoint(tmp_path, 1, "others")
    snapshot.check()
    assert (snapshot.path / "w").read_text() == "weights 1"


def test_without_hard_links_it_is_read_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = checkpoint(tmp_path, 1)

    def link(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", link)
    snapshot = take(origin, tmp_path / ".held")
    assert snapshot.path == origin
    snapshot.check()
    snapshot.drop()
    assert (origin / "w").exists()
    assert not (tmp_path / ".held").exists()


class Slow(MemoryStore):
    """Each write of a chunk waits for ``go``."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Semaphore(0)
        self.waiting = threading.Semaphore(0)

    def put(self, key: str, data: bytes) -> None:
        if key.startswith(CHUNKS_PREFIX):
            self.waiting.release()
            assert self.go.acquire(timeout=120)
        super().put(key, data)


def test_saves_faster_than_uploads_starve_nobody_and_fill_no_disk(tmp_path: Path) -> None:
    """The training saves and prunes to one while every upload runs: each upload is committed, of the steps
    between none is queued, and on the disk there is one more at most."""
    store, folder, said = Slow(), tmp_path / "ck", []
    sync = CheckpointSync(store, folder, job_id="j", lease_id="l", clock=SystemClock(), log=said.append)
    sync.begin(1)
    give_up = time.monotonic() + 120
    while sync.saved() or not sync._renames.watching:  # of what is gone before a scan only a watch knows
        assert time.monotonic() < give_up, "other processes use up this host's inotify watches"
        time.sleep(0.02)
    step = 1
    checkpoint(folder, 1)
    for _ in range(3):
        turn = threading.Thread(target=sync._turn)
        turn.start()
        assert store.waiting.acquire(timeout=120)
        for _ in range(4):
            step += 1
            checkpoint(folder, step)
            shutil.rmtree(folder / f"step-{step - 1}")
            assert len([p for p in folder.iterdir() if (p / "w").exists()]) <= 2
        store.go.release(2)
        turn.join(120)
        store.waiting.acquire(blocking=False)
    assert [read_manifest(store, key).step for key in list_manifests(store)] == [1, 5, 9]
    assert sync.status.skipped == 6
    assert any("3 before it were overtaken" in line for line in said)
    assert [p.name for p in folder.iterdir()] == ["step-13"]
    newest = read_manifest(store, list_manifests(store)[-1])
    assert (restore(store, newest, tmp_path / "in") / "w").read_text() == "weights 9"


# ---------------------------------------------------------------- little time left


class Metered(MemoryStore):
    """A network of ``bytes_per_s``, on a clock set by hand."""

    def __init__(self, clock: ManualClock, bytes_per_s: float) -> None:
        super().__init__(clock=clock)
        self.hand, self.bytes_per_s = clock, bytes_per_s

    def put(self, key: str, data: bytes) -> None:
        if key.startswith(CHUNKS_PREFIX):
            self.hand.sleep(len(data) / self.bytes_per_s)
        super().put(key, data)


def save(folder: Path, step: int, size: int) -> Saved:
    path = folder / f"step-{step}"
    path.mkdir(parents=True)
    for part in range(10):
        (path / f"{part}").write_bytes(bytes([step, part]) * (size // 20))
    (path / "_COMPLETE").touch()
    return Saved(step=step, path=path, saved_at_s=0.0)


def test_an_upload_that_cannot_be_through_in_time_is_not_begun(tmp_path: Path) -> None:
    clock = ManualClock()
    sender = Sender(Metered(clock, 1000.0), job_id="j", clock=clock, newest=lambda: None)
    sender.send(save(tmp_path, 1, 10_000), committed_step=None)
    assert sender.took_s() == pytest.approx(10.0, rel=0.1)
    sender.hurry(4.0)
    with pytest.raises(UsageError, match="goes back to step-1"):
        sender.send(save(tmp_path, 2, 10_000), committed_step=1)
    sender.hurry(6.0)  # at twice the best rate it would be: tried
    sender.send(save(tmp_path, 3, 10_000), committed_step=1)


class Pruned(Metered):
    """Of the first chunks that are listed one is taken at that moment."""

    taken = False

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        found = list(super().list(prefix, after=after))
        if prefix == CHUNKS_PREFIX and found and not self.taken:
            self.taken = True
            self.delete([found.pop(0).key])
        yield from found


def test_a_wait_says_nothing_of_the_line(tmp_path: Path) -> None:
    """What an upload waited for once its bytes were sent, here that a pruner has ended, is no reason to give
    up the next."""
    clock = ManualClock()
    sender = Sender(Pruned(clock, 10_000.0), job_id="j", clock=clock, newest=lambda: None)
    sender.send(save(tmp_path, 1, 10_000), committed_step=None)
    assert sender.took_s() > 10.0
    sender.hurry(2.0)
    assert sender.send(save(tmp_path, 2, 10_000), committed_step=1)


@pytest.mark.parametrize(("left_s", "left_for_newer"), [(30.0, False), (12.0, True), (6.0, False)])
def test_the_older_makes_way_for_the_last_only_where_that_helps(
    tmp_path: Path, left_s: float, left_for_newer: bool
) -> None:
    clock = ManualClock()
    store = Metered(clock, 1000.0)
    sender = Sender(store, job_id="j", clock=clock, newest=lambda: 2)
    sender.uploader._threads = 1
    sender.hurry(left_s)
    older = save(tmp_path, 1, 10_000)
    if left_for_newer:
        with pytest.raises(OvertakenError):
            sender.send(older, committed_step=None)
    else:
        sender.send(older, committed_step=None)
    assert [p.name for p in tmp_path.iterdir()] == ["step-1"]
