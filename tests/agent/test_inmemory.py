"""Checkpoints in memory: nothing of them outlives the agent for longer than until the next one starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from arylcloud.agent import inmemory
from arylcloud.agent.config import from_environment
from arylcloud.agent.inmemory import Held, folder_of

from .conftest import WAIT_S, Job, spec


def test_a_living_agents_folder_stays_a_dead_ones_goes(tmp_path: Path) -> None:
    said: list[str] = []
    code = (
        "import sys; from pathlib import Path; from arylcloud.agent.inmemory import Held\n"
        "held = Held(Path(sys.argv[1]), log=print); print('held', flush=True); sys.stdin.read()"
    )
    folder = tmp_path / "arylcloud-other"
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"held\n"
    (folder / "checkpoints").mkdir()
    (tmp_path / "not-ours").mkdir()
    own = Held(tmp_path / "arylcloud-own", log=said.append)
    assert folder.exists()
    own.close()
    other.kill()
    other.communicate()
    own = Held(tmp_path / "arylcloud-own", log=said.append)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["arylcloud-own", "not-ours"]
    assert said == [f"{folder} was left behind by an agent that is gone: removed"]
    own.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["not-ours"]


def test_a_host_without_such_memory_uses_its_disk(tmp_path: Path) -> None:
    assert folder_of("l", tmp_path / "none") is None
    assert folder_of("l", tmp_path) == tmp_path / "arylcloud-l"


def test_where_it_lies(tmp_path: Path) -> None:
    known = {"ARYL_PREFIX_URI": "file:///x", "ARYL_JOB_ID": "j", "ARYL_LEASE_ID": "l"}
    assert from_environment(known, tmp_path).checkpoints == tmp_path / "checkpoints"
    config = from_environment({**known, "ARYL_CHECKPOINTS": "memory"}, tmp_path)
    assert config.checkpoints in (Path("/dev/shm/arylcloud-l/checkpoints"), tmp_path / "checkpoints")


SAVE = r"""
mkdir "$ARYL_CHECKPOINT_DIR/.tmp" && echo w > "$ARYL_CHECKPOINT_DIR/.tmp/w" &&
mv "$ARYL_CHECKPOINT_DIR/.tmp" "$ARYL_CHECKPOINT_DIR/step-6"
"""


def test_an_agent_saves_there_and_leaves_nothing(job: Job) -> None:
    lease = f"lease-{os.getpid()}"
    folder = folder_of(lease)
    if folder is None:
        pytest.skip("this host has no /dev/shm")
    job.submit(spec(SAVE))
    machine = job.machine(lease, ARYL_CHECKPOINTS="memory", ARYL_LINGER_S="1")
    job.open_epoch(lease)
    assert machine.process is not None
    machine.process.wait(WAIT_S)
    assert [m.step for m in job.manifests()] == [6]
    assert not (machine.home / "checkpoints").exists()
    assert not folder.exists()


def test_a_folder_has_its_name_only_once_it_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another agent that starts, and looks for what was left behind, at any moment: before each lock."""
    real, said, depth = inmemory._locked, list[str](), 0
    others: list[Held] = []

    def locked(folder: Path) -> int | None:
        nonlocal depth
        if depth == 0:
            depth += 1
            others.append(Held(tmp_path / f"arylcloud-other{len(others)}", log=said.append))
            depth -= 1
        return real(folder)

    monkeypatch.setattr("arylcloud.agent.inmemory._locked", locked)
    own = Held(tmp_path / "arylcloud-own", log=said.append)
    assert said == []
    assert (tmp_path / "arylcloud-own" / "lock").exists()
    own.close()
    for other in others:
        other.close()
    assert list(tmp_path.iterdir()) == []


def test_what_a_dead_agent_of_this_lease_left_may_go_before_it_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another agent has just locked it, and removes it."""
    real, said = inmemory._locked, list[str]()
    folder = tmp_path / "arylcloud-own"
    folder.mkdir()

    def locked(which: Path) -> int | None:
        lock = real(which)
        monkeypatch.setattr("arylcloud.agent.inmemory._locked", real)
        shutil.rmtree(folder)
        return lock

    monkeypatch.setattr("arylcloud.agent.inmemory._locked", locked)
    own = Held(folder, log=said.append)
    assert (folder / "lock").exists()
    own.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_an_agent_that_lives_is_not_shared(tmp_path: Path) -> None:
    own = Held(tmp_path / "arylcloud-own", log=pytest.fail)
    with pytest.raises(BlockingIOError, match="of an agent that lives"):
        Held(tmp_path / "arylcloud-own", log=pytest.fail)
    own.close()
