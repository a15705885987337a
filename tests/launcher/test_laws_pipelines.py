"""Which layers a rank of the next epoch holds: where each machine is, and what it held before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support.harness import OFFERS, spec
from support.situation import draft, epoch, lease, machine, member

from arylcloud.core.job import JobSpec
from arylcloud.core.pipeline import Pipelines, PipelineSpec
from arylcloud.launcher.reconcile.pipelines import assigned, zone
from arylcloud.planner.templates.assign import assign

PIPELINE = PipelineSpec(layer_s=(1.0, 2.0, 1.0, 1.0, 3.0, 1.0), least_nodes=2, failures=1, microbatches=8)
GANG = [lease(n) for n in range(5)]
ZONES = ["aws/us-east-1/us-east-1-a"] * 5
NONE = [None] * 5


def job(most: int = 5) -> JobSpec:
    return replace(spec(most, on_node_loss="shrink"), nodes_min=4, pipeline=PIPELINE)


def laid(zones: list[str], held: list[Any], most: int = 5) -> Pipelines:
    return assign(PIPELINE, nodes_max=most, zones=zones, held=held)


def held(of: Pipelines, rank: int) -> tuple[int, int]:
    stage = of.stage(rank)
    assert stage is not None
    return stage.first, stage.last


def test_a_job_that_divides_its_own_work_is_told_nothing() -> None:
    members = [member(rank, x) for rank, x in enumerate(GANG)]
    assert assigned(draft(*GANG, job=spec(5)), members) is None
    assert assigned(draft(*GANG, job=job()), []) is None, "a drain"


def test_a_first_epoch_is_the_tables_row() -> None:
    members = [member(rank, x) for rank, x in enumerate(GANG)]
    for epochs in ([], [epoch(1, *GANG)]):  # one before that was told nothing is none
        assert assigned(draft(*GANG, job=job(), epochs=epochs), members) == laid(ZONES, NONE)
    four = members[:4]
    assert assigned(draft(*GANG, job=job(), epochs=[]), four) == laid(ZONES[:4], NONE[:4])


def test_who_stays_keeps_what_it_holds() -> None:
    """By machine, not by rank: the first one is lost, and the others move up."""
    before = laid(ZONES, NONE)
    had = [epoch(1, *GANG, pipelines=before), epoch(2)]
    left = [member(rank, x) for rank, x in enumerate(GANG[1:])]
    found = assigned(draft(*GANG, job=job(), epochs=had), left)
    assert found == laid(ZONES[:4], [held(before, rank) for rank in range(1, 5)])
    assert found != laid(ZONES[:4], NONE[:4])
    other = lease(0, 9)
    back = [member(0, other), *(member(rank, x) for rank, x in enumerate(GANG[1:], start=1))]
    found = assigned(draft(*GANG, other, job=job(), epochs=had), back)
    assert found == laid(ZONES, [None, *(held(before, rank) for rank in range(1, 5))]), (
        "the new one has nothing"
    )


def test_what_was_held_before_the_last_resume_is_gone() -> None:
    had = [epoch(1, *GANG, pipelines=laid(ZONES, NONE))]
    members = [member(rank, x) for rank, x in enumerate(GANG)]
    d = draft(*GANG, job=job(), epochs=had, state={"history_epoch": 1})
    assert assigned(d, members) == laid(ZONES, NONE)


def test_where_a_machine_is() -> None:
    """As its offer says; of a whole region, as its cloud says of the machine; else nowhere in particular."""
    one = GANG[0]
    wide = replace(one, offer=replace(OFFERS[0], zone=None))
    said = machine(one, zone="us-east-1-c")
    assert zone(draft(one, machines=[said]), member(0, one)) == "aws/us-east-1/us-east-1-a"
    assert zone(draft(wide, machines=[said]), member(0, wide)) == "aws/us-east-1/us-east-1-c"
    assert zone(draft(wide, machines=[]), member(0, wide)) == "aws/us-east-1/"
    assert zone(draft(wide, machines=[replace(said, zone=None)]), member(0, wide)) == "aws/us-east-1/"
    spread = [replace(x, offer=replace(OFFERS[0], zone=f"z{n % 2}")) for n, x in enumerate(GANG)]
    members = [member(rank, x) for rank, x in enumerate(spread)]
    zones = [f"aws/us-east-1/z{n % 2}" for n in range(5)]
    assert assigned(draft(*spread, job=job(), epochs=[]), members) == laid(zones, NONE)
