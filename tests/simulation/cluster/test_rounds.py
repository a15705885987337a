"""What holds in every simulation, whatever the policy: no step is lost or invented, no GPU is used twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from support.naive_rounds import given, small_cluster

from arylcloud.core.errors import InfeasibleError, UsageError
from arylcloud.planner.cluster import Allocation
from arylcloud.planner.policies.registry import POLICIES, Policy, policy
from arylcloud.simulation.cluster.metrics import metrics
from arylcloud.simulation.cluster.outcome import Outcome, Round
from arylcloud.simulation.cluster.simulate import Settings, simulate
from arylcloud.simulation.cluster.workload import Workload

EVERY = ["fifo", "isolated", "gandiva", "max_min_fairness_perf", "srtf", "sia", "tiresias", "elasticflow"]


def run(
    jobs: Workload, entry: Policy, workers: list[int], order: list[int], settings: Settings | None = None
) -> tuple[Outcome, list[Round]]:
    rounds: list[Round] = []
    found = simulate(
        jobs, entry, np.array(workers), np.ones(3), tuple(order), settings or Settings(), record=rounds.append
    )
    return found, rounds


@pytest.mark.parametrize("restart_s", [0.0, 60.0])
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("seed", [3, 4])
def test_steps_time_and_gpus_are_conserved(name: str, seed: int, restart_s: float) -> None:
    entry = policy(name)
    jobs, workers, order = small_cluster(seed, packs=entry.packs)
    jobs = replace(
        jobs, rate=np.maximum(jobs.rate, 0.05)
    )  # FIFO may hold a job on a type that does not run it
    found, rounds = run(jobs, entry, workers, order, Settings(restart_s=restart_s))
    done = np.zeros(len(jobs))
    held = np.zeros(3)
    ran = np.zeros(len(jobs))
    for before, now in zip([None, *rounds], rounds, strict=False):
        assert before is None or now.start_s >= before.end_s
        assert now.end_s - now.start_s <= 360.0 + 1e-9
        assert len(np.unique(now.job)) == len(now.job), "a job is in one place"
        assert (jobs.arrival_s[now.job] <= now.start_s).all(), "nobody runs before they come"
        first = np.unique(now.unit, return_index=True)[1]
        used = np.bincount(now.worker_type[first], now.gpus[first], 3)
        assert (used <= workers).all(), "no GPU is used twice"
        assert (np.bincount(now.unit) <= 2).all(), "two share GPUs, never three"
        assert (now.steps == np.floor(now.steps)).all()
        assert (now.steps >= 0).all()
        done[now.job] += now.steps
        ran[now.job] += 1
        held += used
    assert (done == jobs.steps).all(), "every step once"
    assert len(rounds) == found.rounds
    assert np.isfinite(found.finish_s).all()
    assert found.end_s >= found.finish_s.max()
    assert (found.run_s <= ran * 360.0 + 1e-6).all()
    best = jobs.rate.max(axis=1)[jobs.job_class]
    if entry.kind == "shares":
        assert (found.finish_s - jobs.arrival_s >= jobs.steps / best - 1e-6).all(), "faster than the fastest"
    assert metrics(found).queue_h >= -1e-9


@pytest.mark.parametrize("name", EVERY)
def test_the_same_seed_is_the_same_run(name: str) -> None:
    entry = policy(name)
    jobs, workers, order = small_cluster(7, packs=entry.packs)
    one, two = (run(jobs, entry, workers, order)[0] for _ in range(2))
    assert one.finish_s.tobytes() == two.finish_s.tobytes()
    assert one.held_gpu_s.tobytes() == two.held_gpu_s.tobytes()


def test_a_restart_costs_what_it_costs() -> None:
    """A job that holds its GPU throughout is never restarted; two that take turns are each time."""
    jobs, _, order = small_cluster(0, packs=False, n=2)
    jobs = replace(
        jobs,
        job_class=np.zeros(2, np.int64),
        gpus=np.ones(2, np.int64),
        arrival_s=np.zeros(2),
        steps=np.array([3600.0, 3600.0]),
        rate=np.ones_like(jobs.rate),
    )

    def turns(problem, rng):  # type: ignore[no-untyped-def]
        return Allocation(shares=np.full((len(problem), 3), 0.5))

    entry = given(turns)
    plain, _ = run(jobs, entry, [1, 0, 0], order)
    dear, rounds = run(jobs, entry, [1, 0, 0], order, Settings(restart_s=36.0))
    assert plain.end_s == 7200.0
    restarts = sum(int(r.restarted.sum()) for r in rounds) - 2  # the first start of each is none
    assert dear.end_s == pytest.approx(7200.0 + 36.0 * restarts)
    assert restarts == dear.preemptions.sum() > 2
    alone, _ = run(
        replace(jobs, arrival_s=np.array([0.0, 5000.0])), entry, [1, 0, 0], order, Settings(restart_s=36.0)
    )
    assert alone.finish_s[0] == 3600.0
    assert alone.preemptions.sum() == 0


@pytest.mark.parametrize(("since", "later_s"), [("arrival", 0.0), ("dispatch", 260.0)])
def test_from_when_a_deadline_counts(since: Literal["arrival", "dispatch"], later_s: float) -> None:
    """The second job comes 100 s into the first round: dispatched 260 s later. Misses count from arrival."""
    jobs, _, order = small_cluster(0, packs=False, n=2)
    jobs = replace(
        jobs,
        job_class=np.zeros(2, np.int64),
        gpus=np.ones(2, np.int64),
        arrival_s=np.array([0.0, 100.0]),
        steps=np.array([7200.0, 7200.0]),
        rate=np.ones_like(jobs.rate),
        deadline_s=np.array([np.inf, 7300.0]),
    )
    seen: list[float] = []

    def told(problem, rng):  # type: ignore[no-untyped-def]
        if len(problem) == 2:
            seen.append(float(problem.age_s[1] + problem.deadline_s[1]))
        return Allocation(shares=np.ones((len(problem), 3)))

    entry = replace(given(told), deadlines=True)
    found, _ = run(jobs, entry, [2, 0, 0], order, Settings(deadline_from=since))
    assert seen == [pytest.approx(7200.0 + later_s)]
    assert metrics(found).slo_violations == 1


def test_a_pair_runs_at_its_own_rates() -> None:
    jobs, _, order = small_cluster(0, packs=True, n=2)
    shared = np.zeros((4, 4, 3))
    shared[0, 1, 0], shared[1, 0, 0] = 0.5, 0.25
    jobs = replace(
        jobs,
        job_class=np.array([0, 1]),
        gpus=np.ones(2, np.int64),
        arrival_s=np.zeros(2),
        steps=np.array([180.0, 90.0]),
        rate=np.ones((4, 3)),
        shared=shared,
    )

    def both(problem, rng):  # type: ignore[no-untyped-def]
        n = len(problem)
        if n < 2:
            return Allocation(shares=np.ones((n, 3)))
        return Allocation(
            shares=np.zeros((2, 3)), pairs=np.array([[0, 1]]), pair_shares=np.array([[1.0, 0.0, 0.0]])
        )

    found, rounds = run(jobs, given(both, packs=True), [1, 0, 0], order)
    assert len(rounds) == 1
    assert found.finish_s.tolist() == [360.0, 360.0]
    assert found.held_gpu_s.tolist() == [360.0, 0.0, 0.0], "one GPU"
    assert found.charged_gpu_s.tolist() == [720.0, 0.0, 0.0], "charged to both, as Gavel counts"


def test_a_window_is_measured_over_its_jobs_and_ends_with_them() -> None:
    jobs, workers, order = small_cluster(5, packs=False)
    whole, _ = run(jobs, policy("isolated"), workers, order)
    part = simulate(
        jobs, policy("isolated"), np.array(workers), np.ones(3), tuple(order), Settings(), window=(2, 5)
    )
    assert part.finish_s[2:5].tolist() == whole.finish_s[2:5].tolist()
    assert part.end_s <= whole.end_s
    assert metrics(part, window=(2, 5)).jobs == 3


def test_a_stream_is_read_as_far_as_it_is_needed() -> None:
    jobs, workers, order = small_cluster(5, packs=False)
    asked: list[int] = []

    def source(n: int) -> Workload:
        asked.append(n)
        keep = slice(0, n)
        return replace(
            jobs,
            names=jobs.names[:n],
            **{
                field: getattr(jobs, field)[keep]
                for field in ("job_class", "gpus", "steps", "arrival_s", "weight", "deadline_s")
            },
        )

    found = simulate(
        source, policy("isolated"), np.array(workers), np.ones(3), tuple(order), Settings(), window=(0, 3)
    )
    whole, _ = run(jobs, policy("isolated"), workers, order)
    assert asked[0] == 4
    assert found.finish_s[:3].tolist() == whole.finish_s[:3].tolist()


def test_more_gpus_than_jobs_means_no_waiting() -> None:
    jobs, _, order = small_cluster(1, packs=False)
    jobs = replace(jobs, rate=np.ones_like(jobs.rate))
    found, _ = run(jobs, policy("max_min_fairness"), [100, 100, 100], order)
    # whole steps only: at one step a second nothing is cut; what is left is the wait for a round and a reset
    assert (found.run_s == jobs.steps).all()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"round_s": 0.0}, "round"),
        ({"round_s": float("nan")}, "round"),
        ({"restart_s": 360.0}, "restart"),
        ({"restart_s": -1.0}, "restart"),
    ],
)
def test_settings_without_sense(change: dict[str, float], word: str) -> None:
    jobs, workers, order = small_cluster(1, packs=False)
    with pytest.raises(UsageError, match=word):
        run(jobs, policy("isolated"), workers, order, Settings(**change))  # type: ignore[arg-type]


def test_a_job_that_fits_nowhere_is_named() -> None:
    jobs, _, order = small_cluster(1, packs=False)
    with pytest.raises(UsageError, match="job 0 on"):
        run(replace(jobs, rate=jobs.rate * 0 + 0.001), policy("isolated"), [9, 9, 9], order)
    with pytest.raises(UsageError, match="window"):
        simulate(jobs, policy("isolated"), np.full(3, 9), np.ones(3), (0, 1, 2), Settings(), window=(3, 99))


def test_a_policy_that_starves_is_an_error() -> None:
    jobs, workers, order = small_cluster(1, packs=False)

    def nothing(problem, rng):  # type: ignore[no-untyped-def]
        return Allocation(shares=np.zeros((len(problem), 3)))

    with pytest.raises(InfeasibleError, match="waiting for ever"):
        run(jobs, given(nothing, fifo=True), workers, order)


def test_gpus_left_over_go_as_the_policy_says() -> None:
    """Two jobs have no share on the fast type; the one that the policy prefers gets it."""
    jobs, _, _ = small_cluster(0, packs=False, n=2)
    jobs = replace(
        jobs,
        job_class=np.zeros(2, np.int64),
        gpus=np.ones(2, np.int64),
        arrival_s=np.zeros(2),
        steps=np.full(2, 360.0),
        rate=np.ones_like(jobs.rate),
    )
    for cheaper in (0, 1):

        def costs(problem, rng, cheaper=cheaper):  # type: ignore[no-untyped-def]
            shares = np.zeros((2, 3))
            shares[:, 1] = 1.0
            spare = np.array([[1.0, 0.0, 1.0]] * 2)
            spare[cheaper, 0] = 10.0
            return Allocation(shares=shares, spare=spare)

        _, rounds = run(jobs, given(costs), [1, 1, 0], [0, 1, 2])
        assert rounds[0].worker_type[rounds[0].job.tolist().index(cheaper)] == 0


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_of_the_registry_finishes_a_small_trace(name: str) -> None:
    jobs, workers, order = small_cluster(11, packs=True, n=8)
    jobs = replace(
        jobs, rate=np.maximum(jobs.rate, 0.05), gpus=np.ones(8, np.int64), job_class=jobs.job_class % 3
    )
    found, _ = run(jobs, policy(name), [max(w, 2) for w in workers], order)
    assert np.isfinite(found.finish_s).all()
