"""One machine beside several of the same GPU: no impossible speed-up, no fall that one submitter made."""

from __future__ import annotations

import itertools

import pytest

from arylcloud.core.job import JobSpec, ProfileRef, Resources, Work
from arylcloud.planner.estimator import Estimate, estimate_configs
from arylcloud.planner.profiles import library
from arylcloud.planner.single import plan_job
from arylcloud.pricing.catalogue import load_bundled

LIB = library()
COUNTS = (1, 2, 3, 4, 6, 8)


def series(name: str, gpu: str) -> list[Estimate]:
    per_node = 4 if gpu.startswith(("GB", "TPU")) else 8
    found = estimate_configs(ProfileRef(name=name), [(gpu, per_node, n) for n in COUNTS], library=LIB)
    return [e for e in found if isinstance(e, Estimate)]


def test_no_bundled_profile_promises_more_than_every_machine_gives_alone() -> None:
    """A fifth more is the most that one source itself publishes (a larger micro-batch where the model is
    sharded over more GPUs)."""
    checked = 0
    for entry in LIB.entries:
        for gpu in sorted({m.gpu for m in LIB.get(entry.name).measurements}):
            found = series(entry.name, gpu)
            if len(found) < len(COUNTS):
                continue
            checked += 1
            rates = [e.throughput for e in found]
            for n, rate in zip(COUNTS, rates, strict=True):
                assert rate <= 1.21 * n * rates[0], (entry.name, gpu, n)
            for fewer, more in itertools.pairwise(rates):
                assert more >= 0.97 * fewer, (entry.name, gpu, rates)
    assert checked > 300


@pytest.mark.parametrize(
    ("name", "gpu", "nodes"), [("llama3.1-8b", "H100", 3), ("resnet-50", "A100", 2), ("retinanet", "B200", 4)]
)
def test_what_is_not_taken_is_still_within_the_band(name: str, gpu: str, nodes: int) -> None:
    """torchtitan beside MLPerf; TensorFlow beside MLPerf; one submitter beside five."""
    e = series(name, gpu)[COUNTS.index(nodes)]
    assert max(e.high / e.throughput, e.throughput / e.low) > 1.2
    assert e.rel_error == max(e.high / e.throughput - 1, 1 - e.low / e.throughput)


def test_two_machines_do_not_cost_less_than_one() -> None:
    spec = JobSpec(
        name="j", run="true", profile=ProfileRef(name="resnet-50"), work=Work(amount=1e9, unit="images"),
        resources=Resources(instance_types=("p4d.24xlarge",)), nodes_max=4, market="on_demand",
    )  # fmt: skip
    usd = {c.nodes: c.usd.mean for c in reversed(plan_job(spec, load_bundled()).candidates) if c.usd}
    assert [usd[n] for n in sorted(usd)] == sorted(usd.values())
