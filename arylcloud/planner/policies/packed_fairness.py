"""Max-min fairness with pairs of jobs sharing GPUs.

    max_x min_i  s_i/(w_i·p_i) · rate_i(x)        p_i = Σ_j T_ij·W_j / Σ_j W_j   from the rates alone

rate_i steps/s alone and in pairs, s_i GPUs, w_i weight, T_ij steps/s alone, W_j workers. Objective as in
:mod:`~arylcloud.planner.policies.max_min_fairness`: 1 = a slice of every type in proportion to the cluster.
Exact by classes of jobs: :mod:`arylcloud.planner.kernels.classes`.
Reference: Narayanan et al., Gavel, OSDI 2020.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem, proportional_rates
from arylcloud.planner.policies.packed import max_common_packed


def packed(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Objective dimensionless, larger is better; ``worker_value`` per worker."""
    del rng
    slope = problem.weight * proportional_rates(problem) / problem.gpus
    found, reached, bound = max_common_packed(problem, slope, what="max-min fairness with pairs")
    worst = float(reached.min(initial=np.inf))
    return replace(found, objective=worst, bound=bound) if np.isfinite(worst) else found
