"""Sharded checkpoints: what is committed has every rank's part of one step, or it is not committed."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from arylcloud.agent.gather import PATIENT_S, SILENT_S, Gathering
from arylcloud.agent.sync import CheckpointSync
from arylcloud.checkpoint.manifest import list_manifests, read_manifest
from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.checkpoint.restore import restore
from arylcloud.checkpoint.sharding import SHARDED
from arylcloud.core.clock import ManualClock
from arylcloud.core.codec import dumps
from arylcloud.core.errors import StoreError
from arylcloud.core.protocol import AgentPhase, EndDoc, Heartbeat, Manifest, beat_key, end_key

EPOCH = 3


class Flaky(MemoryStore):
    """Some requests fail, as ``fails`` says; half of the failing writes have been done all the same."""

    fails: random.Random | None = None
    looks = 0
    """For calls."""

    def _maybe(self) -> None:
        if self.fails is not None and self.fails.random() < 0.1:
            raise StoreError("away")

    def create(self, key: str, data: bytes) -> bool:
        self._maybe()
        made = super().create(key, data)
        self._maybe()
        return made

    def put(self, key: str, data: bytes) -> None:
        self._maybe()
        super().put(key, data)

    def get(self, key: str) -> bytes | None:
        self._maybe()
        self.looks += "/call-" in key
        return super().get(key)


@dataclass
class Rank:
    """A machine: its disk, its agent's upload thread (turned by hand), its heartbeat and its end."""

    gang: Gang
    rank: int
    sync: CheckpointSync
    folder: Path
    alive: bool = True
    finished: bool = False
    seq: int = 0
    said: list[str] = field(default_factory=list)

    def save(self, step: int, *, content: str | None = None, name: str | None = None) -> None:
        temporary = self.folder / f".tmp-{step}"
        temporary.mkdir()
        (temporary / (name or f"shard-{self.rank}.bin")).write_text(content or f"{step} of {self.rank}")
        (temporary / "_COMPLETE").write_text(f"by {self.rank}")
        (temporary / SHARDED).touch()
        temporary.rename(self.folder / f"step-{step}")

    def prune(self, keep: int) -> None:
        for old in sorted(self.folder.glob("step-*"), key=lambda p: int(p.name[5:]))[:-keep]:
            shutil.rmtree(old)

    def turn(self) -> None:
        if not self.alive:
            return
        self.seq += 1
        beat = Heartbeat(
            lease_id=f"l{self.rank}", seq=self.seq, at_s=self.gang.clock.now_s(), phase=AgentPhase.RUNNING
        )
        MemoryStore.put(self.gang.store, beat_key(beat.lease_id), dumps(beat))
        self.sync._turn()  # what its thread repeats
        if self.finished and self.sync.status.saved_epoch == EPOCH:
            end = EndDoc(
                epoch=EPOCH,
                rank=self.rank,
                lease_id=f"l{self.rank}",
                exit_code=0,
                signalled=True,
                finished=True,
                step=None,
                at_s=0.0,
            )
            MemoryStore.create(self.gang.store, end_key(EPOCH, self.rank), dumps(end))

    def finish(self) -> None:
        if self.alive and not self.finished:
            self.finished = True
            self.sync.finish(EPOCH, commits=self.rank == 0)


class Gang:
    def __init__(self, tmp_path: Path, world: int) -> None:
        self.store = Flaky()
        self.clock = ManualClock()
        self.tmp_path = tmp_path
        leases = tuple(f"l{rank}" for rank in range(world))
        self.ranks: list[Rank] = []
        for rank in range(world):
            said: list[str] = []
            folder = tmp_path / f"rank-{rank}"
            sync = CheckpointSync(
                self.store, folder, job_id="j", lease_id=f"l{rank}", clock=self.clock, log=said.append
            )
            sync.begin(EPOCH, rank=rank, leases=leases)
            self.ranks.append(Rank(self, rank, sync, folder, said=said))

    def turn(self, times: int = 1, *, apart_s: float = 0.2) -> None:
        for _ in range(times):
            for rank in self.ranks:
                rank.turn()
            self.clock.sleep(apart_s)

    def manifests(self) -> list[Manifest]:
        return [read_manifest(self.store, key) for key in list_manifests(self.store)]

    def check(self) -> None:
        """Every manifest has the part of every rank, all of its own step, and can be restored."""
        for manifest in self.manifests():
            where = restore(self.store, manifest, self.tmp_path / "restored")
            shards = {p.name: p.read_text() for p in where.glob("shard-*")}
            expected = {f"shard-{r.rank}.bin": f"{manifest.step} of {r.rank}" for r in self.ranks}
            assert shards == expected, manifest
            assert (where / "_COMPLETE").read_text() == "by 0"


