"""Damaged while the job is down, a checkpoint is never restored: the one before is, and it is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from arylcloud.core.events import CheckpointRejected, EpochOpened
from arylcloud.core.protocol import manifest_key
from e2e.market import job, quiet
from e2e.support import Home, wait_for
from e2e.truth import settled

NewHome = Callable[..., Home]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x01
    path.write_bytes(bytes(data))


def manifests(prefix: Path) -> list[dict[str, object]]:
    """In order of their commit."""
    return [json.loads(p.read_text()) for p in sorted((prefix / "ckpt" / "manifests").glob("*.json"))]


def own_chunk(prefix: Path, newest: dict[str, object], before: dict[str, object]) -> Path:
    """A chunk of the newest checkpoint that the one before does not have."""

    def chunks(manifest: dict[str, object]) -> set[str]:
        return {c["sha256"] for f in manifest["files"] for c in f["chunks"]}  # type: ignore[attr-defined]

    digest = sorted(chunks(newest) - chunks(before))[0]
    return prefix / "ckpt" / "chunks" / digest[:2] / digest


CASES: dict[str, Callable[[Path, Path], None]] = {
    "a chunk is truncated": lambda chunk, _: truncate(chunk),
    "a byte of a chunk is flipped": lambda chunk, _: flip(chunk),
    "a chunk is gone": lambda chunk, _: chunk.unlink(),
    "a byte of the manifest is flipped": lambda _, manifest: flip(manifest),
    "the manifest is truncated": lambda _, manifest: truncate(manifest),
}


def stopped(home: Home, checkpoints: int, **options: int) -> str:
    """A job that has committed at least so many checkpoints and is down."""
    job_id = home.submit(job(save_every=20, hold=20, **options))
    child = home.serve(job_id)
    for count in range(1, checkpoints + 1):  # one by one: none is overtaken
        wait_for(lambda count=count: len(home.state(job_id).checkpoints) >= count, f"checkpoint {count}")
        home.go(20 * (count + 1))
    home.cli("stop", job_id, "-d", no_launcher=True, code=0)
    assert child.wait() == 0
    assert home.state(job_id).phase == "stopped"
    lineage = home.state(job_id).lineage
    assert lineage is not None
    assert lineage.step == manifests(home.prefix(job_id))[-1]["step"]
    return job_id


def resumed(home: Home, job_id: str, *, rejected: set[str], step: int) -> None:
    """It goes on from ``step``, the damaged ones are named with their damage, and all ends well."""
    home.go()
    home.cli("resume", job_id, "-d", no_launcher=True, code=0)
    home.serve_to_the_end(job_id)
    settled(home, job_id)
    events = [record.event for record in home.events(job_id)]
    found = [e for e in events if isinstance(e, CheckpointRejected)]
    assert sorted(e.manifest for e in found) == sorted(rejected)
    told = home.cli("events", job_id, code=0).out
    assert all(e.message in told for e in found)
    last = [e for e in events if isinstance(e, EpochOpened) and e.members][-1]
    assert last.resume_step == step


def key(manifest: dict[str, object]) -> str:
    return manifest_key(int(str(manifest["epoch"])), int(str(manifest["number"])))


def test_each_of_the_newest_is_damaged_in_its_own_way(new_home: NewHome) -> None:
    home = new_home(quiet())
    job_id = stopped(home, 4, steps=400)
    prefix = home.prefix(job_id)
    good, third, second, newest = manifests(prefix)[-4:]
    truncate(own_chunk(prefix, newest, second))
    flip(prefix / key(second))
    flip(own_chunk(prefix, third, good))
    resumed(home, job_id, rejected={key(newest), key(second), key(third)}, step=int(str(good["step"])))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_damaged_checkpoint_is_passed_over(new_home: NewHome, case: str) -> None:
    home = new_home(quiet())
    job_id = stopped(home, 2, steps=300)
    prefix = home.prefix(job_id)
    before, newest = manifests(prefix)[-2:]
    CASES[case](own_chunk(prefix, newest, before), prefix / key(newest))
    resumed(home, job_id, rejected={key(newest)}, step=int(str(before["step"])))


@pytest.mark.slow
def test_when_all_are_damaged_it_begins_anew(new_home: NewHome) -> None:
    home = new_home(quiet())
    job_id = stopped(home, 2, steps=200)
    paths = sorted((home.prefix(job_id) / "ckpt" / "manifests").glob("*.json"))
    for path in paths:
        flip(path)
    resumed(home, job_id, rejected={f"ckpt/manifests/{path.name}" for path in paths}, step=0)
