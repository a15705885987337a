"""Finish-time fairness: the job that loses most by sharing loses as little as possible (Themis' ρ).

    ρ_i = (t_i + N_i / rate_i) / D_i        D_i = C_i + N_i / q_i        min_x max_i ρ_i

t_i seconds since arrival, N_i steps left, q_i the rate with an equal part of the cluster (of *today's* n
jobs), C_i the time that the steps done so far would have taken at the equal parts of their day. C_i is kept
in ``memory``: ``C_i += (N_i before − N_i)/q_i before`` at each call, 0 at first sight; a problem may
say it itself (``isolated_s``).

With σ = 1/ρ: ``rate_i ≥ (N_i/D_i)·σ / (1 − (t_i/D_i)·σ)``, convex in σ: the largest σ is one convex program
of the form of :mod:`arylcloud.planner.kernels.jobform`, solved in one go.

``agnostic`` takes each job's rate on the reference type (Gavel: the V100) for its rate everywhere. Weights do
not enter. References: Narayanan et al., Gavel, OSDI 2020; Mahajan et al., Themis, NSDI 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem, F, I, isolated_rates
from arylcloud.planner.policies.perjob import Memory, max_common, of_reference_type


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Ages(Memory):
    """What C_i is made of, for each job at the last call; the first two sorted by ``ids``."""

    ids: I
    alone_s: F
    """C_i."""
    steps_left: F
    rate_alone: F
    """q_i."""


def perf(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Objective and bound are ρ, smaller is better; ``worker_value`` in ρ per worker."""
    del rng
    denominator, memory = finish_alone(problem)
    found = max_common(
        problem,
        problem.throughput,
        problem.steps_left / denominator,
        fade=problem.age_s / denominator,
        value=lambda sigma: 1.0 / sigma,
    )
    warm = found.memory.warm if isinstance(found.memory, Memory) else None
    found = replace(found, memory=replace(memory, warm=warm))
    if found.worker_value is None or not isinstance(found.objective, float):
        return found
    return replace(found, worker_value=found.worker_value * found.objective**2)


def agnostic(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Blind to types, but for the reference type's rates."""
    return perf(replace(problem, throughput=of_reference_type(problem)), rng)


def finish_alone(problem: ClusterProblem) -> tuple[F, Ages]:
    """(ρ's denominator ``C_i + N_i/q_i`` in seconds, inf where a job cannot run; the memory for the next
    call)."""
    alone, memory = time_alone(problem)
    rates = isolated_rates(problem)
    with np.errstate(divide="ignore"):
        return alone + np.where(rates > 0, problem.steps_left / rates, np.inf), memory


def time_alone(problem: ClusterProblem) -> tuple[F, Ages]:
    """(C_i of every job in seconds, the memory for the next call)."""
    ids = np.asarray(problem.ids)
    alone = np.zeros(len(problem))
    before = problem.memory
    if isinstance(before, Ages) and len(before.ids):
        at = np.minimum(np.searchsorted(before.ids, ids), len(before.ids) - 1)
        known = before.ids[at] == ids
        rate = before.rate_alone[at]
        with np.errstate(divide="ignore", invalid="ignore"):
            ran = np.where(rate > 0, (before.steps_left[at] - problem.steps_left) / rate, 0.0)
        alone = np.where(known, before.alone_s[at] + ran, 0.0)
    if problem.isolated_s is not None:
        alone = problem.isolated_s
    order = np.argsort(ids)
    return alone, Ages(
        ids=ids[order],
        alone_s=alone[order],
        steps_left=problem.steps_left[order],
        rate_alone=isolated_rates(problem)[order],
    )
