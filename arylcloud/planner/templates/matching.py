"""Who takes which place at the least total cost (the Hungarian method)."""

from __future__ import annotations

from collections.abc import Sequence


def cheapest(cost: Sequence[Sequence[int]]) -> list[int]:
    """For each row the column that it takes; rows and columns are equally many. Exact, in O(n³).

    >>> cheapest([[4, 1, 3], [2, 0, 5], [3, 2, 2]])
    [1, 0, 2]
    """
    n = len(cost)
    far = 1 + sum(max(row) for row in cost) if n else 0
    # potentials of rows and columns, and the row that each column has (1-based; 0 = none)
    of_row, of_column, has = [0] * (n + 1), [0] * (n + 1), [0] * (n + 1)
    for start in range(1, n + 1):
        has[0] = start
        column, came = 0, [0] * (n + 1)
        slack, used = [far] * (n + 1), [False] * (n + 1)
        while True:
            used[column] = True
            row, step, nearest = has[column], far, 0
            for j in range(1, n + 1):
                if used[j]:
                    continue
                reduced = cost[row - 1][j - 1] - of_row[row] - of_column[j]
                if reduced < slack[j]:
                    slack[j], came[j] = reduced, column
                if slack[j] < step:
                    step, nearest = slack[j], j
            for j in range(n + 1):
                if used[j]:
                    of_row[has[j]] += step
                    of_column[j] -= step
                else:
                    slack[j] -= step
            column = nearest
            if not has[column]:
                break
        while column:
            has[column] = has[came[column]]
            column = came[column]
    found = [0] * n
    for j in range(1, n + 1):
        found[has[j] - 1] = j - 1
    return found
