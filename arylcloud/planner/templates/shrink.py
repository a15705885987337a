"""Pipelines after losses: keep, borrow, merge.

A pipeline that lost nodes goes on with the template of what it has left, if that is n0 or more. A smaller one
borrows nodes, one at a time, from the pipeline that is largest, as long as that one stays at n0; where nobody
can lend, short ones join until they make up n0, and what is still short joins a whole one. No node is left
idle, and no plan is made anew: sizes are looked up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from arylcloud.core.errors import InfeasibleError

Pipelines = tuple[tuple[int, ...], ...]
"""Nodes of each pipeline, by number."""


def shrink(pipelines: Sequence[Sequence[int]], lost: Collection[int], least: int) -> Pipelines:
    """The pipelines of the survivors, each of ``least`` nodes or more; InfeasibleError if they are too few.

    >>> shrink([[0, 1, 2], [3, 4], [5, 6]], {3, 5, 6}, 2)
    ((0, 1), (4, 2))
    >>> shrink([[0, 1], [2, 3], [4, 5]], {1, 3}, 2)
    ((4, 5), (0, 2))
    """
    left = [[n for n in nodes if n not in lost] for nodes in pipelines]
    left = [nodes for nodes in left if nodes]
    if sum(map(len, left)) < least:
        raise InfeasibleError(
            f"{sum(map(len, left))} nodes are left, a pipeline needs {least}",
            hint="resume from the last checkpoint when more are there",
        )
    whole = [nodes for nodes in left if len(nodes) >= least]
    short = [nodes for nodes in left if len(nodes) < least]
    kept: list[list[int]] = []
    for nodes in short:
        while len(nodes) < least:
            lender = max(whole, key=len, default=None)
            if lender is None or len(lender) <= least:
                break
            nodes.append(lender.pop())
        if len(nodes) >= least:
            whole.append(nodes)
        else:
            kept.append(nodes)
    joined: list[int] = []
    for nodes in kept:
        joined += nodes
        if len(joined) >= least:
            whole.append(joined)
            joined = []
    if joined:
        min(whole, key=len).extend(joined)
    return tuple(tuple(nodes) for nodes in whole)
