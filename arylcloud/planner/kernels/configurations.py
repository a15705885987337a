"""One configuration for each job at most, within every type's GPUs, of the largest total utility.

The integer programme of Sia (SOSP 2023, §3.4): ``max Σ u_ij·x_ij``, ``Σ_j x_ij ≤ 1``,
``Σ_ij g_j·x_ij ≤ W_type(j)``, x binary. Proven optimal in four steps: columns that another one dominates are
dropped; the linear relaxation, whose solution leaves at most 2·types jobs undecided, is rounded and improved
by single moves; no column whose reduced cost is worse than the gap can be in a better solution, and goes;
branch and bound decides among the few that stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import ArylError
from arylcloud.planner.cluster import F, I
from arylcloud.planner.kernels import highs

GAP = 1e-9
"""Relative: closer than this two objectives are one."""
FIRST_PART = 30.0
"""Of the rounded choice's gap to the relaxation: the first guess of the true one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Chosen:
    config: I
    """(n,) index of the configuration, -1 = none."""
    objective: float
    bound: float
    """No choice has a larger objective."""
    worker_value: F
    """(m,) utility per one more GPU of each type, of the relaxation."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class _Columns:
    """The columns worth a look: job, configuration, type, GPUs and utility of each; sorted by job."""

    job: I
    config: I
    kind: I
    gpus: F
    utility: F

    def __len__(self) -> int:
        return len(self.job)

    def where(self, keep: NDArray[np.bool_]) -> _Columns:
        return _Columns(
            job=self.job[keep],
            config=self.config[keep],
            kind=self.kind[keep],
            gpus=self.gpus[keep],
            utility=self.utility[keep],
        )


def best_configurations(utility: F, gpus: F, kind: I, workers: F, *, seconds: float = 60.0) -> Chosen:
    """Utilities (n, k), -inf or ≤ 0 = never; GPUs and type of each configuration (k,); workers (m,).

    Raises :class:`ArylError` where the solver has no proof after ``seconds``.

    >>> found = best_configurations(
    ...     np.array([[1.0, 1.5], [1.0, 1.9]]), np.array([1.0, 2.0]), np.zeros(2, int), np.array([3.0]))
    >>> found.config.tolist(), found.objective
    ([0, 1], 2.9)
    """
    columns = _worthwhile(utility, gpus, kind, workers)
    n = len(utility)
    if not len(columns):
        none = np.full(n, -1, dtype=np.int64)
        return Chosen(config=none, objective=0.0, bound=0.0, worker_value=np.zeros(len(workers)))
    relaxed, price, bound = _relaxation(columns, workers)
    reduced = columns.utility - columns.gpus * price[columns.kind]
    taken = _rounded(columns, relaxed, reduced, workers)
    objective = float(columns.utility[taken].sum())
    if bound - objective > GAP * max(1.0, abs(bound)):
        taken, objective, bound = _proven(columns, reduced, taken, bound, workers, seconds)
    config = np.full(n, -1, dtype=np.int64)
    config[columns.job[taken]] = columns.config[taken]
    return Chosen(config=config, objective=objective, bound=max(bound, objective), worker_value=price)


def _worthwhile(utility: F, gpus: F, kind: I, workers: F) -> _Columns:
    """Without the columns that another of the same job and type beats with no more GPUs."""
    gpus = np.asarray(gpus, dtype=np.float64)
    order = np.lexsort((gpus, kind))
    ranked = utility[:, order]
    keep = (ranked > 0) & (gpus[order] <= workers[kind[order]])
    for j in range(len(workers)):
        here = np.flatnonzero(kind[order] == j)
        if len(here) > 1:
            best_before = np.maximum.accumulate(np.where(keep[:, here], ranked[:, here], -np.inf), axis=1)
            keep[:, here[1:]] &= ranked[:, here[1:]] > best_before[:, :-1]
    job, position = np.nonzero(keep)
    config = order[position]
    return _Columns(
        job=job.astype(np.int64),
        config=config.astype(np.int64),
        kind=kind[config].astype(np.int64),
        gpus=gpus[config],
        utility=utility[job, config].astype(np.float64),
    )


def _model(columns: _Columns, workers: F) -> tuple[Any, int]:
    """The programme as HiGHS takes it, and how many of its rows are jobs: they come first."""
    jobs, row = np.unique(columns.job, return_inverse=True)
    n, width = len(jobs), len(columns)
    rows, values = np.empty(2 * width, dtype=np.int64), np.ones(2 * width)
    rows[::2], rows[1::2] = row, n + columns.kind
    values[1::2] = columns.gpus
    upper = np.concatenate([np.ones(n), workers])
    built = highs.model(
        columns.utility,
        starts=np.arange(0, 2 * width + 1, 2),
        rows=rows,
        values=values,
        upper=np.ones(width),
        row_lower=np.full(len(upper), -np.inf),
        row_upper=upper,
        maximise=True,
    )
    return built, n


def _relaxation(columns: _Columns, workers: F) -> tuple[F, F, float]:
    """Solution (width,), price of a GPU of each type (m,) and a bound, from any prices ≥ 0: weak duality."""
    lp, jobs = _model(columns, workers)
    solution = highs.solved(lp, "the relaxation of the configurations").getSolution()
    price: F = np.maximum(np.asarray(solution.row_dual)[jobs:], 0.0)
    best = np.zeros(int(columns.job.max()) + 1)
    np.maximum.at(best, columns.job, columns.utility - columns.gpus * price[columns.kind])
    return np.asarray(solution.col_value), price, float(best.sum() + price @ workers)


def _rounded(columns: _Columns, relaxed: F, reduced: F, workers: F) -> NDArray[np.bool_]:
    """A feasible choice: what the relaxation decides, then the undecided by utility, then single moves."""
    taken = relaxed > 1 - 1e-7
    free = workers.astype(np.float64).copy()
    np.subtract.at(free, columns.kind[taken], columns.gpus[taken])
    served = np.zeros(int(columns.job.max()) + 1, dtype=bool)
    served[columns.job[taken]] = True
    held = np.full(len(served), -1, dtype=np.int64)
    held[columns.job[taken]] = np.flatnonzero(taken)
    for c in np.argsort(-reduced, kind="stable")[: 4 * len(served)].tolist():
        if not served[columns.job[c]] and columns.gpus[c] <= free[columns.kind[c]]:
            served[columns.job[c]], held[columns.job[c]] = True, c
            free[columns.kind[c]] -= columns.gpus[c]
    for _ in range(2 * len(served)):
        move = _best_move(columns, held, free)
        if move is None:
            break
        old = int(held[columns.job[move]])
        if old >= 0:
            free[columns.kind[old]] += columns.gpus[old]
        free[columns.kind[move]] -= columns.gpus[move]
        held[columns.job[move]] = move
    chosen = np.zeros(len(columns), dtype=bool)
    chosen[held[held >= 0]] = True
    return chosen


def _best_move(columns: _Columns, held: I, free: F) -> int | None:
    """The column that gains most if its job changes to it, and that fits; None where none gains."""
    now = held[columns.job]
    has = now >= 0
    gain = columns.utility - np.where(has, columns.utility[now], 0.0)
    back = np.where(has & (columns.kind[now] == columns.kind), columns.gpus[now], 0.0)
    gain[columns.gpus > free[columns.kind] + back + 1e-9] = 0.0
    move = int(np.argmax(gain))
    return move if gain[move] > 1e-12 else None


def _proven(
    columns: _Columns, reduced: F, taken: NDArray[np.bool_], relaxed: float, workers: F, seconds: float
) -> tuple[NDArray[np.bool_], float, float]:
    """The best choice, its utility and a bound. To take a column costs, against the relaxation, what its
    reduced cost is below its job's best: a choice within τ of the relaxation has no column that costs more.
    So the columns within τ are decided; if the best among them is itself within τ, nothing is better. Else τ
    grows to the gap that is left, at most the rounded choice's: τ starts small as the true gap mostly is."""
    best = np.zeros(int(columns.job.max()) + 1)
    np.maximum.at(best, columns.job, reduced)
    loss = best[columns.job] - reduced
    objective = float(columns.utility[taken].sum())
    within = (relaxed - objective) / FIRST_PART
    while True:
        kept = loss <= within * (1 + 1e-9) + 1e-12
        found, bound = _branch_and_bound(columns.where(kept), workers, seconds)
        worth = float(columns.utility[kept][found].sum())
        if bound - worth > 1e-6 * max(1.0, abs(bound)):
            raise ArylError(f"the solver's choice is worth {worth:g} and its proof says {bound:g}")
        if worth > objective:
            objective, taken = worth, np.zeros(len(columns), dtype=bool)
            taken[np.flatnonzero(kept)[found]] = True
        if relaxed - objective <= within:
            return taken, objective, max(bound, objective)
        within = relaxed - objective


def _branch_and_bound(columns: _Columns, workers: F, seconds: float) -> tuple[NDArray[np.bool_], float]:
    """The best choice, and what no choice exceeds. No start is handed in: HiGHS 1.16 gives it back as its own
    answer where presolve alone finds a better one."""
    solver = highs.solved(
        highs.integral(_model(columns, workers)[0]),
        f"the best configurations within {seconds:g} s",
        hint="split the jobs: --partition",
        mip_rel_gap=GAP,
        mip_abs_gap=0.0,
        time_limit=float(seconds),
    )
    taken = np.asarray(solver.getSolution().col_value) > 0.5
    return taken, float(solver.getInfo().mip_dual_bound)
