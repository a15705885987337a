"""What the policies with one row per job have in common: who can run at all, and the answer's shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.cluster import Allocation, ClusterProblem, F, I
from arylcloud.planner.kernels.jobform import JobLP, Solution
from arylcloud.planner.kernels.jobs import Warm, solve


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Memory:
    """The prices of the last answer, from which the next search starts."""

    warm: Warm | None = None


def can_run(problem: ClusterProblem, throughput: F) -> NDArray[np.bool_]:
    """(n,) jobs that get anything out of a type that has workers. The others are left out of a program
    (they would pull its minimum to 0), get no share, and are named in :attr:`Allocation.unplaceable`."""
    runs: NDArray[np.bool_] = throughput @ (problem.workers > 0) > 0
    return runs


def unplaceable(problem: ClusterProblem) -> I | None:
    """Jobs that no round can place: no type where they run has as many workers as they need GPUs.

    A fraction of a too large job is a point of the program all the same (Gavel's programs know only
    Σ gpus·x ≤ workers), so such a job may hold a share; this says that the share is on paper.
    """
    fits = (problem.throughput > 0) & (problem.workers[None, :] >= problem.gpus[:, None])
    lost = np.flatnonzero(~fits.any(axis=1))
    return lost if len(lost) else None


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
    value: Callable[[float], float] = lambda t: t,
) -> Allocation:
    """max t subject to ``Σ_j throughput_ij·x_ij ≥ slope_i·t`` for every job that can run.

    ``throughput`` (n, m), ``slope`` (n,) > 0; ``value`` turns t into the policy's own objective.
    """
    n, m = throughput.shape
    runs = can_run(problem, throughput)
    lost = unplaceable(problem)
    if not runs.any():
        return Allocation(shares=np.zeros((n, m)), unplaceable=lost, memory=Memory())
    everyone = at_best(problem, throughput)
    if everyone is not None:
        best = float(((throughput * everyone).sum(axis=1)[runs] / slope[runs]).min())
        return Allocation(
            shares=everyone,
            objective=value(best),
            bound=value(best),
            worker_value=np.zeros(m),
            unplaceable=lost,
            memory=Memory(),
        )
    all_run = bool(runs.all())
    found = solve(
        JobLP(
            rate=np.ascontiguousarray((throughput if all_run else throughput[runs]).T),
            gpus=problem.gpus if all_run else problem.gpus[runs],
            capacity=problem.workers,
            slope=slope if all_run else slope[runs],
        ),
        warm=problem.memory.warm if isinstance(problem.memory, Memory) else None,
    )
    return answer(found, runs, value=value, unplaceable=lost)


def answer(
    found: Solution,
    runs: NDArray[np.bool_],
    *,
    value: Callable[[float], float] = lambda t: t,
    unplaceable: I | None = None,
) -> Allocation:
    """The allocation of all jobs from the program of those that run."""
    shares = np.zeros((len(runs), found.x.shape[0]))
    shares[runs] = found.x.T
    return Allocation(
        shares=shares,
        objective=value(found.objective),
        bound=value(found.bound),
        worker_value=found.type_value,
        unplaceable=unplaceable,
        memory=Memory(warm=Warm.of(found)),
    )
