"""Cluster problems as plain linear programmes for HiGHS, a column per single job or pair and worker type:
slow, and sharing nothing with the policies' own solvers."""

from __future__ import annotations

from dataclasses import dataclass, field

import highspy
import numpy as np

from arylcloud.planner.cluster import ClusterProblem, F


@dataclass(kw_only=True)
class Columns:
    """``rate`` (n, columns): what each column gives to each job; ``time`` likewise; ``used`` (m, columns)."""

    rate: F
    time: F
    used: F
    workers: F
    rows: list[tuple[F, float, float]] = field(default_factory=list)
    """Further constraints on (columns, and t): coefficients, lower, upper."""


def columns(problem: ClusterProblem, throughput: F | None = None) -> Columns:
    """``throughput``: what the policy believes instead of the truth (single jobs only)."""
    believed = problem.throughput if throughput is None else throughput
    n, m = believed.shape
    rows: list[tuple[tuple[int, ...], F]] = [((i,), believed[i][None, :]) for i in range(n)]
    if problem.sharing is not None and throughput is None:
        c, rate = problem.sharing.job_class, problem.sharing.rate
        rows += [
            ((a, b), np.stack([rate[c[a], c[b]], rate[c[b], c[a]]]))
            for a in range(n)
            for b in range(a + 1, n)
            if problem.gpus[a] == problem.gpus[b]
        ]
    size = len(rows) * m
    found = Columns(
        rate=np.zeros((n, size)), time=np.zeros((n, size)), used=np.zeros((m, size)), workers=problem.workers
    )
    for r, (members, rates) in enumerate(rows):
        at = slice(r * m, (r + 1) * m)
        for k, i in enumerate(members):
            found.rate[i, at] = rates[k]
            found.time[i, at] = 1
        found.used[:, at] = np.eye(m) * problem.gpus[members[0]]
    return found


def largest(
    of: Columns, gain: F, *, t: float = 0.0, rows: list[tuple[F, float, float]] | None = None
) -> float | None:
    """``max gain·x + t·τ`` over columns x ∈ [0, 1] and τ ≥ 0; None where no x keeps the rows."""
    unit = float(max(abs(gain).max(initial=0.0), abs(t))) or 1.0
    lp = highspy.Highs()
    lp.silent()
    lp.setOptionValue("primal_feasibility_tolerance", 1e-10)
    lp.setOptionValue("dual_feasibility_tolerance", 1e-10)
    lp.setOptionValue("threads", 1)  # once per process: HiGHS refuses to run with another number later
    for value in (*gain, t):
        lp.addCol(-float(value) / unit, 0.0, highspy.kHighsInf, 0, [], [])
    zero = np.zeros(1)
    every = [(np.append(row, zero), -np.inf, 1.0) for row in of.time]
    every += [(np.append(row, zero), -np.inf, w) for row, w in zip(of.used, of.workers, strict=True)]
    for coefficients, low, high in (*every, *(rows or ())):
        at = np.flatnonzero(coefficients)
        big = abs(coefficients).max(initial=0.0) or 1.0  # tolerances are absolute
        lp.addRow(max(low / big, -1e30), min(high / big, 1e30), len(at), at, coefficients[at] / big)
    lp.run()
    status = lp.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return None
    assert status == highspy.HighsModelStatus.kOptimal, status
    return -float(lp.getInfo().objective_function_value) * unit


def at_least(of: Columns, needs: F, t: F) -> list[tuple[F, float, float]]:
    """Rows ``rate_i ≥ needs_i + t_i·τ``."""
    return [
        (np.append(row, -slope), need, np.inf) for row, need, slope in zip(of.rate, needs, t, strict=True)
    ]


def common(of: Columns, slope: F) -> float:
    """``max τ`` with ``rate_i ≥ slope_i·τ`` for every job."""
    none = np.zeros(of.rate.shape[1])
    unit = float((slope / of.rate.max(axis=1)).max())
    found = largest(of, none, t=1.0, rows=at_least(of, np.zeros(len(slope)), slope / unit))
    assert found is not None
    return found / unit


def filled(of: Columns, slope: F) -> F:
    """(n,) the lexicographically largest vector of ``rate_i/slope_i``, ascending: raise all that can still be
    raised together, then find, one by one, who cannot be raised alone."""
    n, none = len(slope), np.zeros(of.rate.shape[1])
    level = np.zeros(n)
    active = np.ones(n, dtype=bool)
    while active.any():
        held = level * slope * (1 - 1e-10)
        rows = at_least(of, np.where(active, 0.0, held), np.where(active, slope, 0.0))
        t = largest(of, none, t=1.0, rows=rows)
        assert t is not None
        level[active] = t
        needs = level * slope * (1 - 1e-10)
        more = np.full(n, np.inf)
        for i in np.flatnonzero(active):
            best = largest(of, of.rate[i], rows=at_least(of, needs, np.zeros(n)))
            assert best is not None
            more[i] = best / (level[i] * slope[i]) - 1
        active &= more > max(
            1e-6, more.min()
        )  # somebody is held back; the least of gains is a rounding error
    return np.sort(level)
