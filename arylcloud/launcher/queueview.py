"""What a queue of jobs looks like: made of the jobs' journals and their plans. Values and pure functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arylcloud.core.job import Accelerator, JobSpec, Resources
from arylcloud.core.phases import JobPhase
from arylcloud.core.plan import Candidate
from arylcloud.launcher.state import JobState, Lease

BY_QUEUE = "queue"
"""Key in the arguments of a stop that the queue has asked for, with the reason: such a job comes back."""
NOT_SAID_S = 24 * 3600.0
"""Work left of a job that does not say: a day of its fastest GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueJob:
    """One job that has not ended. What it has left, its age and its deadline are market seconds, what it has
    held is wall seconds."""

    job_id: str
    gpus: Mapping[str, int]
    """Of the whole job, by GPU that it can run on; never empty."""
    rate: Mapping[str, float]
    """On each of these, in parts of its fastest."""
    usd_per_hour: Mapping[str, float]
    """Of the whole job, by GPU; 0 = one's own."""
    age_s: float
    left_s: float
    """Work left, on its fastest GPU."""
    received_s: Mapping[str, float]
    """Held, by GPU, since the set of jobs last changed."""
    on: str | None = None
    """The GPU that it holds now: from its start until its last machine is gone."""
    held_s: float = 0.0
    """For so long."""
    leaving: bool = False
    """It has been asked to stop: it holds its GPUs still."""
    deadline_s: float | None = None
    """From now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    capacity: Mapping[str, int]
    """GPUs by canonical name."""
    jobs: tuple[QueueJob, ...]
    """In order of arrival."""
    round_s: float
    """Wall seconds: what a round has to outweigh, saving and starting, takes wall time."""
    boundary: bool
    """A round is over: who runs may have to make way. Else only what is free is given."""
    backfill: bool = True
    """What the policy leaves free goes to whoever can use it."""
    market_scale: float = 1.0
    """Market seconds per wall second, of what runs."""
    budget_usd: float | None = None
    spent_usd: float | None = 0.0
    """By all jobs of the queue, ended ones, too; None = not known: nothing new is started then."""


def waits(state: JobState) -> bool:
    """Whether the queue has this job to decide on: not ended, or stopped by the queue itself."""
    if not state.queued:
        return False
    return not state.phase.ended or made_way(state)


def made_way(state: JobState) -> bool:
    stopped = state.phase is JobPhase.STOPPED and state.stop is not None
    return stopped and state.stop is not None and BY_QUEUE in state.stop.args


def holds(state: JobState) -> bool:
    """Whether it has been given its turn and has not ended since."""
    return state.placed is not None and not state.phase.ended


def ways(candidates: Sequence[Candidate], capacity: Mapping[str, int]) -> dict[str, Candidate]:
    """By GPU of the capacity: the best candidate that fits into it. (Candidates come best first.)"""
    found: dict[str, Candidate] = {}
    for candidate in candidates:
        gpu, count = candidate.offer.gpu, candidate.offer.gpu_count
        if gpu is not None and gpu in capacity and count and count * candidate.nodes <= capacity[gpu]:
            found.setdefault(gpu, candidate)
    return found


def queue_job(
    state: JobState, by_gpu: Mapping[str, Candidate], now_s: float, changed_s: float
) -> QueueJob | None:
    """``now_s``, ``changed_s`` (when the set of jobs last changed): wall seconds. None = no GPU of the
    capacity serves it."""
    if not by_gpu:
        return None
    clock = state.market_clock
    speeds = {gpu: c.throughput for gpu, c in by_gpu.items()}
    known = [speed for speed in speeds.values() if speed]
    fastest = max(known, default=1.0)
    rate = {gpu: (speed / fastest if speed else 1.0) for gpu, speed in speeds.items()}
    work, newest, left_s = state.spec.work, state.lineage, NOT_SAID_S
    if work is not None and known:
        done = newest.step if newest is not None and work.unit == "steps" else 0
        left_s = max(work.amount - done, work.amount * 1e-3) / fastest
    limit_s, age_s = state.spec.constraints.deadline_s, (now_s - state.submitted_at_s) * clock.scale
    on = _gpu_held(state)
    since_s = min((lease.intended_at_s for lease in state.open_leases), default=now_s)
    return QueueJob(
        job_id=state.job_id,
        gpus={gpu: c.nodes * (c.offer.gpu_count or 1) for gpu, c in by_gpu.items()},
        rate=rate,
        usd_per_hour={gpu: c.nodes * (c.offer.usd_per_hour or 0.0) for gpu, c in by_gpu.items()},
        age_s=age_s,
        left_s=left_s,
        received_s=received_s(state, now_s, changed_s),
        on=on,
        held_s=now_s - since_s,
        leaving=on is not None and (state.phase is JobPhase.STOPPING or state.stop is not None),
        deadline_s=None if limit_s is None else max(1.0, limit_s - age_s),
    )


def _gpu_held(state: JobState) -> str | None:
    """What it was given; of one that a user has resumed by himself, what its machines have."""
    if holds(state) and state.placed is not None:
        return state.placed.gpu
    return next((x.offer.gpu for x in state.open_leases if x.offer.gpu is not None), None)


def received_s(state: JobState, now_s: float, since_s: float) -> dict[str, float]:
    """Wall seconds for which it has held GPUs of each kind since then, whatever their number."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for lease in state.leases.values():
        if lease.offer.gpu is not None and lease.instance_id is not None:
            begin_s = max(lease.intended_at_s, since_s)
            spans.setdefault(lease.offer.gpu, []).append((begin_s, max(begin_s, _until_s(lease, now_s))))
    return {gpu: _covered_s(found) for gpu, found in spans.items()}


def _until_s(lease: Lease, now_s: float) -> float:
    return now_s if lease.ended_at_s is None else min(now_s, lease.ended_at_s)


def _covered_s(spans: list[tuple[float, float]]) -> float:
    """Length of the union: a gang's machines are there at the same time."""
    total, end = 0.0, float("-inf")
    for begin_s, until_s in sorted(spans):
        total += max(0.0, until_s - max(begin_s, end))
        end = max(end, until_s)
    return total


def on_gpu(spec: JobSpec, gpu: str) -> JobSpec:
    """The job, held to one GPU among those that it asks for."""
    return dataclasses.replace(spec, resources=_on(spec.resources, gpu))


def _on(resources: Resources, gpu: str) -> Resources:
    asked = resources.accelerators
    fitting = tuple(a for a in asked if a.gpu == gpu)
    some = tuple(_on(one, gpu) for one in resources.any_of)
    some = tuple(one for one in some if one.accelerators and one.accelerators[0].gpu == gpu)
    if not asked and not resources.any_of:
        fitting = (Accelerator(gpu=gpu, count=1),)
    return dataclasses.replace(resources, accelerators=fitting or asked, any_of=some or resources.any_of)
