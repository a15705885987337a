"""The plan table in ``plan``'s reasons."""

from __future__ import annotations

from arylcloud.core.job import InlineRate, JobSpec, Objective, ProfileRef, Work
from arylcloud.core.offer import Market, Offer
from arylcloud.core.pipeline import PipelineSpec
from arylcloud.planner.single import plan_job
from arylcloud.planner.templates.assign import lookup
from arylcloud.planner.templates.degrade import say
from arylcloud.planner.upkeep import Assumptions
from arylcloud.pricing.table import from_offers

PIPELINE = PipelineSpec(layer_s=(1.0,) * 24, least_nodes=2, failures=1, microbatches=32)


def job(least: int, most: int, pipeline: PipelineSpec | None = PIPELINE) -> JobSpec:
    return JobSpec(
        name="j",
        run="true",
        work=Work(amount=36_000, unit="steps"),
        profile=ProfileRef(rates=(InlineRate(gpu="V100", count=1, rate=1.0),), unit="steps/s"),
        nodes_min=least,
        nodes_max=most,
        on_node_loss="shrink",
        objective=Objective(cost_weight=0.0, usd_per_hour_of_waiting=1.0),
        pipeline=pipeline,
    )


def test_every_smaller_size_with_its_replicas() -> None:
    """Figures are the table's own: 5 machines need 19 of 32 microbatches on three stages of 8 layers."""
    seconds = {n: lookup(PIPELINE, nodes_max=6, world=n).iteration_s for n in (4, 5, 6)}
    five, four = (f"{seconds[6] / seconds[n]:.0%}" for n in (5, 4))
    assert say(job(4, 6), 6) == (
        f"by its pipeline table 6 machines make 3 replicas of 2; on fewer it does, in steps per second: "
        f"5 {five} (1 replica of 3 + 1 of 2), 4 {four} (2 replicas of 2). "
        f"It outlives 2 losses with 2 copies of each layer, and then waits"
    )
    assert seconds[4] > seconds[5] > seconds[6]


def test_many_sizes_none_and_other_jobs() -> None:
    said = say(job(4, 13), 13)
    assert said is not None
    assert "; 3 smaller sizes. It outlives 9 losses" in said
    alone = say(job(4, 6), 4)
    assert alone == (
        "by its pipeline table 4 machines make 2 replicas of 2. "
        "It outlives 0 losses with 2 copies of each layer, and then waits"
    )
    assert say(job(4, 6, None), 6) is None
    assert say(job(4, 4), 4) is None, "a fixed gang never has fewer"
    assert say(job(4, 200), 6) is None, "32 microbatches are not enough for 100 replicas: no table covers it"


def test_plan_says_it() -> None:
    offer = Offer(
        cloud="aws",
        region="us-east-1",
        zone=None,
        instance_type="v1",
        gpu="V100",
        gpu_count=1,
        gpu_mem_gib=16.0,
        vcpus=8.0,
        mem_gib=61.0,
        market=Market("on_demand"),
        usd_per_hour=3.0,
        as_of="2026-07-01",
        source="test",
    )
    plan = plan_job(job(4, 6), from_offers([offer]), assumptions=Assumptions(disk_gb=0.0))
    assert plan.chosen.nodes == 6
    assert say(job(4, 6), 6) in plan.why
