"""Makespan: the last job ends as early as possible, and no job takes more than it needs for that.

    min T   s.t.  Σ_j T_ij·x_ij ≥ N_i / T   for every job        N_i steps left

As one program, exact: ``max θ, rate_i ≥ N_i·θ``, makespan ``T = 1/θ`` seconds. (Gavel searches T by bisection
to 5 %; its answers lie up to 3.6 % above this optimum.)

T leaves all but the last jobs free, often everyone but one. Of its answers ``perf`` takes the one that holds
the least GPU-time, each type's counted by how fast it is (p_j, the jobs' mean rate there by their best):

    min  Σ_ij s_i·p_j·x_ij   s.t.  rate_i ≥ N_i·θ        s_i GPUs

so that rounds have slack for the job that must not wait: without, whole GPUs and rounds cost up to 0.6 % of
the makespan. Where every job all the time on its fastest type fits, that is the answer.

``agnostic`` takes each job's rate on the reference type for its rate everywhere; Gavel's reference type is
the V100. Reference: Narayanan et al., Gavel, OSDI 2020.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arylcloud.core.errors import ArylError
from arylcloud.planner.cluster import Allocation, ClusterProblem, F
from arylcloud.planner.kernels import interior
from arylcloud.planner.kernels.hull import cheapest
from arylcloud.planner.kernels.jobform import JobLP
from arylcloud.planner.kernels.jobs import MANY
from arylcloud.planner.policies.perjob import (
    Memory,
    at_best,
    can_run,
    max_common,
    of_reference_type,
    own_ease,
)

SLACK = 1e-3
"""Relative: a job that is faster than it must be by no more is on its pace."""
JUST = 5e-9
"""By so much θ gives way, relatively: a program that leaves no room at all has no interior."""
CLOSE = 1e-4
"""How near, relatively, the GPU-time comes to the least there is: it only chooses between optima."""


def perf(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Objective and bound in seconds, smaller is better; ``worker_value`` in seconds saved per worker."""
    del rng
    price = _price(problem)
    found = _one_alone(problem, price)
    if found is not None:
        return found
    found = _shortest(problem)
    return found if found.objective is None else _leanest(problem, price, found)


def agnostic(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Blind to types, but for the reference type's rates."""
    del rng
    return _shortest(replace(problem, throughput=of_reference_type(problem)))


def _shortest(problem: ClusterProblem) -> Allocation:
    found = max_common(problem, problem.throughput, problem.steps_left, value=lambda theta: 1.0 / theta)
    if found.worker_value is None or found.objective is None:
        return found
    assert isinstance(found.objective, float)
    # d(1/θ) = −dθ/θ²
    return replace(found, worker_value=found.worker_value * found.objective**2)


def _price(problem: ClusterProblem) -> F:
    """(m, n) s_i·p_j, what a job's time on a type counts."""
    best = problem.throughput.max(axis=1, keepdims=True, initial=0.0)
    relative = np.divide(problem.throughput, best, out=np.zeros_like(problem.throughput), where=best > 0)
    speed = relative.sum(axis=0) / max(np.count_nonzero(best), 1)
    price: F = speed[:, None] * problem.gpus
    return price


def _one_alone(problem: ClusterProblem, price: F) -> Allocation | None:
    """The answer where one job, all the time on its fastest type, is the last, whatever the others do, and
    they all fit beside it; None where that is not so, or where everyone has room for the fastest type."""
    runs = can_run(problem, problem.throughput)
    if not runs.any() or at_best(problem, problem.throughput) is not None:
        return None
    rate = np.ascontiguousarray(np.where(problem.workers > 0, problem.throughput, 0.0).T)
    theta = float((rate.max(axis=0)[runs] / problem.steps_left[runs]).min())
    level = np.where(runs, problem.steps_left * theta, 0.0)
    # rounding must not put the last job's own level above its rate
    mix = cheapest(rate, price, np.minimum(level, rate.max(axis=0)))
    x = mix.shares(len(rate))
    if not np.isfinite(mix.cost).all() or (x @ problem.gpus > problem.workers).any():
        return None
    reached = float(((rate * x).sum(axis=0)[runs] / problem.steps_left[runs]).min())
    return Allocation(
        shares=x.T,
        objective=1.0 / reached,
        bound=1.0 / theta,
        worker_value=np.zeros(len(rate)),
        spare=own_ease(problem.throughput),
        memory=Memory(),
    )


def _leanest(problem: ClusterProblem, price: F, found: Allocation) -> Allocation:
    """Of the answers as good as ``found``, but for ``JUST``, the one of least GPU-time; ``found`` where every
    job is on its pace there anyhow, or has the fastest type, or jobs are too many to solve for it."""
    assert isinstance(found.objective, float)
    if len(problem) > MANY:
        return found
    runs = can_run(problem, problem.throughput)
    need = np.where(runs, problem.steps_left / found.objective, 0.0)
    got = (problem.throughput * found.shares).sum(axis=1)
    if not (got > need * (1.0 + SLACK))[runs].any() or at_best(problem, problem.throughput) is not None:
        return found
    program = JobLP(
        rate=np.ascontiguousarray(problem.throughput[runs].T),
        gpus=problem.gpus[runs],
        capacity=problem.workers,
        gain=-price[:, runs],
        need=need[runs] * (1.0 - JUST),
    )
    try:
        least = interior.solve(program, gap=CLOSE)
    except ArylError:
        return found  # as good an answer, only not a lean one
    shares = np.zeros_like(found.shares)
    shares[runs] = least.x.T
    # who must not wait at all falls short by a rounding: such a job keeps what it had, where that fits
    short = (problem.throughput * shares).sum(axis=1) < need
    kept = np.where(short[:, None], found.shares, shares)
    if (problem.gpus @ kept <= problem.workers * (1.0 + 1e-12)).all():
        shares = kept
    reached = float(((problem.throughput * shares).sum(axis=1)[runs] / problem.steps_left[runs]).min())
    return replace(found, shares=shares, objective=1.0 / reached)
