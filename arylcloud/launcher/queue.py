"""Many jobs on GPUs that are too few: who holds which now, by a policy of the planner. Pure.

A policy that divides time says what part of its time each job should have on each kind of GPU; rounds make
placements of it, as in Gavel (OSDI 2020, §5) and with the simulator's own kernels: whoever is furthest behind
its share is first, whole gangs only, what is left goes to whoever fits. Beyond that: nobody makes way within
a round, or for someone who is hardly further behind; a job that stops holds its GPUs until its machines are
gone, and what they are kept for is given to nobody else meanwhile. Kinds that are about the same to a job
count as one for its claim: it stays where it is, and takes what is free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from arylcloud.core.errors import InfeasibleError
from arylcloud.launcher.queueview import QueueJob, QueueView
from arylcloud.planner.cluster import Allocation, ClusterProblem, F
from arylcloud.planner.kernels.rounds import priorities

Solve = Callable[[ClusterProblem, np.random.Generator], Allocation]
LEAD: Final = 1.25
"""Whoever runs makes way only for one whose claim is so many times as large."""
ALIKE: Final = 4 / 3
"""Kinds are about the same to a job where neither is more than so many times as fast, or as dear, as the
other: less than that does not pay for saving, ending and beginning again every few rounds."""
FIRST_S: Final = 0.5
"""Of a round: what everyone is taken to have had of everything at first, so that claims are finite."""
SAVE_S: Final = 60.0
"""Of the budget, so many seconds of what runs are kept: to save and to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    job_id: str
    gpu: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    job_id: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    starts: tuple[Start, ...] = ()
    stops: tuple[Stop, ...] = ()
    waiting: tuple[tuple[str, str], ...] = ()
    """(job, what it waits for)."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """One job on one kind of GPU, or on any of those that are about the same to it."""

    job: QueueJob
    gpu: str
    alike: tuple[str, ...] = ()
    """These kinds, ``gpu`` among them."""
    own: float = 0.0
    """Its share of ``gpu`` alone."""
    size: float = 0.0
    """Its share of them over what it has had of them."""
    share: float = 0.0
    had: float = 0.0

    @property
    def here(self) -> bool:
        return self.job.on in self.alike


def decide(view: QueueView, policy: str, solve: Solve, rng: np.random.Generator) -> Decision:
    """Who starts, who makes way, and what the others wait for. The GPUs that are held after it, those of
    leaving jobs included, never exceed the capacity if they did not before."""
    free = dict(view.capacity)
    for job in view.jobs:
        for gpu, count in job.held.items():
            free[gpu] = free.get(gpu, 0) - count
    left_usd = _left_usd(view)
    if left_usd is not None and left_usd <= 0.0:
        return _out_of_money(view)
    try:
        claims = _claims(view, solve, rng)
    except InfeasibleError as error:
        return Decision(waiting=tuple((j.job_id, error.message) for j in view.jobs if j.on is None))
    wanted = _placed(view, claims)
    stops, starts = [], []
    burn = _burn_usd_per_hour(view)
    for claim in wanted:
        job = claim.job
        kinds = " or ".join(claim.alike or (claim.gpu,))
        why = f"{policy}: {claim.share:.0%} of its time on {kinds}, it has had {claim.had:.0%}"
        if job.on is None:
            cost = job.usd_per_hour[claim.gpu]
            round_usd = (burn + cost) * _round_h(view)
            if left_usd is not None and round_usd > left_usd:
                continue
            if job.gpus[claim.gpu] <= free.get(claim.gpu, 0):
                free[claim.gpu] -= job.gpus[claim.gpu]
                burn += cost
                starts.append(Start(job_id=job.job_id, gpu=claim.gpu, why=why))
        elif job.on != claim.gpu and not job.leaving:
            stops.append(Stop(job_id=job.job_id, why=f"{why}: it moves there"))
    stays = {claim.job.job_id for claim in wanted}
    first = next((c for c in wanted if c.job.on is None), None)
    for job in view.jobs:
        if job.on is not None and not job.leaving and job.job_id not in stays:
            rival = f", for {first.job.job_id}" if first is not None else ""
            why = f"{policy}: its share of this round is used up{rival}"
            if job.keeps > view.capacity.get(job.on, 0):
                why = f"it holds {job.keeps} {job.on}, of which there are {view.capacity.get(job.on, 0)}"
            stops.append(Stop(job_id=job.job_id, why=why))
    begun = {s.job_id for s in starts}
    waiting = tuple(
        (j.job_id, _waits_for(view, j, left_usd)) for j in view.jobs if j.on is None and j.job_id not in begun
    )
    return Decision(starts=tuple(starts), stops=tuple(stops), waiting=waiting)


def problem_of(view: QueueView) -> ClusterProblem:
    """The jobs as a policy sees them: each at the size that it has on its fastest GPU; where it would take
    another number of GPUs it does not run."""
    kinds = tuple(view.capacity)
    jobs = view.jobs
    size = [_usual_size(job) for job in jobs]
    rates = [
        [job.rate.get(gpu, 0.0) if job.gpus.get(gpu) == count else 0.0 for gpu in kinds]
        for job, count in zip(jobs, size, strict=True)
    ]
    prices = [
        [job.usd_per_hour.get(gpu, 0.0) / count for gpu in kinds]
        for job, count in zip(jobs, size, strict=True)
    ]
    price = np.array(prices, dtype=np.float64).reshape(len(jobs), len(kinds))
    due = [np.inf if job.deadline_s is None else job.deadline_s for job in jobs]
    return ClusterProblem(
        worker_types=kinds,
        workers=np.array([view.capacity[gpu] for gpu in kinds], dtype=np.float64),
        throughput=np.array(rates, dtype=np.float64).reshape(len(jobs), len(kinds)),
        gpus=np.array(size, dtype=np.float64),
        weight=np.ones(len(jobs)),
        usd_per_hour=price.mean(axis=0) if len(jobs) else np.zeros(len(kinds)),
        steps_left=np.array([job.left_s for job in jobs]),
        age_s=np.array([job.age_s for job in jobs]),
        deadline_s=np.array(due) if np.isfinite(due).any() else None,
        own_usd_per_hour=price,
    )


def _usual_size(job: QueueJob) -> int:
    return job.gpus[max((rate, gpu) for gpu, rate in job.rate.items())[1]]


def _claims(view: QueueView, solve: Solve, rng: np.random.Generator) -> list[_Claim]:
    """Every job's claim on every kind of GPU on which it has a share, the largest first."""
    view = replace(view, jobs=tuple(j for j in view.jobs if j.rate))
    if not view.jobs:
        return []
    problem = problem_of(view)
    share: F = solve(problem, rng).shares.T
    kinds = problem.worker_types
    had = np.array([[j.received_s.get(gpu, 0.0) for j in view.jobs] for gpu in kinds], dtype=np.float64)
    had += FIRST_S * view.round_s
    given: F = had.sum(axis=1)
    found: list[_Claim] = []
    for n, job in enumerate(view.jobs):
        able = [m for m in range(len(kinds)) if problem.throughput[n, m] > 0]
        same = np.array([[_alike(job, kinds[a], kinds[b]) for b in able] for a in able])
        part, ours, of_all = same @ share[able, n], same @ had[able, n], same @ given[able]
        size = priorities(part[:, None], ours[:, None], of_all)[:, 0]
        for row, m in enumerate(able):
            if share[m, n] > 1e-6:
                names = tuple(kinds[k] for k, it_is in zip(able, same[row], strict=True) if it_is)
                found.append(
                    _Claim(
                        job,
                        kinds[m],
                        alike=names,
                        own=float(share[m, n]),
                        size=float(size[row]),
                        share=float(part[row]),
                        had=float(ours[row] / of_all[row]),
                    )
                )
    at = {job.job_id: n for n, job in enumerate(view.jobs)}
    return sorted(found, key=lambda c: (-c.size * (LEAD if c.here else 1.0), at[c.job.job_id], -c.own, c.gpu))


