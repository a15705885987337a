"""Why a plan of many jobs is not better, and why there is none: capacity, deadlines, budget.

What one more GPU is worth is found by solving again with one more, where the shadow price (the dual of the
pool's row) is above 0: a dual is the value of a GPU just there, at a corner of the program one of several,
and never less than what a whole one brings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from arylcloud.core.errors import InfeasibleError
from arylcloud.core.job import JobSpec
from arylcloud.core.units import say_duration, say_usd, say_usd_over
from arylcloud.planner import gangs
from arylcloud.planner.answers import SHORT, Bought, keeps, least_usd, solve
from arylcloud.planner.cluster import ClusterProblem, F
from arylcloud.planner.manyplan import Binding, UsedPool, Worth
from arylcloud.planner.policies.registry import Policy
from arylcloud.planner.pools import Menu
from arylcloud.planner.relax import up
from arylcloud.planner.together import HOUR_S, Columns, steps_of

UNITS = {
    "min_cost": "$",
    "max_sum_throughput_perf": "work units/s",
    "max_sum_throughput_normalized_by_cost_perf": "(work units/s)/($/h)",
    "max_sum_throughput_normalized_by_cost_perf_SLOs": "(work units/s)/($/h)",
    "sia": "of Sia's utility",
    "pollux": "of the sum of speed-ups",
    "allox": "s of all jobs' ends, added up",
}
FAMILIES = {
    "max_min_fairness": "of the least share (1 = a slice of every pool in proportion)",
    "finish_time_fairness": "of the worst ratio of finish time, shared to alone",
    "min_total_duration": "s of makespan",
}
MOST_DEADLINES = 8
"""Jobs whose deadline's worth is found by solving again."""
NOISE = 3e-6
"""Relative: gains below it are the solvers'."""
LEAST_USD = 0.005
FURTHEST = 64.0
"""Times as far: beyond it a later deadline is no answer."""


def unit_of(name: str) -> str | None:
    """Of a policy's objective; None where it has none."""
    return UNITS.get(name) or next((u for family, u in FAMILIES.items() if name.startswith(family)), None)


def worths(
    chosen: Policy,
    problem: ClusterProblem | None,
    steps: Sequence[int],
    duals: F | None,
    objective: object,
    rng: np.random.Generator,
    bought: Bought | None,
) -> list[Worth | None]:
    """Of so many more GPUs of every pool as ``steps`` says, found by solving again. Where ``problem`` is None
    (configurations) or the step 0: the shadow price of one."""
    unit = unit_of(chosen.name)
    if duals is None or unit is None or not isinstance(objective, float):
        return [None] * (0 if duals is None else len(duals))
    again = problem is not None and any(steps) and bool((duals > 0).any())
    before = _value(chosen, problem, rng, bought) if again and problem is not None else 0.0
    found: list[Worth | None] = []
    for j, dual in enumerate(duals.tolist()):
        gain, gpus = max(float(dual), 0.0), 1 if problem is None else max(steps[j], 1)
        if problem is not None and steps[j] and gain > 0:
            after = _value(chosen, _more(problem, j, gpus), rng, bought)
            gain = after - before if chosen.sense == "max" else before - after
            gain = gain if gain > NOISE * abs(before) else 0.0
        per_hour = None
        if unit == "$" and problem is not None and problem.deadline_s is not None:
            finite = problem.deadline_s[np.isfinite(problem.deadline_s)]
            per_hour = gain / (float(finite.max()) / HOUR_S) if len(finite) else None
        found.append(Worth(gpus=gpus, value=gain, unit=unit, usd_per_hour=per_hour))
    return found


def _value(chosen: Policy, problem: ClusterProblem, rng: np.random.Generator, bought: Bought | None) -> float:
    """The policy's objective; of hours that are bought what no plan goes below, by the program that pools a
    type's hours and by the one that knows when they fall and what gangs stand side by side."""
    found = solve(chosen, problem, rng, None)
    assert isinstance(found.objective, float)
    if bought is None or problem.deadline_s is None or found.seconds is None:
        return found.objective
    waits = np.where(np.isinf(problem.deadline_s)[:, None], found.seconds, 0.0)
    return max(found.objective, least_usd(problem, waits))


def capacity(pools: Sequence[UsedPool]) -> list[Binding]:
    """Pools of which one more GPU would help, the most valuable first."""
    found = []
    for pool in pools:
        worth = pool.worth
        if worth is None or worth.value <= 0:
            continue
        text = f"one more {pool.name} is" if worth.gpus == 1 else f"{worth.gpus} more {pool.name} are"
        if worth.usd_per_hour is not None:
            text += f" worth {_small_usd(worth.usd_per_hour)}/h to this set"
            text += f" ({say_usd(worth.value)} by the last deadline)"
        else:
            text += f" worth {worth.value:.3g} {worth.unit}"
        found.append(Binding(kind="capacity", name=pool.name, value=worth.value, unit=worth.unit, text=text))
    return sorted(found, key=lambda b: (-(b.value or 0.0), b.name))


def later(
    chosen: Policy,
    problem: ClusterProblem,
    bought: Bought,
    specs: Sequence[JobSpec],
    rng: np.random.Generator,
) -> list[Binding]:
    """Jobs that run all the time until their deadline, and what one more hour would save."""
    deadline = problem.deadline_s
    if deadline is None:
        return []
    busy = bought.run.held_s.sum(axis=1) >= deadline * (1 - 1e-6)
    usd = (bought.run.held_s * problem.gpus[:, None] * problem.prices).sum(axis=1)
    tight = sorted(np.flatnonzero(busy).tolist(), key=lambda i: (-usd[i], i))
    found = []
    before = _value(chosen, problem, rng, bought) if tight else 0.0
    for i in tight[:MOST_DEADLINES]:
        end = deadline.copy()
        end[i] += HOUR_S
        saved = before - _value(chosen, replace(problem, deadline_s=end), rng, bought)
        if saved > max(NOISE * before, LEAST_USD):
            text = f"{specs[i].name}: an hour more until its deadline saves {say_usd(saved)}"
            found.append(
                Binding(kind="deadline", name=specs[i].name, value=saved, unit="$ per hour", text=text)
            )
    return found


