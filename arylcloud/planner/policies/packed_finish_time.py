"""Finish-time fairness with pairs of jobs sharing GPUs.

    min_x max_i ρ_i      ρ_i = (t_i + N_i / rate_i(x)) / D_i      D_i = C_i + N_i / q_i

Everything but rate_i, which now counts pairs too, as in
:mod:`~arylcloud.planner.policies.finish_time_fairness`; with σ = 1/ρ the demand
``(N_i/D_i)·σ/(1 − (t_i/D_i)·σ)`` is convex. Weights do not enter. Exact by classes of jobs:
:mod:`arylcloud.planner.kernels.classes`.
Reference: Narayanan et al., Gavel, OSDI 2020; Mahajan et al., Themis, NSDI 2020.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem
from arylcloud.planner.policies.finish_time_fairness import finish_alone
from arylcloud.planner.policies.packed import max_common_packed


def packed(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Objective and bound are ρ, smaller is better; ``worker_value`` in ρ per worker."""
    del rng
    denominator, memory = finish_alone(problem)
    found, reached, bound = max_common_packed(
        problem,
        problem.steps_left / denominator,
        fade=problem.age_s / denominator,
        what="finish-time fairness with pairs",
    )
    found = replace(found, memory=memory)
    worst = float(reached.min(initial=np.inf))
    if not np.isfinite(worst):
        return found
    assert found.worker_value is not None
    return replace(found, objective=1 / worst, bound=1 / bound, worker_value=found.worker_value / worst**2)
