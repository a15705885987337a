"""How each law of :class:`~arylcloud.planner.policies.laws.Law` is tested, for shares and for choices.

A check takes a policy, the function to test (the policy's own, or a wrong one in its place) and a seed, and
raises AssertionError where the law is broken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from arylcloud.core.errors import InfeasibleError
from arylcloud.planner.cluster import Allocation, ClusterProblem, F, isolated_rates, job_rates, violation
from arylcloud.planner.policies.laws import Law
from arylcloud.planner.policies.registry import Policy, Solve
from support.clusters import able, for_policy, frozen, reordered, with_twins

SAME = 2e-6
"""Relative: twice what a certified gap of 1e-6 leaves."""
LEFT = 1e-3
"""Workers, or time, that an optimum within its gap may leave over."""
PRICE_POWER = {"min_cost": 1, "max_sum_throughput_normalized_by_cost": -1}
"""How the objective of a policy whose name starts so grows with prices; 0 for the others."""
Check = Callable[[Policy, Solve, int], None]


def ask(solve: Solve, problem: ClusterProblem) -> Allocation:
    return solve(problem, np.random.default_rng(1))


def close(a: object, b: object) -> None:
    np.testing.assert_allclose(np.atleast_1d(a), np.atleast_1d(b), rtol=SAME, atol=1e-9)


def vector(found: Allocation) -> F:
    return np.atleast_1d(np.array(found.objective, dtype=float))


def same_answer(policy: Policy, problem: ClusterProblem, a: Allocation, b: Allocation) -> None:
    """The same objective, or, where there is none, the same rates."""
    assert a.fallback == b.fallback
    if policy.sense != "none":
        close(vector(a), vector(b))
    else:
        close(job_rates(problem, a), job_rates(problem, b))


def not_better(policy: Policy, worse: Allocation, better: Allocation) -> None:
    """``worse`` is not better than ``better``; vectors by their first entries that differ."""
    sign = 1.0 if policy.sense == "max" else -1.0
    low, high = sign * vector(worse), sign * vector(better)
    room = SAME * np.maximum(abs(low), abs(high)) + 1e-9
    differs = np.flatnonzero(abs(low - high) > room)
    assert not len(differs) or low[differs[0]] < high[differs[0]], (low, high)


def capacity(policy: Policy, solve: Solve, seed: int) -> None:
    problem = for_policy(policy, seed)
    found = ask(solve, problem)
    assert found.shares.shape == problem.throughput.shape
    assert violation(problem, found) <= 1e-6
    again = ask(solve, replace(problem, memory=found.memory))
    assert violation(problem, again) <= 1e-6


def permutation(policy: Policy, solve: Solve, seed: int) -> None:
    problem = for_policy(policy, seed)
    rng = np.random.default_rng(seed + 1)
    jobs, types = rng.permutation(len(problem)), rng.permutation(len(problem.workers))
    a, b = ask(solve, problem), ask(solve, reordered(problem, jobs, types))
    back = replace(b, shares=b.shares[np.ix_(np.argsort(jobs), np.argsort(types))])
    if policy.sense == "none":
        np.testing.assert_allclose(a.shares, back.shares, atol=1e-9)
    same_answer(policy, problem, a, back)


def type_order(policy: Policy, solve: Solve, seed: int) -> None:
    problem = for_policy(policy, seed)
    types = np.random.default_rng(seed + 1).permutation(len(problem.workers))
    a = ask(solve, problem)
    b = ask(solve, reordered(problem, np.arange(len(problem)), types))
    back = np.argsort(types)
    np.testing.assert_allclose(a.shares, b.shares[:, back], atol=1e-9)
    np.testing.assert_array_equal(a.pairs, b.pairs)
    if a.pair_shares is not None:
        assert b.pair_shares is not None
        np.testing.assert_allclose(a.pair_shares, b.pair_shares[:, back], atol=1e-9)


def more_never_hurts(policy: Policy, solve: Solve, seed: int) -> None:
    problem = for_policy(policy, seed)
    workers = problem.workers.copy()
    workers[int(np.random.default_rng(seed + 1).integers(len(workers)))] += 1
    more = frozen(replace(problem, workers=workers))
    runs = ((p.throughput > 0) & (p.workers > 0) for p in (problem, more))
    if np.array_equal(*(r.any(axis=1) for r in runs)) and (able(problem) == able(more)).all():
        a, b = ask(solve, problem), ask(solve, more)
        assert a.fallback or not b.fallback  # what can be kept can be kept with more
        if a.fallback == b.fallback:
            not_better(policy, a, b)


def price_scales(policy: Policy, solve: Solve, seed: int) -> None:
    problem = for_policy(policy, seed)
    c = float(np.random.default_rng(seed + 1).choice([0.25, 3.0]))
    a = ask(solve, problem)
    own = None if problem.own_usd_per_hour is None else problem.own_usd_per_hour * c
    b = ask(solve, frozen(replace(problem, usd_per_hour=problem.usd_per_hour * c, own_usd_per_hour=own)))
    power = next((p for start, p in PRICE_POWER.items() if policy.name.startswith(start)), 0)
    if power:
        assert a.fallback == b.fallback
        close(vector(a) * c**power, vector(b))
    else:
        np.testing.assert_array_equal(a.shares, b.shares)


def tighter_never_helps(policy: Policy, solve: Solve, seed: int) -> None:
    problem = for_policy(policy, seed)
    assert problem.deadline_s is not None
    rng = np.random.default_rng(seed + 1)
    deadline = problem.deadline_s.copy()
    bound = np.flatnonzero(np.isfinite(deadline))
    if policy.name == "min_cost" and rng.random() < 0.5:
        problem = replace(problem, horizon_s=2 * float(deadline[bound].max(initial=1e4)))
    elif policy.name == "min_cost" and not len(bound):
        return
    # where the horizon is the last deadline, a first deadline of a job may move it out: that is not tighter
    some = bound if policy.name == "min_cost" and problem.horizon_s is None else np.arange(len(deadline))
    i = int(rng.choice(some))
    soon = problem.steps_left[i] / max(isolated_rates(problem)[i], 1e-9)
    deadline[i] = min(deadline[i] * rng.uniform(0.3, 1.0), soon * 5)
    a, b = ask(solve, problem), ask(solve, frozen(replace(problem, deadline_s=deadline)))
    assert b.fallback or not a.fallback  # what could not be kept cannot be kept when it is tighter
    if a.fallback == b.fallback:
        not_better(policy, b, a)
    if policy.name == "min_cost" and not a.fallback:
        budget = float(vector(a)[0]) * 0.9
        try:
            c = ask(solve, replace(problem, budget_usd=budget))
        except InfeasibleError:
            return
        assert vector(c)[0] <= budget
        not_better(policy, c, a)


def equal_shares(policy: Policy, solve: Solve, seed: int) -> None:
    problem = with_twins(for_policy(policy, seed))
    found = ask(solve, problem)
    # a policy that is blind to types sees time only
    got = job_rates(problem, found) if policy.aware else found.shares.sum(axis=1)
    n = len(problem) // 2
    np.testing.assert_allclose(got[:n], got[n:], rtol=1e-5, atol=1e-9)


def sharing_incentive(policy: Policy, solve: Solve, seed: int) -> None:
    problem = for_policy(policy, seed, one_gpu=True, equal_weights=True)
    problem = frozen(replace(problem, age_s=np.zeros(len(problem))))
    found = ask(solve, problem)
    assert (job_rates(problem, found) >= isolated_rates(problem) * (1 - SAME)).all()


def truthful(policy: Policy, solve: Solve, seed: int) -> None:
    problem = for_policy(policy, seed)
    rng = np.random.default_rng(seed + 1)
    i = int(rng.integers(len(problem)))
    said = problem.throughput.copy()
    said[i] *= rng.uniform(0.2, 5, said.shape[1])
    honest = job_rates(problem, ask(solve, problem))[i]
    lying = job_rates(problem, ask(solve, frozen(replace(problem, throughput=said))))[i]
    assert lying <= honest * (1 + SAME)


def work_conserving(policy: Policy, solve: Solve, seed: int) -> None:
    """No job with time to spare runs on a type with workers to spare (whole ones: as many as it needs)."""
    problem = for_policy(policy, seed)
    found = ask(solve, problem)
    used = problem.gpus @ found.shares
    time = found.shares.sum(axis=1)
    if found.pair_shares is not None:
        used = used + problem.gpus[found.pairs[:, 0]] @ found.pair_shares
        for end in (0, 1):
            np.add.at(time, found.pairs[:, end], found.pair_shares.sum(axis=1))
    spare = problem.workers - used
    enough = spare > LEFT
    if np.isin(found.shares, (0.0, 1.0)).all():
        enough = spare >= problem.gpus[:, None]
    idle = (problem.throughput > 0) & enough & (time < 1 - LEFT)[:, None]
    assert not idle.any(), np.argwhere(idle)


def steady(policy: Policy, solve: Solve, seed: int) -> None:
    problem = for_policy(policy, seed, everywhere=True)
    a = ask(solve, problem)
    same_answer(policy, problem, a, ask(solve, replace(problem, memory=a.memory)))


CHECKS: dict[Law, Check] = {
    Law.CAPACITY: capacity,
    Law.PERMUTATION: permutation,
    Law.TYPE_ORDER: type_order,
    Law.MORE_NEVER_HURTS: more_never_hurts,
    Law.PRICE_SCALES: price_scales,
    Law.TIGHTER_NEVER_HELPS: tighter_never_helps,
    Law.EQUAL_SHARES: equal_shares,
    Law.SHARING_INCENTIVE: sharing_incentive,
    Law.TRUTHFUL: truthful,
    Law.WORK_CONSERVING: work_conserving,
    Law.STEADY: steady,
}
