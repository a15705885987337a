"""How the laws are tested for policies that choose a configuration per job; see :mod:`support.laws`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from arylcloud.planner.cluster import Choice, ElasticProblem, I
from arylcloud.planner.policies.laws import Law
from arylcloud.planner.policies.registry import Choose, Policy
from support.elastic import elastic_problem, gpus_used, rates
from support.laws import SAME

ChoiceCheck = Callable[[Policy, Choose, int], None]


def a_problem(seed: int) -> ElasticProblem:
    rng = np.random.default_rng(seed)
    jobs, types, workers = (int(rng.integers(*between)) for between in ((1, 9), (1, 4), (2, 13)))
    return elastic_problem(seed, jobs=jobs, types=types, workers=workers)


def ask(choose: Choose, problem: ElasticProblem) -> Choice:
    return choose(problem, np.random.default_rng(1))


def same_answer(policy: Policy, problem: ElasticProblem, a: Choice, b: Choice) -> None:
    if policy.sense != "none":
        assert a.objective is not None
        np.testing.assert_allclose(a.objective, b.objective, rtol=SAME, atol=1e-9)
    else:
        np.testing.assert_allclose(rates(problem, a), rates(problem, b))


def reordered(problem: ElasticProblem, jobs: I, types: I) -> ElasticProblem:
    ids = np.arange(len(problem)) if problem.job_id is None else problem.job_id
    names = ("work_left", "age_s", "run_s", "attained_gpu_s", "weight", "current", "restarts", "restart_s")
    assert problem.deadline_s is not None
    return replace(
        problem,
        worker_types=tuple(problem.worker_types[j] for j in types),
        workers=problem.workers[types],
        usd_per_hour=problem.usd_per_hour[types],
        configs=replace(problem.configs, worker_type=np.argsort(types)[problem.configs.worker_type]),
        rate=problem.rate[jobs],
        deadline_s=problem.deadline_s[jobs],
        job_id=ids[jobs],
        **{name: getattr(problem, name)[jobs] for name in names},
    )


def capacity(policy: Policy, choose: Choose, seed: int) -> None:
    problem = a_problem(seed)
    found = ask(choose, problem)
    for choice in (found, ask(choose, replace(problem, memory=found.memory))):
        assert choice.config.shape == (len(problem),)
        assert (gpus_used(problem, choice) <= problem.workers).all()
        assert (rates(problem, choice)[choice.config >= 0] > 0).all()


def permutation(policy: Policy, choose: Choose, seed: int) -> None:
    problem = a_problem(seed)
    rng = np.random.default_rng(seed + 1)
    jobs, types = rng.permutation(len(problem)), rng.permutation(len(problem.workers))
    found = ask(choose, reordered(problem, jobs, types))
    same_answer(policy, problem, ask(choose, problem), replace(found, config=found.config[np.argsort(jobs)]))


def type_order(policy: Policy, choose: Choose, seed: int) -> None:
    problem = a_problem(seed)
    types = np.random.default_rng(seed + 1).permutation(len(problem.workers))
    found = ask(choose, reordered(problem, np.arange(len(problem)), types))
    same_answer(policy, problem, ask(choose, problem), found)


def more_never_hurts(policy: Policy, choose: Choose, seed: int) -> None:
    problem = a_problem(seed)
    workers = problem.workers.copy()
    workers[int(np.random.default_rng(seed + 1).integers(len(workers)))] += 1
    less, more = ask(choose, problem).objective, ask(choose, replace(problem, workers=workers)).objective
    assert policy.sense == "max"
    assert less is not None
    assert more is not None
    assert less <= more + SAME * abs(more)


def price_scales(policy: Policy, choose: Choose, seed: int) -> None:
    problem = a_problem(seed)
    dearer = replace(problem, usd_per_hour=problem.usd_per_hour * 3)
    np.testing.assert_array_equal(ask(choose, problem).config, ask(choose, dearer).config)


def work_conserving(policy: Policy, choose: Choose, seed: int) -> None:
    """No job waits while the smallest way to run it is free, on any type."""
    problem = a_problem(seed)
    found = ask(choose, problem)
    free = problem.workers - gpus_used(problem, found)
    fits = (problem.rate > 0) & (problem.configs.gpus <= free[problem.configs.worker_type])
    assert not fits[found.config < 0].any()


def steady(policy: Policy, choose: Choose, seed: int) -> None:
    problem = a_problem(seed)
    found = ask(choose, problem)
    same_answer(policy, problem, found, ask(choose, replace(problem, memory=found.memory)))


CHOICE_CHECKS: dict[Law, ChoiceCheck] = {
    Law.CAPACITY: capacity,
    Law.PERMUTATION: permutation,
    Law.TYPE_ORDER: type_order,
    Law.MORE_NEVER_HURTS: more_never_hurts,
    Law.PRICE_SCALES: price_scales,
    Law.WORK_CONSERVING: work_conserving,
    Law.STEADY: steady,
}
"""The other laws are about fractions of time, or about deadlines that are kept or not."""
