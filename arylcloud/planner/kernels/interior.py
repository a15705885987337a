"""Interior point for linear programs in which jobs meet only at the worker types.

Every per-job policy of Gavel's family is one program (types ``j`` on axis 0, jobs ``i`` on axis 1)::

    max   Σ_ij gain_ij·x_ij,   or   max t                               duals
    s.t.  Σ_j x_ij ≤ time_i                            one row per job   α_i ≥ 0
          Σ_j rate_ij·x_ij ≥ need_i + f_i(t)           one row per job   β_i ≥ 0
          Σ_i gpus_i·x_ij + drift_j·t ≤ capacity_j     one row per type  λ_j ≥ 0
          x ≥ 0

f_i(t) = slope_i·t / (1 − fade_i·t) is convex. Two rows per job and only m rows that couple jobs, so that an
iteration (:mod:`arylcloud.planner.kernels.newton`) is O(n·m²) whatever the jobs are.

Nothing is believed because the method converged: the last iterate is *repaired* into a feasible point, and
its prices (β, λ) completed into a feasible dual, whose value no feasible point exceeds; the solver returns
when the two are closer than ``gap``.

References: Mehrotra, SIAM J. Optim. 2 (1992); Nocedal & Wright, Numerical Optimization, §14.
"""

from __future__ import annotations

import numpy as np

from arylcloud.core.errors import ArylError
from arylcloud.planner.kernels.jobform import F, JobLP, Scaled, Solution, bound_of, repaired, scaled
from arylcloud.planner.kernels.newton import Search

CLOSE = 1e-6
"""Relative: an iterate that breaks a type's row by more is not worth repairing."""


@np.errstate(all="ignore")
def solve(
    lp: JobLP,
    *,
    gap: float = 1e-7,
    most: int = 150,
    start: F | None = None,
    stop_above: float = np.inf,
    stop_below: float = -np.inf,
    offset: float = 0.0,
    near: tuple[F, float, float] | None = None,
) -> Solution:
    """The program to a certified relative ``gap``; of the objective plus ``offset``, where the program is
    only a part of a whole. Numbers that break on the way warn nobody: they are seen by what is certified.

    ``start``: (m, n) a point inside of the rows, for programs whose hard rows (slope 0, need > 0) are not met
    by a small equal share. ``near``: (λ (m,), t, how far the objective may be from the optimum there), where
    the answer is about known. The search also ends once the optimum is known to be at least ``stop_above`` or
    less than ``stop_below``. Raises :class:`ArylError` when ``most`` iterations do not get there.
    """
    view = scaled(lp)
    if near is None:
        search = Search.cold(view, None if start is None else view.inner(start))
    else:
        lam, t, products = near
        search = Search.warm(view, lam[view.kept] / view.unit, t, products / (view.unit * view.rate.size))
    best: Solution | None = None
    offset /= view.unit
    for iteration in range(most):
        objective, bound = search.measure()
        if not np.isfinite(objective) or np.isnan(bound):
            break
        size = max(abs(objective + offset), abs(bound + offset) if np.isfinite(bound) else 0.0)
        close = search.excess <= CLOSE and bound - objective <= gap * size
        if close or objective >= stop_above or bound < stop_below or iteration == most - 1:
            best = _certified(view, search, best, iteration)
            proven = best.bound - best.objective <= gap * size
            if proven or best.objective >= stop_above or best.bound < stop_below:
                return view.unscaled(best)
        try:
            search.move(0.02 * gap * size)
        except np.linalg.LinAlgError:
            break
    stood = "lost its numbers" if best is None else f"stood at a relative gap of {best.gap:.1e}"
    raise ArylError(
        f"the interior point {stood} after {iteration + 1} iterations; {gap:.0e} was asked",
        hint="throughputs, weights, steps or ages may differ by too many powers of ten",
    )


def _certified(view: Scaled, search: Search, best: Solution | None, iteration: int) -> Solution:
    """The better of ``best`` and what this iterate certifies, primal and dual apart."""
    x, beta = search.point()
    x, t, objective = repaired(view, x, search.t)
    beta, lam, bound = bound_of(view, beta, search.lam, search.t)
    if best is not None and best.objective >= objective:
        x, t, objective = best.x, best.t, best.objective
    if best is not None and best.bound <= bound:
        beta, lam, bound = best.rate_value, best.type_value, best.bound
    bound = max(bound, objective)  # they may cross by a rounding
    return Solution(
        x=x, t=t, objective=objective, bound=bound, rate_value=beta, type_value=lam, iterations=iteration
    )