@pytest.fixture
def gang(tmp_path: Path) -> Gang:
    return Gang(tmp_path, 3)


def test_all_parts_make_one_checkpoint(gang: Gang) -> None:
    for rank in gang.ranks:
        rank.save(10)
    gang.turn(2)
    assert [m.step for m in gang.manifests()] == [10]
    gang.check()


def test_nothing_is_committed_until_the_last_part_is_in(gang: Gang) -> None:
    gang.ranks[0].save(10)
    gang.ranks[1].save(10)
    gang.turn(100)
    assert gang.manifests() == []
    problem = gang.ranks[0].sync.status.problem
    assert problem is not None
    assert "step-10 waits for the part of rank 2" in problem
    gang.ranks[2].save(10)
    gang.turn(2)
    assert [m.step for m in gang.manifests()] == [10]
    assert gang.ranks[0].sync.status.problem is None


def test_rank_0_alone_waits_for_nobody(gang: Gang) -> None:
    gang.ranks[0].save(10)
    (gang.ranks[0].folder / "step-10" / SHARDED).unlink()
    gang.ranks[1].save(10)
    (gang.ranks[1].folder / "step-10" / SHARDED).unlink()
    gang.turn(1)
    assert [[f.path for f in m.files] for m in gang.manifests()] == [["_COMPLETE", "shard-0.bin"]]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("model.pt", None, "ranks 0 and 1 have both written model.pt, with different content"),
        ("model.pt/x", None, "once as a file, once as a folder"),
    ],
)
def test_two_ranks_of_one_name_are_told_apart(
    tmp_path: Path, name: str, content: str | None, why: str
) -> None:
    gang = Gang(tmp_path, 2)
    gang.ranks[0].save(10, name="model.pt", content="of 0")
    if "/" in name:
        gang.ranks[1].save(10)
        (gang.ranks[1].folder / "step-10" / "model.pt").mkdir()
        (gang.ranks[1].folder / "step-10" / name).write_text("deeper")
    else:
        gang.ranks[1].save(10, name=name, content="of 1")
    gang.turn(3)
    assert gang.manifests() == []
    assert why in (gang.ranks[0].sync.status.problem or "")
    for rank in gang.ranks:
        rank.save(20)
    gang.turn(3)
    assert [m.step for m in gang.manifests()] == [20]


def test_the_same_file_with_the_same_content_is_one_file(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 2)
    for rank in gang.ranks:
        rank.save(10, name="config.json", content="{}")
    gang.turn(3)
    assert [f.path for f in gang.manifests()[0].files] == ["_COMPLETE", SHARDED, "config.json"]


def test_a_rank_without_that_step_says_so_and_a_later_one_is_taken(gang: Gang) -> None:
    for rank in gang.ranks[:2]:
        rank.save(10)
    gang.turn(2)
    gang.ranks[2].save(20)
    gang.turn(2)
    assert "rank 2: it has step-20, and that one no more" in " ".join(gang.ranks[0].said)
    for rank in gang.ranks[:2]:
        rank.save(20)
    gang.turn(3)
    assert [m.step for m in gang.manifests()] == [20]
    gang.check()


def test_a_rank_with_an_overtaken_step_alone_seldom_looks_for_a_call(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 2)
    gang.ranks[1].save(10)
    for rank in gang.ranks:
        rank.save(20)
    gang.turn(3)
    assert [m.step for m in gang.manifests()] == [20]
    before = gang.store.looks
    gang.turn(100)  # 20 s
    assert gang.store.looks - before <= 5


def test_a_step_before_one_that_was_given_up_is_gone_back_to(gang: Gang) -> None:
    for rank in gang.ranks:
        rank.save(10)
    gang.ranks[0].save(20)
    gang.ranks[1].save(20)
    gang.ranks[2].save(30)
    gang.turn(40)
    assert "rank 2: it has step-30, and that one no more" in " ".join(gang.ranks[0].said)
    assert [m.step for m in gang.manifests()] == [10]
    gang.check()


def test_a_rank_that_dies_is_not_waited_for_and_the_last_commit_stands(gang: Gang) -> None:
    for rank in gang.ranks:
        rank.save(10)
    gang.turn(2)
    gang.ranks[0].save(20)
    gang.ranks[2].save(20)
    gang.ranks[1].alive = False
    gang.turn(1)
    for rank in gang.ranks:
        rank.finish()
    gang.turn(60)
    assert gang.ranks[0].sync.status.saved_epoch == EPOCH
    assert gang.ranks[2].sync.status.saved_epoch == EPOCH
    assert [m.step for m in gang.manifests()] == [10]


