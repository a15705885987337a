"""One call from jobs, rates and a fleet to an outcome: what ``simulate`` and the benchmarks use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from arylcloud.core.errors import UsageError
from arylcloud.planner.cluster import F, I
from arylcloud.planner.policies.registry import Policy
from arylcloud.simulation.cluster.generate import Recipe, generate
from arylcloud.simulation.cluster.outcome import Outcome
from arylcloud.simulation.cluster.simulate import Progress, Recorder, Settings, simulate
from arylcloud.simulation.cluster.throughputs import Throughputs
from arylcloud.simulation.cluster.workload import Jobs, Workload, bind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fleet:
    """GPUs by worker type, alphabetical (as Gavel's policies order them); shapes (m,)."""

    worker_types: tuple[str, ...]
    workers: I
    usd_per_hour: F | None
    """Of one GPU; None = unknown."""


def fleet(capacity: Mapping[str, int], usd_per_hour: Mapping[str, float] | None = None) -> Fleet:
    """UsageError where a type of the capacity has no price though others have."""
    types = tuple(sorted(capacity))
    if sum(capacity.values()) <= 0:
        raise UsageError("a cluster without GPUs", hint="--capacity v100=36,p100=36,k80=36")
    prices = None
    if usd_per_hour is not None:
        missing = [kind for kind in types if kind not in usd_per_hour]
        if missing:
            raise UsageError(f"no price for {', '.join(missing)}", hint="--costs v100=.74,p100=.43,k80=.135")
        prices = np.array([usd_per_hour[kind] for kind in types], dtype=np.float64)
    workers = np.array([capacity[kind] for kind in types], dtype=np.int64)
    return Fleet(worker_types=types, workers=workers, usd_per_hour=prices)


def replay(
    jobs: Jobs | Recipe,
    table: Throughputs,
    cluster: Fleet,
    policy: Policy,
    settings: Settings,
    *,
    window: tuple[int, int] | None = None,
    record: Recorder | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Simulate. Without prices a policy that asks for them sees 1 $/h for every GPU, as in Gavel."""
    types = cluster.worker_types
    finite = jobs
    if isinstance(jobs, Recipe) and jobs.count is not None:
        finite = generate(jobs, jobs.count, table, types)

    def bound(some: Jobs) -> Workload:
        return bind(some, table, types, shared=policy.packs)

    def endless(n: int) -> Workload:
        assert isinstance(finite, Recipe)
        return bound(generate(finite, n, table, types))

    return simulate(
        bound(finite) if isinstance(finite, Jobs) else endless,
        policy,
        cluster.workers,
        _prices(cluster),
        _order(table, types),
        settings,
        window=window,
        record=record,
        progress=progress,
    )


def _prices(cluster: Fleet) -> F:
    return np.ones(len(cluster.workers)) if cluster.usd_per_hour is None else cluster.usd_per_hour


def _order(table: Throughputs, types: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(types.index(kind) for kind in table.fastest_first(types))
