"""A job that trains by pipeline templates, in the hostile world: each epoch has the row of its size."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, run_state_machine_as_test
from support import hostile
from support.harness import OFFERS, TIMING, Harness, spec
from support.scenarios import finish

from arylcloud.checkpoint.memory import MemoryStore
from arylcloud.cli.describe import sentence
from arylcloud.cli.pipelines import pipelines_document, pipelines_of, pipelines_text
from arylcloud.core import events as ev
from arylcloud.core import protocol as mail
from arylcloud.core.codec import decode, encode, loads
from arylcloud.core.job import JobSpec
from arylcloud.core.phases import JobPhase
from arylcloud.core.pipeline import PipelineSpec, Run
from arylcloud.launcher.actions import MoveAdvice
from arylcloud.launcher.state import Epoch
from arylcloud.planner.templates.assign import assign

PIPELINE = PipelineSpec(layer_s=(1.0,) * 6, least_nodes=1, failures=1, microbatches=8)


def job(least: int = 2, most: int = 3, **changes: object) -> JobSpec:
    base = replace(spec(most, on_node_loss="shrink"), nodes_min=least, pipeline=PIPELINE)
    return replace(base, **changes)  # type: ignore[arg-type]


def running(folder: Path, what: JobSpec) -> Harness:
    h = Harness(folder, spec=what, timing=TIMING)
    h.agents.total_steps = 100_000
    h.agents.collective = True
    h.until(JobPhase.RUNNING)
    h.tick(13)
    assert h.state.checkpoints
    h.agents.boot_s = 15.0
    return h


def opened(h: Harness) -> list[Epoch]:
    return [epoch for epoch in h.state.epochs if epoch.members]


def holds(epoch: Epoch) -> dict[str, Run]:
    assert epoch.pipelines is not None
    leases = {m.rank: m.lease_id for m in epoch.members}
    return {leases[s.rank]: (s.first, s.last) for r in epoch.pipelines.replicas for s in r.stages}


def by_the_table(h: Harness, least: int = 2, most: int = 3) -> None:
    """Every epoch has what the pure function says of its size, its members, and what they held before; its
    document says the same, once it is there."""
    before: dict[str, Run] = {}
    for epoch in opened(h):
        ids = [m.lease_id for m in sorted(epoch.members, key=lambda m: m.rank)]
        assert len(ids) >= least
        held = [before.get(lease_id) for lease_id in ids]
        assert epoch.pipelines == assign(PIPELINE, nodes_max=most, zones=["z"] * len(ids), held=held)
        data = MemoryStore.get(h.store, mail.epoch_key(epoch.number))  # whether or not the store is away
        if data is None:
            assert epoch is h.state.epochs[-1]
        else:
            assert loads(mail.EpochDoc, data, what="epoch").pipelines == epoch.pipelines
        before = holds(epoch)


def until_size(h: Harness, size: int, beyond: int, within: int = 90) -> None:
    for _ in range(within):
        epoch = h.state.epoch
        if epoch is not None and epoch.number > beyond and len(epoch.members) == size:
            return
        h.tick()
        h.check()
    raise AssertionError(f"no epoch of {size}: {h.state.epochs[-3:]}")


def test_a_loss_and_a_return(tmp_path: Path) -> None:
    h = running(tmp_path, job())
    first = opened(h)[-1]
    h.world.interrupt(h.state.leases[first.members[1].lease_id].instance_id or "")
    until_size(h, 2, first.number)
    second = opened(h)[-1]
    until_size(h, 3, second.number)
    h.agents.total_steps = 0
    finish(h)
    by_the_table(h)
    three, two, again = (e.pipelines for e in (first, second, opened(h)[2]))
    assert three is not None
    assert two is not None
    assert again is not None
    assert three.fetched == 18, "all replicas are whole models at this size: three times six layers"
    assert two.fetched == 0, "both survivors hold all layers already"
    assert again.fetched == 6, "the new one has everything to fetch"
    said = [sentence(event, h.state) or "" for event in h.of(ev.EpochOpened)]
    assert any("2 replicas: ranks 0 (layers 0–5; 4 microbatches); 1 (0–5; 4)" in text for text in said)


def test_stages_that_stay_are_not_fetched_again(tmp_path: Path) -> None:
    """Four machines hold two replicas of two; five hold one of three and one of two."""
    wide = replace(PIPELINE, least_nodes=2)
    h = running(tmp_path, job(4, 5, pipeline=wide))
    first = opened(h)[-1]
    assert first.pipelines is not None
    assert sorted(len(r.stages) for r in first.pipelines.replicas) == [2, 3]
    h.world.interrupt(h.state.leases[first.members[4].lease_id].instance_id or "")
    until_size(h, 4, first.number)
    second = opened(h)[-1]
    assert second.pipelines is not None
    assert [len(r.stages) for r in second.pipelines.replicas] == [2, 2]
    kept, now = holds(first), holds(second)
    same = [lease_id for lease_id in now if kept.get(lease_id) == now[lease_id]]
    assert len(same) >= 1
    assert second.pipelines.fetched < 12
    assert pipelines_document(pipelines_of(h.state)) == {
        "layers": 6,
        "fetched": second.pipelines.fetched,
        "replicas": [
            {
                "ranks": list(r.ranks),
                "stages": [[s.first, s.last] for s in r.stages],
                "microbatches": r.microbatches,
            }
            for r in second.pipelines.replicas
        ],
    }


def test_below_the_least_world_it_waits(tmp_path: Path) -> None:
    """Two losses of three: one machine is no two replicas. It goes on when the others are back."""
    h = running(tmp_path, job())
    first = opened(h)[-1]
    for member in first.members[:2]:
        h.world.interrupt(h.state.leases[member.lease_id].instance_id or "")
    until_size(h, 3, first.number)
    assert all(len(e.members) >= 2 for e in opened(h))
    h.agents.total_steps = 0
    finish(h)
    by_the_table(h)


def test_a_move_is_told_who_holds_what(tmp_path: Path) -> None:
    """Another place: all machines are new, and all fetch."""
    h = running(tmp_path, job(2, 2, on_node_loss="replace"))
    h.move = MoveAdvice(to=OFFERS[1], saving_usd=5.0, move_usd=1.0, why="cheaper")
    start = h.state.epoch
    assert start is not None
    until_size(h, 2, start.number)
    moved = opened(h)[-1]
    assert "moved" in moved.reason
    assert moved.pipelines is not None
    assert moved.pipelines.fetched == 12


def test_old_documents_and_other_jobs_have_none(tmp_path: Path) -> None:
    h = running(tmp_path, job(pipeline=None))
    assert all(epoch.pipelines is None for epoch in h.state.epochs)
    assert pipelines_of(h.state) is None
    assert pipelines_document(None) is None
    event = ev.EpochOpened(
        number=1, attempt=1, members=(), resume_from=None, resume_step=0, reason="as of an older arylcloud"
    )
    old = encode(event)
    del old["pipelines"]
    assert decode(ev.EpochOpened, old) == event
    doc = encode(job())
    del doc["pipeline"]
    assert decode(JobSpec, doc).pipeline is None


def test_the_line_on_a_screen(tmp_path: Path) -> None:
    found = assign(replace(PIPELINE, least_nodes=2), nodes_max=5, zones=["z"] * 5, held=[None] * 5)
    assert pipelines_text(found) == (
        "2 replicas: ranks 0, 1, 2 (layers 0–1, 2–3, 4–5; 5 microbatches); 3, 4 (0–2, 3–5; 3)"
    )
    alone = assign(replace(PIPELINE, failures=0), nodes_max=1, zones=["z"], held=[None])
    assert pipelines_text(alone) == "1 replica: ranks 0 (layers 0–5; 8 microbatches)"
    assert all(a.rank < b.rank for r in found.replicas for a, b in pairwise(r.stages))


class HostileToPipelines(hostile.HostileWorld):
    """Everything that may happen to a job, happening to one that trains by pipeline templates."""

    GANGS = ((2, 2), (2, 3), (2, 4))
    PIPELINE = PIPELINE

    @invariant()
    def every_epoch_is_by_the_table(self) -> None:
        if self.h is not None:
            by_the_table(self.h, 2, self.h.state.spec.nodes_max)


@pytest.mark.parametrize("examples", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_in_a_hostile_world(examples: int) -> None:
    run_state_machine_as_test(
        HostileToPipelines,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            database=None,
        ),
    )
