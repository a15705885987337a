"""When a launcher prunes: not at its start, not without news, and again after a store that was away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from arylcloud.checkpoint.manifest import manifest_bytes, seal
from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.checkpoint.restore import list_manifests, read_manifest
from arylcloud.core.clock import ManualClock, MarketClock
from arylcloud.core.errors import StoreError
from arylcloud.core.events import CheckpointCommitted
from arylcloud.core.job import CheckpointSpec, JobSpec
from arylcloud.core.protocol import ChunkRef, FileEntry, Manifest, chunk_key
from arylcloud.launcher.housekeeping import Housekeeper
from arylcloud.launcher.state import JobState

EVERY_S = 300.0


class Store(MemoryStore):
    away = False

    def delete(self, keys: Sequence[str]) -> None:
        if self.away:
            raise StoreError("away")
        super().delete(keys)


class Job:
    def __init__(self) -> None:
        self.clock = ManualClock(1e6)
        self.store = Store(clock=self.clock)
        self.state = JobState(
            job_id="j",
            spec=JobSpec(name="j", run="x"),
            prefix_uri="memory://",
            journal_id="o",
            market_clock=MarketClock(),
            submitted_at_s=0.0,
        )

    def commit(self, number: int) -> None:
        digest = f"{number:x}" * 64
        self.store.put(chunk_key(digest), b"x")
        file = FileEntry(path="w", size=1, mode=0o644, chunks=(ChunkRef(sha256=digest, size=1),))
        made = seal(
            Manifest(
                job_id="j",
                lease_id="l",
                epoch=1,
                number=number,
                step=number,
                saved_at_s=self.clock.at_s,
                committed_at_s=self.clock.at_s,
                directory=f"step-{number}",
                files=(file,),
                total_bytes=1,
                digest="",
            )
        )
        self.store.create(made.key, manifest_bytes(made))
        seen = CheckpointCommitted(
            manifest=made.key,
            epoch=1,
            step=number,
            saved_at_s=self.clock.at_s,
            total_bytes=1,
        )
        self.state = replace(self.state, checkpoints=(*self.state.checkpoints, seen))
        self.clock.at_s += 1

    @property
    def kept(self) -> int:
        return len(list_manifests(self.store))


def test_not_right_after_a_start_then_each_time_that_something_is_new() -> None:
    job = Job()
    for number in (1, 2, 3, 4):
        job.commit(number)
    keeper = Housekeeper(store=job.store, every_s=EVERY_S)  # started during an upload, perhaps
    for _ in range(int(EVERY_S) - 1):
        keeper.tidy(job.state, job.clock.at_s)
        job.clock.at_s += 1
        assert job.kept == 4
    job.clock.at_s += 1
    keeper.tidy(job.state, job.clock.at_s)
    keep = max(2, job.state.spec.checkpoint.keep)
    assert job.kept == keep
    for number in (5, 6, 7):
        job.commit(number)
    keeper.tidy(job.state, job.clock.at_s)
    assert job.kept == keep + 3
    job.clock.at_s += EVERY_S
    keeper.tidy(job.state, job.clock.at_s)
    assert job.kept == keep


def test_a_store_that_was_away_is_tried_again_without_news() -> None:
    job = Job()
    keeper = Housekeeper(store=job.store, every_s=EVERY_S)
    keeper.tidy(job.state, job.clock.at_s)
    for number in (1, 2, 3, 4):
        job.commit(number)
    job.clock.at_s += EVERY_S
    job.store.away = True
    keeper.tidy(job.state, job.clock.at_s)
    assert job.kept == 4
    job.store.away = False
    job.clock.at_s += EVERY_S
    keeper.tidy(job.state, job.clock.at_s)
    assert job.kept == max(2, job.state.spec.checkpoint.keep)


def test_the_first_at_or_after_each_multiple_stays_for_good() -> None:
    job = Job()
    spec = CheckpointSpec(keep=2, keep_every_steps=4)
    job.state = replace(job.state, spec=replace(job.state.spec, checkpoint=spec))
    keeper = Housekeeper(job.store)
    keeper.tidy(job.state, 0.0)
    for number in (1, 2, 3, 5, 6, 7, 9, 10, 11):
        job.commit(number)
    keeper.tidy(job.state, 301.0)
    steps = [read_manifest(job.store, key).step for key in list_manifests(job.store)]
    assert steps == [5, 9, 10, 11]
    job.state = replace(job.state, rejected=frozenset({list_manifests(job.store)[0]}))
    job.commit(12)
    keeper.tidy(job.state, 602.0)
    steps = [read_manifest(job.store, key).step for key in list_manifests(job.store)]
    assert steps == [9, 11, 12]  # a damaged one is no keepsake
