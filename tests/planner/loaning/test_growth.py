"""Phase 2: values by their formulas, exact where it says so, and the baselines' rules."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from arylcloud.planner.loaning.growth import (
    RULES,
    Elastic,
    extra_workers,
    goodput,
    saved_s,
    shortest,
    split_evenly,
    tournament,
)


def _jobs(seed: int, count: int, *, restart_s: float = 0.0) -> Elastic:
    rng = np.random.default_rng(seed)
    base = rng.integers(1, 5, count)
    return Elastic(
        base=base,
        most=base.copy(),
        now=np.array([int(rng.integers(0, b + 1)) for b in base]),
        power=rng.uniform(0.2, 1.0, count),
        left_s=rng.uniform(10, 5000, count),
        restart_s=restart_s,
    )


def _worth(jobs: Elastic, units: tuple[int, ...]) -> float:
    """Seconds saved over all base, less a restart for each that changes."""
    total = 0.0
    for j, i in enumerate(units):
        n, a, left = int(jobs.base[j]), float(jobs.power[j]), float(jobs.left_s[j])
        total += left - left / (1 + i / n) ** a
        total -= jobs.restart_s * (i != jobs.now[j])
    return total


@pytest.mark.parametrize("restart_s", [0.0, 63.0, 600.0])
@pytest.mark.parametrize("seed", range(25))
def test_saved_time_against_every_choice(seed: int, restart_s: float) -> None:
    jobs = _jobs(seed, 4, restart_s=restart_s)
    capacity = int(np.random.default_rng(seed + 1000).integers(0, 12))
    found = extra_workers(jobs, capacity, saved_s)
    choices = product(*(range(int(m) + 1) for m in jobs.most))
    best = max(_worth(jobs, units) for units in choices if sum(units) <= capacity)
    assert found.sum() <= capacity
    mine = _worth(jobs, tuple(found.tolist()))
    stay = restart_s * int((jobs.now > 0).sum())  # the totals are compared from "all shrink" upwards
    assert mine + stay >= (best + stay) * (1 - 2e-3) - 1e-9


def test_the_specs_example_gives_both_splits_their_value() -> None:
    two = Elastic(
        base=np.array([2, 2]), most=np.array([4, 4]), now=np.array([0, 0]), power=np.ones(2),
        left_s=np.array([50.0, 10.0]),
    )  # fmt: skip
    found = extra_workers(two, 4, saved_s)
    assert found.tolist() in ([3, 1], [4, 0])
    assert _worth(two, tuple(found.tolist())) == pytest.approx(100 / 3)
    assert _worth(two, (2, 2)) == pytest.approx(30)


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("seed", range(10))
def test_no_rule_exceeds_capacity_or_a_jobs_most(rule: str, seed: int) -> None:
    for restart_s in (0.0, 63.0):
        jobs = _jobs(seed, 9, restart_s=restart_s)
        for capacity in (0, 1, 5, 100):
            found = extra_workers(jobs, capacity, RULES[rule])
            assert found.sum() <= capacity
            assert (found >= 0).all()
            assert (found <= jobs.most).all()
            if capacity == 100 and not restart_s:
                assert (found == jobs.most).all()


def test_a_change_that_does_not_pay_is_not_made() -> None:
    """60 s left, one worker more would save 20 s and cost 63: it stays, at whatever it has."""
    for now in (0, 1, 2):
        job = Elastic(
            base=np.array([2]), most=np.array([2]), now=np.array([now]), power=np.ones(1),
            left_s=np.array([60.0]), restart_s=63.0,
        )  # fmt: skip
        assert extra_workers(job, 8, saved_s).tolist() == [now]


def test_a_job_that_does_not_scale_gets_nothing() -> None:
    flat = Elastic(
        base=np.array([4, 4]), most=np.array([4, 4]), now=np.array([0, 0]), power=np.array([0.0, -0.2]),
        left_s=np.array([1e6, 1e6]), restart_s=0.0,
    )  # fmt: skip
    for rule in (saved_s, goodput):
        assert extra_workers(flat, 8, rule).tolist() == [0, 0]
    assert tournament(flat, 8).tolist() == [0, 0]


def test_shortest_fills_one_job_after_another() -> None:
    jobs = Elastic(
        base=np.array([2, 4, 3]), most=np.array([2, 4, 3]), now=np.zeros(3, dtype=int), power=np.ones(3),
        left_s=np.array([300.0, 100.0, 200.0]),
    )  # fmt: skip
    assert extra_workers(jobs, 6, shortest).tolist() == [0, 4, 2]


def test_even_split() -> None:
    jobs = _jobs(3, 3)
    assert split_evenly(jobs, 0).sum() == 0
    assert split_evenly(jobs, 1000).tolist() == jobs.most.tolist()
    short = split_evenly(jobs, 2)
    assert short.sum() == 2
    assert short.max() == 1


def test_two_jobs_of_afs_by_hand() -> None:
    """Linear, both of 4 GPUs: the shorter has p = 1; it wins while 1/(w_b+1) ≤ 1/w_a, so first, and until it
    is a worker ahead; then the other catches up."""
    jobs = Elastic(
        base=np.array([4, 4]), most=np.array([4, 4]), now=np.array([0, 0]), power=np.ones(2),
        left_s=np.array([100.0, 1000.0]),
    )  # fmt: skip
    assert [tournament(jobs, k).tolist() for k in (1, 2, 3, 4)] == [[1, 0], [2, 0], [2, 1], [3, 1]]
