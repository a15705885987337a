"""HiGHS, quiet: one place that builds its models, and that takes no answer for granted.

``highspy.Highs()`` writes a banner to stdout from its constructor, before any option can be set; stdout is
where our JSON goes. Its base class does the same work without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from arylcloud.core.errors import ArylError
from arylcloud.planner.cluster import F, I


class OutOfNodes(Exception):
    """Branch and bound came to its ``mip_max_nodes`` without a proof. A limit in nodes, not in seconds: the
    same inputs have the same answer on a slow machine and on a fast one."""


NONE: Mapping[str, bool | float | str] = MappingProxyType({})


def model(
    cost: F, *, starts: I, rows: I, values: F, upper: F, row_lower: F, row_upper: F, maximise: bool
) -> Any:
    """A ``HighsLp`` with columns in [0, upper] and the matrix by columns (``starts`` (width + 1,))."""
    import highspy

    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(cost), len(row_upper)
    lp.sense_ = highspy.ObjSense.kMaximize if maximise else highspy.ObjSense.kMinimize
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, np.zeros(len(cost)), upper
    lp.row_lower_, lp.row_upper_ = row_lower, row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = starts.astype(np.int32), rows.astype(np.int32)
    lp.a_matrix_.value_ = values
    return lp


def integral(lp: Any) -> Any:
    """Every column of ``lp`` from here on an integer."""
    import highspy

    lp.integrality_ = [highspy.HighsVarType.kInteger] * lp.num_col_
    return lp


def solved(
    lp: Any, what: str, *, hint: str | None = None, options: Mapping[str, bool | float | str] = NONE
) -> Any:
    """The solver after an optimal run, one thread. :class:`ArylError` with the status of any other end;
    ``what`` names the problem in it."""
    import highspy
    from highspy._core import _Highs

    solver = _Highs()
    for option, value in {"output_flag": False, "threads": 1, **options}.items():
        if solver.setOptionValue(option, value) == highspy.HighsStatus.kError:
            raise ArylError(f"the solver has no option {option}={value}")
    if solver.passModel(lp) == highspy.HighsStatus.kError:
        raise ArylError(f"the solver refuses the model of {what}")
    return solve(solver, what, hint=hint)


def add_row(solver: Any, columns: I, values: F, upper: float) -> None:
    """One more row ``Σ values·x[columns] ≤ upper``; the next :func:`solve` starts from the basis it has."""
    import highspy

    status = solver.addRow(-highspy.kHighsInf, upper, len(columns), columns.astype(np.int32), values)
    if status == highspy.HighsStatus.kError:
        raise ArylError("the solver refuses a row")


def run(solver: Any) -> None:
    """``solver.run()`` in a process that may have run HiGHS with another number of threads before.

    HiGHS keeps one scheduler for the whole process, made by the first run; a run that asks for another number
    of threads ends at once, its status "Not Set". The scheduler is made anew then, and the run begins again.
    """
    import highspy

    solver.run()
    if solver.getModelStatus() == highspy.HighsModelStatus.kNotset:
        solver.resetGlobalScheduler(True)
        solver.run()


def solve(solver: Any, what: str, *, hint: str | None = None) -> Any:
    """Run ``solver``, again or for the first time; :class:`ArylError` unless the end is optimal,
    :class:`OutOfNodes` at the ``mip_max_nodes``."""
    import highspy

    run(solver)
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kSolutionLimit:
        raise OutOfNodes(what)
    if status != highspy.HighsModelStatus.kOptimal:
        raise ArylError(f"{what}: not solved ({solver.modelStatusToString(status)})", hint=hint)
    return solver
