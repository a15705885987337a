"""What each policy for elastic jobs promises beyond the common laws (test_laws.py)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.elastic import elastic_problem, gpus_used, rates

from arylcloud.planner.cluster import Choice, ElasticProblem
from arylcloud.planner.policies.afs_l import afs_l
from arylcloud.planner.policies.aryl import aryl
from arylcloud.planner.policies.elasticflow import elasticflow
from arylcloud.planner.policies.optimus import optimus
from arylcloud.planner.policies.pollux import pollux, speedup
from arylcloud.planner.policies.pop import partitioned_choice
from arylcloud.planner.policies.registry import POLICIES
from arylcloud.planner.policies.sia import sia
from arylcloud.planner.policies.tiresias import DEMOTED_AT_GPU_S, tiresias

RNG = np.random.default_rng(0)
SEEDS = st.integers(0, 2**32 - 1)
CHOICES = sorted(name for name, policy in POLICIES.items() if policy.kind == "choices")


def fresh(seed: int, **sizes: int) -> ElasticProblem:
    """Jobs that hold nothing yet and change for free."""
    problem = elastic_problem(seed, **sizes)
    nothing = np.full(len(problem), -1)
    return replace(
        problem, current=nothing, restart_s=np.zeros(len(problem)), restarts=np.zeros(len(problem))
    )


@pytest.mark.parametrize("name", CHOICES)
@given(seed=SEEDS, jobs=st.integers(0, 30), workers=st.integers(0, 20))
@settings(max_examples=25, deadline=None)
def test_nobody_gets_what_is_not_there(name: str, seed: int, jobs: int, workers: int) -> None:
    problem = elastic_problem(seed, jobs=jobs, workers=workers)
    choice = POLICIES[name].choose()(problem, np.random.default_rng(seed))
    assert choice.config.shape == (jobs,)
    assert (gpus_used(problem, choice) <= problem.workers).all()
    assert (rates(problem, choice)[choice.config >= 0] > 0).all()


@given(seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_sia_at_most_doubles_and_starts_small(seed: int) -> None:
    problem = elastic_problem(seed, jobs=12, workers=24)
    choice = sia(problem, RNG)
    gpus = problem.configs.gpus
    for job, config in enumerate(choice.config.tolist()):
        if config < 0:
            continue
        held = int(problem.current[job])
        mine = problem.configs.worker_type == problem.configs.worker_type[config]
        smallest = gpus[mine & (problem.rate[job] > 0)].min()
        assert gpus[config] <= max(smallest, 2 * gpus[held] if held >= 0 else 0)


def test_sia_moves_an_old_job_and_leaves_one_that_was_moved_often() -> None:
    """One job on the slower type, the faster free: the gain is 30 %, the restart costs 10 minutes."""
    problem = replace(
        elastic_problem(1, jobs=1, types=2, workers=1),
        rate=np.array([[1.0, 0, 0, 0, 1.3, 0, 0, 0]]),
        current=np.array([0]),
        age_s=np.array([86_400.0]),
        restart_s=np.array([600.0]),
        restarts=np.array([0]),
    )
    assert sia(problem, RNG).config.tolist() == [4]
    assert sia(replace(problem, restarts=np.array([60])), RNG).config.tolist() == [0]
    assert sia(replace(problem, age_s=np.array([900.0])), RNG).config.tolist() == [0]


def test_pollux_ignores_the_type_and_splits_by_marginal_speedup() -> None:
    problem = fresh(2, jobs=2, types=1, workers=8)
    gpus = problem.configs.gpus.astype(float)
    problem = replace(problem, rate=np.stack([100 * gpus**0.5, gpus**0.95]))
    assert speedup(problem)[0] == pytest.approx(gpus**0.5)
    choice = pollux(problem, RNG)
    sizes = (0, 1, 2, 4, 8)
    best = max(a**0.5 + b**0.95 for a in sizes for b in sizes if a + b <= 8)
    assert choice.objective == pytest.approx(best)


def run_to_the_end(problem: ElasticProblem) -> tuple[np.ndarray, set[int]]:
    """When each job ends under elasticflow, decided anew at every end, and who was admitted at first."""
    assert problem.deadline_s is not None
    n, now = len(problem), 0.0
    left, held, ends = problem.work_left.copy(), problem.current.copy(), np.full(n, np.inf)
    alive, memory, admitted = np.arange(n), None, None
    while len(alive):
        view = replace(
            problem,
            **{
                name: getattr(problem, name)[alive]
                for name in ("rate", "age_s", "run_s", "attained_gpu_s", "weight", "restarts", "restart_s")
            },
            work_left=left[alive],
            current=held[alive],
            deadline_s=problem.deadline_s[alive] - now,
            job_id=alive,
            memory=memory,
        )
        choice = elasticflow(view, RNG)
        memory = choice.memory
        assert choice.refused is not None
        if admitted is None:
            admitted = set(range(n)) - set(choice.refused.tolist())
        rate = rates(view, choice)
        step = float((left[alive][rate > 0] / rate[rate > 0]).min())
        done = (rate > 0) & (left[alive] - rate * step <= 1e-9 * problem.work_left[alive])
        left[alive] -= rate * step
        now += step
        ends[alive[done]] = now
        held[alive] = choice.config
        alive = alive[~done]
    assert admitted is not None
    return ends, admitted


@given(seed=SEEDS, jobs=st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_elasticflow_keeps_every_promise(seed: int, jobs: int) -> None:
    problem = fresh(seed, jobs=jobs, workers=8)
    fastest = problem.rate.max(axis=1)
    loose = np.random.default_rng(seed).uniform(1.1, 12, jobs)
    deadline = problem.work_left / np.maximum(fastest, 1e-9) * loose
    problem = replace(problem, deadline_s=deadline, rate=np.maximum(problem.rate, 1e-3))
    ends, admitted = run_to_the_end(problem)
    late = [job for job in admitted if ends[job] > deadline[job] * (1 + 1e-6)]
    assert late == []


def test_elasticflow_refuses_what_cannot_be_kept_and_says_who() -> None:
    problem = fresh(3, jobs=2, types=1, workers=1)
    gpus = problem.configs.gpus.astype(float)
    problem = replace(
        problem,
        rate=np.stack([gpus, gpus]),
        work_left=np.array([100.0, 100.0]),
        deadline_s=np.array([100.0, 150.0]),
    )
    choice = elasticflow(problem, RNG)
    assert choice.refused is not None
    assert choice.refused.tolist() == [1]
    assert choice.config.tolist() == [0, -1]
    later = elasticflow(replace(problem, deadline_s=np.array([100.0, 200.0])), RNG)
    assert later.refused is not None
    assert later.refused.tolist() == []
    assert later.config.tolist() == [0, -1]  # admitted: it starts when the first has ended


def test_elasticflow_takes_what_is_free_before_what_costs() -> None:
    problem = fresh(3, jobs=1, types=2, workers=4)
    problem = replace(
        problem,
        rate=problem.configs.gpus[None, :].astype(float),
        work_left=np.array([100.0]),
        deadline_s=np.array([100.0]),
        usd_per_hour=np.array([0.0, 0.2]),
    )
    for prices, kind in (([0.0, 0.2], 0), ([0.2, 0.0], 1)):
        chosen = elasticflow(replace(problem, usd_per_hour=np.array(prices)), RNG).config
        assert problem.configs.worker_type[chosen].tolist() == [kind]


def test_optimus_gives_the_next_gpu_to_whom_it_saves_most() -> None:
    """Two jobs of linear scaling, 4 GPUs: the long one gets what is left of the base."""
    problem = fresh(4, jobs=2, types=1, workers=5)
    gpus = problem.configs.gpus.astype(float)
    problem = replace(problem, rate=np.stack([gpus, gpus]), work_left=np.array([1000.0, 10.0]))
    choice = optimus(problem, RNG)
    assert problem.configs.gpus[choice.config].tolist() == [4, 1]


def test_afs_l_serves_the_short_first_and_the_scalable_more() -> None:
    problem = fresh(5, jobs=2, types=1, workers=2)
    gpus = problem.configs.gpus.astype(float)
    short = replace(
        problem, rate=np.stack([gpus, gpus]), work_left=np.array([1000.0, 10.0]), workers=np.ones(1)
    )
    assert afs_l(short, RNG).config.tolist() == [-1, 0]
    flat = replace(
        problem, rate=np.stack([gpus**0.01, gpus]), work_left=np.array([10.0, 10.0]), workers=np.full(1, 3.0)
    )
    assert problem.configs.gpus[afs_l(flat, RNG).config].tolist() == [1, 2]


def test_tiresias_demotes_by_service_and_then_goes_by_arrival() -> None:
    problem = fresh(6, jobs=3, types=1, workers=2)
    problem = replace(
        problem,
        rate=np.ones_like(problem.rate),
        age_s=np.array([300.0, 200.0, 100.0]),
        attained_gpu_s=np.array([DEMOTED_AT_GPU_S, 0.0, 0.0]),
    )
    assert tiresias(problem, RNG).config.tolist() == [-1, 0, 0]


def test_aryl_reproduces_its_worked_example() -> None:
    """Two jobs, 2–6 workers, linear, 100 and 20 worker-hours left, 4 GPUs beyond the base: 33.3 h saved."""
    sizes = np.arange(2, 7)
    problem = fresh(7, jobs=2, types=1, workers=8)
    problem = replace(
        problem,
        configs=replace(problem.configs, worker_type=np.zeros(5, int), gpus=sizes, nodes=np.ones(5, int)),
        rate=np.tile(sizes.astype(float), (2, 1)),
        work_left=np.array([100.0, 20.0]),
    )
    choice = aryl(problem, RNG)
    assert choice.objective == pytest.approx(100 / 3)
    assert gpus_used(problem, choice).tolist() == [8]


def test_aryl_does_not_change_a_job_for_less_than_the_change_costs() -> None:
    sizes = np.array([1, 2])
    problem = fresh(8, jobs=1, types=1, workers=2)
    problem = replace(
        problem,
        configs=replace(problem.configs, worker_type=np.zeros(2, int), gpus=sizes, nodes=np.ones(2, int)),
        rate=np.array([[1.0, 2.0]]),
        work_left=np.array([100.0]),
        current=np.array([0]),
        restart_s=np.array([49.0]),
    )
    assert aryl(problem, RNG).config.tolist() == [1]
    assert aryl(replace(problem, restart_s=np.array([51.0])), RNG).config.tolist() == [0]


@given(seed=SEEDS, parts=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_random_parts_are_feasible_and_no_better_than_the_whole(seed: int, parts: int) -> None:
    problem = fresh(seed, jobs=20, workers=16)
    whole = sia(problem, RNG)
    split = partitioned_choice(sia, problem, parts, np.random.default_rng(seed))
    assert (gpus_used(problem, split) <= problem.workers).all()
    assert whole.objective is not None
    assert split.objective is not None
    assert split.objective <= whole.objective + 1e-9
    if parts == 1:
        assert split.objective == pytest.approx(whole.objective)


def test_the_same_question_twice_has_one_answer() -> None:
    for name in CHOICES:
        problem = elastic_problem(11, jobs=30)
        answers: list[Choice] = [POLICIES[name].choose()(problem, np.random.default_rng(5)) for _ in range(2)]
        assert answers[0].config.tolist() == answers[1].config.tolist()
