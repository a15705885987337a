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


def solve(
    lp: JobLP,
    *,
    gap: float = 1e-7,
    most: int = 150,
    start: F | None = None,
    stop_above: float = np.inf,
    stop_below: float = -np.inf,
) -> Solution:
    """The program to a certified relative ``gap``.

    ``start``: (m, n) a point inside of the rows, for programs whose hard rows (slope 0, need > 0) are not met
    by a small equal share. The search also ends once the optimum is known to be at least ``stop_above`` or
    less than ``stop_below``. Raises :class:`ArylError` when ``most`` iterations do not get there.
    """
    view = scaled(lp)
    search = Search(view, None if start is None else view.inner(start))
    best: Solution | None = None
    for iteration in range(most):
        objective, bound = search.measure()
        if not np.isfinite(objective) or np.isnan(bound):
            break
        close = bound - objective <= gap * max(abs(objective), abs(bound))
        if close or objective >= stop_above or bound < stop_below or iteration == most - 1:
            best = _certified(view, search, best, iteration)
            if best.gap <= gap or best.objective >= stop_above or best.bound < stop_below:
                return view.unscaled(best)
        search.move(0.02 * gap * abs(bound))
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
    return Solution(
        x=x, t=t, objective=objective, bound=bound, rate_value=beta, type_value=lam, iterations=iteration
    )