def test_a_rank_that_was_found_silent_is_not_waited_for_anew_unless_it_is_heard(gang: Gang) -> None:
    first, silent, _ = gang.ranks

    def given_up_after(step: int, *, by: tuple[Rank, ...] = (first, gang.ranks[2])) -> float:
        for rank in by:
            rank.save(step)
        begun_s = gang.clock.monotonic_s()
        while f"step-{step} cannot" not in (first.sync.status.problem or ""):
            gang.turn()
            assert gang.clock.monotonic_s() < begun_s + 60.0
        return gang.clock.monotonic_s() - begun_s

    silent.alive = False
    assert given_up_after(10) >= 10.0
    assert given_up_after(20) < 1.0
    silent.alive = True  # it was only cut off, and is heard again
    silent.turn()
    for rank in gang.ranks:
        rank.save(30)
    gang.turn(10)
    assert [m.step for m in gang.manifests()] == [30]
    silent.alive = False
    assert given_up_after(40) >= 10.0
    gang.check()


@pytest.mark.parametrize("finished", [True, False])
def test_a_last_step_given_up_for_silence_is_looked_at_again_once_all_is_done(
    gang: Gang, finished: bool
) -> None:
    """A rank was cut off while the command still ran; the save at its end is all that is left to be had."""
    first, silent, _ = gang.ranks
    silent.alive = False
    for rank in gang.ranks:
        rank.save(326)
    gang.turn(60)
    assert "rank 1 is not heard" in (first.sync.status.problem or "")
    for rank in gang.ranks:
        rank.sync.finish(EPOCH, commits=rank is first, finished=finished)
    gang.turn(100)
    assert (first.sync.status.saved_epoch == EPOCH) is not finished, "of one that is asked to go nobody waits"
    silent.alive = True
    gang.turn(20)
    assert [m.step for m in gang.manifests()] == ([326] if finished else [])
    assert first.sync.status.saved_epoch == EPOCH
    gang.check()


