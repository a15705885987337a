"""What a queue makes of the jobs' journals, and of jobs that hold what it did not give them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from launcher.test_queue import ROUND_S, decided, queued, view
from support.offers import offer

from arylcloud.core import events as ev
from arylcloud.core.clock import MarketClock
from arylcloud.core.job import Accelerator, JobSpec, Resources
from arylcloud.core.phases import JobPhase, LeasePhase
from arylcloud.core.plan import Candidate, CatalogueStamp, Plan
from arylcloud.launcher.desire import remaining
from arylcloud.launcher.queueview import held_to, on_gpu, queue_job
from arylcloud.launcher.state import JobState, Lease, Turn

SPEC = JobSpec(name="a", run="true", nodes_min=1, nodes_max=4)
NOW_S = 10_000.0


def a_state(**changes: Any) -> JobState:
    state = JobState(
        job_id="a",
        spec=SPEC,
        prefix_uri="memory://a",
        journal_id="j",
        market_clock=MarketClock(origin_s=0.0, scale=1.0),
        submitted_at_s=0.0,
        queued=True,
    )
    return replace(state, **changes)


def placed(**changes: Any) -> JobState:
    turn = ev.QueueDecided(gpu="V100", why="", nodes=2, count=1)
    given: dict[str, Any] = {"placed": turn, "turns": (Turn(gpu="V100", begin_s=NOW_S - 500.0),)}
    return a_state(**given | {"phase": JobPhase.WAITING} | changes)


def leases(gpu: str, count: int, **changes: Any) -> dict[str, Lease]:
    return {
        f"n{n}": Lease(
            lease_id=f"n{n}",
            token=f"t{n}",
            offer=offer(gpu=gpu, usd_per_hour=2.0, **changes),
            index=n,
            attempt=n + 1,
            purpose="start",
            phase=LeasePhase.READY,
            since_s=NOW_S - 50.0,
            intended_at_s=NOW_S - 50.0,
            until_s=2 * NOW_S,
            why="",
            instance_id=f"i{n}",
        )
        for n in range(count)
    }


def a_way(gpu: str, nodes: int, count: int = 1) -> Candidate:
    return Candidate(
        rank=1,
        offer=offer(gpu=gpu, gpu_count=count),
        nodes=nodes,
        throughput=None,
        throughput_unit=None,
        throughput_source=None,
        throughput_rel_error=None,
        hours=None,
        usd=None,
        interruptions_per_hour=0.0,
        hazard_source="",
        meets_deadline=None,
        meets_budget=None,
        pareto=True,
        why="",
    )


def test_a_job_on_a_gpu_outside_the_capacity() -> None:
    """Resumed by its user onto a GPU that the queue has none of: in nobody's way, and no error."""
    state = a_state(phase=JobPhase.RUNNING, leases=leases("L4", 2))
    job = queue_job(state, {"V100": a_way("V100", 1)}, NOW_S, 0.0)
    assert job is not None
    assert (job.on, job.held, job.keeps, job.burn_usd_per_hour) == ("L4", {"L4": 2}, 2, 4.0)
    for boundary in (True, False):
        decision = decided(view(replace(job, held_s=5 * ROUND_S), queued("b", count=2), boundary=boundary))
        assert not decision.stops
        assert [(s.job_id, s.gpu) for s in decision.starts] == [("b", "V100")], "all V100 are free"


def test_a_job_that_holds_more_than_it_would_take() -> None:
    """Counted by its machines: two V100 are not given away because it would now take one."""
    state = a_state(phase=JobPhase.RUNNING, leases=leases("V100", 2))
    job = queue_job(state, {"V100": a_way("V100", 1)}, NOW_S, 0.0)
    assert job is not None
    assert job.held == {"V100": 2}
    only = {"gpus": {"V100": 1}, "rate": {"V100": 1.0}, "usd_per_hour": {"V100": 0.0}}
    assert not decided(view(job, queued("b", **only), boundary=False)).starts


def test_a_capacity_that_has_shrunk() -> None:
    job = queue_job(placed(phase=JobPhase.RUNNING, leases=leases("V100", 2)), {}, NOW_S, 0.0)
    assert job is not None
    small = {"capacity": {"V100": 1}}
    assert not decided(view(job, boundary=False, **small)).stops
    (stop,) = decided(view(replace(job, held_s=5 * ROUND_S), **small)).stops
    assert stop.why == "it holds 2 V100, of which there are 1"


