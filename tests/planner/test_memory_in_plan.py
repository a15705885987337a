"""A machine on which the training does not fit is no choice, however cheap (issue: feasible = memory…)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from arylcloud.core.errors import InfeasibleError
from arylcloud.core.job import JobSpec, ProfileRef, TransformerShape, Work
from arylcloud.core.offer import Market, Offer
from arylcloud.planner.single import plan_job
from arylcloud.pricing.table import from_offers


def _offer(gpu: str, mem: float, usd: float, count: int = 1) -> Offer:
    return Offer(
        cloud="aws", region="us-east-1", zone=None, instance_type=f"{gpu}x{count}", gpu=gpu, gpu_count=count,
        gpu_mem_gib=mem, vcpus=8, mem_gib=64, market=Market.ON_DEMAND, usd_per_hour=usd,
        as_of=None, source="test",
    )  # fmt: skip


SPEC = JobSpec(
    name="j",
    run="true",
    profile=ProfileRef(shape=TransformerShape(params=70e9, layers=80, hidden=8192, seq_len=4096)),
    work=Work(amount=1e8, unit="tokens"),
)


def test_what_does_not_fit_is_rejected_with_the_figure() -> None:
    table = from_offers([_offer("T4", 16, 0.1), _offer("H100", 80, 300.0, 32)])
    plan = plan_job(SPEC, table)
    assert plan.chosen.offer.gpu == "H100"
    [no] = [r for r in plan.rejected if "memory" in r.reason]
    assert no.count == 1
    assert "T4 has 16" in no.reason


def test_nothing_fits() -> None:
    with pytest.raises(InfeasibleError, match="memory"):
        plan_job(SPEC, from_offers([_offer("T4", 16, 0.1)]))


def test_one_gpu_that_nobody_knows_does_not_hide_that_nothing_fits() -> None:
    rows = [_offer("Voodoo", 4, 0.1), _offer("T4", 16, 0.1), _offer("A10", 24, 0.1)]
    with pytest.raises(InfeasibleError, match=r"no offer has enough GPU memory.*A10 has 24.*Voodoo") as no:
        plan_job(SPEC, from_offers(rows))
    assert no.value.hint is not None
    assert "more memory" in no.value.hint
    assert "run it on" not in no.value.hint


def test_a_small_model_fits_the_small_gpu() -> None:
    small = TransformerShape(params=124e6, layers=12, hidden=768, seq_len=1024)
    spec = replace(SPEC, profile=ProfileRef(shape=small))
    assert plan_job(spec, from_offers([_offer("T4", 16, 0.1)])).chosen.offer.gpu == "T4"
