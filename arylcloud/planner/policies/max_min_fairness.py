"""Max-min fairness, also called least attained service (LAS): nobody's share is smaller than it must be.

    max_x min_i  s_i/(w_i·p_i) · Σ_j T_ij·x_ij        p_i = Σ_j T_ij·W_j / Σ_j W_j

s_i GPUs, w_i weight, T_ij steps/s, W_j workers. The objective is the smallest normalised throughput: 1 is a
slice of every type in proportion to the cluster, for a job of one GPU and weight 1. At equal objective a job
of 8 GPUs holds an eighth of the time of a job of one: equal GPU-time.

``agnostic`` sets T = 1 wherever a job runs, and p = 1. Jobs that get nothing out of any type that there is
are left out.
Reference: Narayanan et al., Gavel, OSDI 2020.
"""

from __future__ import annotations

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem, proportional_rates
from arylcloud.planner.policies.perjob import blind, max_common


def perf(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Heterogeneity-aware; objective dimensionless, larger is better."""
    del rng
    slope = problem.weight * proportional_rates(problem) / problem.gpus
    return max_common(problem, problem.throughput, slope)


def agnostic(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Blind to what a type gives: a job's time counts alike everywhere."""
    del rng
    return max_common(problem, blind(problem), problem.weight / problem.gpus)