def test_of_whom_no_plan_is_known() -> None:
    """What it holds is given to nobody, its cost counts, and the budget's end is its end."""
    job = queue_job(placed(phase=JobPhase.RUNNING, leases=leases("V100", 2)), {}, NOW_S, 0.0)
    assert job is not None
    job = replace(job, held_s=5 * ROUND_S)
    rival = queued("b", count=2, gpus={"V100": 2}, rate={"V100": 1.0}, usd_per_hour={"V100": 0.0})
    within = decided(view(job, rival, boundary=False))
    assert not within.starts
    assert not decided(view(job)).stops, "nobody needs the room"
    assert [s.job_id for s in decided(view(job, rival)).stops] == ["a"]
    assert [s.job_id for s in decided(view(job, budget_usd=10.0, spent_usd=9.99)).stops] == ["a"]
    assert queue_job(a_state(), {}, NOW_S, 0.0) is None


def test_a_turn_without_machines_is_a_turn() -> None:
    job = queue_job(placed(), {"V100": a_way("V100", 2)}, NOW_S, 0.0)
    assert job is not None
    assert (job.on, job.held_s, job.received_s) == ("V100", 500.0, {"V100": 500.0})
    assert (job.held, job.bare) == ({"V100": 2}, True)
    asked = {i: replace(x, instance_id=None) for i, x in leases("V100", 2).items()}
    for found, bare in ((asked, True), (leases("V100", 1), False)):
        other = queue_job(placed(leases=found), {"V100": a_way("V100", 2)}, NOW_S, 0.0)
        assert other is not None
        assert other.bare == bare
    rival = queued("b", count=2, gpus={"V100": 2}, rate={"V100": 1.0}, usd_per_hour={"V100": 0.0})
    assert [s.job_id for s in decided(view(job, rival)).stops] == ["a"], "others have waited for it"


def test_an_earlier_turn_is_not_forgotten() -> None:
    state = a_state(turns=(Turn(gpu="V100", begin_s=100.0, end_s=400.0),))
    job = queue_job(state, {"V100": a_way("V100", 2)}, NOW_S, 200.0)
    assert job is not None
    assert (job.on, job.received_s) == (None, {"V100": 200.0})


def test_a_turn_has_its_size() -> None:
    spec = remaining(placed(size=4), NOW_S)
    assert (spec.nodes_min, spec.nodes_max) == (2, 2)


def test_a_plan_is_held_to_the_gpu_itself() -> None:
    """The planner takes H100-PCIE for an H100, the queue does not: it counts them apart."""
    found = (a_way("H100", 1), a_way("H100-PCIE", 1), a_way("H100", 1, 8))
    plan = Plan(
        job=SPEC,
        objective="",
        policy="",
        catalogue=CatalogueStamp(digest="", as_of=None, offers=0),
        chosen=found[0],
        candidates=found,
        rejected=(),
        why=(),
    )
    assert held_to(plan, ev.QueueDecided(gpu="H100", why="", nodes=1, count=1)).candidates == found[:1]
    assert held_to(plan, ev.QueueDecided(gpu="H100", why="")).candidates == (found[0], found[2])


H, H_PCIE, A100 = (Accelerator(gpu=name, count=1) for name in ("H100", "H100-PCIE", "A100"))


@pytest.mark.parametrize(
    ("asked", "gpu", "count", "held"),
    [
        ((H, A100), "H100-PCIE", 1, (H_PCIE,)),
        ((H, H_PCIE), "H100-PCIE", 1, (H_PCIE,)),
        ((H, replace(H, count=8)), "H100", 8, (replace(H, count=8),)),
        ((H, replace(H, count=8)), "H100", None, (H, replace(H, count=8))),
        ((), "V100", 8, (Accelerator(gpu="V100", count=8),)),
        ((A100,), "V100", 2, (Accelerator(gpu="V100", count=2),)),
    ],
)
def test_held_to_one_gpu(
    asked: tuple[Accelerator, ...], gpu: str, count: int | None, held: tuple[Accelerator, ...]
) -> None:
    spec = replace(SPEC, resources=Resources(accelerators=asked))
    assert on_gpu(spec, gpu, count).resources.accelerators == held
    options = (Resources(accelerators=asked, clouds=("aws",)), Resources(accelerators=(A100,)))
    some = on_gpu(replace(SPEC, resources=Resources(any_of=options)), gpu, count).resources
    if A100 in asked and gpu == "V100":
        assert some.accelerators == held, "no alternative is for it"
    else:
        assert [one.accelerators for one in some.any_of] == [held]
