"""Makespan with pairs of jobs sharing GPUs.

    min T   s.t.  rate_i(x) ≥ N_i / T   for every job        N_i steps left, rate_i alone and in pairs

One program, ``max θ = 1/T``; exact by classes of jobs: :mod:`arylcloud.planner.kernels.classes`.
Reference: Narayanan et al., Gavel, OSDI 2020 (there by bisection to 5 %).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem
from arylcloud.planner.policies.packed import max_common_packed


def packed(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Objective and bound in seconds, smaller is better; ``worker_value`` in seconds saved per worker."""
    del rng
    found, reached, bound = max_common_packed(problem, problem.steps_left, what="makespan with pairs")
    worst = float(reached.min(initial=np.inf))
    if not np.isfinite(worst):
        return found
    assert found.worker_value is not None
    # d(1/θ) = −dθ/θ²
    return replace(found, objective=1 / worst, bound=1 / bound, worker_value=found.worker_value / worst**2)
