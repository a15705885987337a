"""ElasticFlow: admit only whose deadline can be kept; give each the smallest share that keeps it; then grow.

*Minimum satisfactory share* (ASPLOS 2023, from memory of the paper): in order of deadline, the
smallest number of GPUs with which the job, running in what earlier deadlines leave free over time, ends
before its own. A job for which no share does is refused: it breaks no promise to those admitted. GPUs that
are free now go, one step at a time, to the job whose rate grows most per GPU, relative to what it has; then
to jobs without a deadline, and last to refused ones.

Departures: several types (a job takes the one whose share costs fewest $/h; where no type has a price, the
one of fewest GPUs); time is exact between changes of the free GPUs, not in slots; a job that changes its
configuration loses ``restart_s`` before it works.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from arylcloud.planner.cluster import Choice, ElasticProblem, F
from arylcloud.planner.policies.increments import Ladders

Use = list[tuple[float, float, int]]
"""From, until (seconds), configuration: what an admitted job will hold."""


class _Calendar:
    """GPUs of one type that are free over time: constant between breakpoints, the last value for ever."""

    def __init__(self, gpus: int) -> None:
        self.at, self.free = [0.0], [gpus]

    def spans(self) -> list[tuple[float, float, int]]:
        edges = [*self.at, float("inf")]
        return [(a, b, f) for (a, b), f in zip(pairwise(edges), self.free, strict=True)]

    def reserve(self, start: float, end: float, gpus: int) -> None:
        for t in (start, end):
            self._break(t)
        for i, t in enumerate(self.at):
            if start <= t < end:
                self.free[i] -= gpus

    def _break(self, t: float) -> None:
        if t == float("inf") or t in self.at:
            return
        i = sum(a < t for a in self.at)
        self.at.insert(i, t)
        self.free.insert(i, self.free[i - 1])


@dataclass(frozen=True, slots=True)
class Promises:
    """What is carried from one decision to the next: the share (largest configuration) of every job whose
    deadline has been promised, by job id."""

    share: dict[int, int]


def elasticflow(problem: ElasticProblem, rng: np.random.Generator) -> Choice:
    """``refused``: the jobs whose deadline cannot be kept beside the promised ones. ``memory``:
    :class:`Promises`; a job that arrives later breaks none of them."""
    del rng
    deadline = np.full(len(problem), np.inf) if problem.deadline_s is None else problem.deadline_s
    bound = [job for job in np.argsort(deadline, kind="stable").tolist() if np.isfinite(deadline[job])]
    ids = np.arange(len(problem)) if problem.job_id is None else problem.job_id
    old = problem.memory.share if isinstance(problem.memory, Promises) else {}
    promised = {job: old[int(ids[job])] for job in bound if int(ids[job]) in old}
    ladders, shares = _admit(problem, deadline, bound, promised)
    if not promised.keys() <= shares.keys():
        first = [j for j in bound if j in promised] + [j for j in bound if j not in promised]
        ladders, shares = _admit(problem, deadline, first, promised)
    _grow(ladders, [job for job in bound if ladders.config[job] >= 0])
    refused = [job for job in bound if job not in shares]
    later = [job for job in range(len(problem)) if not np.isfinite(deadline[job])] + sorted(refused)
    for job in later:
        smallest = ladders.first(job, int(problem.current[job]))
        if smallest is not None:
            ladders.take(job, smallest)
    _grow(ladders, [job for job in later if ladders.config[job] >= 0])
    return Choice(
        config=ladders.choice(),
        refused=np.array(sorted(refused), dtype=np.int64),
        memory=Promises({int(ids[job]): share for job, share in shares.items()}),
    )


def _admit(
    problem: ElasticProblem, deadline: F, order: list[int], promised: dict[int, int]
) -> tuple[Ladders, dict[int, int]]:
    """Shares in that order: what each admitted job starts with now, and its share."""
    ladders = Ladders(problem)
    calendars = [_Calendar(int(w)) for w in problem.workers]
    shares: dict[int, int] = {}
    for job in order:
        found = _smallest(problem, ladders, calendars, job, float(deadline[job]), promised.get(job))
        if found is None:
            continue
        shares[job], use = found
        for start, end, config in use:
            calendars[int(problem.configs.worker_type[config])].reserve(start, end, ladders.gpus(config))
        if use[0][0] == 0.0:
            ladders.take(job, use[0][2])
    return ladders, shares


def _smallest(
    problem: ElasticProblem,
    ladders: Ladders,
    calendars: list[_Calendar],
    job: int,
    deadline_s: float,
    promised: int | None,
) -> tuple[int, Use] | None:
    """The cheapest share that meets the deadline and what the job then holds over time; None where none
    does. A promised share comes first: a smaller one, held longer, could stand in the way of a promise."""
    price = problem.usd_per_hour if problem.usd_per_hour.any() else np.ones(len(problem.workers))
    options = sorted(
        (ladders.gpus(rungs[top]) * float(price[kind]), kind, top)
        for kind, rungs in enumerate(ladders.steps[job])
        for top in range(len(rungs))
    )
    tops = [(kind, top) for _, kind, top in options]
    tops.sort(key=lambda where: ladders.steps[job][where[0]][where[1]] != promised)
    for kind, top in tops:
        rungs = ladders.steps[job][kind][: top + 1]
        use = _schedule(problem, ladders, calendars[kind], job, rungs)
        if use is not None and use[-1][1] <= deadline_s * (1 + 1e-9):
            return rungs[-1], use
    return None


def _schedule(
    problem: ElasticProblem, ladders: Ladders, calendar: _Calendar, job: int, rungs: list[int]
) -> Use | None:
    """The largest of ``rungs`` that fits at every moment, until the work is done."""
    left, held = float(problem.work_left[job]), int(problem.current[job])
    use: Use = []
    for start, end, free in calendar.spans():
        fits = [c for c in rungs if ladders.gpus(c) <= free]
        if not fits:
            held = -1
            continue
        config = fits[-1]
        lost = 0.0 if config == held else float(problem.restart_s[job])
        held = config
        finish = start + lost + left / ladders.rate[job][config]
        if finish <= end:
            return [*use, (start, finish, config)]
        use.append((start, end, config))
        left -= max(end - start - lost, 0.0) * ladders.rate[job][config]
    return None


def _grow(ladders: Ladders, jobs: list[int]) -> None:
    """Free GPUs to the largest relative gain of rate per GPU, step by step."""
    heap: list[tuple[float, int, int]] = []

    def push(job: int) -> None:
        step = ladders.next(job)
        if step is not None:
            held, rate = ladders.config[job], ladders.rate[job]
            gain = (rate[step] / rate[held] - 1) / (ladders.gpus(step) - ladders.gpus(held))
            heapq.heappush(heap, (-gain, job, step))

    for job in jobs:
        push(job)
    while heap:
        _, job, step = heapq.heappop(heap)
        if ladders.next(job) == step:
            ladders.take(job, step)
            push(job)
