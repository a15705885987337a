"""What the policies with one row per job have in common: who can run at all, and the answer's shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import InfeasibleError
from arylcloud.planner.cluster import Allocation, ClusterProblem, F, I
from arylcloud.planner.kernels.jobform import JobLP, Solution
from arylcloud.planner.kernels.jobs import Warm, solve


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Memory:
    """The prices of the last answer, from which the next search starts."""

    warm: Warm | None = None


def can_run(problem: ClusterProblem, throughput: F) -> NDArray[np.bool_]:
    """(n,) jobs that get anything out of a type that has workers. The others are left out of a program
    (they would pull its minimum to 0) and get no share."""
    runs: NDArray[np.bool_] = throughput @ (problem.workers > 0) > 0
    return runs


def nobody(problem: ClusterProblem) -> Allocation:
    """There is no one to share, or nothing."""
    return Allocation(shares=np.zeros(problem.throughput.shape), memory=Memory())


def at_best(problem: ClusterProblem, worth: F) -> F | None:
    """(n, m) every job all the time on the type where ``worth`` (n, m) is largest, if they fit.

    Where they do, no policy that only wants more of ``worth`` for everyone can do better.
    """
    usable = np.where(problem.workers > 0, worth, -1.0)
    best = usable.argmax(axis=1)
    used = np.bincount(best, weights=problem.gpus, minlength=len(problem.workers))
    if (used > problem.workers).any():
        return None
    shares = np.zeros_like(worth)
    shares[np.arange(len(best)), best] = usable.max(axis=1) > 0
    return shares


def max_common(
    problem: ClusterProblem,
    throughput: F,
    slope: F,
    *,
    fade: F | None = None,
    value: Callable[[float], float] = lambda t: t,
) -> Allocation:
    """max t subject to ``Σ_j throughput_ij·x_ij ≥ slope_i·t / (1 − fade_i·t)`` for every job that can run.

    ``throughput`` (n, m), ``slope`` (n,) > 0, ``fade`` (n,) ≥ 0; ``value`` turns t into the policy's own
    objective.
    """
    m = throughput.shape[1]
    runs = can_run(problem, throughput)
    if not runs.any():
        return nobody(problem)
    spare = own_ease(throughput) if throughput is problem.throughput else None
    everyone = at_best(problem, throughput)
    if everyone is not None:
        rates = (throughput * everyone).sum(axis=1)[runs]
        ask = slope[runs] if fade is None else slope[runs] + fade[runs] * rates
        best = float((rates / ask).min())
        return Allocation(
            shares=everyone,
            objective=value(best),
            bound=value(best),
            worker_value=np.zeros(m),
            spare=spare,
            memory=Memory(),
        )
    all_run = bool(runs.all())
    found = solve(
        JobLP(
            rate=np.ascontiguousarray((throughput if all_run else throughput[runs]).T),
            gpus=problem.gpus if all_run else problem.gpus[runs],
            capacity=problem.workers,
            slope=slope if all_run else slope[runs],
            fade=fade if all_run or fade is None else fade[runs],
        ),
        warm=problem.memory.warm if isinstance(problem.memory, Memory) else None,
    )
    allocation = answer(found, runs, value=value, spare=spare)
    if throughput.all():
        return allocation
    # where a job gets nothing, time that is free anyhow may lie about: nobody is to be sent there
    return replace(allocation, shares=np.where(throughput > 0, allocation.shares, 0.0))


def answer(
    found: Solution,
    runs: NDArray[np.bool_],
    *,
    value: Callable[[float], float] = lambda t: t,
    spare: F | None = None,
) -> Allocation:
    """The allocation of all jobs from the program of those that run."""
    shares = np.zeros((len(runs), found.x.shape[0]))
    shares[runs] = found.x.T
    return Allocation(
        shares=shares,
        objective=value(found.objective),
        bound=value(found.bound),
        worker_value=found.type_value,
        spare=spare,
        memory=Memory(warm=Warm.of(found)),
    )


def own_ease(throughput: F) -> F:
    """(n, m) ``best_i / (best_i − T_ij)``: by what part of its rate a job would fall short on a type."""
    best = throughput.max(axis=1, keepdims=True)
    ease: F = best / np.maximum(best - throughput, 1e-12 * np.maximum(best, 1e-300))
    return ease


def price_ease(reduced_cost: F, objective: float) -> F:
    """(n, m) ``1/z_ij − n/objective``, at least 0: larger where the objective loses less by job i on type j;
    0 where it would lose more than the mean job is worth. What an interior point leaves on shares that are 0
    is ``μ/z``, and Gavel's rounds hand out leftovers by it."""
    ease: F = 1.0 / np.maximum(reduced_cost, 1e-12) - len(reduced_cost) / max(objective, 1e-300)
    return np.maximum(ease, 0.0)


def reduced_costs(lp: JobLP, found: Solution) -> F:
    """(n, m) ``α_i − (gain_ij + rate_ij·β_i − gpus_i·λ_j)`` at the solution's prices, α the least that is
    feasible: the duals of x ≥ 0."""
    assert lp.gain is not None
    net = lp.gain + lp.rate * found.rate_value - lp.gpus * found.type_value[:, None]
    best = np.maximum(net.max(axis=0), 0.0)
    cost: F = np.ascontiguousarray((best - net).T)
    return cost


def too_tight(problem: ClusterProblem, alone: I, part: float) -> InfeasibleError:
    """Why a set of deadlines cannot be kept: the jobs that miss theirs even ``alone``, else ``part`` < 1 of
    every job's work is the most that fits by its deadline."""
    if len(alone):
        names = ", ".join(str(job) for job in problem.ids[alone[:5]])
        more = f" and {len(alone) - 5} more" if len(alone) > 5 else ""
        return InfeasibleError(
            f"no allocation meets the deadline of job {names}{more}: not even with every worker to itself",
            hint="a later deadline, fewer steps, or a faster type",
        )
    return InfeasibleError(
        f"the deadlines cannot all be met: at most {100 * part:.4g} % of each job's work fits before its own",
        hint=f"deadlines {1 / max(part, 1e-9):.4g} times as far, or workers that many times as many",
    )


def blind(problem: ClusterProblem) -> F:
    """(n, m) 1 where a job runs, else 0: what a policy believes that knows of types only whether, not how
    fast. (Gavel's takes 1 everywhere and hands out time on types where a job gets nothing.)"""
    runs: F = np.where(problem.throughput > 0, 1.0, 0.0)
    return runs


REFERENCE = "v100"


def of_reference_type(problem: ClusterProblem) -> F:
    """(n, m) each job's rate on the reference type, everywhere: what a policy blind to types believes.

    Gavel's is the V100; where there is none, the type on which the jobs run fastest on the whole.
    """
    names = [name.lower() for name in problem.worker_types]
    if REFERENCE in names:
        j = names.index(REFERENCE)
    else:
        best = problem.throughput.max(axis=1, keepdims=True, initial=0.0)
        relative = np.divide(problem.throughput, best, out=np.zeros_like(problem.throughput), where=best > 0)
        total = relative.sum(axis=0)
        # the name decides between equals, not the place
        j = max(range(len(names)), key=lambda k: (total[k], names[k]))
    rates: F = np.repeat(problem.throughput[:, j : j + 1], len(names), axis=1)
    return rates
