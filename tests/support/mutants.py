"""Wrong policies: at least one for each law, which its check must catch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arylcloud.planner.cluster import (
    Allocation,
    Choice,
    ClusterProblem,
    ElasticProblem,
    isolated_rates,
    isolated_shares,
)
from arylcloud.planner.policies.laws import Law
from arylcloud.planner.policies.registry import POLICIES, Choose, Solve

Rng = np.random.Generator


def of(name: str, problem: ClusterProblem, rng: Rng) -> Allocation:
    return POLICIES[name].solve()(problem, rng)


def all_of_the_cluster_for_each(problem: ClusterProblem, rng: Rng) -> Allocation:
    return of("proportional", problem, rng)


def all_its_time_for_each(problem: ClusterProblem, rng: Rng) -> Allocation:
    return Allocation(shares=np.eye(len(problem.workers))[problem.throughput.argmax(axis=1)])


def less_for_the_first(problem: ClusterProblem, rng: Rng) -> Allocation:
    shares = isolated_shares(problem)
    shares[0] /= 2
    return Allocation(shares=shares)


def what_fits_first(problem: ClusterProblem, rng: Rng) -> Allocation:
    """In the order of the columns."""
    free, shares = problem.workers.copy(), np.zeros(problem.throughput.shape)
    for i, gpus in enumerate(problem.gpus):
        fits = np.flatnonzero((free >= gpus) & (problem.throughput[i] > 0))
        if len(fits):
            shares[i, fits[0]] = 1
            free[fits[0]] -= gpus
    return Allocation(shares=shares)


def even_numbers_of_workers(problem: ClusterProblem, rng: Rng) -> Allocation:
    workers = np.where(problem.workers % 2 == 0, problem.workers, problem.workers - 1)
    workers[problem.workers == 3] = 1
    return of("max_sum_throughput_perf", replace(problem, workers=workers), rng)


def a_fee_on_every_price(problem: ClusterProblem, rng: Rng) -> Allocation:
    dearer = replace(problem, own_usd_per_hour=problem.prices + 1)
    return of("max_sum_throughput_normalized_by_cost_perf", dearer, rng)


def fairness_in_dollars(problem: ClusterProblem, rng: Rng) -> Allocation:
    weight = problem.weight * (1 + problem.usd_per_hour.mean())
    weight[0] = problem.weight[0]
    return of("max_min_fairness_perf", replace(problem, weight=weight), rng)


def forget_who_is_in_a_hurry(problem: ClusterProblem, rng: Rng) -> Allocation:
    assert problem.deadline_s is not None
    hurry = problem.deadline_s * isolated_rates(problem) < problem.steps_left
    relaxed = replace(problem, deadline_s=np.where(hurry, np.inf, problem.deadline_s))
    return of("max_sum_throughput_normalized_by_cost_perf_SLOs", relaxed, rng)


def less_for_the_last(problem: ClusterProblem, rng: Rng) -> Allocation:
    found = of("max_min_fairness_perf", problem, rng)
    shares = found.shares.copy()
    shares[-1] *= 0.9
    return replace(found, shares=shares)


def nine_tenths(problem: ClusterProblem, rng: Rng) -> Allocation:
    return Allocation(shares=isolated_shares(problem) * 0.9)


def the_sum_above_all(problem: ClusterProblem, rng: Rng) -> Allocation:
    return of("max_sum_throughput_perf", problem, rng)


def fairness_as_one_says(problem: ClusterProblem, rng: Rng) -> Allocation:
    return of("max_min_fairness_perf", problem, rng)


def the_last_waits(problem: ClusterProblem, rng: Rng) -> Allocation:
    shares = of("sjf", problem, rng).shares.copy()
    shares[-1] = 0
    return Allocation(shares=shares)


def an_equal_part_and_no_more(problem: ClusterProblem, rng: Rng) -> Allocation:
    return Allocation(shares=isolated_shares(problem))


def half_from_memory(problem: ClusterProblem, rng: Rng) -> Allocation:
    found = of("max_min_fairness_perf", replace(problem, memory=None), rng)
    assert isinstance(found.objective, float)
    half = problem.memory is not None
    return replace(found, objective=found.objective / (2 if half else 1), memory="seen")


MUTANTS: dict[Law, list[tuple[str, Solve]]] = {
    Law.CAPACITY: [("isolated", all_of_the_cluster_for_each), ("sjf", all_its_time_for_each)],
    Law.PERMUTATION: [("isolated", less_for_the_first), ("sjf", what_fits_first)],
    Law.TYPE_ORDER: [("fifo_perf", what_fits_first)],
    Law.MORE_NEVER_HURTS: [("max_sum_throughput_perf", even_numbers_of_workers)],
    Law.PRICE_SCALES: [
        ("max_sum_throughput_normalized_by_cost_perf", a_fee_on_every_price),
        ("max_min_fairness_perf", fairness_in_dollars),
    ],
    Law.TIGHTER_NEVER_HELPS: [("max_sum_throughput_normalized_by_cost_perf_SLOs", forget_who_is_in_a_hurry)],
    Law.EQUAL_SHARES: [("max_min_fairness_perf", less_for_the_last), ("isolated", what_fits_first)],
    Law.SHARING_INCENTIVE: [("isolated", nine_tenths), ("max_min_fairness_perf", the_sum_above_all)],
    Law.TRUTHFUL: [("max_min_fairness_strategy_proof_perf", fairness_as_one_says)],
    Law.WORK_CONSERVING: [
        ("sjf", the_last_waits),
        ("max_sum_throughput_perf", an_equal_part_and_no_more),
    ],
    Law.STEADY: [("max_min_fairness_perf", half_from_memory)],
}
"""By the law that each breaks: (the policy in whose place it stands, itself)."""


def any_smallest(problem: ElasticProblem, rng: Rng) -> Choice:
    """Whether it is free or not."""
    gpus = np.where(problem.rate > 0, problem.configs.gpus, 99)
    config = gpus.argmin(axis=1)
    return Choice(config=np.where(gpus.min(axis=1) < 99, config, -1), objective=float(len(problem)))


def like(name: str, problem: ElasticProblem, rng: Rng) -> Choice:
    return POLICIES[name].choose()(problem, rng)


def the_first_has_to_wait(problem: ElasticProblem, rng: Rng) -> Choice:
    config = like("optimus", problem, rng).config.copy()
    config[0] = -1
    return Choice(config=config)


def only_the_first_type(problem: ElasticProblem, rng: Rng) -> Choice:
    other = problem.configs.worker_type > 0
    return like("optimus", replace(problem, rate=np.where(other, 0.0, problem.rate)), rng)


def worse_the_more_there_is(problem: ElasticProblem, rng: Rng) -> Choice:
    found = like("sia", problem, rng)
    assert found.objective is not None
    return replace(found, objective=found.objective / problem.workers.sum())


def only_what_is_cheap(problem: ElasticProblem, rng: Rng) -> Choice:
    dear = problem.usd_per_hour[problem.configs.worker_type] > 2
    return like("optimus", replace(problem, rate=np.where(dear, 0.0, problem.rate)), rng)


def nobody_a_second_time(problem: ElasticProblem, rng: Rng) -> Choice:
    if problem.memory is not None:
        return Choice(config=np.full(len(problem), -1))
    return replace(like("optimus", problem, rng), memory="seen")


CHOICE_MUTANTS: dict[Law, list[tuple[str, Choose]]] = {
    Law.CAPACITY: [("optimus", any_smallest)],
    Law.PERMUTATION: [("optimus", the_first_has_to_wait)],
    Law.TYPE_ORDER: [("elasticflow", only_the_first_type)],
    Law.MORE_NEVER_HURTS: [("sia", worse_the_more_there_is)],
    Law.PRICE_SCALES: [("optimus", only_what_is_cheap)],
    Law.WORK_CONSERVING: [("optimus", the_first_has_to_wait)],
    Law.STEADY: [("optimus", nobody_a_second_time)],
}
