"""A slice of every type in proportion to the cluster: the normaliser of Gavel's fairness."""

from __future__ import annotations

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem


def proportional(problem: ClusterProblem, _rng: np.random.Generator) -> Allocation:
    """Gavel (OSDI 2020): ``x_ij = W_j / Σ_k W_k`` for every job, shape (n, m), fractions of time.

    Capacity is not looked at: as soon as ``Σ s_i > Σ W_j`` the shares are more than there is. It says how
    fast a job would be if its time were spread over the cluster's mix, and nothing else.
    """
    total = float(problem.workers.sum())
    row = problem.workers / total if total > 0 else np.zeros_like(problem.workers)
    return Allocation(shares=np.tile(row, (len(problem), 1)))
