"""The program of :mod:`arylcloud.planner.kernels.jobform` for HiGHS, row by row: the independent check."""

from __future__ import annotations

from fractions import Fraction

import highspy
import numpy as np
from highspy._core import _Highs
from hypothesis import strategies as st

from arylcloud.planner.kernels.jobform import F, JobLP, Solution


def highs(lp: JobLP, *, method: str = "choose") -> float | None:
    """The optimum by HiGHS at its tightest tolerances; None where there is no feasible point. No ``fade``."""
    assert lp.fade is None
    m, n = lp.rate.shape
    at = np.arange(m * n).reshape(m, n)
    with_t = int(lp.slope is not None)
    columns: list[F] = []
    values: list[F] = []
    low: list[float] = []
    high: list[float] = []
    time = np.ones(n) if lp.time is None else lp.time
    need = lp.need if lp.need is not None else np.full(n, -np.inf if lp.slope is None else 0.0)
    # rows are scaled, or an absolute tolerance means nothing
    usable = lp.rate[lp.capacity > 0]
    size = np.maximum(usable.max(axis=0, initial=0.0), 1e-300)
    stretch = 1.0 if lp.slope is None else float((lp.slope / size).max())
    for i in range(n):
        columns.append(at[:, i])
        values.append(np.ones(m))
        low.append(-np.inf)
        high.append(time[i])
        slope = 0.0 if lp.slope is None else lp.slope[i]
        if need[i] > -np.inf:
            extra = [m * n] if slope else []
            columns.append(np.concatenate([at[:, i], extra]))
            values.append(np.concatenate([lp.rate[:, i], [-slope / stretch] if slope else []]) / size[i])
            low.append(need[i] / size[i])
            high.append(np.inf)
    for j in range(m):
        extra = [m * n] if lp.drift is not None else []
        columns.append(np.concatenate([at[j], extra]))
        values.append(np.concatenate([lp.gpus, [lp.drift[j] / stretch] if lp.drift is not None else []]))
        low.append(-np.inf)
        high.append(lp.capacity[j])
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = m * n + with_t, len(low)
    cost = np.zeros(m * n + with_t)
    if with_t:
        cost[-1] = 1.0
    else:
        cost[:] = lp.gain.ravel()
    unit = float(np.abs(cost).max(initial=0.0)) or 1.0
    model.col_cost_ = cost / unit
    model.col_lower_ = np.concatenate([np.zeros(m * n), [-np.inf] * with_t])
    model.col_upper_ = np.full(m * n + with_t, np.inf)
    model.row_lower_, model.row_upper_ = np.array(low), np.array(high)
    model.sense_ = highspy.ObjSense.kMaximize
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.concatenate([[0], np.cumsum([len(row) for row in columns])]).astype(np.int32)
    model.a_matrix_.index_ = np.concatenate(columns).astype(np.int32)
    model.a_matrix_.value_ = np.concatenate(values).astype(float)
    solver = _Highs()
    for option, value in {
        "output_flag": False,
        "threads": 1,
        "solver": method,
        "small_matrix_value": 1e-12,
        "primal_feasibility_tolerance": 1e-10,
        "dual_feasibility_tolerance": 1e-10,
    }.items():
        solver.setOptionValue(option, value)
    solver.passModel(model)
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return None
    assert status == highspy.HighsModelStatus.kOptimal, solver.modelStatusToString(status)
    return float(solver.getInfo().objective_function_value) * unit / (stretch if with_t else 1.0)


def proven(lp: JobLP, found: Solution) -> tuple[Fraction, Fraction]:
    """(objective, bound) of a program in t, linear, from its point and its prices, in exact arithmetic.

    The point is first shrunk until it is exactly feasible, the prices scaled until they are exactly dual
    feasible: no rounding, no tolerance and no solver stands between the program and these two numbers.
    """
    assert lp.slope is not None
    exact = np.vectorize(Fraction, otypes=[object])
    rate, gpus, capacity, slope = (exact(part) for part in (lp.rate, lp.gpus, lp.capacity, lp.slope))
    x = exact(np.maximum(found.x, 0.0))
    x = x / max(Fraction(1), *x.sum(axis=0))
    for j, used in enumerate(x @ gpus):
        if used > capacity[j]:
            x[j] = x[j] * (capacity[j] / used)
    got = (rate * x).sum(axis=0)
    objective = min(g / s for g, s in zip(got, slope, strict=True) if s > 0)
    beta, lam = exact(found.rate_value), exact(found.type_value)
    mass = sum(slope * beta)
    kept = lp.capacity > 0
    best = (rate[kept] * beta - gpus * lam[kept][:, None]).max(axis=0)
    bound = (sum(max(Fraction(0), value) for value in best) + sum(capacity * lam)) / mass
    return objective, bound


@st.composite
def clusters(
    draw: st.DrawFn, *, most_jobs: int = 12, decades: float = 1.0, zeros: bool = True
) -> tuple[F, F, F]:
    """(rate (m, n), gpus (n,), capacity (m,)): rates over ±``decades`` powers of ten, some 0, repeated rows,
    types without workers, jobs larger than the cluster. Every job runs somewhere."""
    m = draw(st.integers(1, 4))
    n = draw(st.integers(1, most_jobs))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    rate = 10 ** rng.uniform(-decades, decades, (m, n))
    if draw(st.booleans()):
        rate[:, n // 2 :] = rate[:, : n - n // 2]
    capacity = rng.integers(0 if m > 1 else 1, max(2, n), m).astype(float)
    if not capacity.any():
        capacity[0] = 1.0
    if zeros:
        rate *= rng.random((m, n)) > 0.2
    anywhere = int(np.argmax(capacity))
    rate[anywhere, (rate[capacity > 0] > 0).sum(axis=0) == 0] = 1.0
    gpus = 2.0 ** rng.integers(0, 4, n) if draw(st.booleans()) else np.ones(n)
    return rate, gpus, capacity


def miss(lp: JobLP, x: F, t: float) -> float:
    """The largest relative violation of any row at (x, t)."""
    time = np.ones(len(lp.gpus)) if lp.time is None else lp.time
    used = x @ lp.gpus + (0.0 if lp.drift is None else lp.drift * t)
    worst = max(
        float(-x.min(initial=0.0)),
        float((x.sum(axis=0) / time - 1.0).max()),
        float(((used - lp.capacity) / np.maximum(lp.capacity, 1.0)).max()),
    )
    need = lp.need if lp.need is not None else np.full(len(lp.gpus), -np.inf if lp.slope is None else 0.0)
    if lp.slope is not None:
        fade = 0.0 if lp.fade is None else lp.fade
        need = need + lp.slope * t / (1.0 - fade * t)
    asks = need > 0
    if asks.any():
        got = (lp.rate * x).sum(axis=0)
        worst = max(worst, float(((need - got)[asks] / need[asks]).max()))
    return worst
