"""Themis, as its simulator has it: GPUs go, whole and by rounds, to the jobs of the worst finish-time ratio.

    ρ_i = (t_i + N_i / max_j T_ij) / (C_i + N_i / q_i)

what the ratio of finishing shared to finishing alone will be, at the least, if the job runs at full speed
from now on (on its fastest type that has room for it at all): waiting raises it, so that no job is passed
over for ever. t_i, C_i, q_i as in :mod:`arylcloud.planner.policies.finish_time_fairness`, which is the same
wish as one convex program in fractions. Themis offers the free GPUs to the worst fifth first and lets them
bid; the payments keep bids honest and do not concern a scheduler that measures throughput itself. Here all
stand in one order, worst first, each on its fastest free type: that is max-min on ρ with whole GPUs.
Reference: Mahajan et al., NSDI 2020.
"""

from __future__ import annotations

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem
from arylcloud.planner.policies.finish_time_fairness import finish_alone
from arylcloud.planner.policies.inorder import fastest_free, full_speed


def themis(problem: ClusterProblem, _rng: np.random.Generator) -> Allocation:
    """0/1 shares, (n, m). Equal ratios: the job that came first. Who fits nowhere is passed over."""
    isolated, memory = finish_alone(problem)
    with np.errstate(divide="ignore"):
        shared = problem.age_s + problem.steps_left / full_speed(problem)
    ratio = np.divide(shared, isolated, out=np.full(len(problem), -np.inf), where=isolated < np.inf)
    return Allocation(shares=fastest_free(problem, np.argsort(-ratio, kind="stable")), memory=memory)
