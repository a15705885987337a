"""The arrays decide exactly as Gavel's rules written out with dictionaries do, pairs included."""

from __future__ import annotations

import numpy as np
import pytest
from support.naive_rounds import given, naive, random_shares, small_cluster

from arylcloud.simulation.cluster.simulate import Settings, simulate


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["aware", "agnostic", "fifo", "packs"])
def test_same_ends(seed: int, kind: str) -> None:
    packs = kind == "packs"
    jobs, workers, order = small_cluster(seed, packs=packs)
    # under FIFO whoever has no share waits: everybody has to have one
    solve = random_shares(np.random.default_rng(seed), packs=packs, sparse=1.0 if kind == "fifo" else 0.5)
    policy = given(solve, aware=kind != "agnostic", packs=packs, fifo=kind == "fifo")
    expected, end_s = naive(jobs, policy, workers, order, round_s=360.0, reset_s=1920.0, seed=seed)
    found = simulate(jobs, policy, np.array(workers), np.ones(3), tuple(order), Settings(seed=seed))
    assert found.finish_s.tolist() == expected
    assert found.end_s == end_s
