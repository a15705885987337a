"""The answer "no": which requirement binds, and the nearest change that would make it "yes"."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from arylcloud.core.errors import InfeasibleError
from arylcloud.core.job import Constraints, JobSpec
from arylcloud.planner.estimator import Refusal
from arylcloud.planner.feasible import Feasible, feasible
from arylcloud.planner.inputs import Candidates
from arylcloud.planner.memory import MEMORY
from arylcloud.pricing.table import OfferTable

if TYPE_CHECKING:
    from arylcloud.planner.evaluate import Evaluation


def nothing_offered(spec: JobSpec, table: OfferTable, found: Feasible) -> InfeasibleError:
    """Not one offer satisfies the requirements."""
    if not len(table):
        return InfeasibleError("there are no offers at all", hint="`arylcloud prices` shows what is known")
    binding = found.rejected[-1]
    message = (
        f"no offer satisfies the job: the last {binding.count:,} of {len(table):,} fall to"
        f" {binding.reason!r} (such as {binding.example})"
    )
    ways = list(_single_changes(spec, table))
    return InfeasibleError(message, hint="; or ".join(ways[:3]) or "relax two requirements at once")


def _single_changes(spec: JobSpec, table: OfferTable) -> Iterator[str]:
    """Each requirement that alone stands in the way, with what would do."""
    resources, limits = spec.resources, spec.constraints
    plain = () if not resources.any_of else resources.any_of

    def works(changed: JobSpec) -> Feasible | None:
        offers = feasible(changed, table)
        return offers if offers.rows.size else None

    if limits.max_usd_per_hour is not None:
        offers = works(replace(spec, constraints=replace(limits, max_usd_per_hour=None)))
        if offers is not None:
            row = int(offers.rows[np.argmin(table.usd_per_hour[offers.rows])])
            price = float(table.usd_per_hour[row])
            yield f"raise max_usd_per_hour to ${price:.4g} ({table.row(row).key})"
    if spec.market != "auto" and works(replace(spec, market="auto")) is not None:
        yield f"allow {'on-demand' if spec.market == 'spot' else 'spot'} machines (market: auto)"
    if resources.accelerators:
        counts = works(replace(spec, resources=replace(resources, accelerators=(), any_of=plain)))
        if counts is not None:
            yield f"choose among the GPUs that are offered so: {_offered(table, counts)}"
    for name, what in (
        ("zones", "another zone"),
        ("regions", "another region"),
        ("clouds", "another cloud"),
        ("instance_types", "another instance type"),
    ):
        if getattr(resources, name):
            # a region implies its zones, a cloud its regions: dropping the outer drops the inner
            drop = {
                "zones": ("zones",),
                "regions": ("zones", "regions"),
                "clouds": ("zones", "regions", "clouds"),
            }
            fields: dict[str, Any] = dict.fromkeys(drop.get(name, (name,)), ())
            if (offers := works(replace(spec, resources=replace(resources, **fields)))) is not None:
                yield f"allow {what} ({table.row(int(offers.rows[0])).key})"
    for name, what in (("min_vcpus", "cpus"), ("min_mem_gib", "memory")):
        without: dict[str, Any] = {name: None}
        if getattr(resources, name) is not None and works(
            replace(spec, resources=replace(resources, **without))
        ):
            yield f"ask for less {what}"


def _offered(table: OfferTable, offers: Feasible) -> str:
    pairs = sorted({(int(table.gpu[i]), int(table.gpu_count[i])) for i in offers.rows})
    names = sorted(f"{table.gpu_names[gpu]}:{count}" for gpu, count in pairs)
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def nothing_estimated(cands: Candidates) -> InfeasibleError:
    """Offers there are, but nobody knows what the job would get out of them."""
    refusals = [e for e in cands.estimates if isinstance(e, Refusal)]
    small = [e for e in refusals if e.label == MEMORY]
    if small and len(small) == len(refusals):
        nearest = min(small, key=lambda e: e.short_gib or math.inf)
        return InfeasibleError(
            f"no offer has enough GPU memory: {nearest.reason}",
            hint="allow GPUs with more memory, more of them per machine, or more machines (nodes)",
        )
    if refusals:
        return InfeasibleError(f"no offer can be estimated: {refusals[0].reason}", hint=refusals[0].measure)
    reason = cands.rejected[-1].reason if cands.rejected else "no candidate"
    return InfeasibleError(f"no offer is left: {reason}", hint="say where the data lies: data: region")


def no_peak_known(spec: JobSpec) -> InfeasibleError:
    names = ", ".join(a.gpu for a in spec.resources.accelerators) or "these GPUs"
    return InfeasibleError(
        f"no profile, and the peak TFLOPS of {names} are not known",
        hint="say aryl: profile with your own rates",
    )


def limits_missed(
    spec: JobSpec,
    table: OfferTable,
    every: Evaluation,
    evaluated: Callable[[JobSpec, Feasible], Evaluation],
) -> InfeasibleError:
    """Candidates there are, but none within deadline, budget and max_runtime at p90."""
    if not every.finite.any():
        return InfeasibleError(
            "no candidate would ever finish: machines are lost faster than checkpoints are saved",
            hint="allow on-demand machines (market: auto), or make checkpoints smaller",
        )
    if every.adverse is None:
        return InfeasibleError(
            "recovery is none, and every offer may be taken back",
            hint="market: spot accepts that; or on_demand",
        )
    alone = {name: _within(every, spec.constraints, (name,)) for name in _set(spec.constraints)}
    binding = [name for name, mask in alone.items() if not mask.any()]
    outs = list(_other_ways(spec, table, evaluated))
    if not binding:
        message, change = _together(spec, table, every)
    else:
        message, change = _one_limit(spec, table, every, binding[0])
        if len(binding) > 1:
            message += f" (and {' and '.join(binding[1:])} cannot be met either)"
    return InfeasibleError(message, hint="; or ".join([change, *outs]))


def _set(limits: Constraints) -> list[str]:
    named = {"deadline": limits.deadline_s, "budget": limits.budget_usd, "max_runtime": limits.max_runtime_s}
    return [name for name, value in named.items() if value is not None]


def _within(every: Evaluation, limits: Constraints, names: tuple[str, ...]) -> NDArray[np.bool_]:
    adverse, mask = every.adverse, every.finite.copy()
    assert adverse is not None
    if "deadline" in names and limits.deadline_s is not None:
        mask &= adverse.hours * 3600.0 <= limits.deadline_s
    if "budget" in names and limits.budget_usd is not None:
        mask &= adverse.usd_mean <= limits.budget_usd
    if "max_runtime" in names and limits.max_runtime_s is not None:
        mask &= adverse.run_hours * 3600.0 <= limits.max_runtime_s
    return mask


def _one_limit(spec: JobSpec, table: OfferTable, every: Evaluation, name: str) -> tuple[str, str]:
    adverse, limits = every.adverse, spec.constraints
    assert adverse is not None
    if name == "budget":
        i = _least(adverse.usd_mean, every.finite)
        need = float(adverse.usd_mean[i])
        return (
            f"budget ${limits.budget_usd:g}: the cheapest feasible run needs ${need:,.2f} (p90)"
            f" on {_what(table, every, i)}",
            f"raise the budget to ${_up(need):g}",
        )
    values = adverse.hours if name == "deadline" else adverse.run_hours
    limit_s = limits.deadline_s if name == "deadline" else limits.max_runtime_s
    assert limit_s is not None
    i = _least(values, every.finite)
    need = float(values[i])
    return (
        f"{name} {_span(limit_s)}: the fastest feasible run needs {need:.1f} h (p90)"
        f" on {_what(table, every, i)}",
        f"relax {name} to {_up(need):g}h",
    )


def _span(limit_s: float) -> str:
    """As the user may have written it: minutes below an hour."""
    return f"{limit_s / 60:.3g}m" if limit_s < 3600 else f"{limit_s / 3600:g}h"


def _together(spec: JobSpec, table: OfferTable, every: Evaluation) -> tuple[str, str]:
    """Each limit can be met, not all at once: what the money buys, and what the time costs."""
    adverse, limits = every.adverse, spec.constraints
    assert adverse is not None
    names = _set(limits)
    others = tuple(name for name in names if name != "budget")
    if limits.budget_usd is None:
        i = _least(adverse.hours, _within(every, limits, ("max_runtime",)))
        need = float(adverse.hours[i])
        return (
            f"deadline and max_runtime together: the fastest run needs {need:.1f} h (p90)",
            f"relax deadline to {_up(need):g}h",
        )
    i = _least(adverse.usd_mean, _within(every, limits, others))
    j = _least(adverse.hours, _within(every, limits, ("budget",)))
    money, time = float(adverse.usd_mean[i]), float(adverse.hours[j])
    return (
        f"{' and '.join(names)} together: in time it costs at least ${money:,.2f}"
        f" (p90, {_what(table, every, i)}),"
        f" within ${limits.budget_usd:g} it takes at least {time:.1f} h (p90, {_what(table, every, j)})",
        f"raise the budget to ${_up(money):g}, or relax {others[0]} to {_up(time):g}h",
    )


def _other_ways(
    spec: JobSpec, table: OfferTable, evaluated: Callable[[JobSpec, Feasible], Evaluation]
) -> Iterator[str]:
    """Changes that need no other limits: another market, more machines, any GPU."""
    resources = spec.resources
    changes: list[tuple[str, JobSpec]] = []
    if spec.market != "auto":
        other = "on-demand" if spec.market == "spot" else "spot"
        changes.append((f"allow {other} (market: auto)", replace(spec, market="auto")))
    more = min(2 * spec.nodes_max, 64)
    changes.append(
        (f"allow up to {more} machines (nodes: {spec.nodes_min}..{more})", replace(spec, nodes_max=more))
    )
    if resources.accelerators and not resources.any_of:
        any_gpu = replace(resources, accelerators=(), ordered=False)
        changes.append(("allow any GPU", replace(spec, resources=any_gpu)))
    for text, changed in changes:
        offers = feasible(changed, table)
        if offers.rows.size and evaluated(changed, offers).acceptable.any():
            yield text


def _least(values: NDArray[np.float64], mask: NDArray[np.bool_]) -> int:
    return int(np.argmin(np.where(mask, values, np.inf)))


def _what(table: OfferTable, every: Evaluation, i: int) -> str:
    return f"{int(every.cands.nodes[i])} × {table.row(int(every.cands.rows[i])).key}"


def _up(value: float) -> float:
    """Rounded up to three digits, so that what is proposed really suffices.

    >>> _up(14.21), _up(1234.5)
    (14.3, 1240.0)
    """
    digits = 2 - int(np.floor(np.log10(value)))
    return float(np.ceil(round(value * 10.0**digits, 6)) / 10.0**digits)
