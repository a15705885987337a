"""One configuration for each job at most, within every type's GPUs, of the largest total utility.

The integer programme of Sia (SOSP 2023, §3.4): ``max Σ u_ij·x_ij``, ``Σ_j x_ij ≤ 1``,
``Σ_ij g_j·x_ij ≤ W_type(j)``, x binary. Proven optimal in four steps: columns that another one dominates are
dropped; the linear relaxation is tightened by rounding cuts (:mod:`parity`); its solution, in which few jobs
are undecided, is rounded and improved by single moves; no column whose reduced cost is worse than the gap can
be in a better solution, and goes; branch and bound decides among the few that stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import ArylError
from arylcloud.planner.cluster import F, I
from arylcloud.planner.kernels import highs
from arylcloud.planner.kernels.parity import cuts

GAP = 1e-7
"""Relative: closer than this two objectives are one."""
CLOSE = 1e-4
"""Relative: an answer this near to its bound is given, with the bound, where the proof takes too long."""
NODES = 2_000
"""Of branch and bound before that; Sia's programmes of 1,000 jobs × 40 take one."""
CUT_ROUNDS = 12
FIRST_COLUMNS, WIDER = 1.12, 8.0
"""How many columns for each job are decided first, and how the reach grows if the best is not among them."""


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


def best_configurations(utility: F, gpus: F, kind: I, workers: F, *, nodes: int = NODES) -> Chosen:
    """Utilities (n, k), -inf or ≤ 0 = never; GPUs and type of each configuration (k,); workers (m,).

    Proven within 1e-7, relatively; :class:`ArylError` where after so many ``nodes`` of branch and bound the
    best is more than 1e-4 from its bound.

    >>> found = best_configurations(
    ...     np.array([[1.0, 1.5], [1.0, 1.9]]), np.array([1.0, 2.0]), np.zeros(2, int), np.array([3.0]))
    >>> found.config.tolist(), found.objective
    ([0, 1], 2.9)
    """
    workers = np.floor(workers)
    n = len(utility)
    columns = _worthwhile(utility, gpus, kind, workers)
    if not len(columns):
        none = np.full(n, -1, dtype=np.int64)
        return Chosen(config=none, objective=0.0, bound=0.0, worker_value=np.zeros(len(workers)))
    # The solver's tolerances are absolute: the largest utility becomes one of [1, 2), exactly.
    unit = float(2.0 ** np.floor(np.log2(columns.utility.max())))
    columns = replace(columns, utility=columns.utility / unit)
    relaxed = _relaxation(columns, workers)
    taken = _rounded(columns, relaxed, workers)
    objective, bound = float(columns.utility[taken].sum()), relaxed.bound
    if bound - objective > GAP * max(1.0, abs(bound)):
        taken, objective, bound = _proven(columns, relaxed, taken, workers, nodes)
    config = np.full(n, -1, dtype=np.int64)
    config[columns.job[taken]] = columns.config[taken]
    return Chosen(
        config=config,
        objective=objective * unit,
        bound=max(bound, objective) * unit,
        worker_value=relaxed.price * unit,
    )


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class _Relaxed:
    """The linear relaxation with its cuts; shapes (width,) and, for q cuts, (q, width) and (q,)."""

    x: F
    reduced: F
    """Utility less the prices of what the column takes of all rows but its job's."""
    loss: F
    """What taking the column costs against the relaxation: its job's best reduced utility less its own."""
    bound: float
    price: F
    """(m,) of one GPU of each type, without cuts."""
    rows: F
    right: F


def _model(columns: _Columns, workers: F, rows: F, right: F) -> Any:
    """The programme as HiGHS takes it: a row for each job, for each type, for each cut."""
    jobs, row = np.unique(columns.job, return_inverse=True)
    n, m, width = len(jobs), len(workers), len(columns)
    column, cut = np.nonzero(rows.T)
    order = np.argsort(np.concatenate([np.arange(width), np.arange(width), column]), kind="stable")
    index = np.concatenate([row, n + columns.kind, n + m + cut])[order]
    values = np.concatenate([np.ones(width), columns.gpus, rows.T[column, cut]])[order]
    entries = 2 + np.bincount(column, minlength=width)
    upper = np.concatenate([np.ones(n), workers, right])
    return highs.model(
        columns.utility,
        starts=np.concatenate([[0], np.cumsum(entries)]),
        rows=index,
        values=values,
        upper=np.ones(width),
        row_lower=np.full(len(upper), -np.inf),
        row_upper=upper,
        maximise=True,
    )


