"""Reclaims against every choice, and the rule that makes Aryl's cost what it is."""

from __future__ import annotations

import numpy as np
import pytest

from arylcloud.planner.loaning.reclaim import cheapest, fewest_jobs, in_order, least

Instance = tuple[dict[int, list[int]], dict[int, float], int]


def _instance(seed: int, *, ones: bool) -> Instance:
    """Up to 12 servers of 8 GPUs, filled best fit with gangs of 3, 6, 12 and 24 GPUs (1–8 on training)."""
    rng = np.random.default_rng(seed)
    servers = int(rng.integers(3, 13))
    free, hosts, job = [8] * servers, {s: [] for s in range(servers)}, 0
    loss: dict[int, float] = {}
    for _ in range(4 * servers):
        left = int(rng.choice([3, 3, 6, 12, 24]))
        places = []
        for s in rng.permutation(servers).tolist():
            k = min(left, free[s])
            if k and ((left < 8 and k == left) or (left >= 8 and k == 8)):
                places.append((s, k))
                left -= k
        if left:
            continue
        for s, k in places:
            free[s] -= k
            hosts[s].append(job)
        loss[job] = 1.0 if ones else float(rng.exponential(1.0) * sum(k for _, k in places))
        job += 1
    full = {s: jobs for s, jobs in hosts.items() if jobs}
    return full, loss, int(rng.integers(1, len(full) + 1))


def test_totals_against_brute_force() -> None:
    """Jobs and dollars: at most 1 % above the least possible over 200 instances of up to 12 servers."""
    for ones in (True, False):
        greedy = mine = best = 0.0
        for seed in range(200):
            hosts, loss, count = _instance(seed, ones=ones)
            exact = least(hosts, count, loss)
            found = cheapest(hosts, count, loss)
            plain = cheapest(hosts, count, loss, swaps=False)
            for answer in (exact, found, plain):
                assert len(set(answer.servers)) == count
                assert answer.loss == pytest.approx(sum(loss[j] for j in answer.ended))
            assert exact.loss <= found.loss + 1e-9 <= plain.loss + 2e-9
            greedy, mine, best = greedy + plain.loss, mine + found.loss, best + exact.loss
        assert mine <= 1.01 * best
        assert greedy <= 1.10 * best


def test_a_job_is_lost_once_however_many_of_its_servers_return() -> None:
    """One job on three servers, or one on each of three: Aryl takes the first, counting jobs cannot tell."""
    hosts = {0: [10], 1: [11], 2: [12], 3: [13], 4: [13], 5: [13]}
    ones = dict.fromkeys(range(10, 14), 1.0)
    assert cheapest(hosts, 3, ones).ended == (13,)
    assert len(fewest_jobs(hosts, 3, ones).ended) == 3


def test_dollars_may_choose_otherwise() -> None:
    hosts = {0: [1, 2], 1: [3]}
    assert cheapest(hosts, 1, {1: 0.1, 2: 0.1, 3: 5.0}).servers == (0,)
    assert cheapest(hosts, 1, {1: 1.0, 2: 1.0, 3: 1.0}).servers == (1,)


def test_an_order_takes_emptied_servers_first() -> None:
    hosts = {0: [1], 1: [2], 2: [1]}
    assert in_order(hosts, 2, [0, 1, 2], {1: 1.0, 2: 1.0}).servers == (0, 2)
    with pytest.raises(ValueError, match="4 servers to return, 3 there"):
        cheapest(hosts, 4, {1: 1.0, 2: 1.0})
