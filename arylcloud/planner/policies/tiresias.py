"""Tiresias-L: two queues by attained service, first in first out within each, gangs, preemptive.

A job is demoted to the second queue once it has received 16 GPU-hours (57,600 GPU-s; NSDI 2019, and
the setting of its evaluation); jobs are served in order of queue, then of arrival, each in its
smallest configuration, on the type on which that is fastest per GPU of those with room. No promotion: the
paper's is optional, against starvation.

Departures: several types; an elastic job asks for its smallest number of GPUs (Tiresias has no elasticity).
"""

from __future__ import annotations

import numpy as np

from arylcloud.planner.cluster import Choice, ElasticProblem
from arylcloud.planner.policies.increments import Ladders

DEMOTED_AT_GPU_S = 57_600.0


def tiresias(problem: ElasticProblem, rng: np.random.Generator) -> Choice:
    """Strict order of the queues, with back-fill behind a job that does not fit."""
    del rng
    ladders, current = Ladders(problem), problem.current.tolist()
    queue = (problem.attained_gpu_s >= DEMOTED_AT_GPU_S).astype(np.int64)
    for job in np.lexsort((-problem.age_s, queue)).tolist():
        config = ladders.first(job, current[job])
        if config is not None:
            ladders.take(job, config)
    return Choice(config=ladders.choice())
