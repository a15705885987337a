"""Where one job alone keeps t down: all the time on its fastest type, it is the program's proof.

The types' prices are then 0 and say nothing of what the other jobs do (typical of makespan). These get what t
asks for, by the cheapest mixes at prices at which a sample of them fits; the one job's own row is the bound.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arylcloud.planner.kernels.hull import cheapest
from arylcloud.planner.kernels.jobform import F, JobLP, Scaled, Solution, bound_of, repaired, scaled

FITTING_STEPS = 25
FITTING = 0.97
"""Of a sample's part of every type: what it may use for the whole to fit, most likely."""


def alone(lp: JobLP) -> F:
    """(n,) the t that each job would let the others have, on its fastest type all the time."""
    view = scaled(lp)
    return view.each_reached(view.rate.max(axis=0) - view.need)


def at_bottleneck(
    lp: JobLP, type_value: F, t: float, few: NDArray[np.int64], *, gap: float
) -> Solution | None:
    """The answer where one job alone keeps t down, on its fastest type all the time; ``type_value`` and
    ``t``, at least the optimum, only steer the other jobs. None where that is not so, or not seen.
    ``few``: jobs by which prices are found at which all fit.

    The others get what t asks for and then of their idle time as much as the workers' leaves room for.
    """
    view = scaled(lp)
    if view.slope is None or lp.drift is not None or not t > 0:
        return None
    reach = view.rate.max(axis=0) - view.need
    top = view.reached(reach)
    aim = top * (1.0 - 0.1 * gap)
    lam = np.maximum(type_value[view.kept], 0.0)
    if aim > t or not (lam > 0).any():
        return None
    x = _kept_pace(view, _fitting(view, lam, aim, few), aim)
    if x is None or (x @ view.gpus > view.capacity).any():
        return None
    idle = np.maximum(1.0 - x.sum(axis=0), 0.0) / len(x)
    room = np.maximum(view.capacity - x @ view.gpus, 0.0)
    x += idle * np.minimum(1.0, room / np.maximum(idle @ view.gpus, 1e-300))[:, None]
    x, reached, objective = repaired(view, x, aim)
    last = int(view.each_reached(reach).argmin())
    beta = np.zeros(len(view.gpus))
    beta[last] = 1.0
    beta, none, bound = bound_of(view, beta, np.zeros_like(lam), top)
    answer = Solution(
        x=x, t=reached, objective=objective, bound=max(bound, objective), rate_value=beta, type_value=none
    )
    return view.unscaled(answer) if answer.gap <= gap else None


def _kept_pace(view: Scaled, lam: F, t: float) -> F | None:
    """(m, n) the cheapest mixes at t."""
    level = np.maximum(view.need + view.asked(t)[0], 0.0)
    mix = cheapest(view.rate, view.gpus * lam[:, None], level)
    if not np.isfinite(mix.cost).all():
        return None
    return mix.shares(len(view.capacity))


def _fitting(view: Scaled, lam: F, t: float, few: NDArray[np.int64]) -> F:
    """Prices near ``lam`` at which ``few`` jobs, at t, use of every type less than their part of it: too much
    used and the price goes up, too little and it goes down, by ever smaller steps."""
    rate, gpus = view.rate[:, few], view.gpus[few]
    level = np.maximum(view.need + view.asked(t)[0], 0.0)[few]
    room = view.capacity * (len(few) / len(view.gpus))
    best, least = lam, np.inf
    for step in range(FITTING_STEPS):
        load = (cheapest(rate, gpus * lam[:, None], level).shares(len(room)) @ gpus) / room
        if load.max() < least:
            best, least = lam, load.max()
        if least < FITTING:
            break
        lam = lam * np.clip(load, 0.5, 2.0) ** (0.5 / (1.0 + 0.2 * step))
    return best
