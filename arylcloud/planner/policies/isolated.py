"""An equal part of the cluster for everyone: what every job would have without the others."""

from __future__ import annotations

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem, isolated_shares


def isolated(problem: ClusterProblem, _rng: np.random.Generator) -> Allocation:
    """Gavel (OSDI 2020), the yardstick of sharing incentive and of finish-time fairness.

    ``x_ij = (W_j / (n·s_i)) / max(1, Σ_k W_k / (n·s_i))``, shape (n, m), fractions of time.
    """
    return Allocation(
        shares=isolated_shares(problem) if len(problem) else np.zeros((0, len(problem.workers)))
    )