def test_a_command_that_finishes_during_the_look_that_gives_its_last_step_up(
    gang: Gang, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent says so from another thread: the step is looked at again all the same."""
    first, silent, _ = gang.ranks
    silent.alive = False
    for rank in gang.ranks:
        rank.save(326)
    look, finished = Gathering.look, []

    def finishing(self: Gathering, *, patient: bool = False) -> None:
        look(self, patient=patient)
        if self.hopeless is not None and not finished:
            finished.append(patient)
            for rank in gang.ranks:
                rank.sync.finish(EPOCH, commits=rank is first, finished=True)

    monkeypatch.setattr(Gathering, "look", finishing)
    gang.turn(60)
    assert finished == [False]
    silent.alive = True
    gang.turn(20)
    assert [m.step for m in gang.manifests()] == [326]


@pytest.mark.parametrize("heard", [True, False])
def test_silent_ranks_are_waited_for_once_by_all_last_steps_together(tmp_path: Path, heard: bool) -> None:
    """Of a command that has finished: rank 1 says something now and then and sends nothing, or nobody can
    write a heartbeat, rank 0 included."""
    gang = Gang(tmp_path, 2)
    first, silent = gang.ranks
    silent.turn()
    first.turn()
    for step in (10, 20, 30):
        first.save(step)
    first.sync.finish(EPOCH, commits=True, finished=True)
    begun_s, given_up = gang.clock.monotonic_s(), 0
    while first.sync.status.saved_epoch != EPOCH:
        if heard:
            first.turn()
        else:
            first.sync._turn()
        if heard and (told := sum("cannot be committed" in text for text in first.said)) > given_up:
            given_up = told
            silent.turn()
        gang.clock.sleep(1.0)
        assert gang.clock.monotonic_s() - begun_s < PATIENT_S + 3 * 2 * SILENT_S
    assert gang.clock.monotonic_s() - begun_s >= PATIENT_S, "it is what is left to be had"
    assert gang.manifests() == []


class Away(random.Random):
    """Every request fails."""

    def random(self) -> float:
        return 0.0


def test_after_an_outage_a_rank_that_is_heard_later_than_rank_0_is_not_given_up(gang: Gang) -> None:
    first, *others = gang.ranks
    first.save(10)
    gang.turn(2, apart_s=1.0)
    first.turn()  # the others' newest heartbeats are known
    gang.store.fails = Away()
    for _ in range(15):  # nobody can write a heartbeat
        with pytest.raises(StoreError):
            gang.store.get("anything")
        assert not first.sync._turn()
        gang.clock.sleep(1.0)
    gang.store.fails = None
    first.turn()
    for rank in others:
        rank.save(10)
    gang.turn(3)
    assert [m.step for m in gang.manifests()] == [10]
    gang.check()


def test_a_rank_under_notice_sends_its_part_uncalled_and_may_go(gang: Gang) -> None:
    for rank in gang.ranks:
        rank.save(10)
    leaving = gang.ranks[2]
    leaving.finish()
    leaving.turn()
    leaving.turn()
    assert leaving.sync.status.saved_epoch == EPOCH
    leaving.alive = False
    for rank in gang.ranks[:2]:
        rank.finish()
    gang.turn(5)
    assert [m.step for m in gang.manifests()] == [10]
    gang.check()


def test_at_the_end_the_newest_comes_first_and_the_one_before_it_may_still_do(gang: Gang) -> None:
    for rank in gang.ranks:
        rank.save(10)
    gang.ranks[0].turn()  # calls for step 10, and waits
    gang.ranks[0].save(20)
    gang.ranks[1].save(20)  # rank 2 is killed while it writes its own
    for rank in gang.ranks:
        rank.finish()
    gang.turn(10)
    assert [m.step for m in gang.manifests()] == [10]
    assert gang.ranks[0].sync.status.saved_epoch == EPOCH
    gang.check()


def test_unchanged_chunks_of_any_rank_travel_once(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 2)
    for step in (10, 20):
        for rank in gang.ranks:
            rank.save(step, content=f"base of {rank.rank}")
        gang.turn(3)
    sent = [rank.sync._sender.uploader.uploaded_bytes for rank in gang.ranks]
    assert sent == [9 + 4, 9 + 4 + 4]  # (rank 1's own mark is in no manifest)
    assert len(gang.manifests()) == 2


@pytest.mark.parametrize("ranks_first", [(0, 1, 2), (0, 1), (0,)])
def test_a_step_saved_anew_is_never_mixed_with_parts_of_the_first_time(
    gang: Gang, ranks_first: tuple[int, ...]
) -> None:
    """The training goes back within its process, and comes by step 10 again."""
    for rank in ranks_first:
        gang.ranks[rank].save(10, content="first")
    for rank in gang.ranks[: len(ranks_first)]:
        rank.turn()
    before = list_manifests(gang.store)
    for rank in gang.ranks:
        gang.clock.sleep(1.0)
        shutil.rmtree(rank.folder / "step-10", ignore_errors=True)
        rank.save(10, content="second")
    gang.turn(3)
    assert list_manifests(gang.store) == before == ()
    assert "saved twice in this epoch" in (gang.ranks[0].sync.status.problem or "")
    for rank in gang.ranks:
        rank.save(20)
    gang.turn(3)
    assert [m.step for m in gang.manifests()] == [20]
    gang.check()


def test_what_is_added_to_a_step_later_does_not_cost_it(gang: Gang) -> None:
    """A script that notes something beside its shards once all have saved."""
    for rank in gang.ranks:
        rank.save(10)
    gang.ranks[0].turn()
    gang.clock.sleep(1.0)
    (gang.ranks[0].folder / "step-10" / "_COMPLETE").write_text("by 0")
    (gang.ranks[0].folder / "step-10" / "meta.json").write_text("{}")
    gang.turn(3)
    assert [m.step for m in gang.manifests()] == [10]
    gang.check()


def test_a_step_saved_anew_with_the_same_content_is_committed(gang: Gang) -> None:
    gang.ranks[0].save(10)
    gang.ranks[0].turn()
    for rank in gang.ranks:
        shutil.rmtree(rank.folder / "step-10", ignore_errors=True)
        rank.save(10)
    gang.turn(3)
    assert [m.step for m in gang.manifests()] == [10]
    gang.check()


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_no_half_is_ever_committed(tmp_path: Path, seed: int) -> None:
    """Ranks save, prune, die, end, and a store that fails: in any order."""
    rng = random.Random(seed)
    gang = Gang(tmp_path, rng.choice((2, 3, 4)))
    gang.store.fails = rng
    step = {rank.rank: 0 for rank in gang.ranks}
    for _ in range(60):
        rank = rng.choice(gang.ranks)
        what = rng.random()
        if what < 0.3 and rank.alive and not rank.finished and step[rank.rank] <= min(step.values()) + 1:
            step[rank.rank] += 1
            rank.save(step[rank.rank])
            rank.prune(rng.choice((1, 2, 3)))
        elif what < 0.31 and rank.rank != 0:
            rank.alive = False
        elif what < 0.9:
            rank.turn()
        gang.clock.sleep(0.2)
    for rank in gang.ranks:
        rank.finish()
    gang.store.fails = None
    gang.turn(40, apart_s=1.0)
    assert all(rank.sync.status.saved_epoch == EPOCH for rank in gang.ranks if rank.alive)
    gang.check()
    if all(rank.alive for rank in gang.ranks):
        on_all = set.intersection(*({int(p.name[5:]) for p in r.folder.glob("step-*")} for r in gang.ranks))
        done = [m.step for m in gang.manifests()]
        assert not on_all or max(done) >= max(on_all), "every rank has it, and it was not committed"