def _relaxation(columns: _Columns, workers: F) -> _Relaxed:
    """Solved, then again from where it stood after each round of cuts. The bound is computed from the prices
    alone (weak duality: any prices ≥ 0 give one), so that it does not rest on the solver's tolerances."""
    jobs, types = len(np.unique(columns.job)), len(workers)
    rows, right = np.zeros((0, len(columns))), np.zeros(0)
    solver = highs.solved(_model(columns, workers, rows, right), "the relaxation of the configurations")
    price: F = np.maximum(np.asarray(solver.getSolution().row_dual)[jobs:], 0.0)
    for _ in range(CUT_ROUNDS):
        x = np.asarray(solver.getSolution().col_value)
        found = list(cuts(columns.job, columns.kind, columns.gpus, workers, x))
        if not found:
            break
        for coefficients, limit in found:
            at = np.flatnonzero(coefficients)
            highs.add_row(solver, at, coefficients[at], limit)
        rows = np.concatenate([rows, np.stack([row for row, _ in found])])
        right = np.concatenate([right, [limit for _, limit in found]])
        highs.solve(solver, "the relaxation of the configurations")
    solution = solver.getSolution()
    dual = np.maximum(np.asarray(solution.row_dual)[jobs:], 0.0)
    reduced = columns.utility - columns.gpus * dual[:types][columns.kind] - dual[types:] @ rows
    best = np.zeros(int(columns.job.max()) + 1)
    np.maximum.at(best, columns.job, reduced)
    return _Relaxed(
        x=np.asarray(solution.col_value),
        reduced=reduced,
        loss=best[columns.job] - reduced,
        bound=float(best.sum() + dual[:types] @ workers + dual[types:] @ right),
        price=price,
        rows=rows,
        right=right,
    )


def _rounded(columns: _Columns, relaxed: _Relaxed, workers: F) -> NDArray[np.bool_]:
    """A feasible choice: what the relaxation decides, then the undecided by utility, then single moves."""
    taken = relaxed.x > 1 - 1e-7
    free = workers.astype(np.float64).copy()
    np.subtract.at(free, columns.kind[taken], columns.gpus[taken])
    served = np.zeros(int(columns.job.max()) + 1, dtype=bool)
    served[columns.job[taken]] = True
    held = np.full(len(served), -1, dtype=np.int64)
    held[columns.job[taken]] = np.flatnonzero(taken)
    for c in np.argsort(-relaxed.reduced, kind="stable")[: 4 * len(served)].tolist():
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
    columns: _Columns, relaxed: _Relaxed, taken: NDArray[np.bool_], workers: F, nodes: int
) -> tuple[NDArray[np.bool_], float, float]:
    """The best choice, its utility and a bound. A choice within τ of the relaxation has no column whose loss
    is more than τ: so the columns within τ are decided; if the best among them is itself within τ, nothing
    is better. Else τ grows, at most to the gap that is left: it starts small, as the true gap mostly is."""
    objective = float(columns.utility[taken].sum())
    first = int(FIRST_COLUMNS * len(np.unique(columns.job)))
    reach = np.partition(relaxed.loss, first)[first] if first < len(columns) else np.inf
    within = min(max(float(reach), GAP * abs(relaxed.bound)), relaxed.bound - objective)
    while True:
        kept = relaxed.loss <= within * (1 + 1e-9) + 1e-12
        try:
            found, bound = _branch_and_bound(columns.where(kept), workers, relaxed, kept, nodes)
        except highs.OutOfNodes as error:
            if relaxed.bound - objective <= CLOSE * abs(relaxed.bound):
                return taken, objective, relaxed.bound
            raise ArylError(
                f"no proof of the best configurations within {nodes:,} nodes",
                hint="split the jobs: --partition",
            ) from error
        worth = float(columns.utility[kept][found].sum())
        if bound - worth > 1e-6 * max(1.0, abs(bound)):
            raise ArylError(f"the solver's choice is worth {worth:g} and its proof says {bound:g}")
        if worth > objective:
            objective, taken = worth, np.zeros(len(columns), dtype=bool)
            taken[np.flatnonzero(kept)[found]] = True
        if relaxed.bound - objective <= within:
            return taken, objective, max(bound, objective)
        within = min(WIDER * within, relaxed.bound - objective)


def _branch_and_bound(
    columns: _Columns, workers: F, relaxed: _Relaxed, kept: NDArray[np.bool_], nodes: int
) -> tuple[NDArray[np.bool_], float]:
    """The best choice, and what no choice exceeds. No start is handed in: HiGHS 1.16 gives it back as its own
    answer where presolve alone finds a better one. :class:`highs.OutOfNodes` after ``nodes``."""
    lp = highs.integral(_model(columns, workers, relaxed.rows[:, kept], relaxed.right))
    # The columns that are left have been chosen: presolve costs more than it finds.
    options: dict[str, float] = {"mip_rel_gap": GAP, "mip_abs_gap": 0.0, "mip_max_nodes": nodes}
    solver = highs.solved(lp, "the best configurations", options={**options, "presolve": "off"})
    taken = np.asarray(solver.getSolution().col_value) > 0.5
    return taken, float(solver.getInfo().mip_dual_bound)
