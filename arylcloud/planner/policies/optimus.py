"""Optimus: everyone the smallest share first, then one step at a time to whom it saves most time per GPU.

Starts in ascending order of need (GPU-seconds of what is left, in the configuration that takes fewest);
then, again and again, the job with the largest ``(remaining_s(w) − remaining_s(w'))/(gpus' − gpus)`` takes
its next step, until none gains or fits (EuroSys 2018, with GPUs in place of workers and parameter
servers; one type there, see :mod:`increments`). A job that runs is started again on the type it holds.
"""

from __future__ import annotations

import heapq

import numpy as np

from arylcloud.planner.cluster import Choice, ElasticProblem
from arylcloud.planner.policies.increments import Ladders, remaining_s


def optimus(problem: ElasticProblem, rng: np.random.Generator) -> Choice:
    """Greedy; no claim of optimality."""
    del rng
    ladders, left = Ladders(problem), remaining_s(problem)
    need = (left * problem.configs.gpus[None, :]).min(axis=1, initial=np.inf)
    current = problem.current.tolist()
    for job in np.argsort(need, kind="stable").tolist():
        config = ladders.first(job, current[job])
        if config is not None:
            ladders.take(job, config)
    heap: list[tuple[float, int, int]] = []

    def push(job: int) -> None:
        step = ladders.next(job)
        if step is None:
            return
        held = ladders.config[job]
        gain = float(left[job, held] - left[job, step]) / (ladders.gpus(step) - ladders.gpus(held))
        if gain > 0:
            heapq.heappush(heap, (-gain, job, step))

    for job, config in enumerate(ladders.config):
        if config >= 0:
            push(job)
    while heap:
        _, job, step = heapq.heappop(heap)
        if ladders.next(job) == step:  # GPUs are only ever taken: what does not fit now never will
            ladders.take(job, step)
            push(job)
    return Choice(config=ladders.choice())
