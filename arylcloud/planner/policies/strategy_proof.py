"""Strategy proof: the largest geometric mean, less what a job's presence costs the others.

    x* = argmax_x Π_i ρ_i(x)        ρ_i = s_i/(w_i·p_i) · Σ_j T_ij·x_ij,   p_i = Σ_j T_ij·W_j / Σ_j W_j
    f_i = Π_{k≠i} ρ_k(x*) / ρ_k(x*₋ᵢ)        x*₋ᵢ the same without job i        job i gets f_i·x*_i

s_i GPUs, w_i weight, T_ij steps/s, W_j workers. What job i gets, ``f_i·ρ_i(x*)``, is the largest product of
all divided by a number that it does not influence: a wrong T_i can only make the product, by the true rates,
smaller. So lying about throughputs does not pay (GPUs and presence must be true); the price is the time that
is thrown away, 1 − f_i of it. Weights do not move a product's maximum; they enter the objective only.

Jobs of one row of throughputs and one number of GPUs share one leave-one-out program:
:mod:`arylcloud.planner.kernels.product`. Objective: the geometric mean of ρ(x*), before discounts, as Gavel
states it. ``agnostic`` sets T = 1 wherever a job runs, and p = 1.
References: Narayanan et al., Gavel, OSDI 2020; Cole, Gkatzelis & Goel, EC 2013 (partial allocation).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem, F, proportional_rates
from arylcloud.planner.kernels.classes import classes
from arylcloud.planner.kernels.product import Product, solve
from arylcloud.planner.policies.perjob import blind, can_run

AT_ONCE = 200_000
"""Numbers per array of a batch of programs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Discounts:
    """The ``memory`` of the answer; nothing is read from it."""

    kept: F
    """(n,) f_i in (0, 1]; 1 where a job's presence costs nobody anything."""


def perf(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Objective and bound dimensionless, larger is better; ``memory`` holds the :class:`Discounts`."""
    del rng
    return _discounted(problem, proportional_rates(problem))


def agnostic(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Blind to what a type gives: a job's time counts alike everywhere."""
    del rng
    return _discounted(replace(problem, throughput=blind(problem)), np.ones(len(problem)))


def _discounted(problem: ClusterProblem, mix: F) -> Allocation:
    """``mix`` (n,): p_i."""
    n, m = problem.throughput.shape
    runs = can_run(problem, problem.throughput)
    shares = np.zeros((n, m))
    kept = np.ones(n)
    if not runs.any():
        return Allocation(shares=shares, memory=Discounts(kept=kept))
    used = problem.workers > 0
    part = replace(
        problem,
        workers=problem.workers[used],
        throughput=problem.throughput[np.ix_(runs, used)],
        gpus=problem.gpus[runs],
    )
    grouped = classes(part, pairs=False)
    of = grouped.job_class
    rate, gpus = np.ascontiguousarray(grouped.kinds.rate.T), grouped.kinds.gpus
    counts = np.bincount(of).astype(np.float64)
    size = max(1e-9, 1e-11 * len(of))
    best = solve(rate, gpus, part.workers, counts[None], gap=size)
    time, got = best.share[:, 0], best.rate[0]
    factor = np.ones(len(gpus))
    if len(of) > 1:
        without = _without_one(rate, gpus, part.workers, counts, best, size)
        # others with the job there, over others without it
        factor = np.exp(np.minimum((counts * np.log(got)).sum() - np.log(got) - without, 0.0))
    shares[np.ix_(runs, used)] = (factor * time).T[of]
    kept[runs] = factor[of]
    worth = np.log(problem.gpus / problem.weight)[runs] - np.log(mix[runs])
    mean = float((np.log(got)[of] + worth).mean())
    return Allocation(
        shares=shares,
        objective=float(np.exp(mean)),
        bound=float(np.exp(mean + best.gap[0] / len(of))),
        memory=Discounts(kept=kept),
    )


def _without_one(rate: F, gpus: F, workers: F, counts: F, best: Product, gap: float) -> F:
    """(c,) the largest ``Σ log rate`` of all jobs but one of each class."""
    c = len(counts)
    found = np.empty(c)
    many = max(1, AT_ONCE // (c * len(workers) ** 2))
    for first in range(0, c, many):
        which = np.arange(first, min(first + many, c))
        left = np.repeat(counts[None], len(which), axis=0)
        left[np.arange(len(which)), which] -= 1.0
        found[which] = solve(rate, gpus, workers, left, start=best.inside, gap=gap).value
    return found