def deadlines_missed(
    specs: Sequence[JobSpec],
    menu: Menu,
    columns: Columns,
    problem: ClusterProblem,
    short: F,
    rng: np.random.Generator,
) -> InfeasibleError:
    """Which deadlines cannot be kept by any timetable, and the nearest sets that can."""
    assert problem.deadline_s is not None
    alone_h = np.nanmin(columns.hours_p90, axis=1)
    hopeless = np.flatnonzero(alone_h > problem.deadline_s / HOUR_S)
    if len(hopeless):
        parts = []
        for i in hopeless.tolist():
            k = int(np.nanargmin(columns.hours_p90[i]))
            what = f"{int(columns.gpus[i, k])} × {menu.pools[int(columns.pool[k])].name}"
            parts.append(
                f"{specs[i].name} needs {_h(alone_h[i])} alone on {what} (p90), and has"
                f" {_h(problem.deadline_s[i] / HOUR_S)}"
            )
        later_h = ", ".join(f"{specs[i].name} {up(float(alone_h[i])):g}h" for i in hopeless.tolist()[:6])
        return InfeasibleError(
            f"deadlines that cannot be met even alone: {_some(parts)}",
            hint=f"deadlines of at least: {later_h}; or a faster GPU in --capacity",
        )
    names = [
        f"{specs[i].name} ({_h(problem.deadline_s[i] / HOUR_S)})" for i in np.argsort(-short, kind="stable")
        if short[i] > SHORT
    ]  # fmt: skip
    return InfeasibleError(
        "capacity: each deadline can be met alone, and no timetable of whole gangs"
        f" {'meets all' if gangs.few(problem) else 'was found that meets all'};"
        f" too late would be: {_some(names)}",
        hint=nearest(menu, columns, problem, rng) or "later deadlines, more GPUs, or fewer jobs",
    )


def nearest(menu: Menu, columns: Columns, problem: ClusterProblem, rng: np.random.Generator) -> str:
    """The smallest changes, each alone, with which every deadline is kept."""
    deadline = problem.deadline_s
    assert deadline is not None

    def works(changed: ClusterProblem) -> bool:
        return keeps(changed, rng)

    def enough(pool: int, count: int) -> bool:
        return works(_more(problem, pool, count * steps[pool]))

    ways = []
    most, steps = float(problem.gpus.sum()), steps_of(columns)
    extra: list[tuple[int, int]] = []
    for j in range(len(menu.pools)):
        if (problem.throughput[:, j] > 0).any():
            need = _least_whole(partial(enough, j), math.ceil(most / steps[j]))
            if need is not None:
                # what is above a multiple of the gangs is there already
                idle = menu.pools[j].gpus % steps[j]
                extra.append((need * steps[j] - idle, j))
    for need, j in sorted(extra)[:3]:
        pool = menu.pools[j]
        plural = "" if need == 1 else "s"
        if pool.place is None:
            ways.append(
                f"{need} more {pool.gpu}{plural}: --capacity with {pool.gpu.lower()}={pool.gpus + need}"
            )
        else:
            ways.append(f"a quota of {pool.gpus + need} {pool.name}")
    factor = _least_factor(lambda f: works(replace(problem, deadline_s=deadline * f)))
    if factor is not None:
        ways.append(f"all deadlines {up(factor):g} times as far")
    return "; or ".join(ways)


def over_budget(budget: float, usd_p90: float, least: float | None) -> InfeasibleError:
    """``least``: the smallest pessimistic total of any plan; None = the plan's own is."""
    what = "the cheapest plan" if least is None else "this plan"
    hint = f"--budget {up(usd_p90):g}, later deadlines, or fewer jobs"
    if least is not None:
        cheaper = f"--policy min_cost needs {say_usd(least)}"
        hint = f"{cheaper}; or {hint}" if least < usd_p90 else hint
    takes = say_usd_over(usd_p90, budget)
    return InfeasibleError(
        f"budget ${budget:g}: {what} takes {takes} (p90, all jobs at their bad end)", hint=hint
    )


def _more(problem: ClusterProblem, pool: int, count: int) -> ClusterProblem:
    workers = problem.workers.copy()
    workers[pool] += count
    return replace(problem, workers=workers)


def _least_whole(works: Callable[[int], bool], most: int) -> int | None:
    """The smallest whole number ≥ 1 that works (within 5 %), where a larger one always does; None where
    ``most`` does not."""
    if not works(most):
        return None
    low, high = 0, most
    while high - low > max(1, high // 20):
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return high


def _least_factor(works: Callable[[float], bool]) -> float | None:
    """To three digits, rounded up."""
    if not works(FURTHEST):
        return None
    low, high = 1.0, FURTHEST
    while high / low > 1.02:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if works(middle) else (middle, high)
    return high


def _some(parts: Sequence[str], most: int = 6) -> str:
    more = f" and {len(parts) - most} more" if len(parts) > most else ""
    return ", ".join(parts[:most]) + more


def _h(hours: float) -> str:
    return say_duration(float(hours) * 3600.0)


def _small_usd(value: float) -> str:
    return f"${value:.2f}" if value >= 0.1 else f"${value:.3g}"
