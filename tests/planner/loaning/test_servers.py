"""The pool's bits against a plain recount, after every call; best fit against a search."""

from __future__ import annotations

import numpy as np
import pytest

from arylcloud.planner.loaning.servers import Servers, bits
from arylcloud.planner.loaning.waiting import Waiting


def _check(pool: Servers) -> None:
    for s in range(pool.count):
        base, flexible = sum(pool.base_on[s].values()), sum(pool.flexible_on[s].values())
        assert pool.room_on[s] == pool.size - base
        assert pool.free_on[s] == pool.size - base - flexible >= 0
        if not pool.open >> s & 1:
            assert base == flexible == 0
    there = bits(pool.open)
    assert pool.gpus == len(there) * pool.size
    assert pool.free == sum(pool.free_on[s] for s in there)
    assert pool.room == sum(pool.room_on[s] for s in there)
    assert bits(pool.idle()) == [s for s in there if pool.free_on[s] == pool.size]
    assert bits(pool.without_base()) == [s for s in there if pool.room_on[s] == pool.size]
    for job, at in pool.flexible_at.items():
        assert pool.flexible[job] == sum(at.values())
        assert all(pool.flexible_on[s][job] == k for s, k in at.items())
    assert set(pool.flexible) == set(pool.flexible_at)


def _fits(pool: Servers, gpus: int) -> bool:
    room = sorted((pool.room_on[s] for s in bits(pool.open)), reverse=True)
    whole, rest = divmod(gpus, pool.size)
    if sum(r == pool.size for r in room) < whole:
        return False
    return not rest or any(r >= rest for r in room[whole:])


@pytest.mark.parametrize("seed", range(12))
def test_a_long_random_life(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pool = Servers(12, closed=True)
    pool.add(range(9))
    jobs: list[int] = []
    for job in range(400):
        gpus = int(rng.choice([1, 1, 2, 4, 7, 8, 12, 16, 24]))
        places = pool.find(gpus)
        assert (places is not None) == _fits(pool, gpus)
        if places is not None:
            assert sum(g for _, g in places) == gpus
            assert len({s for s, _ in places}) == len(places)
            if gpus < pool.size:
                enough = [pool.room_on[s] for s in bits(pool.open) if pool.room_on[s] >= gpus]
                assert pool.room_on[places[0][0]] == min(enough)
            had = dict(pool.flexible)
            for other, k in pool.put(job, places):
                had[other] -= k
            assert {j: k for j, k in had.items() if k} == pool.flexible
            jobs.append(job)
        _check(pool)
        if jobs:
            other = int(rng.choice(jobs))
            what = rng.random()
            if what < 0.4:
                before, free = pool.flexible.get(other, 0), pool.free
                got = pool.grow(other, int(rng.integers(0, 12)))
                assert pool.flexible.get(other, 0) == before + got
                assert pool.free == free - got
            elif what < 0.6:
                before = pool.flexible.get(other, 0)
                assert pool.shrink(other, before // 2) == before // 2
            elif what < 0.9:
                pool.remove(other)
                jobs.remove(other)
        _check(pool)
        empty = bits(pool.idle(), 1)
        if empty and rng.random() < 0.2:
            pool.close(empty)
        elif rng.random() < 0.2:
            pool.add(bits(pool.shut(), 1))
        _check(pool)


def test_what_cannot_be() -> None:
    pool = Servers(2)
    pool.put(1, pool.find(3))
    with pytest.raises(ValueError, match="not open and empty"):
        pool.close([0])
    with pytest.raises(ValueError, match="no place"):
        pool.put(2, pool.find(99))


@pytest.mark.parametrize("seed", range(20))
def test_a_pass_starts_what_a_walk_in_order_starts(seed: int) -> None:
    """Classes and the rule that larger needs fail with smaller ones change nothing."""
    rng = np.random.default_rng(seed)
    needs = [(int(rng.choice([1, 2, 4, 8, 16])), bool(rng.random() < 0.4)) for _ in range(40)]
    keys = rng.permutation(40).astype(float)

    def pools() -> list[Servers]:
        own, lent = Servers(4), Servers(3)
        own.put(900, own.find(5))
        lent.put(901, lent.find(9))
        return [own, lent]

    def start(two: list[Servers], job: int) -> bool:
        gpus, fungible = needs[job]
        for pool, need in zip(two, (gpus, 3 * gpus), strict=True):
            places = pool.find(need) if pool is two[0] or fungible else None
            if places is not None:
                pool.put(job, places)
                return True
        return False

    queue, mine, naive = Waiting(), pools(), pools()
    for job in range(40):
        queue.push(float(keys[job]), job, needs[job])
    started = queue.admit(lambda job, _: start(mine, job))
    expected = [int(job) for job in np.argsort(keys) if start(naive, int(job))]
    assert started == expected
    assert len(queue) == 40 - len(started)
    assert queue.admit(lambda job, _: start(mine, job)) == []


def test_strict_stops_at_the_first_that_does_not_fit() -> None:
    queue = Waiting()
    for job, gpus in enumerate((2, 8, 1)):
        queue.push(float(job), job, (gpus, False))
    assert queue.admit(lambda _, need: need[0] < 8, strict=True) == [0]
    assert queue.admit(lambda _, need: need[0] < 8) == [2]
