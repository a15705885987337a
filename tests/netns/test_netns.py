"""Machines in network namespaces train elastically while they are killed, cut off, paused, taken, given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from netns.hub import Hub, missing
from netns.story import Story


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    why = missing()
    if why is not None:
        assert not os.environ.get("CI"), f"{why}: these tests are never left out there"
        pytest.skip(why)
    with Hub() as found:
        yield found


def test_a_machine_dies_and_the_others_go_on(tmp_path: Path, hub: Hub) -> None:
    with Story(tmp_path, hub, nodes="1..3", steps=160, capacity=3, on_node_loss="shrink") as story:
        story.until_step(45)
        before = {lease.lease_id: lease.instance_id for lease in story.state.open_leases}
        dead = story.lease(1)
        story.kill(1)
        state = story.done()
        print(story.figures())
        story.check()
        for lease_id, instance_id in before.items():
            assert state.leases[lease_id].instance_id == instance_id
            if lease_id != dead:
                assert state.leases[lease_id].ended_cause != "unknown"
