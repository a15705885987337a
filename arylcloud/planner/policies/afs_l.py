"""AFS-L: one step at a time to the job for which it shortens the mean completion time most.

For each free GPU a tournament (NSDI 2021): of two jobs without a share the one with less remaining
work in its smallest configuration wins; else, a = who would finish first with the present shares, b = the
other, with p the rate now and p' the rate one step up: b wins iff ``(p_b' − p_b)/p_b' > (p_a' − p_a)/p_a``.
A job without a share has p = 0, so that it finishes last and wins where the first gains less than it.

"-L": lengths are known. Departures: several types (see :mod:`increments`); the step is the job's next
configuration, which may be more than one GPU.
"""

from __future__ import annotations

import numpy as np

from arylcloud.planner.cluster import Choice, ElasticProblem
from arylcloud.planner.policies.increments import Ladders


def afs_l(problem: ElasticProblem, rng: np.random.Generator) -> Choice:
    """Greedy by tournament in order of arrival; no claim of optimality."""
    del rng
    ladders = Ladders(problem)
    work, current = problem.work_left.tolist(), problem.current.tolist()
    alive = set(range(len(problem)))
    while alive:
        best: tuple[int, int, float, float] | None = None  # job, step, rate now, rate then
        for job in sorted(alive):
            held = ladders.config[job]
            step = ladders.first(job, current[job]) if held < 0 else ladders.next(job)
            if step is None:
                alive.discard(job)  # GPUs are only ever taken
                continue
            now = ladders.rate[job][held] if held >= 0 else 0.0
            mine = (job, step, now, ladders.rate[job][step])
            if best is None or _beats(mine, best, work):
                best = mine
        if best is None:
            break
        ladders.take(best[0], best[1])
    return Choice(config=ladders.choice())


def _beats(b: tuple[int, int, float, float], a: tuple[int, int, float, float], work: list[float]) -> bool:
    """Whether ``b`` takes the GPU before ``a``, the winner so far."""
    if a[2] == 0 and b[2] == 0:
        return work[b[0]] / b[3] < work[a[0]] / a[3]
    first, other = (a, b) if _ends(a, work) <= _ends(b, work) else (b, a)
    gains = (other[3] - other[2]) / other[3] > (first[3] - first[2]) / first[2]
    return gains if other is b else not gains


def _ends(job: tuple[int, int, float, float], work: list[float]) -> float:
    return work[job[0]] / job[2] if job[2] > 0 else float("inf")
