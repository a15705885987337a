"""Pipeline templates end to end: machines are told what they hold, one dies, the table has the answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from arylcloud.core.pipeline import PipelineSpec, Run
from arylcloud.launcher.state import Epoch
from arylcloud.planner.templates.assign import assign, lookup
from e2e.market import job, market, spot
from e2e.support import Home, wait_for
from e2e.test_elastic_live import trains
from e2e.truth import settled

LAYERS, MOST, BATCH = 6, 5, 8
SAVED = 20
"""The step of the one checkpoint."""
SPEC = PipelineSpec(layer_s=(1.0,) * LAYERS, least_nodes=2, failures=1, microbatches=BATCH)


def starts(home: Home, epoch: int, world: int) -> dict[int, dict[str, Any]]:
    """By rank: what each command of that epoch said that it was told, once all have."""

    def so() -> dict[int, dict[str, Any]]:
        said, _, _ = home.steps_log.read_text().rpartition("\n")  # the last line may be half written
        lines = [json.loads(line) for line in said.splitlines()]
        found = {line["rank"]: line for line in lines if line["epoch"] == epoch}
        return found if len(found) == world else {}

    found: dict[int, dict[str, Any]] = wait_for(so, f"{world} commands of epoch {epoch}")
    return found


def held(said: dict[int, dict[str, Any]]) -> list[Run]:
    return [(said[rank]["first"], said[rank]["last"]) for rank in range(len(said))]


def whole(said: dict[int, dict[str, Any]]) -> None:
    """By the trainings' own word: each replica has every layer once, and the replicas do the whole batch."""
    by_replica: dict[int, list[dict[str, Any]]] = {}
    for line in said.values():
        assert line["world"] == len(said)
        by_replica.setdefault(line["replica"], []).append(line)
    assert len(by_replica) >= 2, "two copies of every layer"
    for lines in by_replica.values():
        mine = [layer for line in lines for layer in range(line["first"], line["last"])]
        assert sorted(mine) == list(range(LAYERS))
        assert len({line["microbatches"] for line in lines}) == 1
    assert sum(lines[0]["microbatches"] for lines in by_replica.values()) == BATCH
    for rank, line in said.items():
        for layer, ranks in zip(range(line["first"], line["last"]), line["holders"], strict=True):
            assert rank in ranks
            assert len(ranks) == len(by_replica)
            assert all(said[r]["first"] <= layer < said[r]["last"] for r in ranks)


def by_the_table(said: dict[int, dict[str, Any]], before: list[Run | None]) -> None:
    """What the ranks were told is what the pure function says: the table's row, and who fetches what."""
    world = len(said)
    wanted = assign(SPEC, nodes_max=MOST, zones=["here"] * world, held=before)
    assert (
        tuple(len(r.stages) for r in wanted.replicas) == lookup(SPEC, nodes_max=MOST, world=world).pipelines
    )
    for replica in wanted.replicas:
        for stage in replica.stages:
            line = said[stage.rank]
            assert (line["first"], line["last"]) == (stage.first, stage.last)
            assert line["microbatches"] == replica.microbatches
            assert [tuple(run) for run in line["fetch"]] == list(stage.fetch)


def chain(layer: int, steps: int) -> str:
    state = ""
    for step in range(1, steps + 1):
        state = hashlib.sha256(f"{layer} {step} {state}".encode()).hexdigest()
    return state


def test_a_machine_dies_and_the_table_says_who_holds_what(new_home: Callable[..., Home]) -> None:
    """Held at the step that was saved last, so that no save is under way when the machine dies. The next
    epoch is of the four that are left, or of five if the one in its place has come up before these had all
    handed over: either way it has what the table says of its size."""
    home = new_home(market(spot("calm", 0.10, capacity=MOST), boot_s=3.0))
    job_id = home.submit(
        job(
            steps=100_000,
            step_s=0.05,
            save_every=SAVED,
            hold=SAVED,
            nodes=f"4..{MOST}",
            objective="time",
            run="python3 pipelined.py",
            pipeline={"layers": LAYERS, "machines": 2, "microbatches": BATCH},
        )
    )
    home.serve(job_id)
    first = trains(home, job_id, MOST)
    wait_for(lambda: home.state(job_id).checkpoints, "a checkpoint")
    opened = home.state(job_id).epochs[-1].number
    begun = starts(home, opened, MOST)
    whole(begun)
    by_the_table(begun, [None] * MOST)
    shown = next(x for x in home.status()["jobs"] if x["job_id"] == job_id)
    assert [len(r["ranks"]) for r in shown["pipeline"]["replicas"]] == [3, 2]
    assert "pipeline  2 replicas: ranks 0, 1, 2 (layers" in home.cli("status", job_id, code=0).out
    home.kill_machine(first[1])

    def regrouped() -> Epoch | None:
        return next((e for e in home.state(job_id).epochs if e.members and e.number > opened), None)

    epoch: Epoch = wait_for(regrouped, "an epoch after the loss")
    machines = [home.state(job_id).leases[m.lease_id].instance_id for m in epoch.members]
    assert machines[: MOST - 1] == [first[0], *first[2:]]
    after = starts(home, epoch.number, len(machines))
    whole(after)
    runs = held(begun)
    by_the_table(after, [runs[0], *runs[2:], *([None] * (len(machines) - MOST + 1))])
    assert any(not line["fetch"] for line in after.values()), "who can stay as it is does"
    assert epoch.resume_step == SAVED
    for line in after.values():
        assert line["step"] == SAVED
        assert line["state"] == {str(k): chain(k, SAVED) for k in range(line["first"], line["last"])}
    home.go(SAVED + 5)
    wait_for(
        lambda: {t.epoch for t in home.state(job_id).trainings} > {opened},
        "a step of the epoch after the loss",
    )
    assert "2 replicas: ranks" in home.cli("events", job_id, code=0).out
    home.cli("stop", job_id, code=0)
    settled(home, job_id, phase="stopped")
