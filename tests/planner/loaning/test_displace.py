"""Exchanges of one instant end, whatever the ends that are told."""

from __future__ import annotations

import numpy as np
import pytest

from arylcloud.planner.loaning.displace import Running


def _exchanges(gpus: list[int], left_s: list[float], ends_s: list[float], most: int) -> int:
    """The first half waits, the rest runs: who waits takes places in turn until nobody finds one, at most
    ``most`` times. How often one did."""
    n = len(gpus)
    running, version = Running(), [0] * n
    waiting = list(range(n // 2))
    for job in range(n // 2, n):
        running.add(job, gpus[job], ends_s[job], 0)
    count, idle = 0, 0
    while waiting and idle < len(waiting) and count < most:
        job = waiting.pop(0)
        other = running.victim(gpus[job], left_s[job], 0.0, lambda j, v: version[j] == v, lambda j: left_s[j])
        if other is None:
            waiting.append(job)
            idle += 1
            continue
        count, idle = count + 1, 0
        version[other] += 1
        waiting.append(other)
        version[job] += 1
        running.add(job, gpus[job], ends_s[job], version[job])
    return count


@pytest.mark.parametrize("seed", range(20))
def test_exchanges_end_where_ends_have_nothing_to_do_with_remaining_times(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 24
    gpus = rng.choice([1, 2, 4, 8], n).tolist()
    left_s, ends_s = rng.exponential(5000.0, n).tolist(), rng.exponential(50_000.0, n).tolist()
    assert 0 < _exchanges(gpus, left_s, ends_s, n * n) < n * n


def test_two_jobs_of_one_size_do_not_take_turns() -> None:
    assert _exchanges([8, 8], [100.0, 200.0], [90_000.0, 90_000.0], 10) == 1


def test_who_gives_way() -> None:
    def true(_job: int, version: int) -> bool:
        return version == 1

    def waits_s(job: int) -> float:
        return {1: 90_000.0, 2: 5_000.0}[job]

    jobs = Running()
    jobs.add(1, 8, 90_000.0, 1)
    jobs.add(2, 2, 5_000.0, 1)
    jobs.add(3, 2, 99_000.0, 0)  # stale
    assert jobs.victim(1, 600.0, 0.0, true, waits_s) == 2  # the smallest that is enough
    assert jobs.victim(2, 2_600.0, 0.0, true, waits_s) == 1  # 5,000 is not twice 2,600
    assert jobs.victim(1, 60.0, 4_000.0, true, waits_s) == 1  # twice, but not half an hour more
    assert jobs.victim(16, 60.0, 0.0, true, waits_s) is None
    assert jobs.victim(8, 50_000.0, 0.0, true, waits_s) is None
    assert jobs.victim(4, 50_000.0, 0.0, true, waits_s) == 1  # twice as wide: 200,000 GPU-s against 720,000
