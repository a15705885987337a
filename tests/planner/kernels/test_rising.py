"""Rates that rise: against the rule carried out with one plain program after another, also by entities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clusters import cluster_problem
from support.lps import Columns, at_least, columns, largest

from arylcloud.planner.cluster import ClusterProblem, F, job_rates, violation
from arylcloud.planner.policies import water_filling

SEEDS = st.integers(0, 2**32 - 1)


def unit(problem: ClusterProblem) -> F:
    """(n,) steps/s of ρ·s = 1."""
    return problem.throughput @ problem.workers / problem.workers.sum() / problem.gpus


@settings(max_examples=40)
@given(seed=SEEDS)
def test_levels_with_weights_of_their_own(seed: int) -> None:
    """With pairs: test_optimal.py."""
    problem = cluster_problem(seed)
    rng = np.random.default_rng(seed)
    problem = replace(problem, weight=10 ** rng.uniform(-0.7, 0.7, len(problem)))
    if not (unit(problem) > 0).all():
        return
    found = water_filling.perf(problem, rng)
    assert violation(problem, found) <= 1e-9
    assert isinstance(found.objective, tuple)
    slope = problem.weight * unit(problem)
    np.testing.assert_allclose(np.sort(job_rates(problem, found) / slope), found.objective, rtol=1e-9)
    # the definition: nobody has more without a loss to someone who has no more than he
    lp, level = columns(problem), job_rates(problem, found) / slope
    for i in range(len(problem)):
        needs = np.minimum(level, level[i]) * slope * (1 - 1e-8)
        best = largest(lp, lp.rate[i], rows=at_least(lp, needs, np.zeros(len(problem))))
        assert best is not None
        assert best <= level[i] * slope[i] * (1 + 1e-3)  # what 1e-8 of the others' may buy


def speeds(problem: ClusterProblem, still: np.ndarray) -> F:
    """(n,) in ρ·s per unit of time: Gavel's two levels, as in its §4.3."""
    speed = np.zeros(len(problem))
    assert problem.entity is not None
    assert problem.entity_weight is not None
    for e, policy in enumerate(problem.entity_policy):
        jobs = np.flatnonzero((problem.entity == e) & still)
        if not len(jobs):
            continue
        if policy == "fifo":
            speed[jobs[0]] = problem.entity_weight[e]
        else:
            own = problem.weight[jobs]
            speed[jobs] = problem.entity_weight[e] * own / own.sum()
    return speed


def climbed(problem: ClusterProblem) -> F:
    """(n,) rates of the rule itself: all rise as far as they can together, who cannot alone is out."""
    lp: Columns = columns(problem)
    none = np.zeros(lp.rate.shape[1])
    n = len(problem)
    rate, still = np.zeros(n), np.ones(n, dtype=bool)
    while still.any():
        direction = speeds(problem, still) * unit(problem)
        t = largest(lp, none, t=1.0, rows=at_least(lp, rate * (1 - 1e-7), direction))
        assert t is not None
        moved = t * direction > 1e-7 * np.maximum(rate, 1e-4 * unit(problem))
        rate = rate + t * direction
        gains = np.full(n, np.inf)
        for i in np.flatnonzero(direction > 0):
            best = largest(lp, lp.rate[i], rows=at_least(lp, rate * (1 - 1e-7), np.zeros(n)))
            assert best is not None
            gains[i] = (best - rate[i]) / max(rate[i], 1e-4 * unit(problem)[i])
        still &= gains > 1e-4
        if not moved.any():
            still[gains.argmin()] = False  # the solver's rounding is what seems to be left
    return rate


@settings(max_examples=25)
@given(seed=SEEDS)
def test_entities_climb_by_their_own_rules(seed: int) -> None:
    problem = cluster_problem(seed, everywhere=True)
    rng = np.random.default_rng(seed)
    entity = rng.integers(0, 3, len(problem))
    problem = replace(
        problem,
        entity=entity,
        entity_weight=rng.choice([1.0, 2.0, 5.0], 3),
        entity_policy=tuple(rng.choice(["fairness", "fifo"], 3).tolist()),
    )
    found = water_filling.perf(problem, rng)
    assert violation(problem, found) <= 1e-9
    rates, truth = job_rates(problem, found), climbed(problem)
    # who never had his turn may still be given what would lie idle
    rose = truth > 1e-3 * unit(problem)
    np.testing.assert_allclose(
        rates[rose], truth[rose], rtol=1e-4
    )  # the rule's own test of who is out is that coarse
    assert (rates >= truth - 1e-3 * unit(problem)).all()


def test_an_entity_keeps_what_its_stopped_job_leaves() -> None:
    """Two entities of equal weight: the one with one job can use one worker; two are left for the other's."""
    problem = ClusterProblem(
        worker_types=("a100",),
        workers=np.array([3.0]),
        throughput=np.array([[1.0], [1.0], [2.0], [2.0]])[:3],
        gpus=np.ones(3),
        weight=np.array([1.0, 1.0, 3.0]),
        usd_per_hour=np.ones(1),
        steps_left=np.ones(3),
        age_s=np.zeros(3),
        entity=np.array([0, 1, 1]),
        entity_weight=np.ones(2),
        entity_policy=("fairness", "fairness"),
    )
    found = water_filling.perf(problem, np.random.default_rng(0))
    np.testing.assert_allclose(found.shares.ravel(), [1.0, 1.0, 1.0], atol=1e-8)
    tight = replace(problem, workers=np.array([1.0]))
    found = water_filling.perf(tight, np.random.default_rng(0))
    np.testing.assert_allclose(found.shares.ravel(), [0.5, 0.125, 0.375], atol=1e-8)


@pytest.mark.parametrize("workers", [50.0, 70.0, 200.0])
def test_few_programs_for_many_jobs(workers: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of levels; a handful of programs."""
    rng = np.random.default_rng(1)
    rate = rng.uniform(0.3, 10, (8, 3))
    of = rng.integers(0, 8, 200)
    problem = ClusterProblem(
        worker_types=("k80", "p100", "v100"),
        workers=np.full(3, workers),
        throughput=rate[of],
        gpus=np.ones(200),
        weight=rng.uniform(0.5, 5, 200),
        usd_per_hour=np.ones(3),
        steps_left=np.ones(200),
        age_s=np.zeros(200),
    )
    programs = []
    real = water_filling.rise

    def counted(*args, **kwargs):
        found = real(*args, **kwargs)
        programs.append((found.programs, found.phases))
        return found

    monkeypatch.setattr(water_filling, "rise", counted)
    found = water_filling.perf(problem, rng)
    assert violation(problem, found) <= 1e-9
    ((solved, phases),) = programs
    assert solved <= 20
    assert phases <= 4