def _alike(job: QueueJob, one: str, other: str) -> bool:
    """Whether these kinds are about the same to it, by what it gets out of them and by what they cost."""
    pairs = ((by.get(one, 0.0), by.get(other, 0.0)) for by in (job.rate, job.usd_per_hour))
    return all(max(pair) <= ALIKE * min(pair) for pair in pairs)


def _placed(view: QueueView, claims: list[_Claim]) -> list[_Claim]:
    """Whole gangs, a job at most once: whoever may not be disturbed, then by claim, then whoever fits. Who
    leaves counts as gone: a start waits until it is."""
    room = dict(view.capacity)
    idle = {gpu: n - sum(job.held.get(gpu, 0) for job in view.jobs) for gpu, n in view.capacity.items()}
    taken: list[_Claim] = []
    seen: set[str] = set()

    def take(claim: _Claim, *, anyhow: bool = False) -> None:
        job, gpu = claim.job, claim.gpu
        if job.job_id in seen:
            return
        need = job.keeps if gpu == job.on else job.gpus[gpu]
        if anyhow or need <= room.get(gpu, 0):
            room.setdefault(gpu, 0)
            room[gpu] -= need
            if gpu != job.on and need <= idle[gpu]:
                idle[gpu] -= need
            seen.add(job.job_id)
            taken.append(claim)

    for job in view.jobs:
        fresh = job.held_s < view.round_s
        if job.on is None or job.leaving:
            continue
        if fresh or not view.boundary or job.on not in view.capacity:  # there it is in nobody's way
            take(_Claim(job, job.on), anyhow=True)
    for claim in claims:
        if claim.job.leaving:
            continue
        if claim.job.on is None or claim.here or view.boundary:
            for gpu in _choices(claim, idle):
                take(replace(claim, gpu=gpu))
    for job in view.jobs:  # whoever cannot be compared goes on while there is room
        if job.on is not None and not job.leaving and job.on not in job.rate:
            take(_Claim(job, job.on))
    for job in view.jobs if view.backfill else ():  # nothing is left idle that somebody can use
        if job.leaving:
            continue
        for gpu in sorted(job.rate, key=lambda gpu: (-job.rate[gpu], gpu)):
            if job.on is None or job.on == gpu:
                take(_Claim(job, gpu))
    return taken


