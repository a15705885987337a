"""Gandiva: pairs by trial; a pair that gains stays, one that does not is drawn anew."""

from __future__ import annotations

import numpy as np

from arylcloud.planner.cluster import Allocation, ClusterProblem, isolated_shares

KEEP = 1.0
"""A pair stays while its members' rates over their rates alone, summed over the types, reach this."""


def gandiva(problem: ClusterProblem, rng: np.random.Generator) -> Allocation:
    """Gandiva (OSDI 2018) as Gavel (OSDI 2020) compares with it: pairs at random, equal shares.

    While ``Σ s_i ≤ Σ W_j`` nobody shares. Otherwise jobs without a partner are drawn two at a time, at
    most n times, and become a pair where ``s_a = s_b``. They are drawn blind: whether a pair gains is
    seen at the next call. It stays until a member has left, or until
    ``Σ_j (T_ab,j/T_aj + T_ba,j/T_bj) < 1`` (0 where any of the rates is). Each of the k singles and pairs
    then has ``x_j = W_j/(k·s)``, scaled to at most 1 in all.

    ``memory``: the pairs of job ids. Returns shares of singles (n, m) and of pairs (q, m).
    """
    n, m = len(problem), len(problem.workers)
    if n == 0 or problem.sharing is None or problem.gpus.sum() <= problem.workers.sum():
        return Allocation(shares=isolated_shares(problem) if n else np.zeros((0, m)), memory=())
    at = {int(job): i for i, job in enumerate(problem.ids)}
    held = problem.memory if isinstance(problem.memory, tuple) else ()
    pairs = [(at[a], at[b]) for a, b in held if a in at and b in at]
    pairs = [(a, b) for a, b in pairs if _gain(problem, a, b) >= KEEP]
    paired = {job for pair in pairs for job in pair}
    alone = [i for i in range(n) if i not in paired]
    for _ in range(n):
        if len(alone) < 2:
            break
        first, second = (int(k) for k in rng.choice(len(alone), size=2, replace=False))
        a, b = alone[min(first, second)], alone[max(first, second)]
        if problem.gpus[a] == problem.gpus[b]:
            pairs.append((a, b))
            del alone[max(first, second)], alone[min(first, second)]
    combinations = len(alone) + len(pairs)
    per_gpu = problem.workers / combinations
    rows = per_gpu[None, :] / problem.gpus[:, None]
    rows /= np.maximum(1.0, rows.sum(axis=1, keepdims=True))
    shares = np.zeros((n, m))
    shares[alone] = rows[alone]
    index = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Allocation(
        shares=shares,
        pairs=np.sort(index, axis=1),
        pair_shares=rows[index[:, 0]],
        memory=tuple((int(problem.ids[a]), int(problem.ids[b])) for a, b in pairs),
    )


def _gain(problem: ClusterProblem, a: int, b: int) -> float:
    sharing = problem.sharing
    assert sharing is not None
    class_a, class_b = sharing.job_class[a], sharing.job_class[b]
    together = np.stack([sharing.rate[class_a, class_b], sharing.rate[class_b, class_a]])
    alone = problem.throughput[[a, b]]
    if (together <= 0).any() or (alone <= 0).any():
        return 0.0
    return float((together / alone).sum())
