"""Jobs as they come in, and the same jobs bound to what they get out of each worker type.

A reader or a generator makes :class:`Jobs`; :func:`bind` looks each job's rate up in a throughput table and
gives a :class:`Workload`, which is all that the simulator sees.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import UsageError
from arylcloud.planner.cluster import F, I
from arylcloud.simulation.cluster.throughputs import Throughputs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Jobs:
    """Columns of n jobs in order of arrival. Of ``steps`` and ``duration_s`` one may be unknown (NaN)."""

    names: Sequence[str]
    job_type: Sequence[str]
    """Name in the throughput table; '' = unknown: one is drawn by the job's name."""
    gpus: I
    steps: F
    duration_s: F
    """Alone, on the reference worker type."""
    arrival_s: F
    weight: F
    slo_factor: F
    """Deadline = arrival + factor × duration on the reference type; NaN = none."""
    where: Callable[[int], str]
    """What to call job i in a complaint: file and line."""

    def __len__(self) -> int:
        return len(self.gpus)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Workload:
    """n jobs with their rates; shapes (n,), (c, m), (c, c, m) for c classes of jobs and m worker types."""

    worker_types: tuple[str, ...]
    names: Sequence[str]
    job_class: I
    gpus: I
    steps: F
    """Whole numbers > 0."""
    arrival_s: F
    weight: F
    deadline_s: F
    """Absolute; inf = none."""
    rate: F
    """(c, m) steps/s of a class alone; 0 = cannot run there."""
    shared: F | None
    """(c, c, m) steps/s of the first class beside the second; None = not read."""
    scales: tuple[tuple[int, ...], ...]
    """Per class: the classes of the same job type at every number of GPUs, this one included."""
    class_gpus: I

    def __len__(self) -> int:
        return len(self.gpus)


def bind(jobs: Jobs, table: Throughputs, worker_types: tuple[str, ...], *, shared: bool) -> Workload:
    """Look up every job. UsageError, with the job's place in its file, where the table has no rate for it.

    A job of unknown type (production traces have none) is taken for a type of the table by the SHA-256 of
    its name, the same in every run, among the types that run on so many GPUs; where none does, it
    runs at the rates of the largest number below.
    """
    columns = table.columns(worker_types)
    reference = table.reference(worker_types)
    cache: dict[tuple[str, int], int] = {}
    job_class = np.empty(len(jobs), dtype=np.int64)
    for i, (name, kind, gpus) in enumerate(zip(jobs.names, jobs.job_type, jobs.gpus.tolist(), strict=True)):
        if not kind:
            job_class[i] = _drawn(name, gpus, table)
            continue
        found = cache.get((kind, gpus))
        if found is None:
            found = cache[kind, gpus] = _class_of(kind, gpus, table, lambda i=i: jobs.where(i))  # type: ignore[misc]
        job_class[i] = found
    base = table.isolated[job_class, reference]
    steps = np.where(np.isnan(jobs.steps), np.floor(jobs.duration_s * base), jobs.steps)
    with np.errstate(divide="ignore", invalid="ignore"):
        duration = np.where(np.isnan(jobs.duration_s), jobs.steps / base, jobs.duration_s)
    deadline = np.where(np.isnan(jobs.slo_factor), np.inf, jobs.arrival_s + jobs.slo_factor * duration)
    bad = np.flatnonzero(np.isnan(deadline))
    if len(bad):
        kind = table.worker_types[reference]
        raise UsageError(
            f"{jobs.where(int(bad[0]))}: a deadline is a multiple of the run time on {kind}, "
            "where this job cannot run",
            hint="leave the deadline (SLO -1) out, or give the table a rate there",
        )
    return Workload(
        worker_types=worker_types,
        names=jobs.names,
        job_class=job_class,
        gpus=jobs.gpus,
        steps=np.maximum(steps, 1.0),
        arrival_s=jobs.arrival_s,
        weight=jobs.weight,
        deadline_s=deadline,
        rate=np.ascontiguousarray(table.isolated[:, columns]),
        shared=np.ascontiguousarray(table.shared()[:, :, columns]) if shared else None,
        scales=table.scales,
        class_gpus=table.class_gpus,
    )


def _class_of(kind: str, gpus: int, table: Throughputs, where: Callable[[], str]) -> int:
    found = table.index.get((kind, gpus))
    if found is not None:
        return found
    sizes = sorted(s for k, s in table.index if k == kind)
    if sizes:
        known = ", ".join(map(str, sizes))
        raise UsageError(
            f"{where()}: no throughput for {kind!r} on {gpus} GPUs", hint=f"{table.source} has it on {known}"
        )
    import difflib

    near = difflib.get_close_matches(kind, {k for k, _ in table.index}, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"job types come from {table.source}"
    raise UsageError(f"{where()}: no throughput for job type {kind!r}", hint=hint)


def _drawn(name: str, gpus: int, table: Throughputs) -> int:
    choices = table.by_gpus(gpus)
    digest = hashlib.sha256(f"type:{name}".encode()).digest()
    return int(choices[int.from_bytes(digest[:8], "big") % len(choices)])


def fits(workload: Workload, workers: NDArray[np.int64], round_s: float) -> NDArray[np.bool_]:
    """(n, m) whether job i can make a step per round on type j, with so many workers there."""
    whole = np.floor(workload.rate * round_s) > 0
    size: NDArray[np.bool_] = workload.gpus[:, None] <= workers[None, :]
    return size & whole[workload.job_class]