def _choices(claim: _Claim, idle: Mapping[str, int]) -> list[str]:
    """Where a claim is met, the best first: where the job is, unless its turn there has brought no machine;
    what is free now; what comes free."""
    job = claim.job
    others = [gpu for gpu in claim.alike if gpu != job.on]
    others.sort(key=lambda gpu: (job.gpus[gpu] > idle.get(gpu, 0), gpu != claim.gpu, -job.rate[gpu], gpu))
    here = [gpu for gpu in claim.alike if gpu == job.on]
    return [*others, *here] if job.bare else [*here, *others]


def _left_usd(view: QueueView) -> float | None:
    """Of the budget, less what ending costs; None = there is no budget."""
    if view.budget_usd is None:
        return None
    if view.spent_usd is None:
        return 1e-9  # nothing new, and nobody is stopped for what is not known
    burn = _burn_usd_per_hour(view)
    return view.budget_usd - view.spent_usd - burn * SAVE_S / 3600.0 * view.market_scale


def _burn_usd_per_hour(view: QueueView) -> float:
    """By what machines cost, or the plan if that is more: a gang may be half there."""
    return sum(max(j.burn_usd_per_hour, j.usd_per_hour.get(j.on, 0.0)) for j in view.jobs if j.on is not None)


def _round_h(view: QueueView) -> float:
    return view.round_s / 3600.0 * view.market_scale


def _out_of_money(view: QueueView) -> Decision:
    text = f"the queue's budget of ${view.budget_usd:,.2f} is spent"
    return Decision(
        stops=tuple(Stop(job_id=j.job_id, why=text) for j in view.jobs if j.on is not None and not j.leaving),
        waiting=tuple((j.job_id, text) for j in view.jobs if j.on is None),
    )


def _waits_for(view: QueueView, job: QueueJob, left_usd: float | None) -> str:
    if all(count > view.capacity.get(gpu, 0) for gpu, count in job.gpus.items()):
        return "it is larger than the capacity"
    if left_usd is not None and min(job.usd_per_hour.values()) * _round_h(view) > left_usd:
        return f"${left_usd:.2f} of the queue's budget is left: not enough for a round"
    return f"GPUs: {', '.join(f'{count} {gpu}' for gpu, count in job.gpus.items())}"
