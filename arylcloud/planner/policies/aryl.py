"""Aryl's two phases: a base for the shortest jobs, then extra GPUs where they save most time.

*Phase 1*: jobs in order of remaining time in their smallest configuration (SJF) take that configuration while
it fits; one that does not fit is passed over. *Phase 2*: all GPUs left go to the running elastic jobs by a
multiple-choice knapsack, type by type: item = a larger configuration, weight = its extra GPUs, value =
``remaining_s(base) − remaining_s(item)``, less ``restart_s`` where the job would have to change (arXiv
2202.07896, structure from its abstract; the charge for a change is ours, against flapping). All flexible GPUs
are decided anew each time.

Loaning and reclaiming of inference servers are not here: this is what training does with the GPUs it has.
Departures: several types; a type is chosen in phase 1 (see :mod:`increments`) and kept in phase 2.
"""

from __future__ import annotations

import numpy as np

from arylcloud.planner.cluster import Choice, ElasticProblem, F
from arylcloud.planner.kernels.knapsack import best_items
from arylcloud.planner.policies.increments import Ladders, remaining_s


def aryl(problem: ElasticProblem, rng: np.random.Generator) -> Choice:
    """``objective``: seconds of completion time that phase 2 saves, summed over jobs; exact given phase 1."""
    del rng
    ladders, left = Ladders(problem), remaining_s(problem)
    base = [
        min((float(left[job, rungs[0]]) for rungs in steps if rungs), default=np.inf)
        for job, steps in enumerate(ladders.steps)
    ]
    current = problem.current.tolist()
    for job in np.argsort(base, kind="stable").tolist():
        config = ladders.first(job, current[job])
        if config is not None:
            ladders.take(job, config)
    saved = 0.0
    for kind in range(len(problem.workers)):
        saved += _extend(problem, ladders, left, kind)
    return Choice(config=ladders.choice(), objective=saved)


def _extend(problem: ElasticProblem, ladders: Ladders, left: F, kind: int) -> float:
    """Phase 2 on one type; returns the seconds saved."""
    jobs = [j for j, c in enumerate(ladders.config) if c >= 0 and problem.configs.worker_type[c] == kind]
    items = [ladders.steps[j][kind][1:] for j in jobs]
    width = max((len(i) for i in items), default=0)
    if width == 0:
        return 0.0
    value, weight = np.zeros((len(jobs), width)), np.zeros((len(jobs), width), dtype=np.int64)
    for row, (job, steps) in enumerate(zip(jobs, items, strict=True)):
        base = ladders.config[job]
        held = int(problem.current[job])
        for column, config in enumerate(steps):
            charge = float(problem.restart_s[job]) if held >= 0 and config != held else 0.0
            stay = float(problem.restart_s[job]) if held >= 0 and base != held else 0.0
            value[row, column] = left[job, base] + stay - left[job, config] - charge
            weight[row, column] = ladders.gpus(config) - ladders.gpus(base)
    chosen = best_items(value, weight, ladders.free[kind])
    for row, item in enumerate(chosen.tolist()):
        if item >= 0:
            ladders.take(jobs[row], items[row][item])
    picked = chosen >= 0
    return float(value[picked, chosen[picked]].sum())
