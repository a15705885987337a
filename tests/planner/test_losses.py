"""What fewer machines do, in ``plan``'s reasons."""

from __future__ import annotations

import re
from typing import Any

import pytest

from arylcloud.core.job import InlineRate, JobSpec, Objective, ProfileRef, Work
from arylcloud.core.offer import Market, Offer
from arylcloud.core.plan import Plan
from arylcloud.planner.single import plan_job
from arylcloud.planner.upkeep import Assumptions
from arylcloud.pricing.table import from_offers


def _plan(**changes: Any) -> Plan:
    offers = [
        Offer(
            cloud="aws", region="us-east-1", zone=None, instance_type="v1", gpu="V100", gpu_count=1,
            gpu_mem_gib=16.0, vcpus=8.0, mem_gib=61.0, market=Market("on_demand"), usd_per_hour=price,
            as_of="2026-07-01", source="test",
        )
        for price in (3.0,)
    ]  # fmt: skip
    values: dict[str, Any] = {
        "name": "j", "run": "true", "work": Work(amount=36_000, unit="steps"),
        "profile": ProfileRef(rates=(InlineRate(gpu="V100", count=1, rate=1.0),), unit="steps/s"),
        "nodes_min": 1, "nodes_max": 4, "on_node_loss": "shrink",
        "objective": Objective(cost_weight=0.0, usd_per_hour_of_waiting=1.0),
    }  # fmt: skip
    return plan_job(JobSpec(**(values | changes)), from_offers(offers), assumptions=Assumptions(disk_gb=0.0))


def _said(plan: Plan) -> list[str]:
    return [text for text in plan.why if text.startswith("if machines are lost")]


def test_every_smaller_size_is_there_with_its_rate_and_its_price_per_step() -> None:
    found = _plan()
    (text,) = _said(found)
    most = found.chosen.nodes
    assert most > 1
    assert f"{most} machines do {found.chosen.throughput:.3g} steps/s" in text
    assert f"${most * 3.0 / 3600 / found.chosen.throughput:.3g} per step;" in text
    sizes = [int(n) for n in re.findall(r"(?:; )(\d+) [\d.]+ \(\d+%\)", text)]
    assert sizes == list(range(most - 1, 0, -1))
    assert text.endswith(
        f"It outlives {most - 1} {'loss' if most == 2 else 'losses'} without a replacement, not one more"
    )
    assert "; 1 1 (" in text  # one machine does 1 step/s
    assert text.rpartition("$")[2].startswith(f"{3.0 / 3600:.3g}.")


@pytest.mark.parametrize(
    "changes", [{"on_node_loss": "replace"}, {"on_node_loss": "restart"}, {"nodes_min": 1, "nodes_max": 1}]
)
def test_a_job_that_does_not_shrink_is_told_nothing(changes: dict[str, Any]) -> None:
    assert _said(_plan(**changes)) == []


def test_the_least_size_bounds_the_fall() -> None:
    found = _plan(nodes_min=2)
    (text,) = _said(found)
    assert "; 1 " not in text
    assert f"outlives {found.chosen.nodes - 2} loss" in text
