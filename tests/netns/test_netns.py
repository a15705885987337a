"""Machines in network namespaces train elastically while they are killed, cut off, paused, taken, given."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from netns.hub import Hub, missing
from netns.story import Story

from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.launcher.state import JobState


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    why = missing()
    if why is not None:
        assert not os.environ.get("CI"), f"{why}: these tests are never left out there"
        pytest.skip(why)
    with Hub() as found:
        yield found


def gang(folder: Path, hub: Hub, nodes: int, steps: int, **more: Any) -> Story:
    """As many machines as there are, as long as there are."""
    return Story(
        folder,
        hub,
        nodes=f"1..{nodes}",
        steps=steps,
        **{"capacity": nodes, "objective": "time", "on_node_loss": "shrink", **more},
    )


def ended(story: Story) -> JobState:
    """To its end. Whatever happened, the curve is a fixed world's, and who stayed kept its machine."""
    before = {one.lease_id: one.instance_id for one in story.state.leases.values() if one.instance_id}
    state = story.done()
    print(f"\n{story.figures()}")
    story.check()
    for lease_id, instance_id in before.items():
        assert state.leases[lease_id].instance_id == instance_id
    assert state.phase is JobPhase.SUCCEEDED
    return state


def worlds(state: JobState) -> list[int]:
    """Of the epochs in which anything ran."""
    return [len(epoch.members) for epoch in state.epochs if epoch.members]


def test_a_machine_dies_and_the_others_go_on(tmp_path: Path, hub: Hub) -> None:
    with gang(tmp_path, hub, 3, 160, hold=120) as story:
        story.until_step(45)
        dead = story.lease(1)
        story.kill(1)
        story.home.go()
        state = ended(story)
        assert worlds(state)[:2] == [3, 2]
        assert {line.rest[-1] for line in story.lines() if line.what == "start"} == {"warm"}
        others = [one for one in state.leases.values() if one.lease_id != dead and one.attempt <= 3]
        assert [one.ending_code for one in others] == ["finished", "finished"]


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 3])
def test_a_machine_of_four_dies(tmp_path: Path, hub: Hub, rank: int) -> None:
    with gang(tmp_path, hub, 4, 300) as story:
        story.until_step(90)
        story.kill(rank)
        assert worlds(ended(story))[:2] == [4, 3]


@pytest.mark.slow
def test_an_agent_dies_and_its_machine_with_it(tmp_path: Path, hub: Hub) -> None:
    with gang(tmp_path, hub, 4, 300) as story:
        story.until_step(90)
        story.kill_agent(2)
        assert worlds(ended(story))[:2] == [4, 3]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["frozen", "cut off", "agent paused"])
def test_a_silent_machine_leaves_is_kept_and_comes_back(tmp_path: Path, hub: Hub, how: str) -> None:
    """For 60 s nothing is heard of it: the others go on, nobody takes its place, and it rejoins."""
    with gang(tmp_path, hub, 4, 1200, step_s=0.1, save_every=50) as story:
        story.until_step(60)
        silent = story.lease(2)
        mend = {"frozen": story.freeze, "cut off": story.cut_off, "agent paused": story.pause_agent}[how](2)
        story.until_world(3)
        assert story.state.leases[silent].phase is LeasePhase.SUSPECT
        story.wait(lambda: time.monotonic() - story.faults[0].at_s > 60.0, "a minute")
        assert story.state.leases[silent].phase is LeasePhase.SUSPECT
        assert len(story.state.leases) == 4
        mend()
        story.until_world(4)
        state = ended(story)
        assert worlds(state)[:3] == [4, 3, 4]
        assert len(state.leases) == 4


@pytest.mark.slow
def test_a_slow_disk_and_a_death_while_it_writes(tmp_path: Path, hub: Hub) -> None:
    """Every save takes two seconds (a wait in the training's own save: no kernel has to help); rank 0 dies in
    the middle of one, which then counts for nothing."""
    with gang(tmp_path, hub, 4, 200, save_every=40, envs={"E2E_SAVE_S": "2"}) as story:
        story.until_step(80)
        story.kill(0)
        state = ended(story)
        assert [e.resume_step for e in state.epochs if e.members][1] == 40


@pytest.mark.slow
def test_a_notice_loses_nothing(tmp_path: Path, hub: Hub) -> None:
    with gang(tmp_path, hub, 4, 400, step_s=0.05, save_every=100_000, noticed=(14.0, 10.0)) as story:
        state = ended(story)
        assert worlds(state)[:2] == [4, 3]
        seen = story.seen()
        assert len({one.step for one in seen}) == len(seen)  # not one step was done twice


@pytest.mark.slow
def test_a_machine_joins(tmp_path: Path, hub: Hub) -> None:
    """In place of one that died; those that are there save first, so that its coming costs no step."""
    with gang(tmp_path, hub, 4, 1300, step_s=0.1, save_every=50) as story:
        story.until_step(60)
        story.kill(1)
        story.until_world(3)
        story.until_world(4)
        state = ended(story)
        assert worlds(state)[:3] == [4, 3, 4]
        assert len(state.leases) == 5
        three, four = (e.number for e in [e for e in state.epochs if e.members][1:3])
        seen = story.seen()
        last = max(one.step for one in seen if one.epoch == three)
        assert min(one.step for one in seen if one.epoch == four) == last + 1


@pytest.fixture(scope="module")
def torch_python() -> str:
    """A Python with PyTorch: ``$ARYLCLOUD_TORCH_PYTHON``, else this one."""
    python = os.environ.get("ARYLCLOUD_TORCH_PYTHON") or sys.executable
    if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no PyTorch here: name a Python that has it in ARYLCLOUD_TORCH_PYTHON")
    return python


RUNS = {
    "plain processes": "{python} train.py",
    "warm interpreters": "{python} -m arylcloud.training.warm --import torch,torch.distributed train.py",
    "torchrun": "exec {python} -m torch.distributed.run --nnodes=$ARYL_NUM_NODES --node-rank=$ARYL_NODE_RANK"
    " --nproc-per-node=1 --rdzv-backend=static --rdzv-id=$ARYL_JOB_ID-$ARYL_ATTEMPT"
    " --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT --max-restarts=0 train.py",
}


@pytest.mark.slow
@pytest.mark.parametrize("how", RUNS)
def test_pytorch_over_gloo(tmp_path: Path, hub: Hub, torch_python: str, how: str) -> None:
    """A machine dies, then one is frozen: the curve is the fixed world's, by whatever the processes start."""
    run = RUNS[how].format(python=torch_python)
    warm = how == "warm interpreters"
    setup = run.replace(" train.py", " --prepare") if warm else None  # a machine is ready when it is warm
    more: dict[str, Any] = {"step_s": 0.05, "envs": {"E2E_TORCH": "1"}, "run": run, "setup": setup}
    with gang(tmp_path, hub, 3, 600, **more) as story:
        story.until_world(3)  # it may have begun with those that were ready first
        story.until_step(60)
        story.kill(1)
        story.until_world(2)
        story.freeze(1)
        story.wait(lambda: story.outage_s(story.faults[1]), "the step after the silence")
        found = worlds(ended(story))
        assert found[found.index(3) :][:2] == [3, 2]
        assert {line.rest[-1] for line in story.lines() if line.what == "start"} == {
            "warm" if warm else "plain"
        }
