"""Water filling: max-min fairness, then max-min of what is left, and so on (lexicographic max-min).

    lex max_x sort(ρ_1 … ρ_n)       ρ_i = s_i/(w_i·p_i) · rate_i(x)       p_i = Σ_j T_ij·W_j / Σ_j W_j

s_i GPUs, w_i weight, T_ij steps/s, W_j workers. All ρ rise together until no more can be had; who could not
have more without a loss to someone who has no more stops, the others rise on.

Hierarchical, where jobs have entities: the level of entity e rises with its weight E_e, and e's own policy
hands it on: ``fairness``: in proportion to the weights of its jobs that still rise; ``fifo``: to its first
job that still rises. What a stopped job would have had goes to the others of its entity.

``agnostic`` sets T = 1 wherever a job runs, and p = 1; ``packed`` counts pairs that share GPUs. Programs
only, no integers; exact by :mod:`arylcloud.planner.kernels.rising`. Objective: the sorted vector of ρ of the
jobs that can run.
Reference: Narayanan et al., Gavel, OSDI 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import UsageError
from arylcloud.planner.cluster import Allocation, ClusterProblem, F, I, job_rates, proportional_rates
from arylcloud.planner.kernels.classes import classes
from arylcloud.planner.kernels.rising import Path, rise
from arylcloud.planner.policies.packed import allocation
from arylcloud.planner.policies.perjob import blind, can_run, own_ease


def perf(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Heterogeneity-aware; ρ dimensionless, larger is better."""
    del rng
    return _filled(problem, pairs=False)


def packed(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """``perf`` with pairs of jobs sharing GPUs."""
    del rng
    return _filled(problem, pairs=True)


def agnostic(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Blind to what a type gives: a job's time counts alike everywhere."""
    del rng
    seen = replace(problem, throughput=blind(problem), sharing=None)
    return _filled(seen, pairs=False, mix=np.ones(len(problem)))


def _filled(problem: ClusterProblem, *, pairs: bool, mix: F | None = None) -> Allocation:
    """``mix`` (n,): p_i, where it is not that of the problem."""
    n, m = problem.throughput.shape
    runs = can_run(problem, problem.throughput)
    if not runs.any():
        return Allocation(shares=np.zeros((n, m)))
    mix = np.where(runs, proportional_rates(problem) if mix is None else mix, 1.0)
    jobs = classes(problem, pairs=pairs)
    entities = _entities(problem)

    def paths(rate: F, rising: NDArray[np.bool_], cap: F) -> Path:
        per_level = problem.weight * mix / problem.gpus
        if entities is None:
            return _Flat(rate=rate, speed=np.where(rising, per_level, 0.0), cap=cap)
        return _Tree(problem, entities, rate, rising, cap, mix / problem.gpus)

    found = rise(jobs, paths, runs=runs, what="water filling")
    answer = allocation(found.shared)
    level = problem.gpus / (problem.weight * mix) * job_rates(problem, answer)
    vector = np.sort(level[runs])
    spare = own_ease(problem.throughput)
    return replace(answer, objective=tuple(vector.tolist()), worker_value=None, spare=spare)


def _entities(problem: ClusterProblem) -> list[tuple[I, float, str]] | None:
    """(its jobs, its weight, its policy) of every entity."""
    if problem.entity is None:
        return None
    count = int(problem.entity.max(initial=-1)) + 1
    weight = np.ones(count) if problem.entity_weight is None else problem.entity_weight
    policy = problem.entity_policy or ("fairness",) * count
    if len(weight) < count or len(policy) < count:
        raise UsageError(f"{count} entities, but {len(weight)} weights and {len(policy)} policies of them")
    for name in policy:
        if name not in ("fairness", "fifo"):
            raise UsageError(f"an entity's policy is 'fairness' or 'fifo', not '{name}'")
    return [
        (np.flatnonzero(problem.entity == e), float(weight[e]), policy[e])
        for e in range(count)
        if (problem.entity == e).any()
    ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class _Flat:
    """Everyone at its own speed, to its cap."""

    rate: F
    speed: F
    cap: F

    @property
    def end(self) -> float:
        on = self.speed > 0
        return float(((self.cap - self.rate)[on] / self.speed[on]).max())

    def at(self, tau: float) -> F:
        there: F = np.where(self.speed > 0, np.minimum(self.rate + self.speed * tau, self.cap), self.rate)
        return there


class _Tree:
    """Entities at their speeds; within each, its jobs share that speed or take it one after another."""

    def __init__(
        self,
        problem: ClusterProblem,
        entities: list[tuple[I, float, str]],
        rate: F,
        rising: NDArray[np.bool_],
        cap: F,
        per_level: F,
    ) -> None:
        self._rate = rate
        self._clocks: list[tuple[I, F, F, F, F, F]] = []
        """Of every entity that still rises: jobs, τ at the clock's corners, the clock there; for each job the
        clock at which it starts and ends to rise, and its rate per unit of the clock."""
        self._end = 0.0
        for members, weight, policy in entities:
            jobs = members[rising[members]]
            if not len(jobs):
                continue
            way = (cap - rate)[jobs] / per_level[jobs]  # in ρ·s: what it takes at speed 1
            if policy == "fifo":
                begin = np.append(0.0, np.cumsum(way))
                corners, tau = begin, begin / weight
                start, stop, speed = begin[:-1], begin[1:], per_level[jobs]
            else:
                own = problem.weight[jobs]
                stop = way / own  # the clock: the level of a job of weight 1
                order = np.argsort(stop, kind="stable")
                corners = np.append(0.0, stop[order])
                sharing = np.cumsum(own[order][::-1])[::-1]  # weights that still rise, piece by piece
                tau = np.append(0.0, np.cumsum(np.diff(corners) * sharing / weight))
                start, speed = np.zeros(len(jobs)), per_level[jobs] * own
            self._clocks.append((jobs, tau, corners, start, stop, speed))
            self._end = max(self._end, float(tau[-1]))

    @property
    def end(self) -> float:
        return self._end

    def at(self, tau: float) -> F:
        there = self._rate.copy()
        for jobs, taus, corners, start, stop, speed in self._clocks:
            clock = float(np.interp(tau, taus, corners))
            there[jobs] += speed * np.clip(clock - start, 0.0, stop - start)
        return there
