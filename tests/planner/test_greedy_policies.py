"""The greedy and closed-form policies by example: what each does that no law says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from arylcloud.core.errors import UsageError
from arylcloud.planner.cluster import Allocation, ClusterProblem, Sharing
from arylcloud.planner.policies.registry import policy


def jobs(
    throughput: list[list[float]], workers: list[int], gpus: list[int] | None = None, **more: Any
) -> ClusterProblem:
    n, m = len(throughput), len(workers)
    given: dict[str, Any] = {
        "worker_types": ("k80", "p100", "v100")[:m],
        "workers": np.array(workers, dtype=float),
        "throughput": np.array(throughput, dtype=float).reshape(n, m),
        "gpus": np.array(gpus if gpus else [1] * n, dtype=float),
        "weight": np.ones(n),
        "usd_per_hour": np.ones(m),
        "steps_left": np.full(n, 100.0),
        "age_s": np.zeros(n),
    }
    return ClusterProblem(**{**given, **more})


def solve(name: str, problem: ClusterProblem, seed: int = 0) -> Allocation:
    return policy(name).solve()(problem, np.random.default_rng(seed))


def on(found: Allocation) -> list[int]:
    """The type of each job, -1 = waits."""
    assert np.isin(found.shares, (0, 1)).all()
    return [int(row.argmax()) if row.any() else -1 for row in found.shares]


def without(problem: ClusterProblem, gone: int, memory: object) -> ClusterProblem:
    keep = np.delete(np.arange(len(problem)), gone)
    names = ("throughput", "gpus", "weight", "steps_left", "age_s")
    rows = {name: getattr(problem, name)[keep] for name in names}
    return replace(problem, **rows, job_id=problem.ids[keep], memory=memory)


# ---------------------------------------------------------------- FIFO


def test_fifo_draws_among_the_types_with_room() -> None:
    problem = jobs([[1, 1, 1]], [1, 0, 1])
    drawn = [on(solve("fifo", problem, seed))[0] for seed in range(200)]
    assert set(drawn) == {0, 2}
    assert 60 < drawn.count(0) < 140


def test_fifo_never_uses_what_is_not_free() -> None:
    """The published code puts nearly all of 40 jobs on the 8 V100."""
    found = solve("fifo", jobs([[1, 1, 1]] * 40, [8, 8, 8]))
    np.testing.assert_array_equal(found.shares.sum(axis=0), [8, 8, 8])
    assert on(found)[24:] == [-1] * 16


def test_fifo_stays_and_the_head_of_the_queue_inherits() -> None:
    problem = jobs([[1, 1]] * 5, [2, 2])
    first = solve("fifo", problem)
    before = on(first)
    assert before[4] == -1
    for gone in range(4):
        after = on(solve("fifo", without(problem, gone, first.memory), seed=gone))
        assert after == [*np.delete(before[:4], gone), before[gone]]


def test_fifo_gives_up_a_place_whose_workers_are_gone() -> None:
    problem = jobs([[1, 1]] * 3, [3, 0])
    first = solve("fifo", problem)
    assert on(first) == [0, 0, 0]
    shrunk = replace(problem, workers=np.array([1.0, 1.0]), memory=first.memory)
    after = on(solve("fifo", shrunk))
    assert after == [0, 1, -1]


def test_fifo_is_strict_and_a_job_without_throughput_blocks_nobody() -> None:
    large_second = jobs([[1, 2]] * 3, [1, 2], gpus=[1, 4, 1])
    for name in ("fifo", "fifo_perf"):
        assert on(solve(name, large_second))[1:] == [-1, -1]
    cannot = jobs([[0, 0], [1, 2]], [1, 1])
    assert on(solve("fifo_perf", cannot)) == [-1, 1]
    assert on(solve("fifo", cannot))[1] >= 0


def test_fifo_perf_takes_the_fastest_and_by_name_among_equals() -> None:
    assert on(solve("fifo_perf", jobs([[1, 3, 2], [1, 3, 2], [2, 2, 2]], [1, 1, 2]))) == [1, 2, 0]
    reverse = jobs([[2, 2]], [1, 1], worker_types=("v100", "k80"))
    assert on(solve("fifo_perf", reverse)) == [1]


def test_fifo_packed_joins_the_pair_that_gains_most_and_above_the_threshold() -> None:
    rate = np.zeros((3, 3, 1))
    rate[0, 2], rate[2, 0] = 0.8, 0.8  # 1.6
    rate[1, 2], rate[2, 1] = 0.9, 0.9  # 1.8: this one
    three = jobs([[1]] * 3, [2], sharing=Sharing(job_class=np.arange(3), rate=rate))
    found = solve("fifo_packed", three)
    np.testing.assert_array_equal(found.pairs, [[1, 2]])
    np.testing.assert_array_equal(found.shares[:, 0], [1, 0, 0])
    weak = replace(three, sharing=Sharing(job_class=np.arange(3), rate=rate * 0.8))
    assert len(solve("fifo_packed", weak).pairs) == 0


# ---------------------------------------------------------------- shortest first


def test_sjf_takes_the_job_and_type_that_end_soonest() -> None:
    problem = jobs([[1, 4], [1, 2]], [1, 1], steps_left=np.array([1000.0, 500.1]))
    assert on(solve("sjf", problem)) == [1, 0]  # 250 s on the second type before 250.05 s


def test_srtf_counts_gpus_and_passes_over_who_does_not_fit() -> None:
    problem = jobs([[1]] * 3, [3], gpus=[2, 2, 1], steps_left=np.array([60.0, 70.0, 100.0]))
    assert on(solve("srtf", problem)) == [0, -1, 0]  # 100, then 120, then 140 that no longer fits
    assert on(solve("sjf", replace(problem, workers=np.array([2.0])))) == [0, -1, -1]
    assert on(solve("srtf", replace(problem, workers=np.array([2.0])))) == [-1, -1, 0]


# ---------------------------------------------------------------- AlloX


@pytest.mark.parametrize("workers", [[4, 0], [4, 3]])
def test_a_type_without_room_for_a_job_makes_it_no_shorter(workers: list[int]) -> None:
    """Four GPUs of the second type do not exist: the first job is not a hundred times as fast there."""
    problem = jobs([[1, 100], [2, 1]], workers, gpus=[4, 2], steps_left=np.array([100.0, 150.0]))
    assert on(solve("srtf", problem)) == [-1, 0]  # 400 and 150 GPU-s


def test_themis_knows_that_a_job_cannot_catch_up_on_a_type_that_is_not_there() -> None:
    problem = jobs([[1, 100], [2, 1]], [2, 0], gpus=[2, 2], steps_left=np.array([100.0, 150.0]))
    late = replace(problem, age_s=np.array([50.0, 0.0]))
    assert on(solve("themis", late)) == [0, -1]  # (50 + 100)/200 against 75/150


def test_allox_moves_nobody() -> None:
    problem = jobs([[1, 1.5]] * 2, [1, 1], steps_left=np.array([100.0, 1000.0]), job_id=np.array([7, 9]))
    first = solve("allox", problem)
    assert on(first) == [0, 1]
    left = without(problem, 1, first.memory)
    assert on(solve("allox", left)) == [0]  # though the fast worker is free now
    assert on(solve("allox", replace(left, memory=None))) == [1]


def test_allox_lets_a_job_wait_for_a_faster_worker() -> None:
    problem = jobs([[1, 100], [1, 100]], [1, 1], steps_left=np.array([100.0, 200.0]))
    found = solve("allox", problem)
    assert on(found) == [1, -1]
    assert found.objective == pytest.approx(2 * 1 + 2)


def test_allox_is_for_single_gpus_and_leaves_out_who_can_run_nowhere() -> None:
    with pytest.raises(UsageError, match="job 1 has 2"):
        solve("allox", jobs([[1], [1]], [4], gpus=[1, 2]))
    assert on(solve("allox", jobs([[0, 1], [1, 1]], [1, 0]))) == [-1, 0]


# ---------------------------------------------------------------- Gandiva


def sharing(together: float, types: int = 2) -> Sharing:
    return Sharing(job_class=np.zeros(4, dtype=np.int64), rate=np.full((1, 1, types), together))


def test_gandiva_shares_only_where_it_is_crowded() -> None:
    roomy = jobs([[1, 1]] * 4, [2, 2], sharing=sharing(0.9))
    assert len(solve("gandiva", roomy).pairs) == 0
    crowded = replace(roomy, workers=np.array([1.0, 1.0]))
    found = solve("gandiva", crowded)
    assert len(found.pairs) == 2
    assert not found.shares.any()
    assert found.pair_shares is not None
    np.testing.assert_allclose(found.pair_shares, 0.5)  # W_j / 2 combinations


def test_gandiva_keeps_what_gains_and_draws_the_rest_anew() -> None:
    def pairs(problem: ClusterProblem, seed: int) -> set[tuple[int, ...]]:
        return {tuple(pair) for pair in solve("gandiva", problem, seed).pairs.tolist()}

    for together, stays in ((0.3, True), (0.2, False)):  # 4 × 0.3 ≥ 1 > 4 × 0.2: summed over both types
        problem = jobs([[1, 1]] * 4, [1, 1], sharing=sharing(together))
        first = solve("gandiva", problem)
        held = {tuple(pair) for pair in first.pairs.tolist()}
        again = [pairs(replace(problem, memory=first.memory), seed) == held for seed in range(20)]
        assert all(again) if stays else not all(again)


def test_gandiva_pairs_end_with_a_member_and_need_equal_gpus() -> None:
    problem = jobs([[1, 1]] * 4, [1, 1], sharing=sharing(0.9))
    first = solve("gandiva", problem)
    gone, left = first.pairs[0]
    rest = without(problem, int(gone), first.memory)
    found = solve(
        "gandiva",
        replace(rest, sharing=Sharing(job_class=np.zeros(3, dtype=np.int64), rate=sharing(0.9).rate)),
    )
    assert found.pairs.tolist() == [[int(np.flatnonzero(rest.ids == i)[0]) for i in first.pairs[1]]]
    assert found.shares[int(np.flatnonzero(rest.ids == left)[0])].any()
    mixed = jobs([[1, 1]] * 4, [2, 2], gpus=[1, 2, 4, 8], sharing=sharing(0.9))
    assert len(solve("gandiva", mixed).pairs) == 0
