"""Makespan: the last job ends as early as possible.

    min T   s.t.  Σ_j T_ij·x_ij ≥ N_i / T   for every job        N_i steps left

As one program, exact: ``max θ, rate_i ≥ N_i·θ``, makespan ``T = 1/θ`` seconds. (Gavel searches T by bisection
to 5 %; its answers lie up to 3.6 % above this optimum.)

``agnostic`` takes each job's rate on the reference type for its rate everywhere; Gavel's reference type is
the V100. Reference: Narayanan et al., Gavel, OSDI 2020, §4.2.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem
from arylcloud.planner.policies.perjob import max_common, of_reference_type


def perf(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Objective and bound in seconds, smaller is better; ``worker_value`` in seconds saved per worker."""
    del rng
    found = max_common(problem, problem.throughput, problem.steps_left, value=lambda theta: 1.0 / theta)
    if found.worker_value is None or found.objective is None:
        return found
    assert isinstance(found.objective, float)
    # d(1/θ) = −dθ/θ²
    return replace(found, worker_value=found.worker_value * found.objective**2)


def agnostic(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Blind to types, but for the reference type's rates."""
    return perf(replace(problem, throughput=of_reference_type(problem)), rng)
