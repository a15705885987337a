"""The same program by HiGHS: for the few whose interior is too thin for the structured method.

A set of needs that is met exactly, with every type full and every job's time free, leaves Newton's system
with less than one digit of what matters. Such programs are rare and small; a simplex method needs no
interior. Its answer is repaired and certified like any other.
"""

from __future__ import annotations

import numpy as np

from arylcloud.core.errors import ArylError
from arylcloud.planner.kernels import highs
from arylcloud.planner.kernels.jobform import JobLP, Solution, bound_of, repaired, scaled

GAP = 2e-6
"""HiGHS works to absolute tolerances: this is what they leave, relatively, at the worst."""


def solve(lp: JobLP) -> Solution:
    """Linear programs only, t ≥ 0; :class:`ArylError` where HiGHS fails or its answer cannot be certified."""
    if lp.fade is not None or lp.drift is not None:
        raise ArylError("only linear programs without drift can be passed to HiGHS")
    p = scaled(lp)
    m, n = p.rate.shape
    # columns: types within jobs, then t; rows: time, rate, types
    width = m * n
    jobs = np.repeat(np.arange(n), m)
    types = np.tile(np.arange(m), n)
    rows = np.column_stack([jobs, n + jobs, 2 * n + types]).ravel()
    values = np.column_stack([np.ones(width), p.rate.T.ravel(), p.gpus[jobs]]).ravel()
    starts = np.arange(0, 3 * width + 1, 3)
    cost = np.zeros(width) if p.gain is None else p.gain.T.ravel()
    need = np.where(p.real, p.need, -np.inf)
    if p.slope is not None:
        sloped = np.flatnonzero(p.slope > 0)
        unit = float(p.slope.max())
        rows = np.concatenate([rows, n + sloped])
        values = np.concatenate([values, -p.slope[sloped] / unit])
        starts = np.append(starts, len(rows))
        cost = np.append(cost, 1.0)
    model = highs.model(
        cost,
        starts=starts,
        rows=rows,
        values=values,
        upper=np.full(len(cost), np.inf),
        row_lower=np.concatenate([np.full(n, -np.inf), need, np.full(m, -np.inf)]),
        row_upper=np.concatenate([np.ones(n), np.full(n, np.inf), p.capacity]),
        maximise=True,
    )
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = highs.solved(model, "an allocation", options=tight).getSolution()
    x = np.maximum(np.array(found.col_value)[:width].reshape(n, m).T, 0.0)
    duals = np.abs(np.array(found.row_dual))
    beta, lam = duals[n : 2 * n], duals[2 * n :]
    t = float(found.col_value[-1]) / unit if p.slope is not None else 0.0
    x, t, objective = repaired(p, x, t)
    beta, lam, bound = bound_of(p, beta, lam, t)
    answer = Solution(
        x=x, t=t, objective=objective, bound=max(bound, objective), rate_value=beta, type_value=lam
    )
    if not answer.gap <= GAP:
        raise ArylError(
            f"HiGHS' answer is certified to a relative gap of {answer.gap:.1e} only; {GAP:.0e} was asked",
            hint="throughputs, weights, steps or ages may differ by too many powers of ten",
        )
    return p.unscaled(answer)
