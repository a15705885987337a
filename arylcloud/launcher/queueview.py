"""What a queue of jobs looks like: made of the jobs' journals and their plans. Values and pure functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from arylcloud.core.events import QueueDecided
from arylcloud.core.gpus import BY_NAME, serving
from arylcloud.core.job import Accelerator, JobSpec, Resources
from arylcloud.core.phases import JobPhase
from arylcloud.core.plan import Candidate, Plan
from arylcloud.launcher.state import BY_QUEUE, JobState, Lease

NOT_SAID_S = 24 * 3600.0
"""Work left of a job that does not say: a day of its fastest GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueJob:
    """One job that has not ended. What it has left, its age and its deadline are market seconds, what it has
    held is wall seconds."""

    job_id: str
    gpus: Mapping[str, int]
    """Of the whole job, by GPU of the capacity that it can run on; empty only of one that holds GPUs and of
    which is not known what it gets out of any."""
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
    held: Mapping[str, int] = field(default_factory=dict)
    """All GPUs that it keeps from others now, by kind, be they of the capacity or not: of its machines,
    those of a move included, and no fewer than its turn is for."""
    keeps: int = 0
    """Of these, how many of ``on`` it goes on with if it stays."""
    burn_usd_per_hour: float = 0.0
    """What its machines cost now, as far as that is known."""
    held_s: float = 0.0
    """For so long: since its turn was given, whether it has machines or not."""
    bare: bool = False
    """It has its turn, and no machine."""
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
    capacity serves it, and it holds none."""
    on = _gpu_held(state)
    if not by_gpu and on is None:
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
    turn = state.turns[-1] if state.turns and holds(state) else None
    leases_s = min((lease.intended_at_s for lease in state.open_leases), default=now_s)
    gpus = {gpu: c.nodes * (c.offer.gpu_count or 1) for gpu, c in by_gpu.items()}
    held = _held(state)
    keeps = 0
    if on is not None:
        there = held.get(on, 0)
        keeps = _of_turn(state) or min(there, gpus.get(on, there)) or gpus.get(on, 0)
        held[on] = max(there, keeps)
    return QueueJob(
        job_id=state.job_id,
        gpus=gpus,
        rate=rate,
        usd_per_hour={gpu: c.nodes * (c.offer.usd_per_hour or 0.0) for gpu, c in by_gpu.items()},
        age_s=age_s,
        left_s=left_s,
        received_s=received_s(state, now_s, changed_s),
        on=on,
        held=held,
        keeps=keeps,
        burn_usd_per_hour=_burn_usd_per_hour(state),
        held_s=now_s - (leases_s if turn is None else turn.begin_s),
        bare=on is not None and all(lease.instance_id is None for lease in state.open_leases),
        leaving=on is not None and (state.phase is JobPhase.STOPPING or state.stop is not None),
        deadline_s=None if limit_s is None else max(1.0, limit_s - age_s),
    )


def _gpu_held(state: JobState) -> str | None:
    """What it was given; of one that a user has resumed by himself, what its machines have."""
    if holds(state) and state.placed is not None:
        return state.placed.gpu
    return next((x.offer.gpu for x in state.open_leases if x.offer.gpu is not None), None)


def _of_turn(state: JobState) -> int | None:
    """GPUs that its turn is for; None = it has none, or that has not been said."""
    placed = state.placed if holds(state) else None
    if placed is None or placed.nodes is None or placed.count is None:
        return None
    return placed.nodes * placed.count


def _held(state: JobState) -> dict[str, int]:
    found: dict[str, int] = {}
    for lease in state.open_leases:
        if lease.offer.gpu is not None:
            found[lease.offer.gpu] = found.get(lease.offer.gpu, 0) + (lease.offer.gpu_count or 1)
    return found


def _burn_usd_per_hour(state: JobState) -> float:
    prices = (x.offer.usd_per_hour if x.usd_per_hour is None else x.usd_per_hour for x in state.open_leases)
    return sum(price for price in prices if price is not None)


def received_s(state: JobState, now_s: float, since_s: float) -> dict[str, float]:
    """Wall seconds for which it has held GPUs of each kind since then, whatever their number: a turn that
    brings no machine is a turn."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for turn in state.turns:
        begin_s = max(turn.begin_s, since_s)
        end_s = now_s if turn.end_s is None else turn.end_s
        spans.setdefault(turn.gpu, []).append((begin_s, max(begin_s, end_s)))
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


def on_gpu(spec: JobSpec, gpu: str, count: int | None = None) -> JobSpec:
    """The job, held to one GPU among those that it asks for; ``count``: of a machine, None = as it asks."""
    return dataclasses.replace(spec, resources=_on(spec.resources, gpu, count))


def _on(resources: Resources, gpu: str, count: int | None) -> Resources:
    """Never without a GPU: what does not ask for this one is not to be had any more."""
    alone = (Accelerator(gpu=gpu, count=count or 1),)
    fitting = _fitting(resources.accelerators, gpu, count) if resources.accelerators else alone
    if not resources.any_of:
        return dataclasses.replace(resources, accelerators=fitting or alone)
    some = []
    for one in resources.any_of:
        found = _fitting(one.accelerators, gpu, count) if one.accelerators else alone
        if found:
            some.append(dataclasses.replace(one, accelerators=found))
    if not some:
        return dataclasses.replace(resources, accelerators=alone)
    if not resources.accelerators:
        return dataclasses.replace(resources, any_of=tuple(some))
    return dataclasses.replace(resources, accelerators=fitting or alone, any_of=tuple(some))


def _fitting(asked: Sequence[Accelerator], gpu: str, count: int | None) -> tuple[Accelerator, ...]:
    """By its own name, where it was asked for by its chip's."""
    counts = [a.count for a in asked if a.gpu == gpu or (a.gpu in BY_NAME and gpu in serving(a.gpu))]
    return tuple(Accelerator(gpu=gpu, count=n) for n in dict.fromkeys(counts) if count in (None, n))


def held_to(plan: Plan, placed: QueueDecided) -> Plan:
    """The plan without what the turn is not for: a chip's name stands for its other forms, too."""
    fits = tuple(
        c for c in plan.candidates if c.offer.gpu == placed.gpu and placed.count in (None, c.offer.gpu_count)
    )
    return dataclasses.replace(plan, candidates=fits)
