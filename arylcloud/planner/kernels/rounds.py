"""Kernels of the round mechanism (Gavel, OSDI 2020, §5): who has waited longest for their share, who fits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.cluster import F, I


def priorities(share: F, received_s: F, given_s: F) -> F:
    """(m, n) target share over received share, ``x_ij / (f_ij / F_j)``; 0 where the target is 0.

    ``share`` (m, n) x_ij; ``received_s`` (m, n) f_ij > 0, seconds that job i had on type j since the last
    allocation; ``given_s`` (m,) F_j, seconds that type j gave. The order of the operations is Gavel's: two
    jobs tie here exactly where they tie there.

    >>> priorities(np.array([[0.5, 0.25, 0.0]]), np.array([[180.0, 60.0, 60.0]]), np.array([300.0]))
    array([[0.83333333, 1.25      , 0.        ]])
    """
    ratio: F = share / (received_s / given_s[:, None])
    return ratio


def fill(order: I, gpus: I, free: int) -> tuple[I, int]:
    """Walk ``order`` and take every job that still fits into ``free`` GPUs; what does not fit is skipped.

    ``gpus`` (n,) by job. Returns the jobs taken, in order, and the GPUs left. Equal to the obvious loop,
    in one pass per distinct size at most.

    >>> fill(np.array([2, 0, 1, 3]), np.array([4, 1, 2, 1]), 4)
    (array([2, 1, 3]), 0)
    """
    taken: list[NDArray[np.int64]] = []
    while free > 0 and len(order):
        need = gpus[order].cumsum()
        if need[-1] <= free:
            taken.append(order)
            free -= int(need[-1])
            break
        first_too_large = int(need.searchsorted(free, side="right"))
        if first_too_large:
            taken.append(order[:first_too_large])
            free -= int(need[first_too_large - 1])
        order = order[first_too_large + 1 :]
        order = order[gpus[order] <= free]
    if len(taken) == 1:
        return taken[0], free
    return (np.concatenate(taken) if taken else order[:0]), free


def by_need(priority: F, rank: I) -> I:
    """``rank`` (indices, in order of the tie-breakers) sorted by falling ``priority`` (n,), stably."""
    return rank[np.argsort(-priority[rank], kind="stable")]
